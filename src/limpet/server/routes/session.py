"""Routes about the one who asks: what a caller may do, and the cookie that a browser is given for a token."""

from __future__ import annotations

from types import NoneType
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from limpet.core.access.refusal import TokenRequired
from limpet.core.access.role import INCLUDED, ROLES, Role
from limpet.core.records.record import Record
from limpet.core.version import VERSION
from limpet.server.admission import COOKIE
from limpet.server.call import Call
from limpet.server.decode import JSON
from limpet.server.route import Route, delete, get, post

DAYS_S: Final = 30 * 86_400  # then a person gives the token again


class SessionRecord(Record, frozen=True, kw_only=True):
    """Who asks, what of, and what it may do."""

    name: str  # as the audit log has it
    role: Role
    may: tuple[Role, ...]  # the roles that this one includes
    queues: tuple[str, ...] | None  # None: every queue
    signed_in: bool  # by the cookie
    namespace: str
    engine: str
    version: str


class SignIn(Struct, frozen=True, forbid_unknown_fields=True):
    """How long the browser keeps the cookie."""

    keep: Annotated[bool, Meta(description="For 30 days; else until the browser ends.")] = False


async def shown(call: Call[None, None]) -> SessionRecord:
    """Who you are to this server: name, role, queues; and which store it has."""
    return record_of(call)


def record_of(call: Call[Any, Any]) -> SessionRecord:
    """The caller of a request, in public."""
    caller = call.caller
    return SessionRecord(
        name=caller.name,
        role=caller.role,
        may=tuple(role for role in ROLES if role in INCLUDED[caller.role]),
        queues=None if caller.queues is None else tuple(sorted(caller.queues)),
        signed_in=bool(caller.id) and COOKIE in call.request.cookies,
        namespace=call.app.namespace,
        engine=call.store.features.name,
        version=VERSION,
    )


async def begin(call: Call[None, SignIn]) -> Response:
    """Exchange the token of `Authorization` for a cookie that no script can read, which the page's requests carry."""
    text = call.request.headers.get("authorization", "").partition(" ")[2].strip()
    if not text:
        raise TokenRequired("there is no token to exchange", fix="send it: Authorization: Bearer TEXT")
    response = Response(msgspec.json.encode(record_of(call).to_dict()), media_type=JSON)
    response.set_cookie(COOKIE, text, max_age=DAYS_S if call.body.keep else None, **_kind(call.request))
    return response


async def end(call: Call[None, None]) -> Response:
    """Forget the cookie. The token stays what it was."""
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, **_kind(call.request))
    return response


def _kind(request: Request) -> dict[str, Any]:
    return {
        "path": request.scope.get("root_path", "") or "/",
        "secure": request.url.scheme == "https",
        "httponly": True,
        "samesite": "strict",
    }


ROUTES: Final[tuple[Route, ...]] = (
    get("/session", "viewer", shown),
    post("/session", "viewer", begin, sends=SessionRecord, example={"keep": True}),
    delete("/session", "viewer", end, sends=NoneType, status=204),
)
