"""Runs awaitables for synchronous code: one event loop in one thread per app and process."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

from limpet.core.errors import WrongContext

T = TypeVar("T")

# Answers the loop of the worker whose job runs in this thread, if one does: a sync task must not start a second one.
WorkerLoop = Callable[[], asyncio.AbstractEventLoop | None]


class Bridge:
    """Carries awaitables from threads without an event loop to one that has it. Nothing crosses a fork."""

    def __init__(self, worker_loop: WorkerLoop = lambda: None) -> None:
        self._worker_loop = worker_loop
        self._life = _Life()

    def run(self, awaitable: Awaitable[T], *, instead: str = "await it") -> T:
        """Block until `awaitable` is done and answer its value. `instead` is the advice inside a running loop."""
        if _loop_is_running():
            if isinstance(awaitable, Coroutine):
                awaitable.close()  # it will never run: say why once, without a warning about it
            raise WrongContext("a blocking call inside a running event loop would stop that loop", fix=instead)
        loop = self._worker_loop()
        if loop is None or not loop.is_running():
            loop = self._own_loop()
        future = asyncio.run_coroutine_threadsafe(_wait_for(awaitable), loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C while blocked: what was asked should not go on unseen
            raise
        finally:
            if self._life.stop_after_run:
                self.close()

    def close(self) -> None:
        """Stop the loop and its thread; a later `run` starts them again."""
        life = self._life
        if life.pid != os.getpid():
            return
        with life.lock:
            thread = life.thread
            # Asked from inside, as in app.run(app.close()): the caller still waits for its answer.
            life.stop_after_run = thread is not None and thread.is_current()
            if thread is None or life.stop_after_run:
                return
            life.thread = None
        thread.stop()

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        life = self._life
        if life.pid != os.getpid():
            life = self._life = _Life()
        with life.lock:
            if life.thread is None:
                life.thread = _LoopThread()
                weakref.finalize(self, life.thread.stop)
            return life.thread.loop


class _Life:
    """What belongs to one process, the lock included: a fork may happen while a thread of the parent holds it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.thread: _LoopThread | None = None
        self.stop_after_run = False


class _LoopThread:
    """A daemon thread that runs one event loop until told to stop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=_run_loop, args=(self.loop,), name="limpet-bridge", daemon=True)
        self._thread.start()

    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        if self._pid != os.getpid() or self.loop.is_closed() or self.is_current():
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _wait_for(awaitable: Awaitable[T]) -> T:
    return await awaitable
