"""Remembers sleepers and what they wait for, in every event loop, and wake-ups that came while none slept."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from limpet.core.errors import ResultTimeout
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Handed, Wake
from limpet.core.jobs.state import FINISHED as FINISHED_STATES
from limpet.core.jobs.state import State
from limpet.core.jobs.view import JobView

WORK: Final = b"w"
URGENT: Final = b"u"
CANCEL: Final = b"c"
FINISHED: Final = b"f"
HANDED: Final = b"h"  # with the record of a job
EVERYTHING: Final = frozenset((WORK, URGENT, CANCEL, FINISHED))

LOOK_S: Final = 1.0  # how soon a finished job is noticed whose wake-up was lost
MANY: Final = 1_000  # names kept without a look at who is gone
GONE_S: Final = 3_600  # a session that neither beat nor slept for so long went without leaving


encode_handed = msgspec.msgpack.Encoder().encode
decode_handed = msgspec.msgpack.Decoder(Handed).decode


class Waiter:
    """What one session or job has been told and not yet heard."""

    __slots__ = ("at_s", "expected", "jobs", "kinds", "sleepers")

    def __init__(self) -> None:
        self.at_s = time.monotonic()  # when it was last used
        self.expected = True
        self.kinds: set[bytes] = set()
        self.jobs: list[Any] = []  # as they came: see `Waiters.hand`
        self.sleepers: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []


class Waiters:
    """The sleepers of one process, by the name of the session or job they sleep for. Safe from every thread."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[bytes, Waiter] = {}
        self._many = MANY
        self._pid = os.getpid()
        self._mailbox = f"{self._pid:x}-{os.urandom(6).hex()}"

    @property
    def mailbox(self) -> str:
        """The name under which wake-ups reach this process; a fork gets another and begins without sleepers."""
        if self._pid != os.getpid():
            self._begin()
        return self._mailbox

    def deliver(self, kind: bytes, name: bytes, job: object = None) -> bool:
        """Note a wake-up and wake its sleeper, in any loop; False when it is not expected any more."""
        with self._lock:
            waiter = self._waiters.get(name)
            if waiter is None:
                return False  # the session has left, or who waited for the job has given up
            waiter.kinds.add(kind)
            if job is not None:
                waiter.jobs.append(job)
            sleepers, waiter.sleepers = waiter.sleepers, []
        _rouse_all(sleepers)
        return True

    def hand(self, session: str, job: object) -> bool:
        """Keep a job for the session that it was handed to, and wake that; False when it has left."""
        return self.deliver(HANDED, session.encode(), job)

    def take(self, name: bytes) -> list[Any]:
        """The jobs that came for a session, as they were kept."""
        with self._lock:
            waiter = self._waiter(name)
            jobs, waiter.jobs = waiter.jobs, []
        return jobs

    def rouse(self) -> None:
        """Wake every sleeper, as if all had happened: something may have been missed."""
        sleepers = []
        with self._lock:
            for waiter in self._waiters.values():
                waiter.kinds |= EVERYTHING
                sleepers += waiter.sleepers
                waiter.sleepers = []
        _rouse_all(sleepers)

    async def sleep(self, name: bytes, timeout: float | None) -> set[bytes]:
        """Wait until something was delivered for `name`, or the time is over; what was told is then forgotten."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            waiter = self._waiter(name)
            if waiter.kinds:
                kinds, waiter.kinds = waiter.kinds, set()
                return kinds
            waiter.sleepers.append((loop, future))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await future
        finally:
            with self._lock:
                waiter.sleepers = [entry for entry in waiter.sleepers if entry[1] is not future]
                if not waiter.expected:
                    self._drop(name, waiter)  # it was forgotten meanwhile
        with self._lock:
            kinds, waiter.kinds = waiter.kinds, set()
        return kinds

    def expect(self, name: bytes) -> None:
        """From here on keep what is told about this session or job: someone is about to sleep for it."""
        with self._lock:
            self._waiter(name)

    def forget(self, name: bytes) -> None:
        """Drop what is kept for a session or job without a waiter."""
        with self._lock:
            waiter = self._waiters.get(name)
            if waiter is not None:
                waiter.expected = False
                self._drop(name, waiter)

    def _waiter(self, name: bytes) -> Waiter:
        waiter = self._waiters.get(name)
        if waiter is None:
            if len(self._waiters) >= self._many:
                self._sweep()
            waiter = self._waiters[name] = Waiter()
        waiter.at_s, waiter.expected = time.monotonic(), True
        return waiter

    def _drop(self, name: bytes, waiter: Waiter) -> None:
        if not waiter.sleepers and self._waiters.get(name) is waiter:
            del self._waiters[name]

    def _sweep(self) -> None:
        """Sessions that died do not leave."""
        since_s = time.monotonic() - GONE_S
        self._waiters = {name: each for name, each in self._waiters.items() if each.sleepers or each.at_s > since_s}
        self._many = max(MANY, 2 * len(self._waiters))


class Watches:
    """Waits for the end of a job, the same way on every engine: told by a wake-up, else by a look once a second."""

    @property
    def sleepers(self) -> Waiters:
        """Where wake-ups arrive in this process."""
        raise NotImplementedError

    async def begin_watch(self, id: bytes) -> State | None:
        """Have the end of a job told here; its state now, None when it is gone."""
        raise NotImplementedError

    async def get(self, ids: Sequence[bytes]) -> list[JobView | None]:
        raise NotImplementedError

    async def watch(self, id: bytes, timeout_ms: int | None) -> JobView | None:
        loop, sleepers = asyncio.get_running_loop(), self.sleepers
        deadline = None if timeout_ms is None else loop.time() + timeout_ms / 1000
        sleepers.expect(id)
        try:
            state = await self.begin_watch(id)
            if state is None or state in FINISHED_STATES:
                return None if state is None else (await self.get([id]))[0]
            while True:
                left = LOOK_S if deadline is None else min(LOOK_S, deadline - loop.time())
                if left <= 0:
                    raise ResultTimeout(
                        f"job {id_text(id)} is {state} after {(timeout_ms or 0) / 1000:g} s",
                        fix=f"the job is still {state}; wait longer, or see why with job.explain()",
                    )
                await sleepers.sleep(id, left)
                (job,) = await self.get([id])
                if job is None or job.state in FINISHED_STATES:
                    return job
                state = job.state
        finally:
            sleepers.forget(id)


def _rouse_all(sleepers: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]]) -> None:
    if not sleepers:
        return
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    for loop, future in sleepers:
        if loop is here:
            _rouse(future)
            continue
        with suppress(RuntimeError):  # its loop is closed: no sleeper is left there
            loop.call_soon_threadsafe(_rouse, future)


def _rouse(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def wake_of(kinds: set[bytes], jobs: tuple[Handed, ...] = ()) -> Wake:
    """The record of what a session was told."""
    return Wake(WORK in kinds, URGENT in kinds, CANCEL in kinds, jobs)
