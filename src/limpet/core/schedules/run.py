"""Decides what job a tick becomes, and what it does about runs of its schedule that are not finished."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from limpet.core.errors import InvalidArguments, InvalidOption
from limpet.core.gate import GateRule
from limpet.core.jobs.job import Job, Unique
from limpet.core.jobs.options import Options
from limpet.core.jobs.state import LIVE, State
from limpet.core.jobs.view import JobView, Query, Term
from limpet.core.limits.unit import Cost
from limpet.core.schedules.policy import Overlap
from limpet.core.schedules.schedule import Schedule
from limpet.core.tasks.codec import decode_json
from limpet.core.tasks.payload import Signature
from limpet.core.tasks.task import TaskSpec, build_job
from limpet.core.text.duration import iso

MOST_QUEUED: Final = 2  # with queue_one: the run that is not finished, and the one behind it


class Verdict(Struct, frozen=True):
    """What becomes of a tick beside runs that are not finished."""

    fires: bool = True
    after: tuple[bytes, ...] = ()  # whose end it waits for, however they end
    cancels: tuple[bytes, ...] = ()


def verdict(overlap: Overlap, live: Sequence[JobView]) -> Verdict:
    """What to do about a tick; `live` are the unfinished runs of its schedule.

    Whether "skip" lets it through is decided by the key that its runs share, in the write that enqueues it.
    """
    if overlap is Overlap.allow or not live:
        return Verdict()
    if overlap is Overlap.cancel_running:
        return Verdict(
            after=tuple(view.id for view in live if view.state is State.running),
            cancels=tuple(view.id for view in live),
        )
    waited_for = {parent for view in live for parent in view.after}
    return Verdict(
        fires=overlap is Overlap.skip or len(live) < MOST_QUEUED,
        after=tuple(view.id for view in live if view.id not in waited_for),
    )


def key_of(name: str) -> str:
    """The unique key that the runs of a schedule share."""
    return f"schedule:{name}"


def live_runs(schedule: Schedule) -> Query:
    """Finds the runs of a schedule that are not finished."""
    return Query(states=LIVE, terms=(Term("unique", key_of(schedule.name)),), limit=500, newest_first=False)


class Run(Struct, frozen=True, kw_only=True):
    """One run of a schedule that is asked for."""

    id: bytes
    tick_at_ms: int  # the instant that it runs for
    due_at_ms: int | None = None
    expires_ms: int | None = None
    after: tuple[bytes, ...] = ()
    holds_key: bool = True  # False: ticks of the same plan come behind it


def job_of(schedule: Schedule, spec: TaskSpec, run: Run) -> tuple[Job, tuple[GateRule, ...]]:
    """The job of one run, and the gates that it names.

    A task with a unique key of its own keeps it. Arguments that do not fit the task are stored as they are: the job
    fails where people look, which a tick that is left out would not.
    """
    options = replace(
        Options().replace(**schedule.options), due_at_ms=run.due_at_ms, expires_ms=run.expires_ms, after=run.after
    )
    options = replace(options, if_parent_fails="run" if run.after else "cancel")
    meta = msgspec.json.encode({"schedule": schedule.name, "tick": iso(run.tick_at_ms)})
    values = decode_json(bytes(schedule.args))
    try:
        job, rules = build_job(spec, values, options, id=run.id, meta=meta)
    except InvalidArguments:
        unchecked = dataclasses.replace(spec, signature=Signature.open(spec.name))
        job, rules = build_job(unchecked, values, options, id=run.id, meta=meta)
    unique = job.unique
    if unique is None:
        states = LIVE if run.holds_key and schedule.policy.overlap is Overlap.skip else frozenset[State]()
        unique = Unique(key_of(schedule.name), states=states)
    return replace(job, unique=replace(unique, on_duplicate="existing"), tags=(*job.tags, key_of(schedule.name))), rules


def check_fits(schedule: Schedule, spec: TaskSpec) -> None:
    """Refuse what cannot work with this task: arguments or a cost that do not fit, a key of its own that forbids the
    overlap."""
    values = decode_json(bytes(schedule.args))
    try:
        spec.signature.encode(spec.signature.bind_named(values), max_bytes=spec.max_payload_bytes)
        if spec.ceilings and spec.cost is not None:  # else only the code of a worker knows it
            _check_ceilings(schedule, spec, values)
    except InvalidArguments as refused:
        raise InvalidArguments(f"schedule {schedule.name}: {refused.message}", fix=refused.fix) from refused
    overlap = schedule.policy.overlap
    if spec.unique is None or overlap is Overlap.allow:
        return
    if overlap is not Overlap.skip:
        raise InvalidOption(
            f"overlap={overlap.value!r} of schedule {schedule.name} needs two jobs, and task {spec.name} has a unique "
            "key that allows one",
            fix="use overlap='skip', or take the key off the task",
        )
    if not (spec.unique_states is None or spec.unique_states >= LIVE):
        raise InvalidOption(
            f"overlap='skip' of schedule {schedule.name} goes by the unique key of task {spec.name}, which is not held "
            "until a job is finished",
            fix="use overlap='allow' to leave it to that key, or take unique_states off the task",
        )


def _check_ceilings(schedule: Schedule, spec: TaskSpec, values: Mapping[str, Any]) -> None:
    """Refuse runs whose arguments name no key of a limit, or that would shut a budget by waiting for ever."""
    job, _ = build_job(spec, values, Options().replace(**schedule.options), id=bytes(16))
    for budget in spec.budgets:
        if why := budget.too_dear(Cost(job.cost, job.costs)):
            raise InvalidArguments(why, fix="split the work, lower cost=, or declare a larger budget")
