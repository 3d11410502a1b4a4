"""The program of an isolated process: loads the app, then runs one job after another for the worker that spawned it."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import random
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextvars import Context
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

from limpet.core.jobs.lease import Claimed, Note
from limpet.core.limits.pushback import Lesson
from limpet.runtime.attempt import Attempt
from limpet.runtime.child_messages import (
    END_S,
    Broken,
    Done,
    Hello,
    Learned,
    Noted,
    Run,
    Save,
    Saved,
    Spent,
    Stop,
    ToWorker,
    Up,
    frame,
    read_frame,
    to_isolated_child,
)
from limpet.runtime.loading import load_app
from limpet.runtime.log_setup import AppLogging
from limpet.runtime.pipe import Pipe
from limpet.runtime.process_state import resident_bytes
from limpet.runtime.resources import Resources
from limpet.runtime.settings import App, AppRef, Parts
from limpet.runtime.threads import Call, Threads, perform
from limpet.stores.asking import joining
from limpet.stores.base import Store

PROGRESS_S: Final = 0.1  # between two messages about progress: a loop may report each of its turns


class MainThread:
    """Runs sync handlers in the main thread, the only one that a signal can interrupt at a soft timeout."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._ident = threading.get_ident()
        self._busy = False

    def submit(self, call: Callable[[], Any], context: Context) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._calls.put((call, context, loop, future))
        return future

    def soft_timeout(self) -> None:
        signal.pthread_kill(self._ident, signal.SIGUSR1)

    def serve(self) -> None:
        """Run calls until `end`."""
        while (call := self._calls.get()) is not None:
            function, context, loop, future = call
            perform(partial(self._guarded, function), context, loop, future)

    def end(self) -> None:
        self._calls.put(None)

    def _guarded(self, function: Callable[[], Any]) -> Any:
        self._busy = True
        try:
            return function()
        finally:
            self._busy = False

    def interrupt(self, number: int, frame: object) -> None:
        """What the signal does that `soft_timeout` sends."""
        if self._busy:  # a signal that comes after the handler has ended must not hit our own code
            raise TimeoutError("soft timeout")


class PipeChannel:
    """Sends a running job's notes to the worker, which holds the lease.

    A job's success goes another way: the transaction it is noted in is of this process.
    """

    def __init__(
        self, send: Callable[[ToWorker], None], loop: asyncio.AbstractEventLoop, store: Callable[[], Store]
    ) -> None:
        self._send = send
        self._loop = loop
        self._thread = threading.get_ident()
        self._store = store
        self._number = 0
        self._asked: dict[int, asyncio.Future[bool]] = {}
        self._lock = threading.Lock()
        self._progress: dict[int, Noted] = {}  # by token, the newest that is not sent yet
        self._progress_s = 0.0  # when the last was sent, by the loop

    def note(self, job: Claimed, note: Note) -> None:
        said = Noted(job.token, note)
        if note.kind != "progress":
            self._tell(said)
            return
        with self._lock:
            first = not self._progress
            self._progress[job.token] = said
        if first:
            self._loop.call_soon_threadsafe(self._send_in_time)

    def _send_in_time(self) -> None:
        self._loop.call_at(self._progress_s + PROGRESS_S, self.send_progress)

    def send_progress(self) -> None:
        """Send the newest progress, if it is not sent: in the thread of the loop."""
        with self._lock:
            waiting, self._progress = self._progress, {}
        for said in waiting.values():
            self._progress_s = self._loop.time()
            self._send(said)

    def spent(self, job: Claimed, spent: Mapping[str, int]) -> None:
        self._tell(Spent(job.token, dict(spent)))

    def learn(self, gate: str, lesson: Lesson) -> None:
        self._tell(Learned(gate, lesson))

    def _tell(self, message: ToWorker) -> None:
        """Say it before anything that comes later: the end of the job must not overtake it."""
        if threading.get_ident() == self._thread:
            self._send(message)
        else:
            self._loop.call_soon_threadsafe(self._send, message)

    async def save(self, job: Claimed, note: Note) -> bool:
        self._number += 1
        future: asyncio.Future[bool] = self._loop.create_future()
        self._asked[self._number] = future
        self._send(Save(self._number, note))
        return await future

    async def complete(self, conn: object, job: Claimed, result: bytes | None) -> bool:
        return await joining(self._store(), "complete a job").settle_on(conn, job.id, job.token, result)

    def answer(self, saved: Saved) -> None:
        future = self._asked.pop(saved.number, None)
        if future is not None and not future.done():
            future.set_result(saved.kept)


class Conversation:
    """The conversation with the worker, on a loop in its own thread."""

    def __init__(self, pipe: socket.socket, main_thread: MainThread) -> None:
        self._socket = pipe
        self._main_thread = main_thread
        self._attempt: Attempt | None = None

    async def talk(self) -> None:
        """Until the worker closes the pipe; if it dies, so do we."""
        reader, writer = await asyncio.open_connection(sock=self._socket)

        def send(message: ToWorker) -> None:
            writer.write(frame(message))

        hello = await self._next(reader)
        if not isinstance(hello, Hello):
            return
        sys.path[:] = [*hello.path, *(entry for entry in sys.path if entry not in hello.path)]
        logs = AppLogging(hello.log)
        async with contextlib.AsyncExitStack() as stack:
            try:
                app = _bound(hello.app)
                logs.complete()
                channel = PipeChannel(send, asyncio.get_running_loop(), lambda: app.store)
                parts = app.parts()
                resources = await stack.enter_async_context(Resources(parts.hooks, parts.resources))
                steps = Threads("limpet-step")  # the main thread waits for them in its handler
                pipe = Pipe(parts, resources, self._main_thread, random.Random(), steps)
            except BaseException as error:
                send(Broken(f"{type(error).__name__}: {error}"))
                await writer.drain()
                return
            logs.mend()
            send(Up())
            await self._serve(reader, send, pipe, channel, parts)

    async def _serve(
        self,
        reader: asyncio.StreamReader,
        send: Callable[[ToWorker], None],
        pipe: Pipe,
        channel: PipeChannel,
        parts: Parts,
    ) -> None:
        running: set[asyncio.Task[None]] = set()
        while (message := await self._next(reader)) is not None:
            match message:
                case Run(job):
                    attempt = Attempt(job, parts.tasks[job.lane.task], channel, asyncio.get_running_loop())
                    self._attempt = attempt
                    task = asyncio.create_task(self._run(pipe, attempt, channel, send))
                    running.add(task)
                    task.add_done_callback(running.discard)
                case Stop(cause, reason) if self._attempt is not None:
                    self._attempt.stop(cause, reason)
                case Saved():
                    channel.answer(message)
        if running:
            end_group(os.getpid())  # the worker is gone, and the lease of the job will go to another
        last = threading.Timer(END_S, end_group, (os.getpid(),))  # a job may have left something that never ends
        last.daemon = True
        last.start()

    async def _run(self, pipe: Pipe, attempt: Attempt, channel: PipeChannel, send: Callable[[ToWorker], None]) -> None:
        transition = await pipe.run(attempt)
        attempt.over = True
        self._attempt = None
        channel.send_progress()
        send(Done(transition, resident_bytes()))

    async def _next(self, reader: asyncio.StreamReader) -> Hello | Run | Stop | Saved | None:
        body = await read_frame(reader)
        return None if body is None else to_isolated_child.decode(body)


def _bound(found: AppRef) -> App:
    """The app, on the store that the worker uses: a flag of the command line may name another than the code."""
    app = load_app(found.ref)
    if found.url is not None:
        app.rebind(found.url, namespace=found.namespace)
    return app


def end_group(leader: int) -> None:
    """End this process and whatever its jobs have started."""
    if os.getpid() == leader == os.getpgrp():  # a fork of this process leaves its group alone
        os.killpg(leader, signal.SIGKILL)


def _leave_nothing(leader: int, worker: int) -> None:
    """At the exit: a worker that lives ends the group itself, and a dead one cannot."""
    if os.getppid() != worker:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        end_group(leader)


def main(descriptor: int, worker: int) -> None:
    """Serve until the worker lets go."""
    atexit.register(_leave_nothing, os.getpid(), worker)
    os.set_inheritable(descriptor, False)  # programs that jobs start have no business with it
    # The worker decides when we end: a signal to the whole process group must not cut its grace short.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    main_thread = MainThread()
    signal.signal(
        signal.SIGUSR1, main_thread.interrupt
    )  # before it can be sent: without a handler it would end this process
    conversation = Conversation(socket.socket(fileno=descriptor), main_thread)

    def converse() -> None:
        try:
            asyncio.run(conversation.talk())
        finally:
            main_thread.end()

    threading.Thread(target=converse, name="limpet-isolated", daemon=True).start()
    main_thread.serve()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
