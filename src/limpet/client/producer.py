"""Hands jobs to the store: concurrent single enqueues share round trips, and nobody waits past the deadline."""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from limpet.client.late import Asked, late, not_stored
from limpet.core.errors import LimpetError, QueueFull, StoreError, StoreUnreachable
from limpet.core.gate import GateRule
from limpet.core.jobs.ids import IdMaker
from limpet.core.jobs.job import Enqueued, Job, Lane
from limpet.core.jobs.options import UNTIL_DEADLINE
from limpet.core.jobs.witness import Sight, change
from limpet.stores.base import Store
from limpet.stores.callers import apart
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


class Producer:
    """The way of jobs into the store, for every event loop of the process."""

    def __init__(self, store: Callable[[], Store], timeout_s: float) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._pid = 0
        self._posts: dict[asyncio.AbstractEventLoop, Post] = {}  # replaced, never changed: threads read it freely
        self._threads = threading.local()
        self._met: tuple[Store, str] | None = None

    async def enqueue(self, job: Job, rules: Rules) -> Enqueued:
        """Store one job, in one round trip with whatever other callers of this loop ask for meanwhile."""
        return await self.post().add(job, rules)

    async def enqueue_batch(
        self, jobs: Sequence[Job], rules: Rules, stored: Sequence[str] = (), *, again: str = ""
    ) -> list[Enqueued]:
        """Store all jobs or none; `stored` are the ids of the chunks before, `again` is how to ask once more."""
        with followed() as sending:
            try:
                async with asyncio.timeout(self._timeout_s):
                    answers = await self._store().enqueue(jobs, rules)
            except TimeoutError as error:
                asked = Asked([job.id for job in jobs], stored, again)
                raise late(asked, self._timeout_s, sending) from error
            except StoreUnreachable as error:
                if sending.refused:
                    raise not_stored(Asked([job.id for job in jobs], stored, again), error) from error
                raise
        self.recognise()
        return answers

    def recognise(self) -> None:
        """Say so when another store answered than before: what this process had stored there is gone."""
        store, met = self._store(), self._met
        if met is None or met[0] is not store or met[1] != store.identity:
            self._met = store, store.identity
            found = None if met is None or met[0] is not store else change(Sight(met[1]), Sight(store.identity))
            if found is not None:
                logger.error("%s (%s)", found.text, found.fix)

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
            post = Post(self._store, self._timeout_s, self.recognise)
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

    def __init__(self, store: Callable[[], Store], timeout_s: float, answered: Callable[[], None]) -> None:
        self._maker = IdMaker()  # a maker per loop: two threads must never share one
        self._plain = Bag(store, timeout_s, answered)
        self._keyed = Bag(store, timeout_s, answered)

    def new_id(self) -> bytes:
        """A new job id, larger than the last one of this loop."""
        return self._maker.make(time.time_ns() // 1_000_000)

    def add(self, job: Job, rules: Rules) -> asyncio.Future[Enqueued]:
        """Put one job on its way; the future is done within the deadline, one way or the other."""
        return (self._plain if job.unique is None else self._keyed).add(job, rules)


class Bag:
    """Letters that travel together: one call is under way, and those that come meanwhile share the next."""

    def __init__(self, store: Callable[[], Store], timeout_s: float, answered: Callable[[], None]) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._on_answer = answered
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Letter] = deque()
        self._under_way: list[_Letter] = []
        self._sending = Sending()  # of the call that is under way, or was last
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
        told = False
        for letter in (*self._under_way, *self._waiting):
            if letter.answer.done():
                continue
            if letter.until_s > now_s:
                self._alarm = self._loop.call_at(letter.until_s, self._give_up)
                break
            letter.answer.set_exception(late(Asked([letter.job.id]), self._timeout_s, self._sending))
            told = True
        still = [letter for letter in self._under_way if not letter.answer.done()]
        if self._carrier is not None and (not still or (told and self._sending.refused)):
            # No caller waits for this call any more, or it must not store what was just said not to be stored:
            # the letters that are left get a call of their own.
            self._carrier.cancel()
            self._under_way = []
            self._waiting.extendleft(reversed(still))
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
                self._carrier = None
                self._send_again()

    def _send_again(self) -> None:
        """Send anew what a carrier had under way that other code cancelled: a job of the same id is the same job."""
        under_way, self._under_way = self._under_way, []
        self._waiting.extendleft(letter for letter in reversed(under_way) if not letter.answer.done())
        if self._waiting:
            self._carrier = self._loop.create_task(self._carry(), context=apart())

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
            with followed() as self._sending:
                answers = await self._store().enqueue([letter.job for letter in letters], list(rules.values()))
        except StoreUnreachable as error:
            self._fail_unreached(letters, error)
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
            self._on_answer()
            for letter, answer in zip(letters, answers, strict=True):
                if not letter.answer.done():
                    letter.answer.set_result(answer)

    def _fail_unreached(self, letters: Sequence[_Letter], error: StoreUnreachable) -> None:
        if not self._sending.refused:
            _fail(letters, error)
            return
        for letter in letters:
            _fail([letter], not_stored(Asked([letter.job.id]), error))

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
        beyond = [letter for letter, view in zip(crowd[full.room :], known, strict=True) if view is None]
        _fail(beyond, full)
        gone = set(map(id, beyond))
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
