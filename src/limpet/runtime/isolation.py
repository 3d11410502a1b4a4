"""Runs jobs in processes of their own: spawned, never forked; killed at the hard timeout; reused while healthy."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
import sys
from collections.abc import Callable
from typing import Final

import msgspec

from limpet.core.endings.outcome import CancelledByRequest, Crashed, HandedBack, Outcome, TimedOut
from limpet.core.endings.transition import Succeed, Transition
from limpet.core.errors import InvalidTask
from limpet.runtime.attempt import Attempt, Cause
from limpet.runtime.background import background
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
    ToIsolatedChild,
    ToWorker,
    Up,
    frame,
    read_frame,
    to_worker,
)
from limpet.runtime.context import JobChannel
from limpet.runtime.judging import decided
from limpet.runtime.log import job_log, worker_log
from limpet.runtime.log_setup import LogSettings
from limpet.runtime.process_group import ProcessGroup
from limpet.runtime.roster import Roster
from limpet.runtime.settings import AppRef, WorkerFailed

START_S: Final = 60.0  # a process that has not loaded the app by then never will
JOBS_PER_CHILD: Final = 1_000  # a fresh process now and then: leaks of C extensions stay small
_CHUNK: Final = 65_536


class IsolationFailed(WorkerFailed):
    """The app cannot be loaded in a process of its own."""

    code = "isolation_failed"


class NoProcess(IsolationFailed):
    """There are no files, threads or memory left to start one."""


class IsolatedChild:
    """One isolated process; runs one job at a time, and ends with all that its jobs have started."""

    def __init__(
        self, group: ProcessGroup, ours: socket.socket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._group = group
        self._socket = ours
        self._reader = reader
        self._writer = writer
        self.jobs = 0
        self.memory_bytes = 0
        group.ended.add_done_callback(self._hang_up)

    @classmethod
    async def spawn(cls, app: AppRef, log: LogSettings) -> IsolatedChild:
        """Start a process and load the app in it."""
        with contextlib.ExitStack() as stack:
            try:
                ours, theirs = socket.socketpair()
                stack.callback(ours.close)
                with theirs:
                    command = [
                        sys.executable,
                        "-m",
                        "limpet.runtime.isolated_child",
                        str(theirs.fileno()),
                        str(os.getpid()),
                    ]
                    group = await ProcessGroup.start(command, (theirs.fileno(),))
            except (OSError, RuntimeError) as error:
                raise NoProcess(f"an isolated process could not be started: {error}") from error
            stack.pop_all()
        reader, writer = await asyncio.open_connection(sock=ours)
        child = cls(group, ours, reader, writer)
        try:
            child.send(Hello(app, [entry or "." for entry in sys.path], log))
            async with asyncio.timeout(START_S):
                answer = await child._next()
        except TimeoutError as error:
            await child.kill()
            raise IsolationFailed(f"an isolated process did not load {app.ref!r} within {START_S:.0f} s") from error
        except BaseException:
            await child.kill()
            raise
        if not isinstance(answer, Up):
            await child.kill()
            why = answer.error if isinstance(answer, Broken) else "it ended while starting"
            raise IsolationFailed(
                f"an isolated process could not load {app.ref!r}: {why}",
                fix="import it by hand once; a script starts its work under if __name__ == '__main__'",
            )
        return child

    @property
    def group(self) -> int:
        """The number of its group of processes."""
        return self._group.id

    @property
    def alive(self) -> bool:
        return self._group.alive

    def send(self, message: ToIsolatedChild) -> None:
        """Pass a message; one to a dead process is lost, and its death is seen by who reads."""
        if not self._writer.is_closing():
            self._writer.write(frame(message))

    async def run(self, attempt: Attempt, channel: JobChannel) -> Done | None:
        """Run one job; None when the process died before it said how the job ended."""
        self.jobs += 1
        self.send(Run(attempt.job))
        while True:
            match await self._next():
                case Done() as done:
                    self.memory_bytes = done.memory_bytes
                    return done
                case Noted(token, note):
                    if token == attempt.job.token:  # else a thread that an earlier job has left behind said it
                        channel.note(attempt.job, note)
                case Spent(token, spent):
                    if token == attempt.job.token:
                        attempt.spent = spent  # also when the process dies before it says how the job ended
                        channel.spent(attempt.job, spent)
                case Learned(gate, lesson):
                    channel.learn(gate, lesson)
                case Save(number, note):
                    self.send(Saved(number, await channel.save(attempt.job, note)))
                case _:
                    return None

    def strike(self) -> None:
        """End the process and all that it has started, without waiting for that."""
        self._group.kill()

    def on_end(self, call: Callable[[], None]) -> None:
        """Call back when its process has ended."""
        self._group.ended.add_done_callback(lambda _: call())

    async def kill(self) -> int | None:
        """End it now; its exit code, or None when the kernel does not let it go."""
        self.strike()
        code = await self._group.gone()
        if code is None:
            worker_log(logging.ERROR, "a process that was killed does not end", pid=self.group)
        return code

    async def end(self) -> None:
        """Let it end by itself: it has no job."""
        self._writer.close()
        await asyncio.wait({self._group.ended}, timeout=END_S)
        await self.kill()

    def _hang_up(self, _: asyncio.Future[int]) -> None:
        """It has ended: read the messages it had sent. The end of the pipe may never come, if a process holds it."""
        transport = self._writer.transport
        if not transport.is_closing():
            transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport reads, too
            with contextlib.suppress(OSError):
                while heard := self._socket.recv(_CHUNK):
                    self._reader.feed_data(heard)
        self._reader.feed_eof()
        transport.abort()

    async def _next(self) -> ToWorker | None:
        body = await read_frame(self._reader)
        with contextlib.suppress(msgspec.DecodeError):  # some code of the job wrote into the socket: as good as dead
            return None if body is None else to_worker.decode(body)
        return None


class Isolation:
    """The children of one worker. A suspect gets a fresh one to itself, so that a second death is surely its own."""

    def __init__(
        self,
        app: AppRef | None,
        channel: JobChannel,
        rng: random.Random,
        max_memory_bytes: int | None,
        log: LogSettings,
        roster: Roster | None = None,
    ) -> None:
        self._app = app
        self._log = log
        self._channel = channel
        self._rng = rng
        self._max_memory_bytes = max_memory_bytes
        self._roster = roster
        self._idle: list[IsolatedChild] = []
        self._ending: dict[asyncio.Task[None], IsolatedChild] = {}
        self.stuck = 0  # processes that were killed and have not ended

    async def run(self, attempt: Attempt) -> Transition | None:
        """The transition for this attempt; None when its outcome cannot matter any more."""
        suspect = attempt.job.lost >= 2
        child = await self._child(attempt, fresh=suspect)
        if attempt.cause is not None:
            self._idle.append(child)
            return self._never_started(attempt)
        attempt.stopper = lambda cause: self._stop(child, cause, attempt.reason)
        attempt.striker = child.strike
        attempt.started_at_s = attempt.loop.time()  # starting the process is not the job's time
        attempt.watch_hard()
        try:
            done = await child.run(attempt, self._channel)
        except BaseException:
            await asyncio.shield(child.kill())
            raise
        finally:
            attempt.stopper = attempt.striker = None
            attempt.end()
        if done is None:
            return self._died(attempt, await self._kill(child), proven=suspect)
        self._keep_or_end(child, fresh_only=suspect)
        return self._ended(attempt, done.transition)

    def _never_started(self, attempt: Attempt) -> Transition | None:
        """It was stopped while its process was started."""
        if attempt.over or attempt.cause == "lost":
            return None
        outcome = CancelledByRequest(attempt.reason) if attempt.cause == "cancel" else HandedBack()
        return decided(attempt, outcome, self._rng)

    async def close(self, within_s: float) -> None:
        """End every idle child; those that take longer are killed."""
        children, self._idle = self._idle, []
        for child in children:
            self._retire(child)
        if self._ending:
            await asyncio.wait(self._ending, timeout=within_s)
        for child in self._ending.values():
            child.strike()

    async def _child(self, attempt: Attempt, *, fresh: bool) -> IsolatedChild:
        if self._app is None:
            raise InvalidTask(
                f"task {attempt.spec.name!r} runs in a process, and this worker's app cannot be found from there",
                fix="keep the app in a module and name it: app_ref='module:attr'",
            )
        child: IsolatedChild | None = None
        while self._idle and not fresh and (child is None or not child.alive):
            child = self._idle.pop()
        if child is None or not child.alive:
            child = await IsolatedChild.spawn(self._app, self._log)
        if self._roster is not None:
            self._roster.runs_in(attempt.job.id, attempt.job.token, child.group)  # before it can start anything
        return child

    def _stop(self, child: IsolatedChild, cause: Cause, reason: str) -> None:
        if cause in ("hard", "lost", "shutdown", "fall"):
            child.strike()  # processes can be ended for good, so nothing is left running unfenced
        else:
            child.send(Stop(cause, reason))

    async def _kill(self, child: IsolatedChild) -> int:
        """Its exit code. One that the kernel holds runs no more code of ours: its place is free, and it is counted."""
        code = await child.kill()
        if code is None:
            self.stuck += 1
            child.on_end(self._unstuck)
        return -signal.SIGKILL if code is None else code

    def _unstuck(self) -> None:
        self.stuck -= 1

    def _ended(self, attempt: Attempt, transition: Transition | None) -> Transition | None:
        if attempt.over or attempt.cause == "lost":
            return None
        if attempt.cause == "lease" and not isinstance(transition, Succeed):
            return decided(attempt, HandedBack(started=True), self._rng)  # it may have ended before it was told
        return transition

    def _died(self, attempt: Attempt, code: int, *, proven: bool) -> Transition | None:
        if attempt.over:
            return None
        attempt.cut_short = True
        outcome: Outcome
        match attempt.cause:
            case "lost":
                return None
            case "hard":
                outcome = TimedOut(hard=True, after_ms=attempt.elapsed_ms())
            case "shutdown" | "lease":
                outcome = HandedBack(started=True)
            case "fall":
                outcome = Crashed(False, attempt.reason)
            case _:
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                outcome = Crashed(proven, f"its process died ({how})")
                job_log(logging.ERROR, "process of a job died", attempt.job, how=how, proven=proven)
        return decided(attempt, outcome, self._rng)

    def _keep_or_end(self, child: IsolatedChild, *, fresh_only: bool) -> None:
        full = self._max_memory_bytes is not None and child.memory_bytes > self._max_memory_bytes
        if fresh_only or full or child.jobs >= JOBS_PER_CHILD:
            self._retire(child)
        else:
            self._idle.append(child)

    def _retire(self, child: IsolatedChild) -> None:
        """End a child beside the next job: what its jobs left open may take a while to close."""
        task = background(child.end(), "limpet-isolated-end")
        self._ending[task] = child
        task.add_done_callback(lambda ended: self._ending.pop(ended, None))
