"""Stores the limits that providers report at gates: one write at a time, and only when something is new."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msgspec import Struct

from limpet.core.errors import StoreError
from limpet.core.gate import Gate, GateChange
from limpet.core.limits.pushback import Lesson, ceiling_of
from limpet.runtime.log import worker_log
from limpet.runtime.part import Part
from limpet.stores.asking import gate_of
from limpet.stores.base import Store

KNOWN_FOR_S: Final = 60.0  # then it is asked again: an operator may have changed or reset the gate
KNOWN_GATES: Final = 1_000  # keys may be as many as customers
SAME_S: Final = 0.1  # resets of two answers that are so near are one
LAST_LESSONS_S: Final = 2.0  # how long the end of a worker waits for them


class KnownGate(Struct):
    """What this worker knows of a gate."""

    asked_at_s: float
    gate: Gate | None
    ceiling: int | None = None  # what it has told the gate since
    held_until_s: float = 0.0


class PendingLesson(Struct, frozen=True):
    """A lesson that waits to be written."""

    until_s: float  # no job should start before
    per_minute: int | None


class Learner(Part):
    """Any job of the worker may say something, at any time; of what was said of one gate the newest counts."""

    name = "learner"

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._lock = threading.Lock()
        self._waiting: dict[str, PendingLesson] = {}
        self._known: dict[str, KnownGate] = {}
        self._said = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def learn(self, gate: str, lesson: Lesson) -> None:
        """Keep a lesson until it is written. Any thread."""
        said = PendingLesson(time.monotonic() + lesson.hold_ms / 1000, lesson.per_minute)
        with self._lock:
            before = self._waiting.get(gate, said)
            per_minute = before.per_minute if said.per_minute is None else said.per_minute
            self._waiting[gate] = PendingLesson(max(before.until_s, said.until_s), per_minute)
        with suppress(RuntimeError):  # an abandoned thread may speak after its worker's loop has ended
            self._loop.call_soon_threadsafe(self._said.set)

    async def live(self, ready: Callable[[], None]) -> None:
        ready()
        while True:
            await self._said.wait()
            self._said.clear()
            await self._teach()

    async def stop(self) -> None:
        await super().stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_LESSONS_S):
                await self._teach()

    async def _teach(self) -> None:
        with self._lock:
            waiting = dict(self._waiting)
        for gate, said in waiting.items():
            try:
                await self._told(gate, said)
            except StoreError as error:
                # The next answer says it again, and the provider refuses calls beyond its limit.
                worker_log(logging.WARNING, "could not store a provider's limit", gate=gate, error=error)
            with self._lock:  # only now: a part that is stopped in the middle begins again
                if self._waiting.get(gate) is said:
                    del self._waiting[gate]

    async def _told(self, gate: str, said: PendingLesson) -> None:
        known = await self._look(gate)
        hold_ms = math.ceil((said.until_s - time.monotonic()) * 1000)
        if hold_ms > 0 and said.until_s > known.held_until_s + SAME_S:
            await self._store.change_gates([GateChange(gate, hold_ms=hold_ms)])
            known.held_until_s = said.until_s
        if known.gate is None or said.per_minute is None:
            return
        ceiling = ceiling_of(known.gate.rule, said.per_minute)
        if ceiling is not None and ceiling != known.ceiling:
            await self._store.change_gates([GateChange(gate, ceiling=ceiling)])
            known.ceiling = ceiling

    async def _look(self, key: str) -> KnownGate:
        """What is known of a gate; read again when that is old."""
        known, now_s = self._known.get(key), time.monotonic()
        if known is None or now_s - known.asked_at_s > KNOWN_FOR_S:
            gate = await gate_of(self._store, key)
            if len(self._known) >= KNOWN_GATES:
                self._known.clear()
            known = KnownGate(now_s, gate, None if gate is None else gate.ceiling)
            self._known[key] = known
        return known
