"""Puts together what every engine answers about the store as a whole, and where one job stands in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from msgspec.structs import replace

from limpet.core.gate import Gate
from limpet.core.jobs.job import Lane
from limpet.core.jobs.lease import Serves
from limpet.core.jobs.state import STATES, State
from limpet.core.jobs.view import AttemptView, Counts, Inspection, JobView, QueueView
from limpet.stores.codes import DISCARDED, ENQUEUED, EVER_CANCELLED, EVER_LOST, EVER_SUCCEEDED, STALE

AHEAD: Final = 1_000  # how far a job's place in its lane is counted


def counts_of(rows: Iterable[tuple[str, str, int, int]]) -> Counts:
    """All counters, from rows of (queue, task, what, number)."""
    now: dict[tuple[str, str, State], int] = {}
    sums: dict[int, int] = {}
    for queue, task, what, number in rows:
        if what < len(STATES):
            now[queue, task, STATES[what]] = number
        else:
            sums[what] = number
    return Counts(
        now=now,
        enqueued=sums.get(ENQUEUED, 0),
        succeeded=sums.get(EVER_SUCCEEDED, 0),
        cancelled=sums.get(EVER_CANCELLED, 0),
        discarded=sums.get(DISCARDED, 0),
        lost=sums.get(EVER_LOST, 0),
        stale=sums.get(STALE, 0),
    )


def with_queues(counts: Counts, oldest: Mapping[str, int | None], gates: Iterable[Gate]) -> Counts:
    """Counters with every queue by name: with its oldest ready job or none, counted, or with a gate of its own."""
    states: dict[str, dict[State, int]] = {name: {} for name in oldest}
    for (name, _, state), number in counts.now.items():
        of = states.setdefault(name, {})
        of[state] = of.get(state, 0) + number
    ruled = {gate.key.removeprefix("queue:"): gate for gate in gates}
    names = sorted(states.keys() | ruled.keys())
    views = (QueueView(name, states.get(name, {}), oldest.get(name), ruled.get(name)) for name in names)
    return replace(counts, queues=tuple(views))


def inspection_of(
    job: JobView,
    lane_state: Literal["idle", "active", "waiting"],
    ahead: int,
    parents: Iterable[tuple[bytes, int]],
    gates: Iterable[Gate],
    live: Iterable[Serves],
    attempts: Iterable[AttemptView],
) -> Inspection:
    """All facts about a job; `live` is what each live session serves."""
    lane, live = job.lane, list(live)
    ahead = ahead if job.state is State.ready else 0
    return Inspection(
        view=job,
        lane_state=lane_state,
        gates=tuple(gates),
        ahead=ahead,
        ahead_capped=ahead >= AHEAD,
        parents=tuple((parent, STATES[code]) for parent, code in parents),
        able=sum(serves.can(lane.queue, lane.task, lane.needs) for serves in live),
        able_without_needs=sum(_lacks_needs(serves, lane) for serves in live),
        knows_task=sum(serves.tasks is None or lane.task in serves.tasks for serves in live),
        attempts=tuple(attempts),
    )


def _lacks_needs(serves: Serves, lane: Lane) -> bool:
    return serves.can(lane.queue, lane.task, ()) and not serves.can(lane.queue, lane.task, lane.needs)
