"""Carries jobs from an outbox to a store, batch by batch, so that each arrives once wherever this is broken off.

A turn at the outbox sees the batch through that the turn before has stamped, then stamps the next one. Which rows a
batch has is committed before it is sent, and they are removed after it has arrived; the store takes a batch together
with its number, and takes each number once. So a relay that does not know the result of the last batch sends it again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal

from msgspec import Struct

from limpet.core.errors import LimpetError, QueueDraining, QueueFull, SchemaOutdated, StoreError, UnknownParent
from limpet.core.gate import GateRule
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Enqueued, Job
from limpet.core.text.storable import storable
from limpet.outbox.row import Letter, Row, Unreadable, unpack
from limpet.outbox.table import Kind, Table, Turn, outbox_log
from limpet.stores.base import MARK, Store

BATCH: Final = 500  # rows: a commit of the database and a call of the store are shared by this number

Step = Literal["moved", "idle", "busy"]


FIRST_S: Final = 1.0
LONGEST_S: Final = 15.0  # a queue that is resumed gets its jobs within this time


class _Wait(Struct):
    pause_s: float
    until_s: float


class Waits:
    """Jobs of these kinds stay in the line, in their order, while others pass them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[Kind, _Wait] = {}

    def put(self, kind: Kind) -> bool:
        """It was refused (again): leave it alone for a while, longer each time. True when that is new."""
        known = self._kinds.get(kind)
        pause_s = FIRST_S if known is None else min(LONGEST_S, 2 * known.pause_s)
        self._kinds[kind] = _Wait(pause_s, self._clock() + pause_s)
        return known is None

    def now(self) -> list[Kind]:
        """The rows that are not to be tried yet."""
        now_s = self._clock()
        return [kind for kind, wait in self._kinds.items() if wait.until_s > now_s]

    def went(self, kind: Kind) -> bool:
        """A job of this kind was taken. True when it had been waiting."""
        return self._kinds.pop(kind, None) is not None

    def __len__(self) -> int:
        return len(self._kinds)


class Report(Struct):
    """What was done: rows that have arrived, those of them that another job stands for, rows that were set aside."""

    relayed: int = 0
    duplicates: int = 0
    failed: int = 0


class Carrier:
    """One relay's hands. It keeps nothing that would be missed if it were killed."""

    def __init__(self, store: Store, table: Table, *, batch: int = BATCH) -> None:
        self.report = Report()
        self._store = store
        self._table = table
        self._most = self._limit = batch
        self._mark: int | None = None  # how far the store has come, as far as is known
        self._waits = Waits()

    async def step(self) -> Step:
        """See one batch through and stamp the next. Trouble is raised, and then the same step is done again."""
        stuck: SchemaOutdated | None = None
        did: Step = "busy"
        try:
            async with self._table.turn() as turn:
                if turn is not None:
                    rows = await turn.under_way()
                    if rows:
                        await self._send(turn, rows)
                    found, stuck = await self._stamp(turn)
                    did = "moved" if rows or found else "idle"
        except BaseException:
            self._mark = None
            raise
        if stuck is not None:
            raise stuck  # after the turn was committed
        return did

    # -- a batch that is under way

    async def _send(self, turn: Turn, rows: Sequence[Row]) -> None:
        letters = _read(rows)
        if letters is None:
            # The relay that stamped it could read it: it was sent whole, or not at all.
            if await self._has_arrived(turn):
                await self._remove(turn, rows)
            else:
                await self._let_go(turn)
            return
        jobs = [letter.job for letter in letters]
        began_s = time.monotonic()
        try:
            answers = await self._store.relay(turn.source, turn.batch, jobs, _rules(letters))
        except StoreError:
            raise
        except Exception as refusal:
            if not await self._has_arrived(turn):
                await self._let_go(turn)
                await self._refused(turn, rows, jobs, refusal)
                return
            answers = []  # it was not refused: it has arrived, and what it answered could not be read
        if answers is None and not await self._has_arrived(turn):
            # The store is further, and these rows are here all the same: a copy of this database was relayed there, or
            # a backup was put back. They go again under a number of their own; jobs that are there are the same jobs.
            outbox_log(logging.WARNING, "batch is older than the store's mark, sent again", batch=turn.batch)
            await self._let_go(turn)
            return
        await self._remove(turn, rows)
        self._mark = turn.batch
        self._limit = min(self._most, 2 * self._limit)
        self._tell(rows, jobs, answers or [])
        outbox_log(logging.INFO, "relayed", jobs=len(rows), ms=round(1000 * (time.monotonic() - began_s)))

    async def _has_arrived(self, turn: Turn) -> bool:
        self._mark = await self._mark_of(turn.source)
        return self._mark == turn.batch

    async def _mark_of(self, source: str) -> int:
        marks = await self._store.controls(MARK)
        return next((int(mark.value) for mark in marks if mark.name == source), 0)

    async def _remove(self, turn: Turn, rows: Sequence[Row]) -> None:
        await turn.remove([row.seq for row in rows])
        await turn.stamp(turn.batch, ())
        self.report.relayed += len(rows)

    async def _let_go(self, turn: Turn) -> None:
        """The rows are in the line again, and the batch never was.

        A relay that was given up for dead may still have it on its way: then the jobs are there under their ids.
        """
        await turn.stamp(turn.batch, ())

    def _tell(self, rows: Sequence[Row], jobs: Sequence[Job], answers: Sequence[Enqueued]) -> None:
        for kind in {(row.queue, row.task) for row in rows}:
            if self._waits.went(kind):
                outbox_log(logging.INFO, "taken again", queue=kind[0], task=kind[1])
        for row, job, answer in zip(rows, jobs, answers, strict=False):
            if answer.id != job.id:
                self.report.duplicates += 1
                about = {"job_id": row.id, "queue": row.queue, "task": row.task}
                outbox_log(logging.INFO, "duplicate", **about, stands_for=id_text(answer.id))

    # -- what was refused

    async def _refused(self, turn: Turn, rows: Sequence[Row], jobs: Sequence[Job], refusal: Exception) -> None:
        """One bad job refuses its batch: smaller ones follow until it stands alone."""
        if len(rows) > 1:
            self._limit = len(rows) // 2
            return
        (row,), (job,) = rows, jobs
        if not await self._may_pass(turn, job, refusal):
            await self._set_aside(turn, row, refusal)
        elif self._waits.put((row.queue, row.task)):
            about = {"job_id": row.id, "queue": row.queue, "task": row.task}
            outbox_log(logging.WARNING, "not taken now, it waits", **about, reason=_words(refusal))

    async def _may_pass(self, turn: Turn, job: Job, refusal: Exception) -> bool:
        """True when the same job may be taken later by itself."""
        if isinstance(refusal, QueueDraining | QueueFull):
            return True
        return isinstance(refusal, UnknownParent) and await turn.holds([id_text(parent) for parent in job.after])

    async def _set_aside(self, turn: Turn, row: Row, error: Exception) -> None:
        await turn.set_aside(row.seq, storable(_words(error)))
        self.report.failed += 1
        about = {"job_id": row.id, "queue": row.queue, "task": row.task}
        outbox_log(logging.ERROR, "set aside", **about, reason=_words(error))

    # -- the next batch

    async def _stamp(self, turn: Turn) -> tuple[bool, SchemaOutdated | None]:
        """Decide what the next batch is; whether there was anything, and what stops the line if something does."""
        rows = await turn.fresh(self._limit, self._waits.now())
        seqs: list[int] = []
        stuck: SchemaOutdated | None = None
        for row in rows:
            try:
                unpack(row)
            except Unreadable as error:
                await self._set_aside(turn, row, error)
            except SchemaOutdated as error:
                stuck = error
                break
            else:
                seqs.append(row.seq)
        if seqs:
            if turn.moved:
                await turn.rename()
                self._mark = 0  # no relay has used this name before
            await turn.stamp(await self._next_number(turn), seqs)
        return bool(rows), None if seqs else stuck

    async def _next_number(self, turn: Turn) -> int:
        """Larger than any before, here and in the store; by the clock, so that copies that look alike hardly meet."""
        if self._mark is None:
            self._mark = await self._mark_of(turn.source)
        return max(time.time_ns() // 1_000, turn.batch + 1, self._mark + 1)


def _read(rows: Sequence[Row]) -> list[Letter] | None:
    try:
        return [unpack(row) for row in rows]
    except (Unreadable, SchemaOutdated):
        return None


def _rules(letters: Sequence[Letter]) -> list[GateRule]:
    """Every rule once, as the last job that names it says it."""
    return list({rule.key: rule for letter in letters for rule in letter.rules}.values())


def _words(error: Exception) -> str:
    return error.message if isinstance(error, LimpetError) else f"{type(error).__name__}: {error}"
