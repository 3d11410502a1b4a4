"""Answers questions about the store as a whole: counters, causes, queues; and where one job stands in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from limpet.core.gate import Gate
from limpet.core.jobs.job import Lane
from limpet.core.jobs.view import CauseView, Counts, Inspection
from limpet.stores.overview import AHEAD, counts_of, inspection_of, with_queues
from limpet.stores.redis import sessions
from limpet.stores.redis.definition_cache import DefinitionCache
from limpet.stores.redis.fields import LANE_ACTIVE
from limpet.stores.redis.find import attempts, views
from limpet.stores.redis.gates import gate_or_shut, gates
from limpet.stores.redis.keys import K
from limpet.stores.redis.scripts import script

if TYPE_CHECKING:
    from limpet.stores.redis.client import Client

AT_ONCE: Final = 100  # queues that one script looks at

_decode_cause = msgspec.msgpack.Decoder(tuple[int, str, str, int, int, str]).decode


async def causes(client: Client, key: bytes, queue: str | None, limit: int) -> list[CauseView]:
    """Dead jobs by origin, most frequent first."""
    flat: list[bytes] = await client.call("causes", "HGETALL", K.causes.under(key))
    found = [_cause(field, value) for field, value in zip(flat[::2], flat[1::2], strict=True)]
    found = [cause for cause in found if queue is None or cause.queue == queue]
    return sorted(found, key=lambda cause: (-cause.count, -cause.last_at_ms))[:limit]


def _cause(field: bytes, value: bytes) -> CauseView:
    cause, queue, task = field.decode().rsplit("\0", 2)
    count, type, message, first_ms, last_ms, sample = _decode_cause(value)
    return CauseView(cause, count, type, message, task, queue, first_ms, last_ms, bytes.fromhex(sample))


async def count(client: Client, key: bytes) -> Counts:
    """All counters."""
    flat: list[bytes] = await client.call("count", "HGETALL", K.counters.under(key))
    fields = (field.decode().rsplit("\0", 2) for field in flat[::2])
    return counts_of(
        (queue, task, int(what), int(value)) for (queue, task, what), value in zip(fields, flat[1::2], strict=True)
    )


async def queues(client: Client, key: bytes) -> Counts:
    """All counters, and every queue by name."""
    stored: list[bytes] = await client.call("count", "SMEMBERS", K.queues.under(key))
    oldest: dict[str, int | None] = {}
    for start in range(0, len(stored), AT_ONCE):
        part = stored[start : start + AT_ONCE]
        instants: list[Any] = await client.script("count", script("views_queues"), key, ("", *part))
        oldest.update(zip((name.decode() for name in part), instants, strict=True))
    return with_queues(await count(client, key), oldest, await gates(client, key, "queue:"))


async def inspect(
    client: Client, key: bytes, definitions: DefinitionCache, id: bytes, now_ms: int | None
) -> Inspection | None:
    """All facts about a job."""
    (job,) = await views(client, key, definitions, [id], verb="inspect")
    now: int | str = "" if now_ms is None else now_ms
    facts: list[Any] | None = await client.script("inspect", script("views_inspect"), key, (now, id, AHEAD))
    if job is None or facts is None:
        return None
    lane_state, ahead, *parents = facts
    return inspection_of(
        job,
        "idle" if lane_state is None else "active" if lane_state == LANE_ACTIVE.encode() else "waiting",
        ahead,
        zip(parents[::2], parents[1::2], strict=True),
        await _gates_of(client, key, job.lane),
        [each.serves for each in await sessions.view(client, key)],
        await attempts(client, key, id),
    )


async def _gates_of(client: Client, key: bytes, lane: Lane) -> tuple[Gate, ...]:
    """Every gate that rules the lane, with its level."""
    names = (*lane.class_gates, *lane.lane_gates)
    bodies: list[Any] = await client.call("inspect", "HMGET", K.gates.under(key), *names)
    return tuple(gate_or_shut(name, body) for name, body in zip(names, bodies, strict=True) if body is not None)
