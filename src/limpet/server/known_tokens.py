"""Remembers the tokens of the store for a moment: requests cost no look at it, and a revocation counts soon."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from limpet.core.access.token import Token, fits, id_in
from limpet.core.errors import StoreError
from limpet.ops.tokens import SEEN_MS, last_uses, note_use, stored_tokens
from limpet.server.log import server_log
from limpet.stores.base import Store

FRESH_S: Final = 0.9  # with the time to ask the store a revoked token is refused within a second


class KnownTokens:
    """The tokens of one namespace, read again when they are no longer fresh."""

    def __init__(self, store: Store, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic_s = monotonic_s
        self._tokens: dict[str, Token] = {}
        self._used_ms: dict[str, int] | None = None
        self._read_at_s = -FRESH_S - 1
        self._reading = asyncio.Lock()

    async def opened_by(self, text: str, now_ms: int) -> Token | None:
        """The token of this text, if it opens anything now; as fast for a wrong text as for a right one."""
        id = id_in(text)
        if id is None:
            return None
        await self._refresh()
        token = self._tokens.get(id)
        fitting = fits(token, text)
        if token is None or not fitting or token.state(now_ms) != "active":
            return None
        await self._note(token, now_ms)
        return token

    async def still_opens(self, token: Token, now_ms: int) -> bool:
        """Whether a token that has opened something would do so now."""
        await self._refresh()
        found = self._tokens.get(token.id)
        return found is not None and found.state(now_ms) == "active"

    def forget(self) -> None:
        """The next request asks the store again: for a token that was made or revoked here."""
        self._read_at_s = -FRESH_S - 1

    async def _refresh(self) -> None:
        """One request asks the store, others wait for its answer."""
        async with self._reading:
            began_s = self._monotonic_s()
            if began_s - self._read_at_s <= FRESH_S:
                return
            self._tokens = {token.id: token for token in await stored_tokens(self._store)}
            self._read_at_s = began_s
            if self._used_ms is None:
                self._used_ms = await last_uses(self._store)

    async def _note(self, token: Token, now_ms: int) -> None:
        """Write the use down, once a minute; a store that cannot take it is no reason to refuse the request."""
        used_ms = {} if self._used_ms is None else self._used_ms
        if now_ms - used_ms.get(token.id, 0) < SEEN_MS:
            return
        used_ms[token.id] = now_ms
        try:
            await note_use(self._store, token, now_ms)
        except StoreError as error:
            server_log(logging.WARNING, "a token's use was not written", token=token.prefix, error=error)
