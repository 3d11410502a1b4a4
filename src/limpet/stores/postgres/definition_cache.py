"""Reads the definitions of lanes and policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from limpet.core.jobs.job import Lane, Policy
from limpet.stores.server.store import Definitions, Stored

if TYPE_CHECKING:
    from limpet.stores.postgres.client import Client

DEFINITIONS: Final = "SELECT * FROM lp.definitions_1(%b::bigint[], %b::bigint[])"

_lane = msgspec.json.Decoder(Lane).decode
_policy = msgspec.json.Decoder(Policy).decode


class DefinitionCache(Definitions[int, "Client"]):
    """One per store."""

    def __init__(self) -> None:
        super().__init__(_lane, _policy)

    async def _read(
        self, client: Client, lanes: list[int], policies: list[int], verb: str
    ) -> tuple[Stored[int], Stored[int]]:
        found = await client.row(DEFINITIONS, (lanes, policies), verb=verb)
        lane_ids, lane_bodies, policy_ids, policy_bodies = (column or [] for column in found)
        return zip(lane_ids, lane_bodies, strict=True), zip(policy_ids, policy_bodies, strict=True)
