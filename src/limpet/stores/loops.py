"""Gives each event loop of each process its own: a connection belongs to the loop that made it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from typing import Generic, Protocol, TypeVar


class Held(Protocol):
    """What a loop can have of its own."""

    def drop(self) -> None:
        """Let go of connections. Called in its loop."""


T = TypeVar("T", bound=Held)


class PerLoop(Generic[T]):
    """One of something for every event loop, made when that loop first asks, dropped when the loop shuts down.

    What a parent made is left alone after a fork: closing a socket in the child would take it from the loop of the
    parent, and TLS would say goodbye in its name.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._held: dict[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None, None]]] = {}
        self._pid = os.getpid()
        self._inherited: list[object] = []  # of the parent: kept, so that nothing of it is collected and closed

    def here(self) -> T:
        """This loop's own."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None or self._pid != os.getpid():
            return self._begin(loop)
        return held[0]

    def _begin(self, loop: asyncio.AbstractEventLoop) -> T:
        if self._pid != os.getpid():
            self._inherited.append(self._held)
            self._held, self._pid = {}, os.getpid()
        for other in list(self._held):
            if other.is_closed():
                self._held.pop(other, None)
        made = self._make()
        ending = _at_the_end_of_the_loop(made.drop)
        _start(ending)
        self._held[loop] = (made, ending)
        return made

    async def close(self) -> None:
        """Drop what every loop has. Idempotent; whoever asks again gets a new one."""
        if self._pid != os.getpid():
            return
        held, self._held = self._held, {}
        here = asyncio.get_running_loop()
        for loop, (made, ending) in held.items():
            if loop is here:
                await ending.aclose()
            elif not loop.is_closed():
                loop.call_soon_threadsafe(made.drop)
        await asyncio.sleep(0)  # the loop closes sockets one turn later


async def _at_the_end_of_the_loop(drop: Callable[[], None]) -> AsyncGenerator[None, None]:
    """Sleeps in the loop's list of generators, which it closes before it is closed itself (as asyncio.run does)."""
    try:
        yield
    finally:
        drop()


def _start(ending: AsyncGenerator[None, None]) -> None:
    """Run it up to its yield: from there on the loop knows it."""
    try:
        ending.asend(None).send(None)
    except StopIteration:
        return
