"""Runs the server as an ASGI application that the HTTP API admits callers to: streamable HTTP, with sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import Receive, Scope, Send

from limpet.mcp.desk import Desk
from limpet.mcp.service import Context, Service

IDLE_S: Final = 1_800.0  # a session without a request for so long ends
MOST_SESSIONS: Final = 1_000
CALLER: Final = "limpet.desk"  # where the server that admits a request leaves its desk, in scope["state"]


class McpApp:
    """The application of `/mcp`. Sessions are kept: without one, a client's cancel would come when it closes."""

    def __init__(self, *, ops: bool = True, structured: bool = False) -> None:
        self._service = Service(_desk_of, ops=ops, structured=structured)
        self._manager: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Its sessions live inside."""
        manager = StreamableHTTPSessionManager(
            app=self._service.server,
            # Who may come from where is decided before: one place, the same for every route.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            session_idle_timeout=IDLE_S,
            max_sessions=MOST_SESSIONS,
        )
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None

    async def answer(self, desk: Desk, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of a caller that was admitted."""
        assert self._manager is not None, "the lifespan was not entered"
        # A session belongs to the caller that began it: the manager compares who this says.
        user = AuthenticatedUser(AccessToken(token="", client_id=desk.name, scopes=[]))
        state = {**scope.get("state", {}), CALLER: desk}
        await self._manager.handle_request({**scope, "state": state, "user": user}, receive, send)


def _desk_of(context: Context) -> Desk:
    request: Any = context.request
    desk: Desk = request.scope["state"][CALLER]
    return desk
