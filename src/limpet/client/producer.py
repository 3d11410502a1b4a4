"""Hands jobs to the store: concurrent single enqueues share round trips, and nobody waits past the deadline."""

from __future__ import annotations

import asyncio
import copy
import os
import random
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from limpet.core.errors import LimpetError, QueueFull, StoreError, StoreTimeout
from limpet.core.gate import GateRule
from limpet.core.ids import IdMaker, id_text
from limpet.core.job import Enqueued, Job, Lane
from limpet.core.options import UNTIL_DEADLINE
from limpet.stores.base import Store
from limpet.stores.callers import apart

# Bounds of one shared round trip: far below those of an atomic batch, so that no caller waits long for strangers.
_SHARED_JOBS: Final = 1_000
_SHARED_BYTES: Final = 4 * 1024 * 1024

# Between two looks whether a full queue has room: short at first, and many producers do not come together.
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5

T = TypeVar("T")

Rules = Sequence[GateRule]


class EnqueueTimeout(StoreTimeout):
    """The store did not answer in time. `ids` names the jobs: asking again with them is asking for the same jobs."""

    def __init__(self, ids: Sequence[bytes], timeout_s: float, *, stored: Sequence[str] = (), again: str = "") -> None:
        """`stored` are the ids of earlier chunks of the same call, which are safe; `again` is how to ask once more."""
        self.ids = [*stored, *map(id_text, ids)]
        if stored:
            what = f"{len(stored)} jobs are stored, the {len(ids)} after them"
            count = len(self.ids)
            fix = f"ask again with enqueue_many(jobs[:{count}], ids=error.ids, atomic=False), then for jobs[{count}:]"
        elif len(ids) > 1:
            what = f"{len(ids)} jobs"
            fix = "ask again with enqueue_many(jobs, ids=error.ids): they are the same jobs"
        else:
            what, fix = f"job {self.ids[0]}", f'ask again with .options(id="{self.ids[0]}"): it is the same job'
        super().__init__(
            f"the store did not answer within {timeout_s:g} s; {what} may be stored or not",
            verb="enqueue",
            fix=f"{again}: they are the same jobs" if again else fix,
        )


class Producer:
    """The way of jobs into the store, for every event loop of the process."""

    def __init__(self, store: Callable[[], Store], timeout_s: float) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._pid = 0
        self._posts: dict[asyncio.AbstractEventLoop, Post] = {}  # replaced, never changed: threads read it freely
        self._threads = threading.local()

    async def enqueue(self, job: Job, rules: Rules) -> Enqueued:
        """Store one job, in one round trip with whatever other callers of this loop ask for meanwhile."""
        return await self.post().add(job, rules)

    async def enqueue_batch(
        self, jobs: Sequence[Job], rules: Rules, stored: Sequence[str] = (), *, again: str = ""
    ) -> list[Enqueued]:
        """Store all jobs or none; `stored` are the ids of the chunks before, `again` is how to ask once more."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._store().enqueue(jobs, rules)
        except TimeoutError as error:
            raise EnqueueTimeout([job.id for job in jobs], self._timeout_s, stored=stored, again=again) from error

    async def with_room(self, wait_ms: int | None, send: Callable[[], Awaitable[T]]) -> T:
        """What `send` answers; while the queue is full it is asked again, for as long as the caller waits for room."""
        if wait_ms is None:
            return await send()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + (self._timeout_s if wait_ms == UNTIL_DEADLINE else wait_ms / 1000)
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
            return self.post().new_id()
        except RuntimeError:  # no loop is running
            maker: IdMaker | None = getattr(self._threads, "maker", None)
            if maker is None:
                maker = self._threads.maker = IdMaker()
            return maker.make(time.time_ns() // 1_000_000)

    def post(self) -> Post:
        """The letters and ids of the running loop."""
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid():
            # Futures of the parent's callers are not ours to answer.
            self._posts, self._pid = {}, os.getpid()
        post = self._posts.get(loop)
        if post is None:
            post = Post(self._store, self._timeout_s)
            # Loops that have ended go, so that a program that calls asyncio.run often does not collect them.
            alive = {known: its for known, its in self._posts.items() if not known.is_closed()}
            self._posts = {**alive, loop: post}
        return post


class _Letter:
    """One caller's job on its way."""

    __slots__ = ("answer", "job", "rules", "until_s")

    def __init__(self, job: Job, rules: Rules, answer: asyncio.Future[Enqueued], until_s: float) -> None:
        self.job = job
        self.rules = rules
        self.answer = answer
        self.until_s = until_s  # by the loop's clock


class Post:
    """The letters and ids of one event loop.

    A job with a unique key may have to wait for whoever else is storing that key, so those travel apart.
    """

    def __init__(self, store: Callable[[], Store], timeout_s: float) -> None:
        self._maker = IdMaker()  # a maker per loop: two threads must never share one
        self._plain = Bag(store, timeout_s)
        self._keyed = Bag(store, timeout_s)

    def new_id(self) -> bytes:
        """A new job id, larger than the last one of this loop."""
        return self._maker.make(time.time_ns() // 1_000_000)

    def add(self, job: Job, rules: Rules) -> asyncio.Future[Enqueued]:
        """Put one job on its way; the future is done within the deadline, one way or the other."""
        return (self._plain if job.unique is None else self._keyed).add(job, rules)


class Bag:
    """Letters that travel together: one call is under way, and those that come meanwhile share the next."""

    def __init__(self, store: Callable[[], Store], timeout_s: float) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Letter] = deque()
        self._under_way: list[_Letter] = []
        self._carrier: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None

    def add(self, job: Job, rules: Rules) -> asyncio.Future[Enqueued]:
        """Put one job in; the future is done within the deadline, one way or the other."""
        loop = self._loop
        letter = _Letter(job, rules, loop.create_future(), loop.time() + self._timeout_s)
        self._waiting.append(letter)
        if self._carrier is None:
            # A new task runs after those that are ready now: callers of one loop turn go together,
            # and a lone caller waits for nobody.
            self._carrier = loop.create_task(self._carry(), context=apart())
        if self._alarm is None:
            self._alarm = loop.call_at(letter.until_s, self._give_up)
        return letter.answer

    def _give_up(self) -> None:
        """Tell those whose time is over. One alarm serves all: letters wait in the order of their deadlines."""
        now_s, self._alarm = self._loop.time(), None
        for letter in (*self._under_way, *self._waiting):
            if letter.answer.done():
                continue
            if letter.until_s > now_s:
                self._alarm = self._loop.call_at(letter.until_s, self._give_up)
                break
            letter.answer.set_exception(EnqueueTimeout([letter.job.id], self._timeout_s))
        if self._carrier is not None and all(letter.answer.done() for letter in self._under_way):
            # Nobody waits for this call any more; those behind it get a call of their own.
            self._carrier.cancel()
            self._under_way = []
            self._carrier = self._loop.create_task(self._carry(), context=apart()) if self._waiting else None

    async def _carry(self) -> None:
        me = asyncio.current_task()
        try:
            while self._carrier is me:
                letters = self._take()
                if not letters:
                    return
                self._under_way = letters
                await self._deliver(letters)
        finally:
            if self._carrier is me:
                self._carrier, self._under_way = None, []

    def _take(self) -> list[_Letter]:
        letters: list[_Letter] = []
        size = 0
        while self._waiting and len(letters) < _SHARED_JOBS and size < _SHARED_BYTES:
            letter = self._waiting.popleft()
            if not letter.answer.done():  # a caller that gave up before its job was sent: it is not stored
                letters.append(letter)
                size += len(letter.job.args)
        return letters

    async def _deliver(self, letters: list[_Letter]) -> None:
        if not letters:
            return
        rules = {rule.key: rule for letter in letters for rule in letter.rules}
        try:
            answers = await self._store().enqueue([letter.job for letter in letters], list(rules.values()))
        except StoreError as error:
            _fail(letters, error)
        except Exception as error:
            if len(letters) == 1:
                _fail(letters, error)
                return
            if isinstance(error, QueueFull) and len(fitting := await self._fail_beyond(letters, error)) < len(letters):
                await self._deliver(fitting)
                return
            # One bad job refuses the whole call: halve until it stands alone.
            middle = len(letters) // 2
            await self._deliver(letters[:middle])
            await self._deliver(letters[middle:])
        else:
            for letter, answer in zip(letters, answers, strict=True):
                if not letter.answer.done():
                    letter.answer.set_result(answer)

    async def _fail_beyond(self, letters: list[_Letter], full: QueueFull) -> list[_Letter]:
        """Refuse those that a full queue has no room for, all at once; the others.

        A call that is made again is answered by its job, which is there: such letters stay.
        """
        crowd = [letter for letter in letters if _is_of(letter.job.lane, full) and letter.job.unique is None]
        try:
            known = await self._store().get([letter.job.id for letter in crowd[full.room :]])
        except StoreError as error:
            _fail(letters, error)
            return []
        late = [letter for letter, view in zip(crowd[full.room :], known, strict=True) if view is None]
        _fail(late, full)
        gone = set(map(id, late))
        return [letter for letter in letters if id(letter) not in gone]


def _is_of(lane: Lane, full: QueueFull) -> bool:
    return lane.queue == full.queue and full.group in (None, lane.group)


def _fail(letters: Sequence[_Letter], error: Exception) -> None:
    for letter in letters:
        if not letter.answer.done():
            letter.answer.set_exception(_own(error) if len(letters) > 1 else error)


def _own(error: Exception) -> Exception:
    """A copy per caller: tasks that raise one shared exception would write into each other's tracebacks."""
    if not isinstance(error, LimpetError):
        return error
    mine = copy.copy(error)
    mine.__cause__ = error.__cause__
    return mine
