"""Routes about tokens, with which programs and people use this API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta, Struct

from limpet.core.access.role import Role
from limpet.core.errors import InvalidOption
from limpet.core.records.token import NewToken, TokenRecord
from limpet.ops.names import UnknownName
from limpet.server.call import Call
from limpet.server.parameters import Time, Why
from limpet.server.route import Route, delete, get, post


class Tokens(Struct, frozen=True, forbid_unknown_fields=True):
    """Which tokens."""

    revoked: Annotated[bool, Meta(description="Revoked ones, too.")] = False


class Make(Why, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a new token allows."""

    role: Role
    name: Annotated[str, Meta(description="What it is called; the audit log names it so.")] | None = None
    queues: Annotated[list[str], Meta(description="Left out: every queue.")] | None = None
    expires: Annotated[Time, Meta(description="Left out: it does not.")] | None = None


async def listed(call: Call[Tokens, None]) -> Sequence[TokenRecord]:
    """The tokens of the namespace: how each begins, what it allows, when it was last used."""
    return await call.operator.tokens.list(revoked=call.query.revoked)


async def create(call: Call[None, Make]) -> NewToken:
    """Make a token; its text is in the answer and nowhere else."""
    body = call.body
    return await call.operator.tokens.create(
        body.role, name=body.name, queues=body.queues, expires=body.expires, reason=body.reason
    )


async def revoke(call: Call[Why, None]) -> TokenRecord:
    """End a token, by its name or how it begins: servers refuse it within a second."""
    return await call.operator.tokens.revoke(call.path["name"], reason=call.query.reason)


ROUTES: Final[tuple[Route, ...]] = (
    get("/tokens", "admin", listed, of="tokens"),
    post("/tokens", "admin", create, errors=(InvalidOption,), example={"role": "worker", "queues": ["mail"]}),
    delete("/tokens/{name}", "admin", revoke, errors=(UnknownName,)),
)
