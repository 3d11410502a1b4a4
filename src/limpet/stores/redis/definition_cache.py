"""Reads the definitions of lanes and policies, and writes them as they are stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from limpet.core.jobs.job import Lane, Policy
from limpet.stores.redis.fields import KEYED, LANE, LIMITED, MULTI, TENANT
from limpet.stores.redis.keys import K
from limpet.stores.redis.record import Lanes, Policies, id8, needs_of
from limpet.stores.server.store import Definitions, missing

if TYPE_CHECKING:
    from limpet.stores.redis.client import Client

_encode = msgspec.msgpack.Encoder().encode
_decode_policy = msgspec.json.Decoder(Policy).decode
_decode_lane = msgspec.msgpack.Decoder(
    tuple[str, str, int, str | None, tuple[str, ...], tuple[str, ...], tuple[str, ...], str | None]
).decode


def lane_value(lane: Lane) -> bytes:
    """The stored form of a lane."""
    keyed = bool(lane.keys)
    has_tenant = lane.tenant is not None
    flags = keyed * KEYED + lane.limited * LIMITED + (keyed and has_tenant) * MULTI + has_tenant * TENANT
    ids = id8(lane.kind) + id8(lane.member) + id8(lane.ring)
    body = (lane.queue, lane.task, lane.priority, lane.tenant, lane.needs, lane.limits, lane.keys, lane.breaker)
    return ids + bytes((lane.priority, flags)) + _encode(body)


def class_value(lane: Lane) -> bytes:
    """The stored form of a lane's class."""
    return _encode((lane.queue, lane.task, lane.needs, lane.limits, lane.breaker, bool(lane.keys)))


def lane_of(value: bytes) -> Lane:
    """The lane of a stored form."""
    return Lane(*_decode_lane(value[LANE.size :]))


class DefinitionCache(Definitions[bytes]):
    """One per store."""

    def __init__(self) -> None:
        super().__init__(lane_of, _decode_policy)

    async def fetch_missing(
        self, client: Client, key: bytes, raws: Iterable[bytes | None], verb: str = "get"
    ) -> tuple[Lanes, Policies]:
        """Read the definitions that these records name and the cache lacks. One that is missing then cannot be read."""
        known = self.known()
        named = {needs_of(raw) for raw in raws if raw is not None}
        lanes = missing((lane for lane, _ in named), known[0])
        policies = missing((policy for _, policy in named), known[1])
        if lanes or policies:
            read = await _read(client, K.lanes.under(key), lanes, verb)
            self.keep(known, read, await _read(client, K.policies.under(key), policies, verb))
        return known


async def _read(client: Client, hash: bytes, ids: list[bytes], verb: str) -> list[tuple[bytes, bytes]]:
    if not ids:
        return []
    found: list[Any] = await client.call(verb, "HMGET", hash, *ids)
    return [(id, value) for id, value in zip(ids, found, strict=True) if value is not None]
