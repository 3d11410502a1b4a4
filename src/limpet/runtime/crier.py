"""Tells the log what became of breakers, limits and budgets since the worker started: one look per beat, and a last."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

from limpet.core.errors import StoreError
from limpet.core.telling import event_text, facts_of, is_alarming
from limpet.core.view import Entry
from limpet.runtime.log import worker_log
from limpet.runtime.part import Part
from limpet.runtime.patience import Patience
from limpet.stores.asking import Reads, last_seq

RESERVED: Final = ("level", "event", "kind")  # of a line; what another release says under these names is left out
LAST_LOOK_S: Final = 0.5  # nobody waits longer than this for the end of a worker
AT_ONCE: Final = 200  # lines per look: a log that fills faster than this is told later, not louder


class Crier(Part):
    """Follows the event log. One per worker: its supervisor has it, or a worker that has no supervisor."""

    name = "crier"

    def __init__(self, store: Reads, patience: Patience, look_ms: int, *, seen: int | None = None) -> None:
        super().__init__()
        self._store = store
        self._patience = patience
        self._look_s = look_ms / 1000
        self._seen = seen  # the last event before its time; None: the last one when it starts

    async def live(self, ready: Callable[[], None]) -> None:
        if self._seen is None:
            self._seen = await self._patience.ask("read", lambda: last_seq(self._store, "event"))
        ready()
        while True:
            await asyncio.sleep(self._look_s)
            self._tell(await self._patience.ask("read", self._news))

    async def stop(self) -> None:
        """End, with what has happened since the last look: whoever comes later looks no further back."""
        await super().stop()
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(LAST_LOOK_S):
                self._tell(await self._news())

    async def _news(self) -> Sequence[Entry]:
        return [] if self._seen is None else await self._store.read("event", self._seen, AT_ONCE)

    def _tell(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            level = logging.WARNING if is_alarming(entry) else logging.INFO
            facts = {name: fact for name, fact in facts_of(entry).items() if name not in RESERVED}
            worker_log(level, event_text(entry), kind=entry.kind, **facts)
            self._seen = entry.seq
