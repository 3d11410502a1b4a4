"""Caches the definitions of lanes and policies: they never change, so each is read once per process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from limpet.core.jobs.job import Lane, Policy
from limpet.stores.redis.fields import KEYED, LANE, LIMITED, MULTI, TENANT
from limpet.stores.redis.keys import K
from limpet.stores.redis.record import Lanes, Policies, id8, needs_of

if TYPE_CHECKING:
    from limpet.stores.redis.client import Client

MOST: Final = 50_000  # how many definitions one process keeps in memory

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


def lane_of(value: bytes) -> Lane | None:
    """The lane of a stored form; None when its bytes make no sense."""
    try:
        return Lane(*_decode_lane(value[LANE.size :]))
    except msgspec.DecodeError:
        return None


def policy_of(value: bytes) -> Policy | None:
    """The policy of its JSON; None when it makes no sense."""
    try:
        return _decode_policy(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class DefinitionCache:
    """One per store. A definition that is missing was not read yet, or cannot be read."""

    def __init__(self) -> None:
        self.lanes: Lanes = {}
        self.policies: Policies = {}

    async def fetch_missing(
        self, client: Client, key: bytes, raws: Iterable[bytes | None], verb: str = "get"
    ) -> tuple[Lanes, Policies]:
        """Read the definitions that these records name and the cache lacks. One that is missing then cannot be read."""
        if len(self.lanes) >= MOST:
            self.lanes = {}  # lanes of tenants long gone: those in use are read again; who has the old ones keeps them
        lanes, policies = self.lanes, self.policies
        named = {needs_of(raw) for raw in raws if raw is not None}
        for id, value in await _read(client, K.lanes.under(key), {lane for lane, _ in named} - lanes.keys(), verb):
            if (lane := lane_of(value)) is not None:
                lanes[id] = lane
        for id, value in await _read(
            client, K.policies.under(key), {policy for _, policy in named} - policies.keys(), verb
        ):
            if (policy := policy_of(value)) is not None:
                policies[id] = policy
        return lanes, policies


async def _read(client: Client, hash: bytes, ids: set[bytes], verb: str) -> list[tuple[bytes, bytes]]:
    if not ids:
        return []
    fields = sorted(ids)
    found: list[Any] = await client.call(verb, "HMGET", hash, *fields)
    return [(id, value) for id, value in zip(fields, found, strict=True) if value is not None]
