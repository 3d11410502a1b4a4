"""A process and whatever it starts, in a session of its own: watched itself, and ended as a whole.

The end of a pipe says nothing of the process behind it: a helper that it forked keeps the pipe open.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from contextvars import copy_context
from functools import partial
from typing import Final

from limpet.runtime.threads import Threads

GONE_S: Final = 5.0  # how long to wait for what was killed; longer takes only what the kernel holds in a call
_LOOK_S: Final = 0.005
_ENDED: Final = ("Z", "X")  # states of processes that run no code any more


class ProcessGroup:
    """One process, started in a session and so in a group of its own. What it leaves behind is killed when it ends."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.id = process.pid
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()  # its exit code
        self._unwatch = _watch(process, self._end)

    @classmethod
    async def start(cls, command: Sequence[str], descriptors: Collection[int]) -> ProcessGroup:
        """Start a process with these open files; never by fork alone, which would copy locks and connections."""
        starting = Threads("limpet-start")  # of its own: handlers may have filled the pool of the loop
        try:
            process = await starting.submit(
                partial(
                    subprocess.Popen,
                    command,
                    stdin=subprocess.DEVNULL,
                    pass_fds=tuple(descriptors),
                    start_new_session=True,
                ),
                copy_context(),
            )
        finally:
            starting.close()
        return cls(process)

    @property
    def alive(self) -> bool:
        """False as soon as the process has ended, also before that was noticed here."""
        if self.ended.done():
            return False
        with contextlib.suppress(AttributeError, ChildProcessError):  # not everywhere; already reaped
            if os.waitid(os.P_PID, self.id, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return False
        # One whose last thread still has to end can not be waited for yet.
        with contextlib.suppress(OSError, IndexError):
            return _facts(self.id)[0] not in _ENDED
        return True

    def kill(self) -> None:
        """End the process and whatever it has started."""
        if not self.ended.done():  # later the number may belong to others
            kill_group(self.id)

    async def gone(self, within_s: float = GONE_S) -> int | None:
        """The exit code, once no process of the group runs any more; None when that takes too long."""
        since_s = time.monotonic()
        done, _ = await asyncio.wait({self.ended}, timeout=within_s)
        if not done or not await gone(self.id, within_s - (time.monotonic() - since_s)):
            return None
        return self.ended.result()

    def _end(self) -> None:
        """The process has ended and is not reaped yet, so its number is still that of its group."""
        self._unwatch()
        kill_group(self.id)
        code = self._process.wait()
        if not self.ended.done():
            self.ended.set_result(code)


def kill_group(id: int) -> None:
    """Kill every process of a group, if there is one left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS refuses when all of them have ended
        os.killpg(id, signal.SIGKILL)


async def gone(id: int, within_s: float = GONE_S) -> bool:
    """Wait until nothing of a group runs any more."""
    deadline_s = time.monotonic() + within_s
    while runs(id):
        if time.monotonic() > deadline_s:
            return False
        await asyncio.sleep(_LOOK_S)
    return True


def runs(id: int) -> bool:
    """True while a process of the group runs; one that has ended and is not reaped does not."""
    try:
        os.killpg(id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    members = _states(id)
    return members is None or any(state not in _ENDED for state in members)


def _states(id: int) -> list[str] | None:
    """The states of a group's processes, by the kernel's letters; None where that cannot be read.

    An orphan is reaped by the first process of the machine, or of the container, which may never do that.
    """
    found: list[str] = []
    try:
        pids = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return None
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = _facts(pid)
            if int(words[2]) == id:
                found.append(words[0])
    return found if pids else None


def _facts(pid: int | str) -> list[str]:
    """What the kernel says of a process: its state, its parent, its group, …"""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].decode().split()  # behind the name, which may hold anything


def _watch(process: subprocess.Popen[bytes], ended: Callable[[], None]) -> Callable[[], None]:
    """Call back in this loop when the process has ended, without reaping it where possible; how to stop that."""
    loop = asyncio.get_running_loop()
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):  # an old kernel, or a sandbox
            watched = os.pidfd_open(process.pid)
            loop.add_reader(watched, ended)

            def unwatch() -> None:
                loop.remove_reader(watched)
                os.close(watched)

            return unwatch
    waiting = Threads("limpet-wait")
    waiting.submit(lambda: _wait(process), copy_context()).add_done_callback(lambda _: ended())
    return waiting.close


def _wait(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "waitid"):
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    else:
        process.wait()
