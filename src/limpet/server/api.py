"""Introduces the parts of the HTTP API to each other: one ASGI application, served alone or mounted in another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as Place
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from limpet.config import load_config
from limpet.core.alerts.settings import AlertsTable
from limpet.core.endings.failure import traceback_of
from limpet.core.errors import LimpetError, StoreError
from limpet.core.settings import FileSettings, ServerTable
from limpet.ops.alert_runner import AlertRunner
from limpet.ops.alerts import publish_rules
from limpet.ops.feed import Feed
from limpet.ops.idempotency import Idempotency
from limpet.ops.operation_runner import OperationRunner
from limpet.ops.scope import ScopedStore
from limpet.runtime.rollup_folder import RollupFolder
from limpet.server.admission import Admission, Auth
from limpet.server.caller import Caller
from limpet.server.endpoint import Endpoint, Respond
from limpet.server.guest import Guest, GuestPlace
from limpet.server.known_tokens import KnownTokens
from limpet.server.lending import Lending
from limpet.server.log import server_log
from limpet.server.page import PLACES, PageEndpoint
from limpet.server.places import Places
from limpet.server.problem import problem_response
from limpet.server.refusal import NoSuchRoute
from limpet.server.refused import Refused
from limpet.server.route import Method, Route
from limpet.server.table import ROUTES
from limpet.stores.base import Store

if TYPE_CHECKING:
    from limpet.app import Limpet

LINGER_S: Final = 60.0  # a page that is loaded again continues where it was
BROKEN: Final = "the server failed at this request"


class Api:
    """The HTTP API of an app's store and its page, as an ASGI application: `/api/v1/...`, `/healthz`, `/`.

    Mount it under any prefix. Every request needs a token, unless `auth` answers a Caller for it: a function, async or
    not, of the starlette request; where it answers None, a token is asked for. A mounted application's lifespan is not
    run by starlette: enter `api.lifespan()` in yours, or the first request starts it and `await api.close()` ends it.
    `local=True` is for a server that listens on this machine alone, as `limpet serve` does.

    >>> from limpet import Limpet
    >>> api = Api(Limpet("sqlite://"))
    """

    def __init__(
        self,
        app: Limpet,
        *,
        auth: Auth | None = None,
        settings: ServerTable | None = None,
        alerts: AlertsTable | None = None,
        local: bool = False,
        guests: Mapping[str, Guest] | None = None,
    ) -> None:
        self.app = app
        self.closing = asyncio.Event()  # set when the server ends: streams and long polls end then
        file = load_config().file if settings is None else FileSettings(server=settings)
        self.settings = file.server
        self._alerts_said = file.alerts if alerts is None else alerts
        self.tokens = KnownTokens(app.store)
        self.admission = Admission(self.settings, self.tokens, app.namespace, auth=auth, local=local)
        self.refused = Refused(app.store)
        self.idempotency = Idempotency(app.store)
        self.places = Places(self.settings.waiting)
        self.lending = Lending(app.store, self.places)
        self.feed = Feed(app.store, linger_s=LINGER_S)
        self.operations: OperationRunner | None = None
        self._folding: asyncio.Task[None] | None = None  # depths are looked at also while no worker lives
        self.alerts: AlertRunner | None = None
        self._started = False
        self._starting = asyncio.Lock()
        self._guests = {path: GuestPlace(self, guest) for path, guest in (guests or {}).items()}
        self._router = Router(
            [
                *(Place(path, place) for path, place in self._guests.items()),
                *(Place(path, Endpoint(self, routes)) for path, routes in by_path(ROUTES).items()),
                *(Place(path, PageEndpoint(self)) for path in PLACES),
            ],
            redirect_slashes=False,
            default=self._not_found,
        )

    # -- its life

    async def start(self) -> None:
        """Open the store, run operations, look for alerts, sum counts. Idempotent; the first request does it, too."""
        async with self._starting:
            if not self._started:
                self.closing.clear()
                await self.app.store.open()
                self.operations = OperationRunner(self.app.store)
                self.operations.start()
                self._folding = asyncio.create_task(RollupFolder(self.app.store).live(), name="limpet-counts")
                self.alerts = await self._alert_runner()
                self.alerts.start()
                for guest in self._guests.values():
                    await guest.start()
                self._started = True

    async def _alert_runner(self) -> AlertRunner:
        """What looks for alerts here: so "no worker" gets out, and that the store is away."""
        store, said = self.app.store, self._alerts_said
        await publish_rules(store, said)
        return AlertRunner(store, said, self.app.namespace, tells_away=True)

    def end_streams(self) -> None:
        """End streams and long polls: a server calls it before it waits for its open answers."""
        self.closing.set()
        self.feed.close()

    async def close(self) -> None:
        """End streams and long polls, and wait for what is still being written. The app stays open: it is yours."""
        self.end_streams()
        self._started = False
        await self.lending.close()
        if self.operations is not None:
            await self.operations.stop()
        if self._folding is not None:
            self._folding.cancel()
            await asyncio.wait({self._folding})
        if self.alerts is not None:
            await self.alerts.stop()
        for guest in self._guests.values():
            await guest.close()
        await self.refused.close()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[Self]:
        """From start to close: for the lifespan of the application that this one is mounted in."""
        await self.start()
        try:
            yield self
        finally:
            await self.close()

    # -- requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._router(_with_encoded_path(scope), receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000, "reason": "no websockets here"})

    async def answer(self, respond: Respond, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what `respond` makes of the request, or the problem document for what it raises."""
        request = Request(scope, receive)
        try:
            response = await self._response(respond, request)
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _response(self, respond: Respond, request: Request) -> Response:
        instance = request.scope["path"]
        try:
            if not self._started and not self.closing.is_set():
                await self.start()
            return await respond(request)
        except LimpetError as error:
            if isinstance(error, StoreError):
                server_log(logging.WARNING, "the store failed a request", code=error.code, path=instance, error=error)
            return problem_response(error, instance)
        except ClientDisconnect:
            raise
        except Exception as error:
            told = traceback_of(error)
            server_log(logging.ERROR, "a request failed", method=request.method, path=instance, traceback=told)
            return problem_response(LimpetError(BROKEN, fix="its log has the traceback"), instance)

    def store_of(self, caller: Caller) -> Store:
        """The store as the caller sees it."""
        store = self.app.store
        return store if caller.queues is None else ScopedStore(store, caller.queues)

    async def _not_found(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def refuse(request: Request) -> Response:
            raise NoSuchRoute(f"there is nothing at {scope['path']:.200}", fix="/openapi.json lists what there is")

        await self.answer(refuse, scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """The lifespan protocol, where a server runs this application itself."""
        await receive()
        try:
            await self.start()
        except LimpetError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})


def by_path(routes: Sequence[Route]) -> dict[str, dict[Method, Route]]:
    """The routes of each path; paths without a name come first, so that `dead/causes` is not taken for an id."""
    found: dict[str, dict[Method, Route]] = {}
    for each in sorted(routes, key=lambda route: [("{" in part, part) for part in route.full_path.split("/")]):
        found.setdefault(each.full_path, {})[each.method] = each
    return found


def _with_encoded_path(scope: Scope) -> Scope:
    """With the path as it was sent: names in it may hold %2F, which no route may take for a slash."""
    raw = scope.get("raw_path")
    path = quote(scope["path"]) if raw is None else raw.decode("latin-1")
    return {**scope, "path": path, "root_path": quote(scope.get("root_path", ""))}
