"""Shows events as they come (`limpet events --follow`): live ones of jobs, and between them new lines of the log."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final

from limpet.core.errors import StoreError
from limpet.core.records.live import EventGap, JobCounts, JobEvent, LiveEvent
from limpet.core.records.log import EventRecord
from limpet.core.records.record import plain

if TYPE_CHECKING:
    from limpet.cli.terminal import Terminal
    from limpet.ops import EventStream, Operator

LOOK_S: Final = 1.0  # between two looks at the log
PAGE: Final = 1_000


class Follower:
    """Prints what comes, until Ctrl-C or after `most` lines. The log is followed where no query asks for jobs alone."""

    def __init__(self, terminal: Terminal, operator: Operator, *, log: bool, most: int | None) -> None:
        self._terminal = terminal
        self._operator = operator
        self._follows_log = log
        self._left = most
        self._seq = 0  # of the last line of the log that was shown
        self._is_away = False

    async def follow(self, query: str, before: int, since_ms: int) -> int:
        """Begin with at most `before` lines of the log; the exit code."""
        try:
            async with self._operator.live_events(query) as stream:
                if self._follows_log:
                    for entry in await self._operator.events(before, since_ms=since_ms):
                        self._seq = entry.seq
                        self._show(entry)
                while self._left is None or self._left > 0:
                    await self._next(stream)
        except asyncio.CancelledError:
            return 0  # Ctrl-C is a good end
        return 0

    async def _next(self, stream: EventStream) -> None:
        """Show what comes within a second, then what is new in the log."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LOOK_S
        while loop.time() < until_s and self._left != 0:
            try:
                async with asyncio.timeout_at(until_s):
                    self._show(await anext(stream))
            except TimeoutError:
                break
            if not stream.has_more:
                sys.stdout.flush()
        if self._follows_log and self._left != 0:
            await self._look()
        sys.stdout.flush()

    async def _look(self) -> None:
        try:
            found = await self._operator.events(PAGE, after=self._seq)
        except StoreError as error:
            if not error.retryable:
                raise
            if not self._is_away:
                self._terminal.say(f"the store is away: {error.message}", keep=True)
            self._is_away = True
            return
        self._is_away = False
        for entry in found:
            self._seq = entry.seq
            self._show(entry)

    def _show(self, event: LiveEvent | EventRecord) -> None:
        if self._left == 0:
            return
        if self._left is not None:
            self._left -= 1
        if not self._terminal.jsonl:
            self._terminal.text(line_of_event(event))
        elif isinstance(event, EventRecord):
            self._terminal.lines([{"type": "log", **event.to_dict()}])
        else:
            self._terminal.lines([event])


def line_of_event(event: LiveEvent | EventRecord) -> str:
    """One line for people; its second word tells the log from live events."""
    at: Any = plain(event.at)
    match event:
        case EventRecord():
            return f"{at}  log   {event.text}"
        case EventGap():
            return f"{at}  gap   {event.text}; what is shown by other commands counts"
        case JobCounts():
            return f"{at}  live  {f'{event.count:,} jobs':<10} {event.state:<9} {_scope(event)}"
        case JobEvent():
            attempt = f"  attempt {event.attempt}" if event.attempt else ""
            return f"{at}  live  {event.kind:<10} {event.state:<9} {_scope(event)}  {event.job}{attempt}"


def _scope(event: JobEvent | JobCounts) -> str:
    if event.queue is None:
        return f"{'?':<12} {'?':<20}"
    return f"{event.queue:<12} {event.task or '?':<20}"
