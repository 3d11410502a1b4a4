"""Reads the definitions of lanes and policies, and writes them as they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import astuple

from limpet.core.jobs.job import Lane, Policy
from limpet.stores.redis.fields import KEYED, LANE, LIMITED, MULTI, TENANT
from limpet.stores.redis.keys import K
from limpet.stores.redis.record import id8
from limpet.stores.server.store import Definitions, Stored

if TYPE_CHECKING:
    from limpet.stores.redis.client import Client

_encode = msgspec.msgpack.Encoder().encode
_decode_policy = msgspec.json.Decoder(Policy).decode
_decode_lane = msgspec.msgpack.Decoder(
    tuple[
        str, str, int, str | None, tuple[str, ...], tuple[str, ...], tuple[str, ...], str | None, str | None, str | None
    ]
).decode


def lane_value(lane: Lane) -> bytes:
    """The stored form of a lane."""
    keyed = lane.keyed
    has_tenant = lane.tenant is not None
    flags = keyed * KEYED + lane.limited * LIMITED + (keyed and has_tenant) * MULTI + has_tenant * TENANT
    ids = id8(lane.kind) + id8(lane.member) + id8(lane.ring)
    return ids + bytes((lane.priority, flags)) + _encode(astuple(lane))


def class_value(lane: Lane) -> bytes:
    """The stored form of a lane's class."""
    ruled = (lane.limits, lane.breaker, lane.keyed)
    return _encode((lane.queue, lane.task, lane.needs, *ruled, lane.task_scope))


def lane_of(value: bytes) -> Lane:
    """The lane of a stored form."""
    return Lane(*_decode_lane(value[LANE.size :]))


class DefinitionCache(Definitions[bytes, "Client"]):
    """One per store."""

    def __init__(self, key: bytes) -> None:
        super().__init__(lane_of, _decode_policy)
        self._key = key

    async def _read(
        self, client: Client, lanes: list[bytes], policies: list[bytes], verb: str
    ) -> tuple[Stored[bytes], Stored[bytes]]:
        read = await _values(client, K.lanes.under(self._key), lanes, verb)
        return read, await _values(client, K.policies.under(self._key), policies, verb)


async def _values(client: Client, hash: bytes, ids: list[bytes], verb: str) -> list[tuple[bytes, bytes]]:
    if not ids:
        return []
    found: list[Any] = await client.call(verb, "HMGET", hash, *ids)
    return [(id, value) for id, value in zip(ids, found, strict=True) if value is not None]
