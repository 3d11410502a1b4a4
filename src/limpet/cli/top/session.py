"""Runs the live screen: looks at the store every so often, hears keys, and does what they ask for."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from limpet.cli.terminal import Terminal
from limpet.cli.top.frame import Where, frame
from limpet.cli.top.picture import Pace, Picture, look, look_at, look_for
from limpet.cli.top.screen import Screen
from limpet.cli.top.view import Asked, Page, View
from limpet.core.errors import LimpetError, StoreError
from limpet.core.text.duration import text_of_ms

if TYPE_CHECKING:
    from limpet.ops import Operator

ENDS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Session:
    """One run of the command on a terminal."""

    def __init__(self, terminal: Terminal, screen: Screen, view: View, every_ms: int) -> None:
        self._terminal = terminal
        self._screen = screen
        self._view = view
        self._every_ms = every_ms
        self._pace = Pace()
        self._picture: Picture | None = None
        self._about: Page | None = None  # the page that the picture is of
        self._away = ""
        self._news = asyncio.Event()  # something is to be drawn, looked at or done
        self._asked: list[Asked] = []
        self._over = False

    async def run(self) -> None:
        """Show the screen until a key or a signal ends it."""
        async with self._terminal.operator() as operator:
            await self._look(operator)  # what is wrong with the first look is an error of the command
            with self._screen.taken(self._pressed, self._resized):
                async with self._ended_by_signals():
                    await self._live(operator)

    @asynccontextmanager
    async def _ended_by_signals(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        for number in ENDS:
            loop.add_signal_handler(number, self._end)
        try:
            yield
        finally:
            for number in ENDS:
                loop.remove_signal_handler(number)

    async def _live(self, operator: Operator) -> None:
        loop = asyncio.get_running_loop()
        next_s = loop.time() + self._every_ms / 1000
        while not self._over:
            self._news.clear()  # first: a key that is pressed from here on is seen below
            due = loop.time() >= next_s
            if self._page() != self._about or (due and not self._view.held):
                await self._look(operator)
            if due:
                next_s = loop.time() + self._every_ms / 1000
            if self._page() == self._about:
                self._draw()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(next_s):
                    await self._news.wait()
            while self._asked and not self._over:
                await self._do(operator, self._asked.pop(0))
                next_s = loop.time()

    def _page(self) -> Page:
        """The page that wants a picture: the help shows the one below it."""
        return next(page for page in reversed(self._view.pages) if page.what != "help")

    async def _look(self, operator: Operator) -> None:
        page = self._page()
        try:
            match page.what:
                case "jobs":
                    self._picture = await look_for(operator, page.about)
                case "job":
                    self._picture = await look_at(operator, page.about)
                case _:
                    self._picture = await look(operator)
                    await self._pace.learn(operator)
        except StoreError as error:
            if self._picture is None or not error.retryable:
                raise
            self._away = f"the store is away: {error.message}"
        except LimpetError as error:
            if self._picture is None:
                raise
            self._view.note = error.message  # a query that makes no sense
        else:
            self._away = ""
            self._pace.add(self._picture)
        self._about = page

    async def _do(self, operator: Operator, asked: Asked) -> None:
        """Do what a key asked for, and say what came of it."""
        if asked.action == "quit" or asked.key is None:
            self._end()
            return
        try:
            act = self._retried if asked.action == "retry" else self._changed
            self._view.note = await act(operator, asked)
        except LimpetError as error:
            self._view.note = f"{error.message}{f' ({error.fix})' if error.fix else ''}"

    async def _changed(self, operator: Operator, asked: Asked) -> str:
        """Pause or resume a queue or a task."""
        assert asked.key is not None
        key = f"{asked.key.kind[:-1]}:{asked.key.name}"
        change = operator.pause if asked.action == "pause" else operator.resume
        done = await change(key, reason=asked.text)
        return "; ".join([f"{key} is {done.state}", *done.notes])

    async def _retried(self, operator: Operator, asked: Asked) -> str:
        """Retry a dead job, or the dead jobs of a row."""
        assert asked.key is not None
        kind, name = asked.key
        queries = {"errors": f"cause:{name}", "queues": f'queue:"{name}"', "tasks": f'task:"{name}"'}
        report = await operator.retry([name] if kind == "jobs" else f"state:dead {queries[kind]}")
        return f"{report.done:,} of {report.matched:,} {'job' if report.matched == 1 else 'jobs'} retried"

    # -- what the terminal says

    def _pressed(self, key: str) -> None:
        if key == "hangup":
            self._end()
            return
        asked = self._view.press(key)
        if asked is not None:
            self._asked.append(asked)
        self._news.set()

    def _resized(self) -> None:
        self._screen.forget()
        self._news.set()

    def _end(self) -> None:
        self._over = True
        self._news.set()

    def _draw(self) -> None:
        assert self._picture is not None
        store = f"{self._terminal.place} · {self._terminal.config.namespace.value}"
        where = Where(store, f"every {text_of_ms(self._every_ms)}", self._away)
        self._screen.draw(frame(self._picture, self._view, self._pace, where, self._screen.size))
