"""Writes transitions to the store: what ended while one write was under way goes into the next."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from contextlib import suppress
from itertools import islice
from typing import Final

from limpet.core.endings.decide import awaits_commit, unwritable
from limpet.core.endings.transition import (
    Release,
    Settled,
    Succeed,
    Transition,
)
from limpet.core.errors import StoreError
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Claimed, Held, Note
from limpet.core.jobs.state import State
from limpet.core.limits.spending import Bill
from limpet.runtime.barred_gates import BarredGates
from limpet.runtime.log import worker_log
from limpet.runtime.part import Part
from limpet.runtime.patient_store import PatientStore
from limpet.runtime.roster import Roster
from limpet.runtime.settings import WorkReport

MOST_PER_CALL: Final = 1_000  # what every engine settles in one bounded step
SHARE: Final = 8  # where leases are settled apart, one that fills this part of a batch is
NOTES_PER_BEAT: Final = 500  # a chatty worker must not make a beat slow


class Notebook:
    """Notes of running jobs that wait for the next beat. Any thread may write; a newer note replaces the older.

    `on_news` is called, in the thread that writes, for the first note since the last beat that should be seen `soon`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notes: dict[tuple[bytes, int, str, str], Note] = {}
        self._taken: tuple[tuple[bytes, int, Note], ...] = ()  # by the beat that is under way
        self._told = False
        self.overflows = False  # the last beat could not take all
        self.on_news: Callable[[], None] | None = None

    def add(self, id: bytes, token: int, note: Note, *, soon: bool = False) -> None:
        with self._lock:
            self._notes[id, token, note.kind, note.name] = note
            tells = soon and not self._told
            self._told = self._told or soon
        if tells and self.on_news is not None:
            self.on_news()

    def take(self) -> tuple[tuple[bytes, int, Note], ...]:
        """The oldest that wait; the caller puts them back when they could not be written."""
        with self._lock:
            self._told = False
            keys = list(islice(self._notes, NOTES_PER_BEAT))
            self._taken = tuple((key[0], key[1], self._notes.pop(key)) for key in keys)
            self.overflows = bool(self._notes)
            return self._taken

    def __len__(self) -> int:
        return len(self._notes)

    @property
    def has_words(self) -> bool:
        """False when no note waits, or is under way."""
        return bool(self._notes or self._taken)

    def holds(self, jobs: Set[tuple[bytes, int]]) -> bool:
        """True when something that one of these has said, by its id and token, is not written yet."""
        with self._lock:
            waiting = any(key[:2] in jobs for key in self._notes)
            return waiting or any((id, token) in jobs for id, token, _ in self._taken)

    def written(self) -> None:
        """Those that were taken are in the store."""
        self._taken = ()

    def put_back(self) -> None:
        """Those that were taken could not be written."""
        with self._lock:
            for id, token, note in self._taken:
                self._notes.setdefault((id, token, note.kind, note.name), note)
            self._taken = ()


class SettleQueue:
    """The transitions that wait to be written, and those of the write that is under way."""

    def __init__(self, notebook: Notebook, batch: int = MOST_PER_CALL, *, by_lease: bool = False) -> None:
        self.notebook = notebook
        self.waiting: list[Transition] = []
        self._most = min(batch, MOST_PER_CALL)
        self._worth_a_call = max(1, self._most // SHARE) if by_lease else self._most  # jobs of one lease
        self._batches: deque[int] = deque()  # sizes of those among the waiting that nothing is added to any more
        self._size = 0  # of the batch after them
        self._same_lease = 0  # its newest jobs, all of one lease
        self.bills: dict[tuple[bytes, int], Bill] = {}  # of those among them that said what they cost
        self.under_way: list[Transition] = []  # of the batch that is being written, those without an answer
        self.news = asyncio.Event()

    @property
    def unsettled(self) -> int:
        """Transitions that the store has not confirmed."""
        return len(self.waiting) + len(self.under_way)

    def fits(self, token: int) -> bool:
        """Whether the end of a job of that lease is written in one step with all that waits."""
        return not self._batches and not self._is_over(token)

    def _is_over(self, token: int) -> bool:
        """Whether the last batch takes no job of that lease: it is full, or ends with many jobs of another lease."""
        ends = self._same_lease >= self._worth_a_call and self.waiting[-1].token != token
        return ends or self._size >= self._most

    def keys(self) -> set[tuple[bytes, int]]:
        """Id and token of every job whose end is not written yet."""
        return {(each.id, each.token) for each in (*self.waiting, *self.under_way)}

    def left(self) -> tuple[list[Transition], dict[bytes, dict[str, int]]]:
        """The transitions that are not written, and their costs for the gates: another process may still write them."""
        spent = {id: dict(bill.costs) for (id, _), bill in self.bills.items()}
        return [*self.under_way, *self.waiting], spent

    def put(self, transition: Transition, bill: Bill | None = None) -> None:
        """Settle this with the next write."""
        if bill is not None:
            self.bills[transition.id, transition.token] = bill
            self.notebook.add(transition.id, transition.token, bill.note)
        waiting = self.waiting
        if self._is_over(transition.token):
            self._batches.append(self._size)
            self._size = self._same_lease = 0
        self._same_lease = self._same_lease + 1 if self._size and waiting[-1].token == transition.token else 1
        self._size += 1
        waiting.append(transition)
        if len(waiting) == 1:
            self.news.set()

    def release(self, jobs: Iterable[Claimed | Held]) -> None:
        """Hand jobs back that have not started."""
        for job in jobs:
            self.put(Release(job.id, job.token))

    def take(self) -> list[Transition]:
        """The next batch to write; it is under way from here on."""
        if self._batches:
            size = self._batches.popleft()
        else:
            size, self._size, self._same_lease = self._size, 0, 0
        batch = self.under_way = self.waiting[:size]
        del self.waiting[:size]
        return batch

    def answered(self, batch: list[Transition]) -> None:
        """These are written."""
        if batch is self.under_way:
            self.under_way = []
        else:
            keys = {(each.id, each.token) for each in batch}
            self.under_way = [each for each in self.under_way if (each.id, each.token) not in keys]


class Settler(Part):
    """Group commit: flushes at once when idle, and never has two writes under way.

    Before a write `last_words` waits for the notes of its jobs; after all is written `on_written` is called. When an
    answer lets held jobs start, `start_held` does that.
    """

    name = "settler"

    def __init__(
        self,
        queue: SettleQueue,
        store: PatientStore,
        session: str,
        report: WorkReport,
        gates: BarredGates,
        start_held: Callable[[], None],
        *,
        roster: Roster | None = None,
        last_words: Callable[[Set[tuple[bytes, int]]], Awaitable[None]] | None = None,
        on_written: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self._queue = queue
        self._store = store
        self._session = session
        self._report = report
        self._roster = roster
        self._gates = gates
        self._start_held = start_held
        self._last_words = last_words
        self._on_written = on_written
        self._asked: list[Transition] | None = None  # with the last number; None once it was answered
        self._seq = 0
        self._closing = False

    async def live(self, ready: Callable[[], None]) -> None:
        ready()
        queue = self._queue
        if queue.under_way:
            await self._write(queue.under_way)  # cancelled in the middle: the same number gets the same answer
        while True:
            while queue.waiting:
                await self._write(queue.take())
            if self._on_written is not None:
                self._on_written()
            if self._closing:
                return
            queue.news.clear()
            await queue.news.wait()

    async def finish(self, timeout_s: float) -> int:
        """Write what is left, for as long as the store may take; how many remain unwritten."""
        self._closing = True
        self._queue.news.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._task is not None and (not self._task.done() or self._task.cancelled()):
                    await asyncio.wait({self._task})
                    await asyncio.sleep(0)  # one that was cancelled by other code is started again in between
        await self.stop()
        return self._queue.unsettled

    async def _write(self, batch: list[Transition]) -> None:
        self._gates.runs.clear()  # all that has ended so far is on its way to the store
        if self._last_words is not None and self._queue.notebook.has_words:
            await self._last_words({(each.id, each.token) for each in batch})
        try:
            answers = await self._settle(batch)
        except StoreError:
            raise
        except Exception as error:
            # One of them is more than the engine can write, and nothing of the batch was written: find it.
            worker_log(
                logging.ERROR,
                "the store refused a batch of ends of jobs, writing them one by one",
                count=len(batch),
                error=repr(error),
            )
            await self._write_apart(batch)
        else:
            self._count(batch, answers)

    async def _settle(self, batch: list[Transition]) -> Sequence[Settled]:
        if batch is not self._asked:
            self._seq += 1
            self._asked = batch
        seq = self._seq
        if self._queue.bills:
            answers = await self._settle_with_bills(seq, batch)
        else:
            answers = await self._store.settle(self._session, seq, batch)
        self._asked = None
        return answers

    async def _settle_with_bills(self, seq: int, batch: list[Transition]) -> Sequence[Settled]:
        """The actual costs go to the gates with the transitions."""
        keys = [(each.id, each.token) for each in batch]
        said = self._queue.bills
        bills = {key: said[key] for key in sorted(keys, key=lambda key: key[1]) if key in said}
        spent = {id: bill.costs for (id, _), bill in bills.items()}  # of two attempts of a job the later one counts
        answers = await self._store.settle(self._session, seq, batch, spent=spent)
        for key in bills:
            del said[key]
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
                    "could not write the end of a job, the job is dead now",
                    job_id=id_text(transition.id),
                    transition=type(transition).__name__,
                    trouble=type(error).__name__,
                )
                self._queue.bills.pop((transition.id, transition.token), None)  # it may be what cannot be written
                buried.append(unwritable(transition, error))
            else:
                self._count([transition], answers)
        for transition in buried:
            self._count([transition], await self._settle([transition]))  # an engine that cannot do this can do nothing

    def _count(self, batch: list[Transition], answers: Sequence[Settled]) -> None:
        self._queue.answered(batch)
        if self._roster is not None:
            for transition in batch:
                self._roster.end(transition.id, transition.token)
        report = self._report
        for counter, count in Counter(each.counted for each in batch).items():
            setattr(report, counter, getattr(report, counter) + count)
        shut: set[str] = set()
        for transition, settled in zip(batch, answers, strict=True):
            if settled.shut:
                shut.update(settled.shut)
            if settled.answer != "done":
                self._refused(transition, settled.answer)
            elif settled.state is State.succeeded and type(transition) is not Succeed:
                self._had_succeeded(transition)
        if (shut or self._gates.unanswered) and (back := self._gates.answered(batch, shut)) is not None:
            self._queue.release(back)
            self._start_held()
            self._gates.claim_again()

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
        setattr(self._report, transition.counted, getattr(self._report, transition.counted) - 1)

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
