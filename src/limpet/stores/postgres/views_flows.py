"""Answers how flows stand: how many of their jobs are in which state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from limpet.core.jobs.state import STATES
from limpet.core.jobs.view import FlowView

if TYPE_CHECKING:
    from limpet.stores.postgres.client import Client

IDS: Final = "SELECT * FROM lp.flow_ids_1(%b::bytea, %b::integer)"
FLOWS: Final = "SELECT * FROM lp.flows_1(%b::bytea[])"

AT_ONCE: Final = 10  # flows that one statement counts: each may have tens of thousands of jobs


async def flows(client: Client, ids: Sequence[bytes] | None, limit: int, before: bytes | None) -> list[FlowView]:
    """The newest flows before one, or those of `ids` that are stored, in order."""
    if ids is None:
        ids = [id for (id,) in await client.rows(IDS, (before, limit), verb="flows")]
    found: dict[bytes, FlowView] = {}
    for start in range(0, len(ids), AT_ONCE):
        for id, states, ns, enqueued_ms in await client.rows(
            FLOWS, (list(ids[start : start + AT_ONCE]),), verb="flows"
        ):
            counts = {STATES[state]: n for state, n in zip(states, ns, strict=True)}
            found[id] = FlowView(id, counts, enqueued_ms)
    return [found[id] for id in ids if id in found]
