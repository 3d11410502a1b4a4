"""Decides who a request is from: a token, the user's own hook, or this machine; everything else is refused."""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from starlette.requests import Request

from limpet.core.access.loopback import is_loopback
from limpet.core.access.refusal import TokenInvalid, TokenRequired
from limpet.core.access.role import checked_role
from limpet.core.access.token import Token, id_in, prefix_of
from limpet.core.errors import StoreError
from limpet.core.settings import ServerTable
from limpet.server.caller import Caller
from limpet.server.known_tokens import KnownTokens
from limpet.server.request_rate import RequestRate

Auth = Callable[[Request], Caller | Awaitable[Caller | None] | None]

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
PROXIED: Final = ("forwarded", "x-forwarded-", "x-real-ip")  # headers, by their beginnings, that proxies add
LOOK_S: Final = 2.0  # between looks at the token of a request that is open
OURS: Final = ("same-origin", "none")  # of Sec-Fetch-Site: a page of ours, or an address that a person typed

COOKIE: Final = "limpet"  # of a browser that was given a token

_HOST: Final = re.compile(r"(?P<name>\[[0-9a-f:.]*\]|[^\[\]:@/]*)(:[0-9]*)?")
_SEND: Final = "send a token: Authorization: Bearer TEXT (limpet tokens create makes one)"


class TokenCaller(Caller, frozen=True, kw_only=True):
    """Who was let in by a token, which may end while a request is open."""

    token: Token


class Admission:
    """Who may come in, by `[server]`. `local`: requests of this machine need no token, by loopback_role."""

    def __init__(
        self,
        settings: ServerTable,
        tokens: KnownTokens,
        namespace: str,
        *,
        auth: Auth | None = None,
        local: bool = False,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = tokens
        self._namespace = namespace
        self._auth = auth
        self._local = local
        self._local_role = None if settings.loopback_role == "none" else checked_role(settings.loopback_role)
        self._hosts = LOOPBACK | {host.lower() for host in settings.allowed_hosts}
        self._origins = frozenset(origin.lower() for origin in settings.allowed_origins)
        self._rate = RequestRate(settings.rate, settings.burst, monotonic_s)
        self._now_ms = now_ms

    async def admit(self, request: Request) -> Caller:
        """The caller; refused, counted by its rate, and never guessed."""
        caller = await self._hooked(request)
        if caller is None and "authorization" in request.headers:
            caller = await self._bearer(request)
        if caller is None:
            caller = await self._signed_in(request)
        if caller is None:
            return self._of_this_machine(request)
        if caller.namespace not in (None, self._namespace):
            raise TokenInvalid(f"{caller.name} is for another namespace", fix=_SEND)
        self._rate.take(caller.name)
        return caller

    async def _hooked(self, request: Request) -> Caller | None:
        """What the user's own hook says; None leaves it to us."""
        if self._auth is None:
            return None
        found = self._auth(request)
        return await found if inspect.isawaitable(found) else found

    async def _bearer(self, request: Request) -> Caller:
        scheme, _, text = request.headers["authorization"].partition(" ")
        if scheme.lower() != "bearer":
            raise TokenInvalid(f"Authorization has the scheme {scheme!r:.40}", fix=_SEND)
        caller = await self._opened_by(text.strip())
        if caller is None:
            shown = shown_token(request)
            raise TokenInvalid(f"{shown} opens nothing: it is unknown, revoked or expired", fix=_SEND)
        return caller

    async def _signed_in(self, request: Request) -> Caller | None:
        """By the cookie of a person's browser, for requests of our own page; one that opens nothing is none."""
        text = request.cookies.get(COOKIE)
        return None if text is None or self._foreign(request) else await self._opened_by(text)

    async def _opened_by(self, text: str) -> Caller | None:
        token = await self._tokens.opened_by(text, self._now_ms())
        if token is None:
            return None
        queues = None if token.queues is None else frozenset(token.queues)
        return TokenCaller(f"token:{token.name}", token.role, queues, self._namespace, prefix_of(token.id), token=token)

    async def barred(self, caller: Caller) -> None:
        """Return once the caller's token was revoked or has expired; for another caller never."""
        if not isinstance(caller, TokenCaller):
            await asyncio.Event().wait()
            return
        while True:
            with suppress(StoreError):  # what cannot be known now is asked again
                if not await self._tokens.still_opens(caller.token, self._now_ms()):
                    return
            await asyncio.sleep(LOOK_S)

    def _of_this_machine(self, request: Request) -> Caller:
        """Without a token: only from this machine, not for a page of another site, and not through a proxy."""
        reason = self._stranger(request)
        if reason:
            raise TokenRequired(f"{reason}, so a token is required", fix=_SEND)
        assert self._local_role is not None  # _stranger has looked
        return Caller(f"http:{address_of(request)}", self._local_role, None, self._namespace)

    def _stranger(self, request: Request) -> str:
        """Why the request needs a token; empty: it needs none."""
        if not self._local:
            return "this server does not listen for its own machine alone"
        if self._local_role is None:
            return "[server] loopback_role is none"
        if request.client is None or not is_loopback(request.client.host):
            return "the request is not from this machine"
        headers, host = request.headers, request.headers.get("host", "")
        for name in headers:
            if name.startswith(PROXIED):
                return f"the header {name} says that a proxy has passed the request on"
        if host_name(host) not in self._hosts:
            return f"the Host {host!r:.80} is not in [server] allowed_hosts"
        return self._foreign(request)

    def _foreign(self, request: Request) -> str:
        """Why the request is not taken for one of our own page or of a program; empty: it is."""
        headers, host = request.headers, request.headers.get("host", "")
        origin = headers.get("origin", "").lower()
        allowed = origin in self._origins
        if origin and not allowed and origin.partition("://")[2] != host.lower():
            return f"the Origin {origin!r:.80} is not in [server] allowed_origins"
        site = headers.get("sec-fetch-site", "none").lower()
        if site not in OURS and not allowed:
            return f"a page of another site asks (Sec-Fetch-Site: {site:.40})"
        return ""


def shown_token(request: Request) -> str:
    """The token of a request as it may be shown: how its text begins, if it is one of ours."""
    text = request.headers.get("authorization", "").partition(" ")[2].strip()
    id = id_in(text)
    return "the token" if id is None else f"the token {prefix_of(id)}_..."


def refused_name(request: Request, caller: Caller | None) -> str:
    """The name in the audit log for a refused request: of the caller, or the token's beginning, or the address."""
    if caller is not None:
        return caller.name
    id = id_in(request.headers.get("authorization", "").partition(" ")[2].strip())
    return f"http:{address_of(request)}" if id is None else f"token:{prefix_of(id)}"


def address_of(request: Request) -> str:
    """The address of the other end."""
    return "unknown" if request.client is None else request.client.host


def host_name(host: str) -> str:
    """The name in a Host header, without its port.

    >>> host_name("LocalHost:8787"), host_name("[::1]:80"), host_name("[::1].evil.com")
    ('localhost', '[::1]', '')
    """
    found = _HOST.fullmatch(host.lower())
    return "" if found is None else found["name"].removesuffix(".")
