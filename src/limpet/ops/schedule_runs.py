"""Runs a schedule outside its time: now, or for the ticks of a range in the past."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from limpet.core.errors import InvalidOption, UnknownParent, UsageError
from limpet.core.gate import GateRule
from limpet.core.jobs.ids import IdMaker, id_text
from limpet.core.jobs.job import Enqueued, Job
from limpet.core.schedules.plan import tick_job
from limpet.core.schedules.policy import Overlap
from limpet.core.schedules.run import Run, job_of, key_of, live_runs, verdict
from limpet.core.schedules.schedule import Schedule
from limpet.core.tasks.task import TaskSpec
from limpet.core.text.duration import iso
from limpet.stores.asking import find_all
from limpet.stores.base import Store

MOST_BACKFILLED: Final = 100_000  # ticks of one call: more is a typing error in a date
CHUNK: Final = 500


class ScheduleBusy(UsageError):
    """A run of the schedule is not finished, and one waits behind it."""

    code = "schedule_busy"


class At(Struct, frozen=True):
    """The time by the engine's clock, and whether to pass it on: tests hold the time, engines have their own."""

    now_ms: int
    asked_ms: int | None


async def run_now(store: Store, schedule: Schedule, spec: TaskSpec, by: str, at: At) -> Enqueued:
    """Enqueue one run, at the same time as, after or instead of the unfinished runs."""
    overlap = schedule.policy.overlap
    live = [] if overlap is Overlap.allow else await find_all(store, live_runs(schedule), now_ms=at.asked_ms)
    found = verdict(overlap, [view for view in live if view.unique == key_of(schedule.name)])
    if not found.fires:
        raise ScheduleBusy(
            f"schedule {schedule.name!r} has a run that is not finished and one behind it",
            fix=f"wait for job {id_text(found.after[0])}, or cancel it",
        )
    run = Run(id=IdMaker().make(at.now_ms), tick_at_ms=at.now_ms, after=found.cancels or found.after)
    job, rules = job_of(schedule, spec, run)
    (answer,) = await store.enqueue([job], rules, now_ms=at.asked_ms)
    if found.cancels:  # last: a run that is refused has cancelled nothing
        await store.cancel(found.cancels, f"{by} asked for a run now", now_ms=at.asked_ms)
    return answer


def ticks_within(schedule: Schedule, first_ms: int, last_ms: int) -> Sequence[int]:
    """The ticks to backfill, both ends included."""
    ticks = schedule.rule.between(first_ms - 1, last_ms, MOST_BACKFILLED + 1)
    if len(ticks) > MOST_BACKFILLED:
        raise InvalidOption(
            f"there are more than {MOST_BACKFILLED:,} ticks from {iso(ticks[0])} on", fix="choose a shorter range"
        )
    return ticks


async def backfill(
    store: Store, schedule: Schedule, spec: TaskSpec, ticks: Sequence[int], again: bool, at: At
) -> AsyncIterator[tuple[Sequence[int], int]]:
    """Enqueue a run of each tick, chunk by chunk; of each chunk, its ticks and how many were new."""
    maker, previous = IdMaker(), None
    for number in range(0, len(ticks), CHUNK):
        chunk = ticks[number : number + CHUNK]
        ids = [maker.make(at.now_ms) if again else tick_job(schedule.name, tick) for tick in chunk]
        jobs, rules = _jobs(schedule, spec, chunk, ids, previous)
        try:
            answers = await store.enqueue(jobs, rules, now_ms=at.asked_ms)
        except UnknownParent:
            # The last one of the chunk before is finished and forgotten already.
            answers = await store.enqueue([replace(jobs[0], after=()), *jobs[1:]], rules, now_ms=at.asked_ms)
        previous = ids[-1]
        yield chunk, sum(not answer.existing for answer in answers)


def _jobs(
    schedule: Schedule, spec: TaskSpec, ticks: Sequence[int], ids: Sequence[bytes], previous: bytes | None
) -> tuple[list[Job], list[GateRule]]:
    """One run after the other, unless they may run side by side. No key: their arguments are equal."""
    jobs: list[Job] = []
    rules: dict[str, GateRule] = {}
    for tick, id in zip(ticks, ids, strict=True):
        after = () if previous is None or schedule.policy.overlap is Overlap.allow else (previous,)
        job, named = job_of(schedule, spec, Run(id=id, tick_at_ms=tick, after=after))
        jobs.append(replace(job, unique=None))
        rules |= {rule.key: rule for rule in named}
        previous = id
    return jobs, list(rules.values())
