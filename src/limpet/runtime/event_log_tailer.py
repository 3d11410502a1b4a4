"""Writes the events of breakers, limits and budgets to the log: one look per beat, and a last one at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from limpet.core.errors import StoreError
from limpet.core.jobs.view import Entry
from limpet.core.text.event_text import event_text, facts_of, is_alarming
from limpet.runtime.log import worker_log
from limpet.runtime.part import Part
from limpet.runtime.patient_store import Patience

ReadEvents = Callable[[int, int], Awaitable[Sequence[Entry]]]  # after which event, and how many at most

RESERVED: Final = ("level", "event", "kind")  # of a line; what another release says under these names is left out
LAST_LOOK_S: Final = 0.5  # the end of a worker waits no longer than this
AT_ONCE: Final = 200  # lines per look: a log that fills faster than this is told later, not louder


class EventLogTailer(Part):
    """Follows the event log. One per worker: its supervisor has it, or a worker that has no supervisor."""

    name = "event-log-tailer"

    def __init__(
        self, read: ReadEvents, patience: Patience, look_ms: int, *, seen: int | Callable[[], Awaitable[int]]
    ) -> None:
        super().__init__()
        self._read = read
        self._patience = patience
        self._look_s = look_ms / 1000
        self._find_seen = None if isinstance(seen, int) else seen
        self._seen = seen if isinstance(seen, int) else None  # the last event before its time

    async def live(self, ready: Callable[[], None]) -> None:
        if self._find_seen is not None:
            self._seen = await self._patience.ask("read", self._find_seen)
        ready()
        while True:
            await asyncio.sleep(self._look_s)
            self._tell(await self._patience.ask("read", self._look))

    async def stop(self) -> None:
        """End, with the events since the last look: a tailer that starts later looks no further back."""
        await super().stop()
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(LAST_LOOK_S):
                if self._seen is not None:
                    self._tell(await self._look())

    async def _look(self) -> Sequence[Entry]:
        return await self._read(self._seen or 0, AT_ONCE)

    def _tell(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            level = logging.WARNING if is_alarming(entry) else logging.INFO
            facts = {name: fact for name, fact in facts_of(entry).items() if name not in RESERVED}
            worker_log(level, event_text(entry), kind=entry.kind, **facts)
            self._seen = entry.seq
