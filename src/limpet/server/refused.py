"""Writes refused requests to the audit log: which token, from where, and what; few lines, however many there are."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from limpet.core.access.refusal import AccessError
from limpet.core.errors import LimpetError
from limpet.ops.bulk import Decision
from limpet.server.log import server_log
from limpet.stores.base import Store

KIND: Final = "access.refused"
EACH_S: Final = 60.0  # lines about one caller and one kind of refusal are so far apart
MOST: Final = 30  # lines in that time, of all callers together


class Refused:
    """The refusals of one server; what is not written is counted in the next line."""

    def __init__(self, store: Store, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic_s = monotonic_s
        self._began_s = -EACH_S
        self._seen: dict[tuple[str, str], int] = {}  # of this minute: refusals by kind and caller
        self._unwritten = 0
        self._writing: set[asyncio.Task[None]] = set()

    def note(self, error: AccessError, *, caller: str, address: str, asked: str) -> None:
        """A request was refused; `asked` is its method and path. No request waits for the line."""
        now_s = self._monotonic_s()
        if now_s - self._began_s >= EACH_S:
            self._began_s = now_s
            self._seen.clear()
        key = (error.code, caller)
        if key in self._seen or len(self._seen) >= MOST:
            self._unwritten += 1
            return
        self._seen[key] = 1
        facts: dict[str, object] = {"code": error.code, "address": address, "asked": asked}
        if self._unwritten:
            facts["unwritten"] = self._unwritten
            self._unwritten = 0
        writing = asyncio.ensure_future(self._write(Decision(KIND, caller, error.message[:500], facts)))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    async def _write(self, decision: Decision) -> None:
        try:
            await self._store.append([decision.entry(None)])
        except LimpetError as error:
            server_log(logging.WARNING, "a refusal was not written to the audit log", error=error, **decision.data)

    async def close(self) -> None:
        """Wait for the lines that are being written."""
        await asyncio.gather(*self._writing, return_exceptions=True)
