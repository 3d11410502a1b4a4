"""Runs sync handlers in daemon threads that outlive a stuck one: an abandoned thread never blocks the exit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context
from os import getpid
from queue import SimpleQueue
from typing import Any

from limpet.runtime.attempt import Escaped, end_of_copy

Call = tuple[Callable[[], Any], Context, asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class NoThread(RuntimeError):
    """The call has not begun: the process has no thread for it, and can start none."""


class Threads:
    """As many threads as calls run at once; how many that may be is decided by who submits."""

    def __init__(self, name: str = "limpet-job") -> None:
        self._name = name
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0  # threads that wait for a call, less the calls already promised to them
        self._count = 0

    def submit(self, call: Callable[[], Any], context: Context) -> asyncio.Future[Any]:
        """Run `call` in a thread, inside `context`; the future belongs to the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            self._free -= 1
            spawn = self._free < 0
            if spawn:
                self._free += 1
                self._count += 1
        if spawn:
            self._spawn()
        self._calls.put((call, context, loop, future))
        return future

    def _spawn(self) -> None:
        """One thread more; where that cannot be, the call waits for one of those there are."""
        try:
            threading.Thread(target=self._work, name=f"{self._name}-{self._count}", daemon=True).start()
        except RuntimeError as error:
            with self._lock:
                self._count -= 1
                self._free -= 1
                if self._count:
                    return
                self._free += 1
            raise NoThread("this process cannot start another thread") from error

    def soft_timeout(self) -> None:
        """A thread cannot be interrupted safely: its handler sees `.cancelled`, and is fenced at the hard timeout."""

    def close(self) -> None:
        """Let idle threads end; busy ones end after their call."""
        with self._lock:
            count, self._count, self._free = self._count, 0, 0
        for _ in range(count):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            perform(*call)
            del call  # arguments and results must not live until the next call
            with self._lock:
                self._free += 1


def perform(
    call: Callable[[], Any], context: Context, loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]
) -> None:
    """Run one call here and hand its result to the future's loop."""
    pid = getpid()
    try:
        value, error = context.run(call), None
    except BaseException as raised:
        value, error = None, raised
    if getpid() != pid:
        end_of_copy()
    try:
        loop.call_soon_threadsafe(_resolve, future, value, error)
    except RuntimeError:
        return  # the loop is closed: an abandoned call came back after its worker had ended


def _resolve(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return  # abandoned at its hard timeout
    if error is None:
        future.set_result(value)
    elif isinstance(error, StopIteration):
        future.set_exception(RuntimeError("the handler raised StopIteration"))  # a future cannot carry it
    elif isinstance(error, KeyboardInterrupt | GeneratorExit):
        escaped = Escaped()  # no signal is delivered to a thread: this is the handler's own
        escaped.__cause__ = error
        future.set_exception(escaped)
    else:
        future.set_exception(error)
