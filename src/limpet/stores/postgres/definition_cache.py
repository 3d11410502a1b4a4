"""Reads the definitions of lanes and policies."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from limpet.core.jobs.job import Lane, Policy
from limpet.stores.server.store import Definitions, missing

if TYPE_CHECKING:
    from limpet.stores.postgres.client import Client

DEFINITIONS: Final = "SELECT * FROM lp.definitions_1(%b::bigint[], %b::bigint[])"

_lane = msgspec.json.Decoder(Lane).decode
_policy = msgspec.json.Decoder(Policy).decode


class DefinitionCache(Definitions[int]):
    """One per store."""

    def __init__(self) -> None:
        super().__init__(_lane, _policy)

    async def fetch_missing(
        self, client: Client, lanes: Collection[int], policies: Collection[int], *, verb: str
    ) -> tuple[Mapping[int, Lane], Mapping[int, Policy]]:
        """Definitions by id, asked for where they are not known; one that cannot be read is left out."""
        known = self.known()
        new = missing(lanes, known[0]), missing(policies, known[1])
        if any(new):
            found = await client.row(DEFINITIONS, new, verb=verb)
            lane_ids, lane_bodies, policy_ids, policy_bodies = (column or [] for column in found)
            self.keep(known, zip(lane_ids, lane_bodies, strict=True), zip(policy_ids, policy_bodies, strict=True))
        return known
