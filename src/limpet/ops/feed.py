"""Reads live events for one event loop: one subscription for all its readers, each with a filter of its own.

It numbers what it passes on as (epoch, number), keeps the newest, and marks every gap that it knows of.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self
from weakref import WeakSet

from limpet.core.errors import StoreError
from limpet.core.jobs.bulletin import Bulletin, Moved, read_bulletin
from limpet.core.records.live import EventGap, GapReason, JobCounts, JobEvent, LiveEvent
from limpet.ops.wanted import Sees, Wanted
from limpet.stores.asking import broadcasting
from limpet.stores.base import Store

LEASE_MS: Final = 15_000  # a reader that was killed costs nothing after this time
RENEW_S: Final = 5.0
KNOWN_S: Final = 15.0  # by then publishers that told something before we listened have told us, or are new
KEPT: Final = 10_000  # events that a reader which comes back can still get
MOST_WAITING: Final = 10_000  # events that wait for one slow reader
MOST_PUBLISHERS: Final = 10_000


class Feed:
    """The live events of one store. It listens while it has readers, and `linger_s` longer."""

    def __init__(self, store: Store, *, linger_s: float = 0.0, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock_s = clock_s
        self._linger_s = linger_s
        self._streams: WeakSet[EventStream] = WeakSet()  # a loop that is left with `break` drops its stream
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = asyncio.Lock()
        self._stop: Callable[[], None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._began_s = 0.0
        self._forget()

    def _forget(self) -> None:
        """Begin with a new epoch: ids from before mean nothing now."""
        self.epoch = os.urandom(4).hex()
        self._number = 0
        self._kept: deque[tuple[int, LiveEvent]] = deque(maxlen=KEPT)
        self._next: dict[str, int] = {}  # by publisher: the number that comes next

    def events(self, query: str = "", *, after: str | None = None, sees: Sees | None = None) -> EventStream:
        """A stream of the events that a reader wants, from now on, or from `after` on, the id of an event."""
        return EventStream(self, Wanted(query, sees), after)

    @property
    def readers(self) -> int:
        """Streams that have not ended."""
        return len(self._streams)

    @property
    def last_id(self) -> str:
        """The id of the newest event."""
        return f"{self.epoch}-{self._number}"

    def close(self) -> None:
        """End all streams, and listen no more. Idempotent."""
        for stream in list(self._streams):
            stream.end()
        self._end()

    # -- listening

    async def join(self, stream: EventStream, after: str | None) -> None:
        """Give the stream what comes from here on; begin to listen for the first one."""
        async with self._starting:
            if self._stop is None:
                await self._begin()
            if self._ending is not None:
                self._ending.cancel()
                self._ending = None
            self._streams.add(stream)
        if after is not None:
            self._replay(stream, after)

    def leave(self, stream: EventStream) -> None:
        """The stream has ended."""
        self._streams.discard(stream)
        self._end_later()

    def drop(self) -> None:
        """A stream was dropped, in any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end_later)

    def _end_later(self) -> None:
        if not self._streams and self._stop is not None and self._ending is None and self._loop is not None:
            self._ending = self._loop.call_later(self._linger_s, self._end_if_unused)

    async def _begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = await broadcasting(self._store).subscribe(self._hear)
        self._began_s = self._clock_s()
        try:
            await self._renew()
        except BaseException:
            self._end()
            raise
        self._renewing = self._loop.create_task(self._keep(), name="limpet-feed")

    async def _keep(self) -> None:
        """Renew the lease. Who wakes far too late was frozen, and may have missed what was sent meanwhile."""
        while True:
            slept_s = time.monotonic()
            await asyncio.sleep(RENEW_S)
            if time.monotonic() - slept_s > 2 * RENEW_S:
                self._gap("lost")
            with suppress(StoreError):  # it is away: the connection of the subscription tells that
                await self._renew()

    async def _renew(self) -> None:
        await broadcasting(self._store).announce(await self._store.now() + LEASE_MS)

    def _end_if_unused(self) -> None:
        self._ending = None
        if not self._streams:
            self._end()

    def _end(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        if self._ending is not None:
            self._ending.cancel()
        if self._stop is not None:
            self._stop()
        self._stop = self._renewing = self._ending = None
        self._forget()

    # -- passing on

    def _hear(self, message: str | None) -> None:
        if message is None:
            self._gap("lost")
        elif (bulletin := read_bulletin(message)) is not None:
            if self._misses(bulletin):
                self._gap("lost")
            for each in bulletin.news:
                id = self._id()
                if isinstance(each, Moved):
                    self._pass_on(JobEvent.of(each, id))
                else:
                    self._pass_on(JobCounts.of(each, id, bulletin.at_ms))

    def _misses(self, bulletin: Bulletin) -> bool:
        """Whether something is missing before this message."""
        expected = self._next.get(bulletin.publisher)
        if expected is None:
            if len(self._next) >= MOST_PUBLISHERS:
                del self._next[next(iter(self._next))]
            was_there = self._clock_s() - self._began_s < KNOWN_S
            expected = bulletin.number if was_there else 1
        self._next[bulletin.publisher] = bulletin.number + 1
        return bulletin.number != expected or bulletin.lost > 0

    def _id(self) -> str:
        self._number += 1
        return self.last_id

    def _gap(self, reason: GapReason) -> None:
        self._pass_on(EventGap.of(reason, self._id(), _now_ms()))

    def _pass_on(self, event: LiveEvent) -> None:
        self._kept.append((self._number, event))
        for stream in list(self._streams):
            stream.offer(event)

    def _replay(self, stream: EventStream, after: str) -> None:
        """Give the stream what is kept after an id; a gap when that is not known."""
        epoch, _, digits = after.rpartition("-")
        number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else -1
        first = self._kept[0][0] if self._kept else self._number + 1
        if epoch != self.epoch or not first - 1 <= number <= self._number:
            stream.offer(EventGap.of("unknown_id", self.last_id, _now_ms()))
            return
        for kept, event in self._kept:
            if kept > number:
                stream.offer(event)


class EventStream:
    """The events that one reader wants: `async for event in stream`, or `async with` to listen from a moment on.

    A reader that takes them too slowly loses them, and gets a gap instead.
    """

    def __init__(self, feed: Feed, wanted: Wanted, after: str | None) -> None:
        self._feed = feed
        self._wanted = wanted
        self._after = after
        self._waiting: deque[LiveEvent] = deque()
        self._news = asyncio.Event()
        self._over = asyncio.Event()
        self._joined = False

    async def __aenter__(self) -> Self:
        await self._join()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LiveEvent:
        """The next event, as soon as there is one."""
        await self.wait()
        if not self._waiting:
            raise StopAsyncIteration
        return self._waiting.popleft()

    async def wait(self) -> None:
        """Return when there is an event, or will be none."""
        await self._join()
        while not self._waiting and not self._over.is_set():
            self._news.clear()
            await self._news.wait()

    def take(self) -> list[LiveEvent]:
        """All that has come since the last call."""
        found = list(self._waiting)
        self._waiting.clear()
        return found

    async def pause(self, seconds: float) -> None:
        """Let events gather; not beyond the end of the stream."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()

    @property
    def has_more(self) -> bool:
        """True when the next event is there already."""
        return bool(self._waiting)

    async def aclose(self) -> None:
        """Read no more. Idempotent."""
        self.end()

    def end(self) -> None:
        """Read no more: who waits for an event is told that there is none."""
        self._over.set()
        self._news.set()
        if self._joined:
            self._feed.leave(self)

    def offer(self, event: LiveEvent) -> None:
        """An event has come."""
        if not self._wanted(event):
            return
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.clear()
            event = EventGap.of("slow", event.id, _now_ms())
        self._waiting.append(event)
        self._news.set()

    async def _join(self) -> None:
        if not self._joined and not self._over.is_set():
            self._joined = True
            try:
                await self._feed.join(self, self._after)
            except BaseException:
                self._joined = False
                raise

    def __del__(self) -> None:
        if self._joined and not self._over.is_set():
            self._feed.drop()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
