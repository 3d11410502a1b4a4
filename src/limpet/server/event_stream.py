"""Writes live events as server-sent events: ids to continue after, heartbeats, and counts for pages that want few."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec
from starlette.responses import StreamingResponse

from limpet.core.jobs.state import State
from limpet.core.records.live import EventGap, JobCounts, LiveEvent
from limpet.ops.feed import EventStream, Feed
from limpet.server.waiting import Barred

MEDIA_TYPE: Final = "text/event-stream"
HEARTBEAT_S: Final = 15.0  # a proxy that hears nothing for a minute hangs up
PAUSE_S: Final = 0.05  # between two messages of one stream: what comes meanwhile shares the next
LIFE_S: Final = 300.0  # then the client connects again, and the hook of a mounted app is asked again
RETRY_MS: Final = 1_000  # how soon a client connects again
HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}  # proxies must not hold it back


async def streamed(feed: Feed, stream: EventStream, every_s: float, barred: Barred) -> StreamingResponse:
    """The answer, once the stream listens; it ends when its reader's token does."""
    await stream.__aenter__()
    return StreamingResponse(_written(feed, stream, every_s, barred), media_type=MEDIA_TYPE, headers=HEADERS)


async def _written(feed: Feed, stream: EventStream, every_s: float, barred: Barred) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    until_s = loop.time() + LIFE_S
    watching = asyncio.ensure_future(barred())
    watching.add_done_callback(lambda done: stream.end())
    try:
        yield b"retry: %d\n%b" % (RETRY_MS, b"\n" if stream.has_more else _place(feed.last_id))
        while (left_s := until_s - loop.time()) > 0:
            try:
                async with asyncio.timeout(min(HEARTBEAT_S, left_s)):
                    await stream.wait()
            except TimeoutError:
                yield b": heartbeat\n" + _place(feed.last_id)
                continue
            if not (found := stream.take()):
                return
            if every_s:
                # The id comes last: a client that gets a part of the message gets all of it again.
                yield b"".join(map(_frame, summed(found))) + _place(found[-1].id)
            else:
                yield b"".join(map(_told, found))
            await stream.pause(max(every_s, PAUSE_S))
    finally:
        watching.cancel()
        await stream.aclose()


def _place(id: str) -> bytes:
    """The id to continue after, without an event."""
    return b"id: %b\n\n" % id.encode()


@lru_cache(maxsize=4_096)  # each is made once for all streams
def _told(event: LiveEvent) -> bytes:
    return b"id: %b\n" % event.id.encode() + _frame(event)


def _frame(event: LiveEvent) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.type.encode(), msgspec.json.encode(event.to_dict()))


def summed(events: Sequence[LiveEvent]) -> list[LiveEvent]:
    """The same as counts, after a gap if there was one."""
    last = events[-1]
    counts: Counter[tuple[str | None, str | None, State]] = Counter()
    gap: EventGap | None = None
    for event in events:
        if isinstance(event, EventGap):
            gap = event
        else:
            counts[event.queue, event.task, event.state] += event.count if isinstance(event, JobCounts) else 1
    found = [
        JobCounts(id=last.id, at=last.at, queue=queue, task=task, state=state, count=count)
        for (queue, task, state), count in counts.items()
    ]
    return [*found] if gap is None else [gap, *found]
