"""Remembers definitions that never change: lanes and policies are named by their content."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from limpet.core.jobs.job import Lane, Policy

if TYPE_CHECKING:
    from limpet.stores.postgres.client import Client

T = TypeVar("T")

DEFINITIONS: Final = "SELECT * FROM lp.definitions_1(%b::bigint[], %b::bigint[])"

MANY: Final = 50_000  # lanes that one process keeps: those of tenants long gone make room

_lane = msgspec.json.Decoder(Lane).decode
_policy = msgspec.json.Decoder(Policy).decode


class DefinitionCache:
    """What this process has seen of lanes and policies."""

    def __init__(self) -> None:
        self._lanes: dict[int, Lane] = {}
        self._policies: dict[int, Policy] = {}

    async def fetch_missing(
        self, client: Client, lanes: Collection[int], policies: Collection[int], *, verb: str
    ) -> tuple[Mapping[int, Lane], Mapping[int, Policy]]:
        """Definitions by id, asked for where they are not known; one that cannot be read is left out."""
        new_lanes = [id for id in set(lanes) if id not in self._lanes]
        new_policies = [id for id in set(policies) if id not in self._policies]
        if not new_lanes and not new_policies:
            return self._lanes, self._policies
        if len(self._lanes) + len(new_lanes) > MANY:
            self._lanes = {}  # whoever holds the old one keeps it
            new_lanes = list(set(lanes))
        found = await client.row(DEFINITIONS, (new_lanes, new_policies), verb=verb)
        lane_ids, lane_bodies, policy_ids, policy_bodies = (column or [] for column in found)
        for id, body in zip(lane_ids, lane_bodies, strict=True):
            if (lane := _read(_lane, body)) is not None:
                self._lanes[id] = lane
        for id, body in zip(policy_ids, policy_bodies, strict=True):
            if (policy := _read(_policy, body)) is not None:
                self._policies[id] = policy
        return self._lanes, self._policies


def _read(decode: Callable[[bytes], T], body: bytes) -> T | None:
    try:
        return decode(body)
    except msgspec.DecodeError:
        return None
