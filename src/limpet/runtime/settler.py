"""Writes transitions to the store: what ended while one write was under way goes into the next."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence, Set
from contextlib import suppress
from typing import Final

from limpet.core.decide import awaits_commit, unwritable
from limpet.core.errors import StoreError
from limpet.core.ids import id_text
from limpet.core.spending import Bill
from limpet.core.state import State
from limpet.core.transition import (
    Bury,
    Drop,
    Hold,
    Lose,
    Release,
    RetryAfter,
    Settled,
    Snooze,
    Succeed,
    Suspend,
    Transition,
)
from limpet.runtime.keeper import Notebook
from limpet.runtime.log import worker_log
from limpet.runtime.part import Part
from limpet.runtime.patience import Patience
from limpet.runtime.roster import Roster
from limpet.runtime.settings import WorkReport
from limpet.stores.base import Store

MOST_PER_CALL: Final = 1_000  # what every engine settles in one bounded step

_COUNTED: Final[dict[type, str]] = {
    Succeed: "succeeded",
    RetryAfter: "retried",
    Bury: "dead",
    Drop: "cancelled",
    Release: "released",
    Snooze: "snoozed",
    Suspend: "suspended",
    Hold: "held",
    Lose: "lost",
}


class Settler(Part):
    """Group commit: flushes at once when idle, and never has two writes under way."""

    name = "settler"

    def __init__(
        self,
        store: Store,
        session: str,
        patience: Patience,
        report: WorkReport,
        roster: Roster | None = None,
        notebook: Notebook | None = None,
    ) -> None:
        super().__init__()
        self._store = store
        self._session = session
        self._patience = patience
        self._report = report
        self._roster = roster
        self._notebook = notebook or Notebook()
        self._waiting: list[Transition] = []
        self._bills: dict[tuple[bytes, int], Bill] = {}  # of those among them that said what they cost
        self._under_way: list[Transition] = []  # of the batch that is being written, those without an answer
        self._asked: list[Transition] | None = None  # with the last number; None once it was answered
        self._seq = 0
        self._closing = False
        self._news = asyncio.Event()
        self.on_settled: Callable[[], None] | None = None
        self.on_write: Callable[[], None] = lambda: None  # what has ended by now is under way
        self.on_answer: Callable[[Sequence[Transition], set[str]], None] = lambda batch, shut: None  # and shut gates
        self.before: Callable[[Set[tuple[bytes, int]]], Awaitable[None]] | None = None  # id and token of those that end

    @property
    def unsettled(self) -> int:
        """Transitions that the store has not confirmed."""
        return len(self._waiting) + len(self._under_way)

    def fits(self) -> bool:
        """Whether one more is written in one step with all that waits."""
        return len(self._waiting) < MOST_PER_CALL

    def keys(self) -> set[tuple[bytes, int]]:
        """Id and token of every job whose end is not written yet."""
        return {(each.id, each.token) for each in (*self._waiting, *self._under_way)}

    def left(self) -> tuple[list[Transition], dict[bytes, dict[str, int]]]:
        """What is not written, and what gates should be told of its costs: for whoever can still write it."""
        spent = {id: dict(bill.costs) for (id, _), bill in self._bills.items()}
        return [*self._under_way, *self._waiting], spent

    def put(self, transition: Transition, bill: Bill | None = None) -> None:
        """Settle this with the next write."""
        if bill is not None:
            self._bills[transition.id, transition.token] = bill
            self._notebook.add(transition.id, transition.token, bill.note)
        waiting = self._waiting
        waiting.append(transition)
        if len(waiting) == 1:
            self._news.set()

    async def live(self, ready: Callable[[], None]) -> None:
        ready()
        if self._under_way:
            await self._write(self._under_way)  # cancelled in the middle: the same number gets the same answer
        while True:
            while self._waiting:
                batch = self._under_way = self._waiting[:MOST_PER_CALL]
                del self._waiting[: len(batch)]
                await self._write(batch)
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
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._task is not None and (not self._task.done() or self._task.cancelled()):
                    await asyncio.wait({self._task})
                    await asyncio.sleep(0)  # one that was cancelled by other code is started again in between
        await self.stop()
        return self.unsettled

    async def _write(self, batch: list[Transition]) -> None:
        self.on_write()
        if self.before is not None:
            await self.before({(each.id, each.token) for each in batch})
        try:
            answers = await self._settle(batch)
        except StoreError:
            raise
        except Exception as error:
            # One of them is more than the engine can write, and nothing of the batch was written: find it.
            worker_log(logging.ERROR, "a write was refused, trying one by one", count=len(batch), error=repr(error))
            await self._write_apart(batch)
        else:
            self._count(batch, answers)

    async def _settle(self, batch: list[Transition]) -> Sequence[Settled]:
        if batch is not self._asked:
            self._seq += 1
            self._asked = batch
        seq = self._seq
        if self._bills:
            answers = await self._settle_with_bills(seq, batch)
        else:
            answers = await self._patience.ask("settle", lambda: self._store.settle(self._session, seq, batch))
        self._asked = None
        return answers

    async def _settle_with_bills(self, seq: int, batch: list[Transition]) -> Sequence[Settled]:
        """What gates are told of real costs goes with the transitions."""
        keys = [(each.id, each.token) for each in batch]
        bills = {key: self._bills[key] for key in sorted(keys, key=lambda key: key[1]) if key in self._bills}
        spent = {id: bill.costs for (id, _), bill in bills.items()}  # of two attempts of a job the later one counts
        answers = await self._patience.ask("settle", lambda: self._store.settle(self._session, seq, batch, spent=spent))
        for key in bills:
            del self._bills[key]
        return answers

    async def _write_apart(self, batch: list[Transition]) -> None:
        """Write each alone; what cannot be written is buried in plain words, after all the others are safe."""
        buried: list[Transition] = []
        for transition in batch:
            try:
                answers = await self._settle([transition])
            except StoreError:
                raise
            except Exception as error:
                worker_log(
                    logging.ERROR,
                    "the end of a job cannot be written, it is buried",
                    job_id=id_text(transition.id),
                    transition=type(transition).__name__,
                    trouble=type(error).__name__,
                )
                self._bills.pop((transition.id, transition.token), None)  # it may be what cannot be written
                buried.append(unwritable(transition, error))
            else:
                self._count([transition], answers)
        for transition in buried:
            self._count([transition], await self._settle([transition]))  # an engine that cannot do this can do nothing

    def _count(self, batch: list[Transition], answers: Sequence[Settled]) -> None:
        if batch is self._under_way:
            self._under_way = []
        else:
            answered = {(each.id, each.token) for each in batch}
            self._under_way = [each for each in self._under_way if (each.id, each.token) not in answered]
        if self._roster is not None:
            for transition in batch:
                self._roster.end(transition.id, transition.token)
        report = self._report
        for kind, count in Counter(map(type, batch)).items():
            name = _COUNTED[kind]
            setattr(report, name, getattr(report, name) + count)
        shut: set[str] = set()
        for transition, settled in zip(batch, answers, strict=True):
            if settled.shut:
                shut.update(settled.shut)
            if settled.answer != "done":
                self._refused(transition, settled.answer)
            elif settled.state is State.succeeded and type(transition) is not Succeed:
                self._had_succeeded(transition)
        self.on_answer(batch, shut)

    def _had_succeeded(self, transition: Transition) -> None:
        """The handler's own transaction was committed: the job has succeeded, whatever was asked for it."""
        self._uncount(transition)
        self._report.succeeded += 1
        level = logging.INFO if awaits_commit(transition) else logging.WARNING
        worker_log(
            level,
            "job succeeded in its own transaction",
            job_id=id_text(transition.id),
            instead_of=type(transition).__name__,
        )

    def _uncount(self, transition: Transition) -> None:
        name = _COUNTED[type(transition)]
        setattr(self._report, name, getattr(self._report, name) - 1)

    def _refused(self, transition: Transition, answer: str) -> None:
        self._uncount(transition)
        self._report.stale += 1
        worker_log(
            logging.WARNING,
            "late end refused",
            job_id=id_text(transition.id),
            transition=type(transition).__name__,
            answer=answer,
            token=transition.token,
        )
