"""One child process as its supervisor sees it: spawned, heard, told, and read after its death."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Final

import msgspec

from limpet.core.endings.transition import Transition
from limpet.core.jobs.view import Entry
from limpet.runtime.child_messages import (
    RECYCLED,
    STOPPED,
    Begin,
    Counted,
    GivenUp,
    Leaving,
    Look,
    Ready,
    Seen,
    ToChild,
    ToSupervisor,
    Unwritten,
    frame,
    read_frame,
    to_supervisor,
)
from limpet.runtime.log import worker_log
from limpet.runtime.roster import Roster
from limpet.runtime.threads import Threads

ANSWER_S: Final = 1.0  # how long a child may take to say what it is asked


@contextlib.contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """What this thread starts hears no SIGINT until it says so: one for the whole group is for its parent."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _spawn(command: list[str], descriptors: tuple[int, int]) -> subprocess.Popen[bytes]:
    # In a group of its own: what a handler does to its group does not reach the supervisor.
    with deaf_to_ctrl_c():
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=descriptors, process_group=0)


class ChildProcess:
    """A running child: its process, the socket to it, and the roster of what it has started."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        roster: Roster,
        session: str,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._ready_at_s: float | None = None
        self._ended_at_s: float | None = None
        self.roster = roster
        self.session = session
        self.ready: Ready | None = None
        self.leaving = False
        self.given_up: dict[tuple[bytes, int], Transition] = {}  # what becomes of jobs whose handlers ran on
        self.unwritten: list[Unwritten] = []  # ends of jobs that it could not write itself
        self.on_counted: Callable[[Counted], None] = lambda report: None
        self._asked: dict[int, asyncio.Future[list[Entry] | None]] = {}  # after which event
        self.kept_at_s: float | None = None  # when a beat that was sent for it last reached the store
        # A thread of its own: the loop's default pool is small, and waiting for a child lasts for days.
        self._waiting = Threads("limpet-wait")

    @classmethod
    async def spawn(cls, begin: Begin) -> ChildProcess:
        """Start a child process; never by fork, which would copy locks and connections."""
        ours, theirs = socket.socketpair()
        with theirs, tempfile.TemporaryFile() as file:
            file.truncate(Roster.size(begin.lines))
            roster = Roster(file.fileno(), begin.lines)
            roster.turn()
            descriptors = (theirs.fileno(), file.fileno())
            command = [sys.executable, "-m", "limpet.runtime.child", *map(str, descriptors)]
            process = await asyncio.to_thread(_spawn, command, descriptors)
        reader, writer = await asyncio.open_connection(sock=ours)
        child = cls(process, reader, writer, roster, begin.session)
        child.send(begin)
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def left(self) -> bool:
        """True when it closed its session itself and ended well: nothing is left to settle."""
        return self.leaving and self.roster.said in (STOPPED, RECYCLED)

    def send(self, message: ToChild) -> None:
        """Tell the child something; what a dead one is told is lost."""
        if not self._writer.is_closing():
            self._writer.write(frame(message))

    async def heard_ready(self) -> Ready | None:
        """Wait until the child claims jobs; None when it ended before."""
        message = await self._next()
        if not isinstance(message, Ready):
            return None
        self.ready = message
        self._ready_at_s = time.monotonic()
        return message

    async def follow(self) -> None:
        """Hear the rest of what it says."""
        while (message := await self._next()) is not None:
            match message:
                case Leaving():
                    self.leaving = True
                case GivenUp(transition):
                    self.given_up[transition.id, transition.token] = transition
                case Unwritten() as unwritten:
                    self.unwritten.append(unwritten)
                case Counted() as report:
                    self.on_counted(report)
                case Seen(after, entries):
                    asked = self._asked.get(after)
                    if asked is not None and not asked.done():
                        asked.set_result(entries)

    async def look(self, after: int, most: int) -> list[Entry] | None:
        """What has happened since that event, as the child reads it from the store; None when it cannot say."""
        answer: asyncio.Future[list[Entry] | None] = asyncio.get_running_loop().create_future()
        self._asked[after] = answer
        self.send(Look(after, most))
        try:
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            return None  # its loop may be blocked
        finally:
            self._asked.pop(after, None)

    async def _next(self) -> ToSupervisor | None:
        """What it says next; None when it is gone. One that talks nonsense is ended: some handler has its socket."""
        body = await read_frame(self._reader)
        try:
            return None if body is None else to_supervisor.decode(body)
        except msgspec.DecodeError:
            worker_log(logging.ERROR, "child sent a message that cannot be read, killing it", pid=self.pid)
            self.kill()
            return None

    async def ended(self) -> int:
        """Wait for the process; its exit code, below zero for a signal."""
        code: int = await self._waiting.submit(self._process.wait, copy_context())
        self._ended_at_s = time.monotonic()
        return code

    def ready_for_s(self) -> float:
        """How long it claimed jobs."""
        if self._ready_at_s is None:
            return 0.0
        return (self._ended_at_s or time.monotonic()) - self._ready_at_s

    def info(self, lease_ms: int) -> bytes:
        """What operators see of it when it cannot speak for itself."""
        assert self.ready is not None
        about = msgspec.json.decode(self.ready.info)
        silent_ms = self.roster.silent_ms()
        return msgspec.json.encode(about | {"silent_ms": silent_ms} if silent_ms > lease_ms else about)

    def terminate(self) -> None:
        """Ask it to stop; while it still loads the app it holds nothing, and this ends it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Let go of what a dead child leaves here."""
        self._writer.close()
        self._waiting.close()
        self.roster.close()
