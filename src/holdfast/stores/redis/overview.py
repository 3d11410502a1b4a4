"""Answers questions about the store as a whole: counters, causes, queues; and where one job stands in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.gate import Gate
from holdfast.core.job import Lane
from holdfast.core.lease import Serves
from holdfast.core.state import STATES, State
from holdfast.core.view import CauseView, Counts, QueueView, Standing
from holdfast.stores.redis import sessions
from holdfast.stores.redis.find import views
from holdfast.stores.redis.gates import gate_or_shut, gates
from holdfast.stores.redis.known import Known
from holdfast.stores.redis.scripts import script

if TYPE_CHECKING:
    from holdfast.stores.redis.route import Route

AT_ONCE: Final = 100  # queues that one script looks at
AHEAD: Final = 1_000  # how far a job's place in its lane is counted

# Counters beyond the seven states: sums that only grow.
ENQUEUED, EVER_SUCCEEDED, EVER_CANCELLED, DISCARDED, EVER_LOST, STALE = 10, 11, 12, 13, 14, 15

_decode_cause = msgspec.msgpack.Decoder(tuple[int, str, str, int, int, str]).decode


async def causes(route: Route, key: bytes, queue: str | None, limit: int) -> list[CauseView]:
    """Dead jobs by origin, most frequent first."""
    flat: list[bytes] = await route.call("causes", "HGETALL", key[:-1] + b"ca")
    found = [_cause(field, value) for field, value in zip(flat[::2], flat[1::2], strict=True)]
    found = [cause for cause in found if queue is None or cause.queue == queue]
    return sorted(found, key=lambda cause: (-cause.count, -cause.last_at_ms))[:limit]


def _cause(field: bytes, value: bytes) -> CauseView:
    cause, queue, task = field.decode().rsplit("\0", 2)
    count, type, message, first_ms, last_ms, sample = _decode_cause(value)
    return CauseView(cause, count, type, message, task, queue, first_ms, last_ms, bytes.fromhex(sample))


async def count(route: Route, key: bytes, verb: str = "count") -> Counts:
    """All counters."""
    flat: list[bytes] = await route.call(verb, "HGETALL", key[:-1] + b"n")
    now: dict[tuple[str, str, State], int] = {}
    sums: dict[int, int] = {}
    for field, value in zip(flat[::2], flat[1::2], strict=True):
        queue, task, what = field.decode().rsplit("\0", 2)
        if int(what) < len(STATES):
            now[queue, task, STATES[int(what)]] = int(value)
        else:
            sums[int(what)] = int(value)
    return Counts(
        now=now,
        enqueued=sums.get(ENQUEUED, 0),
        succeeded=sums.get(EVER_SUCCEEDED, 0),
        cancelled=sums.get(EVER_CANCELLED, 0),
        discarded=sums.get(DISCARDED, 0),
        lost=sums.get(EVER_LOST, 0),
        stale=sums.get(STALE, 0),
    )


async def queues(route: Route, key: bytes) -> list[QueueView]:
    """Every queue, by name."""
    stored: list[bytes] = await route.call("queues", "SMEMBERS", key[:-1] + b"qs")
    oldest: dict[str, int | None] = {}
    for start in range(0, len(stored), AT_ONCE):
        part = stored[start : start + AT_ONCE]
        instants: list[Any] = await route.script("queues", script("queues"), key, ("", *part))
        oldest.update(zip((name.decode() for name in part), instants, strict=True))
    counts: dict[str, dict[State, int]] = {name: {} for name in oldest}
    for (name, _, state), number in (await count(route, key, "queues")).now.items():
        of = counts.setdefault(name, {})
        of[state] = of.get(state, 0) + number
    ruled = {gate.key.removeprefix("queue:"): gate for gate in await gates(route, key, "queue:")}
    names = sorted(counts.keys() | ruled.keys())
    return [QueueView(name, counts.get(name, {}), oldest.get(name), ruled.get(name)) for name in names]


async def standing(route: Route, key: bytes, known: Known, id: bytes, now_ms: int | None) -> Standing | None:
    """Where a job stands."""
    (job,) = await views(route, key, known, [id], verb="standing")
    now: int | str = "" if now_ms is None else now_ms
    facts: list[Any] | None = await route.script("standing", script("standing"), key, (now, id, AHEAD))
    if job is None or facts is None:
        return None
    lane_state, ahead, *parents = facts
    lane = job.lane
    live = [each.serves for each in await sessions.view(route, key)]
    return Standing(
        view=job,
        lane_state="idle" if lane_state is None else "active" if lane_state == b"a" else "waiting",
        gates=await _gates_of(route, key, lane),
        ahead=ahead if job.state is State.ready else 0,
        ahead_capped=ahead >= AHEAD,
        parents=tuple((parent, STATES[code]) for parent, code in zip(parents[::2], parents[1::2], strict=True)),
        able=sum(serves.can(lane.queue, lane.task, lane.needs) for serves in live),
        able_without_needs=sum(_lacks_needs(serves, lane) for serves in live),
        knows_task=sum(serves.tasks is None or lane.task in serves.tasks for serves in live),
    )


async def _gates_of(route: Route, key: bytes, lane: Lane) -> tuple[Gate, ...]:
    """Every gate that rules the lane, with its level."""
    names = (*lane.class_gates, *lane.lane_gates)
    bodies: list[Any] = await route.call("standing", "HMGET", key[:-1] + b"g", *names)
    return tuple(gate_or_shut(name, body) for name, body in zip(names, bodies, strict=True) if body is not None)


def _lacks_needs(serves: Serves, lane: Lane) -> bool:
    return serves.can(lane.queue, lane.task, ()) and not serves.can(lane.queue, lane.task, lane.needs)
