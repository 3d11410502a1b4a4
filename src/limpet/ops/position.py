"""Decides how to say where a ready job stands: what goes first, which places are taken, how long it takes about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from limpet.core.jobs.job import URGENT
from limpet.core.jobs.lease import SessionView
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Inspection, JobView, Page, Query, Term
from limpet.core.records.explanation import Reason
from limpet.core.text.duration import text_of_ms
from limpet.ops.declared import declared_tasks
from limpet.stores.base import Store

MOST_URGENT: Final = 1_000  # ready jobs of more urgent priorities that are counted
JOB: Final = "job"  # the places that every job takes, whatever its executor
_NOUNS: Final = {JOB: ("place", "places"), "thread": ("thread", "threads"), "process": ("job process", "job processes")}


class Places(Struct, frozen=True):
    """The places of one kind in one worker, as its last beat said."""

    places: int = 0
    reserve: int = 0  # on top, for urgent jobs alone
    ordinary: int = 0  # taken by jobs that are not urgent
    urgent: int = 0

    def free(self, priority: int) -> int:
        free = self.places + self.reserve - self.ordinary - self.urgent
        return max(0, free if priority <= URGENT else min(free, self.places - self.ordinary))


class Said(Struct, frozen=True):
    """What a worker says of itself with its beats, as far as it concerns waiting jobs; agents say nothing of it."""

    places: dict[str, Places] = {}
    per_second: float = 0.0  # jobs that it ended lately


async def executor_of(store: Store, view: JobView) -> str:
    """Where a job runs, as its task is published; one that was lost twice runs alone in a process (D10)."""
    if view.lost >= 2:
        return "process"
    return next((task.executor for task in await declared_tasks(store) if task.name == view.lane.task), "async")


async def more_urgent(store: Store, view: JobView) -> Page | None:
    """The ready jobs that are more urgent than a ready one, up to a bound; None where there can be none."""
    if view.state is not State.ready or not view.lane.priority:
        return None
    terms = (Term("priority", str(view.lane.priority), op="<"),)
    return await store.find(Query(states=frozenset({State.ready}), terms=terms, limit=MOST_URGENT, newest_first=False))


def position(
    standing: Inspection, sessions: Sequence[SessionView], urgent: Page | None, executor: str, *, free: bool
) -> Reason:
    """Where a ready job stands; `free`: no limit, pause or breaker stops it. `executor` is its task's."""
    view = standing.view
    able = [session for session in sessions if _can(session, view)]
    found = () if urgent is None else urgent.jobs
    # It is unknown what workers that have not started yet can run.
    before = [job for job in found if not sessions or any(_can(session, job) for session in able)]
    capped = standing.ahead_capped or (urgent is not None and urgent.cursor is not None)
    more = " or more" if capped else ""
    data: dict[str, object] = {"ahead": standing.ahead, "more_urgent": len(before), "capped": capped}
    words = []
    if before:
        words.append(f"{len(before):,}{more} {_jobs(len(before))} more urgent")
    if standing.ahead:
        words.append(f"{standing.ahead:,}{more} {_jobs(standing.ahead, ' like it')} ahead of it")
    text = " and ".join(words) if words else "it is the next of its kind"
    if not (free and standing.able):
        return Reason("position", text, None, data)
    said = [_said(session) for session in able]
    taken = _taken(said, view.lane.priority, executor, data)
    if not words:
        text += ("; " if taken else " and ") + (taken or "starts when a worker that can run it has a free place")
    else:
        text += f"; {taken}" if taken else ""
    return Reason(
        "position" if words else "next", text + _estimate(said, len(before) + standing.ahead, data), None, data
    )


def _can(session: SessionView, job: JobView) -> bool:
    return session.serves.can(job.lane.queue, job.lane.task, job.lane.needs)


def _said(session: SessionView) -> Said:
    try:
        return msgspec.json.decode(session.info, type=Said)
    except msgspec.MsgspecError:
        return Said()  # an agent, or a worker of another release


def _taken(said: Sequence[Said], priority: int, executor: str, data: dict[str, object]) -> str:
    """That no worker that could run the job has a place for it; empty where one has, or where that is not known."""
    for kind in (JOB, executor):
        known = [each.places[kind] for each in said if kind in each.places]
        if known and len(known) == len(said) and not any(places.free(priority) for places in known):
            return _all_taken(known, kind, priority, data)
    full = [
        any(places.free(priority) < 1 for kind, places in each.places.items() if kind in (JOB, executor))
        for each in said
    ]
    return "every worker that can run it is full" if full and all(full) else ""


def _all_taken(known: Sequence[Places], kind: str, priority: int, data: dict[str, object]) -> str:
    size, kept = sum(each.places for each in known), sum(each.reserve for each in known)
    running = sum(each.ordinary + each.urgent for each in known)
    one, many = _NOUNS.get(kind, _NOUNS[JOB])
    data |= {"kind": many, "places": size, "reserve": kept, "running": running}
    workers = "the one worker" if len(known) == 1 else f"the {len(known)} workers"
    what = f"the only {one} of {workers} that can run it is taken"
    if size != 1:
        what = f"all {size} {many} of {workers} that can run it are taken"
    if not kept or priority <= URGENT:
        return what
    return f"{what}, and {kept} more {'is' if kept == 1 else 'are'} kept for urgent jobs"


def _estimate(said: Sequence[Said], first: int, data: dict[str, object]) -> str:
    """About how long that takes, by what those workers ended lately."""
    per_second = sum(each.per_second for each in said)
    if not first or per_second <= 0:
        return ""
    wait_ms = max(1_000, int((first + 1) / per_second * 1000))
    data |= {"per_second": round(per_second, 2), "estimate_seconds": round(wait_ms / 1000)}
    return f"; that takes about {text_of_ms(wait_ms)} at the present {per_second:.3g} jobs a second"


def _jobs(number: int, which: str = "") -> str:
    return f"job{which} is" if number == 1 else f"jobs{which} are"
