"""Writes transitions to the store: what ended while one write was under way goes into the next."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from holdfast.core.ids import id_text
from holdfast.core.transition import Bury, Drop, Hold, Lose, Release, RetryAfter, Snooze, Succeed, Transition
from holdfast.runtime.log import worker_log
from holdfast.runtime.part import Part
from holdfast.runtime.patience import Patience
from holdfast.runtime.roster import Roster
from holdfast.runtime.settings import WorkReport
from holdfast.stores.base import Store

MOST_PER_CALL: Final = 1_000  # what every engine settles in one bounded step

_COUNTED: Final[dict[type, str]] = {
    Succeed: "succeeded",
    RetryAfter: "retried",
    Bury: "dead",
    Drop: "cancelled",
    Release: "released",
    Snooze: "snoozed",
    Hold: "held",
    Lose: "lost",
}


class Settler(Part):
    """Group commit: flushes at once when idle, and never has two writes under way."""

    name = "settler"

    def __init__(
        self, store: Store, session: str, patience: Patience, report: WorkReport, roster: Roster | None = None
    ) -> None:
        super().__init__()
        self._store = store
        self._session = session
        self._patience = patience
        self._report = report
        self._roster = roster
        self._waiting: list[Transition] = []
        self._writing = 0
        self._seq = 0
        self._closing = False
        self._news = asyncio.Event()
        self.on_settled: Callable[[], None] | None = None

    @property
    def unsettled(self) -> int:
        """Transitions that the store has not confirmed."""
        return len(self._waiting) + self._writing

    def put(self, transition: Transition) -> None:
        """Settle this with the next write."""
        waiting = self._waiting
        waiting.append(transition)
        if len(waiting) == 1:
            self._news.set()

    async def live(self, ready: Callable[[], None]) -> None:
        ready()
        while True:
            while self._waiting:
                await self._write(self._waiting[:MOST_PER_CALL])
            if self.on_settled is not None:
                self.on_settled()
            if self._closing:
                return
            self._news.clear()
            await self._news.wait()

    async def finish(self, timeout_s: float) -> int:
        """Write what is left, for as long as the store may take; how many remain unwritten."""
        self._closing = True
        self._news.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=timeout_s)
        await self.stop()
        return self.unsettled

    async def _write(self, batch: list[Transition]) -> None:
        del self._waiting[: len(batch)]
        self._writing = len(batch)
        self._seq += 1
        seq = self._seq
        answers = await self._patience.ask("settle", lambda: self._store.settle(self._session, seq, batch))
        self._writing = 0
        if self._roster is not None:
            for transition in batch:
                self._roster.end(transition.id, transition.token)
        report = self._report
        for kind, count in Counter(map(type, batch)).items():
            name = _COUNTED[kind]
            setattr(report, name, getattr(report, name) + count)
        for transition, settled in zip(batch, answers, strict=True):
            if settled.answer != "done":
                self._refused(transition, settled.answer)

    def _refused(self, transition: Transition, answer: str) -> None:
        report = self._report
        name = _COUNTED[type(transition)]
        setattr(report, name, getattr(report, name) - 1)
        report.stale += 1
        worker_log(
            logging.WARNING,
            "settlement refused",
            job_id=id_text(transition.id),
            transition=type(transition).__name__,
            answer=answer,
            token=transition.token,
        )
