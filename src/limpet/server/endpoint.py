"""Answers the requests of one path: finds the route of the method, admits the caller, calls the handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from limpet.core.access.refusal import AccessError, Forbidden
from limpet.core.access.role import ROLES, Role
from limpet.server.admission import address_of, refused_name
from limpet.server.answer import respond
from limpet.server.call import Call
from limpet.server.caller import Caller
from limpet.server.decode import body_of, query_of, raw_body
from limpet.server.once import HEADER, once
from limpet.server.precondition import HEADER as IF_MATCH
from limpet.server.precondition import only_if, record_of
from limpet.server.refusal import MethodNotAllowed
from limpet.server.route import Method, Route
from limpet.server.table import ROUTES

if TYPE_CHECKING:
    from limpet.server.api import Api

STRANGER = Caller("http:stranger", "viewer", frozenset())

Respond = Callable[[Request], Awaitable[Response]]


class Endpoint:
    """One path and its methods; GET answers HEAD, too."""

    def __init__(self, api: Api, routes: Mapping[Method, Route]) -> None:
        self._api = api
        self._routes: dict[str, Route] = dict(routes.items())
        if "GET" in self._routes:
            self._routes["HEAD"] = self._routes["GET"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._api.answer(self._respond, scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        route = self._routes.get(request.method)
        if route is None:
            allowed = ", ".join(sorted(self._routes))
            raise MethodNotAllowed(f"{request.method:.20} is not possible here", fix=f"use {allowed}", allowed=allowed)
        caller: Caller = STRANGER
        try:
            if route.role is not None:
                caller = await self._api.admission.admit(request)
                _refuse_small_role(caller, route.role)
            return await self._answered(request, route, caller)
        except AccessError as error:
            self._note(error, request, caller)
            raise

    async def _answered(self, request: Request, route: Route, caller: Caller) -> Response:
        api = self._api
        raw = await raw_body(request, route.most_bytes)
        call = Call(
            caller=caller,
            app=api.app,
            store=api.store_of(caller),
            path={name: unquote(value) for name, value in request.path_params.items()},
            query=query_of(request.query_params.multi_items(), route.query),
            body=body_of(raw, request.headers.get("content-type", ""), route.body),
            request=request,
            lending=api.lending,
            places=api.places,
            closing=api.closing,
            barred=partial(api.admission.barred, caller),
            settings=api.settings,
            feed=api.feed,
        )
        if IF_MATCH in request.headers and route.method != "GET":
            route = only_if(route, record_of(route, ROUTES), request.headers[IF_MATCH])
        if route.method == "POST" and HEADER in request.headers:
            return await once(api.idempotency, route, call, raw)
        return respond(route, await route.handler(call), request)

    def _note(self, error: AccessError, request: Request, caller: Caller) -> None:
        """Write a refusal to the audit log."""
        asked = f"{request.method} {request.url.path}"[:200]
        who = refused_name(request, None if caller is STRANGER else caller)
        self._api.refused.note(error, caller=who, address=address_of(request), asked=asked)


def _refuse_small_role(caller: Caller, role: Role) -> None:
    if not caller.may(role):
        raise Forbidden(
            f"{caller.name} has the role {caller.role}, and this needs {role}",
            fix=f"use a token whose role is {' or '.join(allowing(role))}",
        )


def allowing(role: Role) -> list[Role]:
    """The roles that may do what asks for this one."""
    return [each for each in ROLES if Caller("", each).may(role)]
