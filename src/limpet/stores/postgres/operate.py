"""Turns what people and janitors ask for into arguments of functions: cancel, retry, signal, discard, prune."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from limpet.core.gate import FOREVER_MS
from limpet.core.jobs.lease import Signal
from limpet.core.jobs.retention import LOOKED_AT, Walk, walks
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Retention
from limpet.stores.base import CancelAnswer, RetryAnswer, RetryRequest, SignalAnswer
from limpet.stores.postgres.names import NAMES
from limpet.stores.postgres.sessions import fold
from limpet.stores.postgres.wire import clean

if TYPE_CHECKING:
    from limpet.stores.postgres.client import Client

CANCEL: Final = "SELECT * FROM lp.cancel_1(%b::text, %b::bytea[], %b::text, %b::boolean, %b::bigint)"
UNFINISHED: Final = "SELECT lp.unfinished_1(%b::bytea[])"
RETRY: Final = "SELECT * FROM lp.retry_1(%b::text, %b::bytea[], %b::bigint, %b::bytea, %b::text[], %b::bigint)"
SIGNAL: Final = "SELECT * FROM lp.signal_1(%b::text, %b::bytea[], %b::text[], %b::bytea[], %b::bigint)"
DISCARD: Final = "SELECT * FROM lp.discard_1(%b::text, %b::bytea[], %b::bigint)"
PRUNE_WALK: Final = """SELECT * FROM lp.prune_walk_1(
  %b::text, %b::smallint, %b::bigint, %b::text, %b::text[], %b::integer, %b::integer, %b::bigint
)"""
PRUNE_JOBS: Final = "SELECT * FROM lp.prune_jobs_1(%b::smallint, %b::bigint, %b::integer, %b::bigint)"
PRUNE_REST: Final = "SELECT lp.prune_rest_1(%b::bigint, %b::bigint, %b::integer, %b::integer, %b::bigint)"
FORGET: Final = "SELECT * FROM lp.forget_1(%b::integer, %b::bigint)"

AT_ONCE: Final = 500  # ids that one step takes: it holds the graph for so long

CANCEL_ANSWERS: Final[dict[int, CancelAnswer]] = {
    NAMES["CANCEL_CANCELLED"]: "cancelled",
    NAMES["CANCEL_CANCELLING"]: "cancelling",
    NAMES["CANCEL_FINISHED"]: "finished",
    NAMES["CANCEL_GONE"]: "gone",
    NAMES["CANCEL_BEFORE"]: "finished",
}
RETRY_ANSWERS: Final[dict[int, RetryAnswer]] = {
    NAMES["RETRY_RETRIED"]: "retried",
    NAMES["RETRY_UNIQUE_HELD"]: "unique_held",
    NAMES["RETRY_NOT_DEAD"]: "not_dead",
    NAMES["RETRY_GONE"]: "gone",
}
SIGNAL_ANSWERS: Final[dict[int, SignalAnswer]] = {
    NAMES["SIGNAL_WOKEN"]: "woken",
    NAMES["SIGNAL_KEPT"]: "kept",
    NAMES["SIGNAL_ALREADY"]: "already",
    NAMES["SIGNAL_FINISHED"]: "finished",
    NAMES["SIGNAL_GONE"]: "gone",
    NAMES["SIGNAL_FULL"]: "full",
}


async def cancel(
    client: Client, ids: Sequence[bytes], reason: str, force: bool, now_ms: int | None
) -> list[CancelAnswer]:
    """Cancel each job with its dependents; a running one is asked to stop, or with `force` fenced off."""
    found: list[CancelAnswer] = []
    alive = await _unfinished(client, ids) if len(ids) > AT_ONCE else set()
    for part in _parts(ids):
        values = (call_name(), part, clean(reason), force, now_ms)
        (answers,) = await client.change(CANCEL, values, verb="cancel", now_ms=now_ms)
        for id, each in zip(part, answers, strict=True):
            # One that an earlier part took down with its parent was not finished before this call.
            found.append("cancelled" if each == NAMES["CANCEL_BEFORE"] and id in alive else CANCEL_ANSWERS[each])
    return found


async def _unfinished(client: Client, ids: Sequence[bytes]) -> set[bytes]:
    """Those of `ids` that are jobs and not finished."""
    alive: set[bytes] = set()
    for part in _parts(ids):
        (some,) = await client.row(UNFINISHED, (part,), verb="cancel")
        alive.update(some)
    return alive


async def retry(client: Client, request: RetryRequest, now_ms: int | None) -> list[RetryAnswer]:
    """Dead jobs run again with fresh attempts; scheduled ones run now."""
    delay_ms = min(request.delay_ms, FOREVER_MS)
    found: list[RetryAnswer] = []
    for part in _parts(request.ids):
        values = (call_name(), part, delay_ms, request.args, [clean(name) for name in request.forget], now_ms)
        (answers,) = await client.change(RETRY, values, verb="retry", now_ms=now_ms)
        found += [RETRY_ANSWERS[each] for each in answers]
    return found


async def signal(client: Client, signals: Sequence[Signal], now_ms: int | None) -> list[SignalAnswer]:
    """Keep each event with its job, and wake the job if that is what it waits for."""
    if not signals:
        return []
    values = (call_name(), *signal_columns(signals), now_ms)
    (answers,) = await client.change(SIGNAL, values, verb="signal", now_ms=now_ms)
    return [SIGNAL_ANSWERS[each] for each in answers]


def signal_columns(signals: Sequence[Signal]) -> tuple[list[Any], ...]:
    """Signals as the function takes them: ids, events and values."""
    return (
        [signal.id for signal in signals],
        [clean(signal.event) for signal in signals],
        [signal.value for signal in signals],
    )


async def discard(client: Client, ids: Sequence[bytes], now_ms: int | None) -> int:
    """Remove dead jobs for good; how many there were."""
    removed = 0
    for part in _parts(ids):
        (gone,) = await client.change(DISCARD, (call_name(), part, now_ms), verb="discard", now_ms=now_ms)
        removed += gone
    return removed


async def prune(client: Client, retention: Retention, limit: int, now_ms: int | None) -> int:
    """Remove what has outlived its time; how many rows went. Each step is small; 0 = all was looked at."""
    removed, looked_at_all = 0, True
    for state in (State.succeeded, State.cancelled, State.dead):
        keep_ms, queues = retention.of(state)
        if queues:
            for walk in walks(state, keep_ms, queues):
                gone, ended = await _walk(client, walk, limit - removed, now_ms) if removed < limit else (0, False)
                removed, looked_at_all = removed + gone, looked_at_all and ended
        elif keep_ms is not None and removed < limit:
            values = (state.code, min(keep_ms, FOREVER_MS), limit - removed, now_ms)
            (gone,) = await client.change(PRUNE_JOBS, values, verb="prune", now_ms=now_ms)
            removed += gone
    await fold(client, verb="prune")
    if removed < limit:
        logs = (_ms(retention.audit_ms), _ms(retention.event_ms), retention.events)
        (gone,) = await client.row(PRUNE_REST, (*logs, limit - removed, now_ms), verb="prune")
        removed += gone
    if removed < limit:
        (gone,) = await client.change(FORGET, (limit - removed, now_ms), verb="prune", now_ms=now_ms)
        removed += gone
    return removed if looked_at_all else max(1, removed)


async def _walk(client: Client, walk: Walk, limit: int, now_ms: int | None) -> tuple[int, bool]:
    """How many jobs of the walk went, and whether it came to its end."""
    queue = None if walk.queue is None else clean(walk.queue)
    others = [clean(name) for name in sorted(walk.others)]
    kept = (clean(walk.name), walk.state.code, min(walk.keep_ms, FOREVER_MS), queue, others)
    values = (*kept, limit, LOOKED_AT * limit, now_ms)
    gone, ended = await client.change(PRUNE_WALK, values, verb="prune", now_ms=now_ms)
    return gone, ended


def call_name() -> str:
    """The name of one call: when its answer is lost it is repeated, and then it must not happen again."""
    return os.urandom(12).hex()


def _ms(keep_ms: int | None) -> int | None:
    return None if keep_ms is None else min(keep_ms, FOREVER_MS)


def _parts(ids: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The ids in parts, each as large as one step takes."""
    return (list(ids[at : at + AT_ONCE]) for at in range(0, len(ids), AT_ONCE))
