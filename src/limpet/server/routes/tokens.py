"""Routes about tokens, with which programs and people use this API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta, Struct

from limpet.core.records.token import TokenRecord
from limpet.server.call import Call
from limpet.server.route import Route, get


class Tokens(Struct, frozen=True, forbid_unknown_fields=True):
    """Which tokens."""

    revoked: Annotated[bool, Meta(description="Revoked ones, too.")] = False


async def listed(call: Call[Tokens, None]) -> Sequence[TokenRecord]:
    """The tokens of the namespace: how each begins, what it allows, when it was last used."""
    return await call.operator.tokens.list(revoked=call.query.revoked)


ROUTES: Final[tuple[Route, ...]] = (get("/tokens", "admin", listed, of="tokens"),)
