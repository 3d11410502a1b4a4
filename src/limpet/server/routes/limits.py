"""Routes about limits and breakers: their levels, and what they stop."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from limpet.core.records.limit import BreakerPage, BreakerRecord, LimitRecord
from limpet.ops.names import UnknownName
from limpet.server.call import Call
from limpet.server.parameters import Begins, Page
from limpet.server.route import Route, get


class Keys(Struct, frozen=True, forbid_unknown_fields=True):
    """Which limits."""

    begins: Begins = ""


class Breakers(Page, frozen=True, forbid_unknown_fields=True):
    """Which breakers."""

    begins: Begins = ""


async def limits(call: Call[Keys, None]) -> list[LimitRecord]:
    """Limits, and queues and tasks that have a ceiling of their own or were pushed back; 10,000 at most."""
    return await call.operator.limits(call.query.begins)


async def limit(call: Call[None, None]) -> LimitRecord:
    """One limit, with what it admits now and what waits for it."""
    return await call.operator.limit(call.path["key"])


async def breakers(call: Call[Breakers, None]) -> BreakerPage:
    """A page of breakers, open ones first."""
    asked = call.query
    return await call.operator.breakers(asked.begins, limit=asked.limit, cursor=asked.cursor)


async def breaker(call: Call[None, None]) -> BreakerRecord:
    """One breaker."""
    return await call.operator.breaker(call.path["key"])


ROUTES: Final[tuple[Route, ...]] = (
    get("/limits", "viewer", limits, of="limits"),
    get("/limits/{key}", "viewer", limit, etag=True, errors=(UnknownName,)),
    get("/breakers", "viewer", breakers),
    get("/breakers/{key}", "viewer", breaker, etag=True, errors=(UnknownName,)),
)
