"""Hands jobs to the store of this process.

Concurrent single enqueues share round trips, and no caller waits past the deadline.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence, Sized
from functools import partial
from typing import Final, TypeVar

from limpet.client.late import Asked, late, not_stored
from limpet.core.errors import LimpetError, QueueFull, StoreError, StoreUnreachable, WrongContext
from limpet.core.gate import GateRule
from limpet.core.jobs.ids import IdMaker
from limpet.core.jobs.job import Enqueued, Job, Lane
from limpet.core.jobs.options import UNTIL_DEADLINE
from limpet.core.jobs.witness import Sight, change
from limpet.stores.base import Store
from limpet.stores.callers import apart, has_joined
from limpet.stores.sending import Sending, followed

# Bounds of one shared round trip: far below those of an atomic batch, so that no caller waits long for strangers.
_SHARED_JOBS: Final = 1_000
_SHARED_BYTES: Final = 4 * 1024 * 1024

# Between two looks whether a full queue has room: short at first, and many producers do not come together.
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5

T = TypeVar("T")

Rules = Sequence[GateRule]

logger = logging.getLogger("limpet.client")


class Connection:
    """The store of this process: opened on first use, whichever thread asks first, and again after a fork.

    What a parent opened is never touched by its child.
    """

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        # A parent's store stays in here after a fork: if it were collected, files and locks would be closed
        # that the parent still uses.
        self._stores: dict[int, Store] = {}

    @property
    def is_open(self) -> bool:
        """True when this process has used the store and not closed it since."""
        return os.getpid() in self._stores

    @property
    def store(self) -> Store:
        """The store of this process. It connects with its first verb."""
        pid = os.getpid()
        store = self._stores.get(pid)
        if store is None:
            self._refuse_inherited_memory()
            # Two threads may both make one, and setdefault lets one win: nothing is connected before a verb is asked.
            store = self._stores.setdefault(pid, self._open_store())
        return store

    async def close(self) -> None:
        """Let go of the store; a later use opens it again."""
        store = self._stores.pop(os.getpid(), None)
        if store is not None:
            await store.close()

    def _refuse_inherited_memory(self) -> None:
        if any(not store.features.shared for store in self._stores.values()):
            raise WrongContext(
                "this process is a fork, and a store in memory stays with the process that opened it",
                fix="use a file (sqlite:///jobs.db), or enqueue before the fork",
            )


class Producer:
    """Stores jobs for every event loop of the process."""

    def __init__(
        self,
        connection: Connection,
        timeout_s: float,
        tasks: Sized = (),
        before: Callable[[Store], Awaitable[object]] | None = None,
    ) -> None:
        """`before` tells a store what it must know before it is given jobs: once, and again with more `tasks`."""
        self.connection = connection
        self._tasks, self._before = tasks, before
        self._told: tuple[Store, int] | None = None
        self.timeout_s = timeout_s
        self._pid = 0
        self._batchers: dict[asyncio.AbstractEventLoop, LoopBatcher] = {}  # replaced, never changed: threads read it
        self._threads = threading.local()
        self._met: tuple[Store, str] | None = None

    async def enqueue(self, job: Job, rules: Rules) -> Enqueued:
        """Store one job, in one round trip with the jobs that other callers of this loop ask for meanwhile."""
        return await self.batcher().enqueue(job, rules)

    async def enqueue_batch(
        self,
        jobs: Sequence[Job],
        rules: Rules,
        stored: Sequence[str] = (),
        *,
        again: str = "",
        wait_ms: int | None = None,
    ) -> list[Enqueued]:
        """Store all jobs or none; `stored` are the ids of the chunks before, `again` is how to ask once more.

        While a queue is full it is asked again, for as long as `wait_ms` says.
        """
        call = partial(self.enqueue_once, jobs, rules, stored, again)
        return await (call() if wait_ms is None else self.when_room(wait_ms, call))

    async def enqueue_once(
        self,
        jobs: Sequence[Job],
        rules: Rules,
        stored: Sequence[str] = (),
        again: str = "",
        sending: Sending | None = None,
    ) -> list[Enqueued]:
        """Store all jobs or none, in a call of their own; `sending` says how far it has come."""
        with followed(sending) as sending:
            try:
                async with asyncio.timeout(self.timeout_s):
                    answers = await self.store(jobs, rules)
            except TimeoutError as error:
                asked = Asked([job.id for job in jobs], stored, again)
                raise late(asked, self.timeout_s, sending) from error
            except StoreUnreachable as error:
                if sending.refused:
                    raise not_stored(Asked([job.id for job in jobs], stored, again), error) from error
                raise
        self.recognise()
        return answers

    async def store(self, jobs: Sequence[Job], rules: Rules) -> list[Enqueued]:
        """Store all jobs or none, after what must be there before any job."""
        store, told = self.connection.store, self._told
        if told is None or told[0] is not store or told[1] != len(self._tasks):
            if self._before is not None:
                await self._before(store)
            self._told = store, len(self._tasks)
        return await store.enqueue(jobs, rules)

    def recognise(self) -> None:
        """Say so when another store answered than before: the jobs that this process had stored there are gone."""
        store, met = self.connection.store, self._met
        if met is None or met[0] is not store or met[1] != store.identity:
            self._met = store, store.identity
            found = None if met is None or met[0] is not store else change(Sight(met[1]), Sight(store.identity))
            if found is not None:
                logger.error("%s (%s)", found.text, found.fix)
                self._told = None

    async def when_room(self, wait_ms: int, send: Callable[[], Awaitable[T]]) -> T:
        """The answer of `send`; while the queue is full it is asked again, for as long as the caller waits for room."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + (self.timeout_s if wait_ms == UNTIL_DEADLINE else wait_ms / 1000)
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await send()
            except QueueFull:
                left_s = until_s - loop.time()
                if left_s <= 0:
                    raise
            await asyncio.sleep(min(left_s, pause_s * random.uniform(0.5, 1.0)))
            pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)

    def new_id(self) -> bytes:
        """A new job id, larger than the last one of the running loop, or of this thread when it has none."""
        try:
            return self.batcher().new_id()
        except RuntimeError:  # no loop is running
            maker: IdMaker | None = getattr(self._threads, "maker", None)
            if maker is None:
                maker = self._threads.maker = IdMaker()
            return maker.make(time.time_ns() // 1_000_000)

    def batcher(self) -> LoopBatcher:
        """The pending jobs and the ids of the running loop."""
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid():
            # Futures of the parent's callers are not ours to answer.
            self._batchers, self._pid = {}, os.getpid()
        batcher = self._batchers.get(loop)
        if batcher is None:
            batcher = LoopBatcher(self)
            # Loops that have ended go, so that a program that calls asyncio.run often does not collect them.
            alive = {known: its for known, its in self._batchers.items() if not known.is_closed()}
            self._batchers = {**alive, loop: batcher}
        return batcher


class PendingEnqueue:
    """One caller's job that is not stored yet."""

    __slots__ = ("answer", "job", "rules", "until_s")

    def __init__(self, job: Job, rules: Rules, answer: asyncio.Future[Enqueued], until_s: float) -> None:
        self.job = job
        self.rules = rules
        self.answer = answer
        self.until_s = until_s  # by the loop's clock


class LoopBatcher:
    """The pending jobs and the ids of one event loop.

    A job with a unique key may have to wait for another program that is storing the same key, so those go in calls of
    their own.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._maker = IdMaker()  # a maker per loop: two threads must never share one
        self._plain = SharedBatch(producer)
        self._keyed = SharedBatch(producer)

    def new_id(self) -> bytes:
        """A new job id, larger than the last one of this loop."""
        return self._maker.make(time.time_ns() // 1_000_000)

    async def enqueue(self, job: Job, rules: Rules) -> Enqueued:
        """Store one job within the deadline."""
        batch = self._plain if job.unique is None else self._keyed
        return await (batch.send_alone(job, rules) if batch.is_lone else batch.add(job, rules))

    async def enqueue_when_room(self, job: Job, rules: Rules, wait_ms: int) -> Enqueued:
        """Store one job; while its queue is full it is tried again, for as long as the caller waits for room."""
        return await self._producer.when_room(wait_ms, partial(self.enqueue, job, rules))


class SharedBatch:
    """Jobs that share a call: one call is under way, and jobs that come meanwhile share the next.

    A lone caller makes its call itself: no task, no second turn of the loop. It is one as long as calls carry one job.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._connection = producer.connection
        self._timeout_s = producer.timeout_s
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[PendingEnqueue] = deque()
        self._under_way: list[PendingEnqueue] = []
        self._sending = Sending()  # of the call that is under way, or was last
        self._flushing: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alone = False  # the call under way is that of a lone caller
        self._shares = True  # the last call carried jobs of several callers, or none was made yet

    @property
    def is_lone(self) -> bool:
        """Whether a caller that comes now may be alone: no call is under way, and the last one was not shared."""
        return self._flushing is None and not self._alone and not self._shares

    async def send_alone(self, job: Job, rules: Rules) -> Enqueued:
        """Store the job of a lone caller, in its own task."""
        self._alone, self._sending = True, Sending()
        try:
            (answer,) = await self._producer.enqueue_once([job], rules, sending=self._sending)
        finally:
            self._alone = False
            if self._waiting and self._flushing is None:
                self._flushing = self._begin_flush()
        return answer

    def add(self, job: Job, rules: Rules) -> asyncio.Future[Enqueued]:
        """Put one job in; the future is done within the deadline, with the answer or with an error."""
        loop = self._loop
        pending = PendingEnqueue(job, rules, loop.create_future(), loop.time() + self._timeout_s)
        self._waiting.append(pending)
        if self._flushing is None and not self._alone:
            # A new task runs after the tasks that are ready now: callers of one loop turn go together, and a lone
            # caller waits for no other.
            self._flushing = self._begin_flush()
        if self._alarm is None:
            self._alarm = loop.call_at(pending.until_s, self._give_up)
        return pending.answer

    def _give_up(self) -> None:
        """Fail the callers whose time is over. One alarm serves all: they wait in the order of their deadlines."""
        now_s, self._alarm = self._loop.time(), None
        told = False
        for pending in (*self._under_way, *self._waiting):
            if pending.answer.done():
                continue
            if pending.until_s > now_s:
                self._alarm = self._loop.call_at(pending.until_s, self._give_up)
                break
            pending.answer.set_exception(late(Asked([pending.job.id]), self._timeout_s, self._sending))
            told = True
        still = [pending for pending in self._under_way if not pending.answer.done()]
        if self._flushing is not None and (not still or (told and self._sending.refused)):
            # No caller waits for this call any more, or it must not store a job that was just said not to be stored:
            # the jobs that are left get a call of their own.
            self._flushing.cancel()
            self._under_way = []
            self._waiting.extendleft(reversed(still))
            self._flushing = self._begin_flush() if self._waiting else None

    def _begin_flush(self) -> asyncio.Task[None]:
        # It works for other callers, too: not inside the transaction of this one.
        return self._loop.create_task(self._flush_loop(), context=apart() if has_joined() else None)

    async def _flush_loop(self) -> None:
        me = asyncio.current_task()
        try:
            while self._flushing is me:
                batch = self._take()
                if not batch:
                    return
                self._under_way, self._shares = batch, len(batch) > 1
                await self._deliver(batch)
        finally:
            if self._flushing is me:
                self._flushing = None
                self._send_again()

    def _send_again(self) -> None:
        """Send again what was under way when other code cancelled the flush: a job of the same id is the same job."""
        under_way, self._under_way = self._under_way, []
        self._waiting.extendleft(pending for pending in reversed(under_way) if not pending.answer.done())
        if self._waiting:
            self._flushing = self._begin_flush()

    def _take(self) -> list[PendingEnqueue]:
        batch: list[PendingEnqueue] = []
        size = 0
        while self._waiting and len(batch) < _SHARED_JOBS and size < _SHARED_BYTES:
            pending = self._waiting.popleft()
            if not pending.answer.done():  # a caller that gave up before its job was sent: it is not stored
                batch.append(pending)
                size += len(pending.job.args)
        return batch

    async def _deliver(self, batch: list[PendingEnqueue]) -> None:
        if not batch:
            return
        rules = {rule.key: rule for pending in batch for rule in pending.rules}
        try:
            with followed() as self._sending:
                answers = await self._producer.store([pending.job for pending in batch], list(rules.values()))
        except StoreUnreachable as error:
            self._fail_unreached(batch, error)
        except StoreError as error:
            _fail(batch, error)
        except Exception as error:
            if len(batch) == 1:
                _fail(batch, error)
                return
            if isinstance(error, QueueFull) and len(fitting := await self._fail_beyond(batch, error)) < len(batch):
                await self._deliver(fitting)
                return
            # One bad job refuses the whole call: halve until it stands alone.
            middle = len(batch) // 2
            await self._deliver(batch[:middle])
            await self._deliver(batch[middle:])
        else:
            self._producer.recognise()
            for pending, answer in zip(batch, answers, strict=True):
                if not pending.answer.done():
                    pending.answer.set_result(answer)

    def _fail_unreached(self, batch: Sequence[PendingEnqueue], error: StoreUnreachable) -> None:
        if not self._sending.refused:
            _fail(batch, error)
            return
        for pending in batch:
            _fail([pending], not_stored(Asked([pending.job.id]), error))

    async def _fail_beyond(self, batch: list[PendingEnqueue], full: QueueFull) -> list[PendingEnqueue]:
        """Refuse those that a full queue has no room for, all at once; the others.

        A call that is made again is answered by its job, which is there: such jobs stay.
        """
        crowd = [pending for pending in batch if _is_of(pending.job.lane, full) and pending.job.unique is None]
        try:
            known = await self._connection.store.get([pending.job.id for pending in crowd[full.room :]])
        except StoreError as error:
            _fail(batch, error)
            return []
        beyond = [pending for pending, view in zip(crowd[full.room :], known, strict=True) if view is None]
        _fail(beyond, full)
        gone = set(map(id, beyond))
        return [pending for pending in batch if id(pending) not in gone]


def _is_of(lane: Lane, full: QueueFull) -> bool:
    return lane.queue == full.queue and full.tenant in (None, lane.tenant)


def _fail(batch: Sequence[PendingEnqueue], error: Exception) -> None:
    for pending in batch:
        if not pending.answer.done():
            pending.answer.set_exception(_own(error) if len(batch) > 1 else error)


def _own(error: Exception) -> Exception:
    """A copy per caller: tasks that raise one shared exception would write into each other's tracebacks."""
    if not isinstance(error, LimpetError):
        return error
    mine = copy.copy(error)
    mine.__cause__ = error.__cause__
    return mine
