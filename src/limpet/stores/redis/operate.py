"""Turns what people and janitors ask for into arguments of scripts: cancel, retry, signal, discard, prune."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from limpet.core.jobs.lease import Signal
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Retention
from limpet.stores.base import CancelAnswer, RetryAnswer, RetryRequest, SignalAnswer
from limpet.stores.redis import controls
from limpet.stores.redis.keys import K
from limpet.stores.redis.record import Head, at_most, head_of
from limpet.stores.redis.scripts import call_name, script

if TYPE_CHECKING:
    from limpet.stores.redis.client import Client

AT_ONCE: Final = 500  # ids that one script is given
CANCELLED_BEFORE: Final = ord("x")
CANCEL_ANSWERS: Final[dict[int, CancelAnswer]] = {
    ord("c"): "cancelled",
    ord("a"): "cancelling",
    ord("f"): "finished",
    ord("x"): "finished",
    ord("-"): "gone",
}
RETRY_ANSWERS: Final[dict[int, RetryAnswer]] = {
    ord("r"): "retried",
    ord("u"): "unique_held",
    ord("n"): "not_dead",
    ord("-"): "gone",
}
SIGNAL_ANSWERS: Final[dict[int, SignalAnswer]] = {
    ord("w"): "woken",
    ord("k"): "kept",
    ord("a"): "already",
    ord("m"): "full",
    ord("f"): "finished",
    ord("-"): "gone",
}

_pack = msgspec.msgpack.Encoder().encode


async def cancel(
    client: Client, key: bytes, ids: Sequence[bytes], reason: str, force: bool, keep: int, now_ms: int | None
) -> list[CancelAnswer]:
    """Cancel each job with its dependents; a running one is asked to stop, or with `force` fenced off."""
    found: list[CancelAnswer] = []
    alive = await _unfinished(client, key, ids) if len(ids) > AT_ONCE else ()
    for part in _parts(ids):
        args = (_now(now_ms), call_name(), int(force), reason, b"".join(part), keep)
        answer: bytes = await client.script("cancel", script("operate_cancel"), key, args)
        for id, each in zip(part, answer, strict=True):
            # One that an earlier part took down with its parent was not finished before this call.
            found.append("cancelled" if each == CANCELLED_BEFORE and id in alive else CANCEL_ANSWERS[each])
    return found


async def _unfinished(client: Client, key: bytes, ids: Sequence[bytes]) -> set[bytes]:
    """Those of `ids` that are jobs and not finished."""
    alive: set[bytes] = set()
    for part in _parts(ids):
        raws: list[bytes | None] = await client.call("cancel", "HMGET", K.jobs.under(key), *part)
        alive.update(
            id for id, raw in zip(part, raws, strict=True) if (head := head_of(raw or b"")) and _is_alive(head)
        )
    return alive


def _is_alive(head: Head) -> bool:
    return head.state < State.succeeded.code


async def retry(client: Client, key: bytes, request: RetryRequest, now_ms: int | None) -> list[RetryAnswer]:
    """Dead jobs run again with fresh attempts; scheduled ones run now."""
    edited = () if request.args is None else (request.args,)
    forget = _pack(request.forget)
    found: list[RetryAnswer] = []
    for part in _parts(request.ids):
        args = (_now(now_ms), call_name(), at_most(request.delay_ms), b"".join(part), forget, *edited)
        answer: bytes = await client.script("retry", script("operate_retry"), key, args)
        found += [RETRY_ANSWERS[each] for each in answer]
    return found


async def signal(client: Client, key: bytes, signals: Sequence[Signal], now_ms: int | None) -> list[SignalAnswer]:
    """Note each event with its job; one that waits for it runs."""
    if not signals:
        return []
    words = (word for each in signals for word in (each.id, each.event, each.value))
    answer: bytes = await client.script("signal", script("operate_signal"), key, (_now(now_ms), call_name(), *words))
    return [SIGNAL_ANSWERS[each] for each in answer]


async def discard(client: Client, key: bytes, ids: Sequence[bytes], now_ms: int | None) -> int:
    """Remove dead jobs for good; how many there were."""
    gone = 0
    for part in _parts(ids):
        args = (_now(now_ms), call_name(), b"".join(part))
        gone += int(await client.script("discard", script("operate_discard"), key, args))
    return gone


async def prune(client: Client, key: bytes, retention: Retention, limit: int, keep: int, now_ms: int | None) -> int:
    """Remove what has outlived its time; how many rows went. Each script looks at a little; 0 = all was looked at."""
    kept = [
        "" if each is None else each for each in (retention.succeeded_ms, retention.cancelled_ms, retention.dead_ms)
    ]
    own = {
        queue: [[state.code, -1 if ms is None else ms] for state, ms in said.items()]
        for queue, said in retention.queues.items()
    }
    queues = _pack(own)
    removed, stage, cursor = 0, b"jobs", b"0"
    while stage and removed < limit:
        args = (_now(now_ms), limit - removed, keep, *kept, stage, cursor, queues)
        answer: list[Any] = await client.script("prune", script("prune"), key, args)
        went, stage, cursor = answer
        removed += went
    if removed < limit:
        removed += await controls.prune_logs(client, key, retention, limit - removed, now_ms)
    return removed


def _parts(ids: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """The ids in parts, each as large as one script takes."""
    return (ids[at : at + AT_ONCE] for at in range(0, len(ids), AT_ONCE))


def _now(now_ms: int | None) -> int | str:
    return "" if now_ms is None else now_ms
