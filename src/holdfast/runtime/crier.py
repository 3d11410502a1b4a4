"""Tells the log what became of breakers, limits and budgets since the worker started: one look per beat."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from holdfast.core.telling import event_text, facts_of, is_alarming
from holdfast.runtime.log import worker_log
from holdfast.runtime.part import Part
from holdfast.runtime.patience import Patience
from holdfast.stores.asking import last_seq
from holdfast.stores.base import Store

AT_ONCE: Final = 200  # lines per look: a log that fills faster than this is told later, not louder


class Crier(Part):
    """Follows the event log. One per worker: its supervisor has it, or a worker that has no supervisor."""

    name = "crier"

    def __init__(self, store: Store, patience: Patience, look_ms: int) -> None:
        super().__init__()
        self._store = store
        self._patience = patience
        self._look_s = look_ms / 1000

    async def live(self, ready: Callable[[], None]) -> None:
        seen = await self._patience.ask("read", lambda: last_seq(self._store, "event"))
        ready()
        while True:
            await asyncio.sleep(self._look_s)
            seen = await self._tell(seen)

    async def _tell(self, seen: int) -> int:
        entries = await self._patience.ask("read", lambda: self._store.read("event", seen, AT_ONCE))
        for entry in entries:
            level = logging.WARNING if is_alarming(entry) else logging.INFO
            worker_log(level, event_text(entry), kind=entry.kind, **facts_of(entry))
        return entries[-1].seq if entries else seen
