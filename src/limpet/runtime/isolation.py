"""Runs jobs in processes of their own: spawned, never forked; killed at the hard timeout; reused while healthy."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import socket
import subprocess
import sys
from typing import Final

from limpet.core.errors import InvalidTask
from limpet.core.outcome import Crashed, HandedBack, Outcome, TimedOut
from limpet.core.transition import Transition
from limpet.runtime.attempt import Attempt, Cause
from limpet.runtime.background import background
from limpet.runtime.context import Desk
from limpet.runtime.log import job_log
from limpet.runtime.pipe import decided
from limpet.runtime.settings import AppRef, WorkerFailed
from limpet.runtime.wire import (
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
    ToCell,
    ToWorker,
    Up,
    frame,
    read_frame,
    to_worker,
)

START_S: Final = 60.0  # a process that has not loaded the app by then never will
END_S: Final = 5.0  # a process that has no job has ended by then, or is killed
JOBS_PER_CELL: Final = 1_000  # a fresh process now and then: leaks of C extensions stay small


class CellBroken(WorkerFailed):
    """The app cannot be loaded in a process of its own."""

    code = "cell_broken"


class Cell:
    """One isolated process; runs one job at a time."""

    def __init__(self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._process = process
        self._reader = reader
        self._writer = writer
        self.jobs = 0
        self.memory_bytes = 0

    @classmethod
    async def spawn(cls, app: AppRef) -> Cell:
        """Start a process and load the app in it."""
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "limpet.runtime.cell", str(theirs.fileno())]
            process = await asyncio.to_thread(
                subprocess.Popen, command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),)
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        cell = cls(process, reader, writer)
        try:
            cell.send(Hello(app, [entry or "." for entry in sys.path]))
            async with asyncio.timeout(START_S):
                answer = await cell._next()
        except TimeoutError as error:
            await cell.kill()
            raise CellBroken(f"an isolated process did not load {app.ref!r} within {START_S:.0f} s") from error
        except BaseException:
            await cell.kill()
            raise
        if not isinstance(answer, Up):
            await cell.kill()
            why = answer.error if isinstance(answer, Broken) else "it ended while starting"
            raise CellBroken(
                f"an isolated process could not load {app.ref!r}: {why}",
                fix="import it by hand once; a script starts its work under if __name__ == '__main__'",
            )
        return cell

    def send(self, message: ToCell) -> None:
        """Pass a message; one to a dead process is lost, and its death is seen by who reads."""
        if not self._writer.is_closing():
            self._writer.write(frame(message))

    async def run(self, attempt: Attempt, desk: Desk) -> Done | None:
        """Run one job; None when the process died before it said how the job ended."""
        self.jobs += 1
        self.send(Run(attempt.job))
        while True:
            match await self._next():
                case Done() as done:
                    self.memory_bytes = done.memory_bytes
                    return done
                case Noted(note):
                    desk.note(attempt.job, note)
                case Spent(token, spent):
                    if token == attempt.job.token:
                        attempt.spent = spent  # also when the process dies before it says how the job ended
                        desk.spent(attempt.job, spent)
                case Learned(gate, lesson):
                    desk.learn(gate, lesson)
                case Save(number, note):
                    self.send(Saved(number, await desk.save(attempt.job, note)))
                case _:
                    return None

    def signal(self, number: int) -> None:
        """Send a signal to a process that may be gone."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def kill(self) -> int:
        """End the process now; its exit code."""
        self.signal(signal.SIGKILL)
        return await self.reap()

    async def reap(self) -> int:
        """Wait for a process that has been told to end, or has died."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
        ended = background(asyncio.to_thread(self._process.wait), "limpet-reap")
        done, _ = await asyncio.wait({ended}, timeout=END_S)
        if not done:
            self.signal(signal.SIGKILL)  # its last job may have left it stopped, or with a thread that never ends
        return await ended

    async def _next(self) -> ToWorker | None:
        body = await read_frame(self._reader)
        return None if body is None else to_worker.decode(body)


class Isolation:
    """The cells of one worker. A suspect gets a fresh one to itself, so that a second death is surely its own."""

    def __init__(self, app: AppRef | None, desk: Desk, rng: random.Random, max_memory_bytes: int | None) -> None:
        self._app = app
        self._desk = desk
        self._rng = rng
        self._max_memory_bytes = max_memory_bytes
        self._idle: list[Cell] = []

    async def run(self, attempt: Attempt) -> Transition | None:
        """The transition for this attempt; None when its outcome cannot matter any more."""
        if self._app is None:
            raise InvalidTask(
                f"task {attempt.spec.name!r} runs in a process, and this worker's app cannot be found from there",
                fix="keep the app in a module and name it: app_ref='module:attr'",
            )
        suspect = attempt.job.lost >= 2
        cell = self._idle.pop() if self._idle and not suspect else await Cell.spawn(self._app)
        attempt.stopper = lambda cause: self._stop(cell, cause, attempt.reason)
        if attempt.cause is not None:
            attempt.stopper(attempt.cause)
        attempt.started_at_s = attempt.loop.time()  # starting the process is not the job's time
        attempt.watch_hard()
        try:
            done = await cell.run(attempt, self._desk)
        except BaseException:
            await asyncio.shield(cell.kill())
            raise
        finally:
            attempt.stopper = None
            attempt.end()
        if done is None:
            return self._died(attempt, await cell.kill(), proven=suspect)
        await self._keep_or_end(cell, fresh_only=suspect)
        return None if attempt.over or attempt.cause == "lost" else done.transition

    async def close(self) -> None:
        """End every idle cell."""
        cells, self._idle = self._idle, []
        for cell in cells:
            await cell.reap()

    def _stop(self, cell: Cell, cause: Cause, reason: str) -> None:
        if cause in ("hard", "lost", "shutdown", "fall"):
            cell.signal(signal.SIGKILL)  # a process can be ended for good, so nothing is left running unfenced
        else:
            cell.send(Stop(cause, reason))

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
            case "shutdown":
                outcome = HandedBack(started=True)
            case "fall":
                outcome = Crashed(False, attempt.reason)
            case _:
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                outcome = Crashed(proven, f"its process died ({how})")
                job_log(logging.ERROR, "process of a job died", attempt.job, how=how, proven=proven)
        return decided(attempt, outcome, self._rng)

    async def _keep_or_end(self, cell: Cell, *, fresh_only: bool) -> None:
        full = self._max_memory_bytes is not None and cell.memory_bytes > self._max_memory_bytes
        if fresh_only or full or cell.jobs >= JOBS_PER_CELL:
            await cell.reap()
        else:
            self._idle.append(cell)
