"""Remembers which queues and tasks a store does not take now, and when to try them again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from limpet.outbox.table import Kind

FIRST_S: Final = 1.0
LONGEST_S: Final = 15.0  # a queue that is resumed gets its jobs within this time


class _Wait(Struct):
    pause_s: float
    until_s: float


class Waits:
    """Jobs of these kinds stay in the line, in their order, while others pass them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[Kind, _Wait] = {}

    def put(self, kind: Kind) -> bool:
        """It was refused (again): leave it alone for a while, longer each time. True when that is new."""
        known = self._kinds.get(kind)
        pause_s = FIRST_S if known is None else min(LONGEST_S, 2 * known.pause_s)
        self._kinds[kind] = _Wait(pause_s, self._clock() + pause_s)
        return known is None

    def now(self) -> list[Kind]:
        """Those that are not to be tried yet."""
        now_s = self._clock()
        return [kind for kind, wait in self._kinds.items() if wait.until_s > now_s]

    def went(self, kind: Kind) -> bool:
        """A job of this kind was taken. True when it had been waiting."""
        return self._kinds.pop(kind, None) is not None

    def __len__(self) -> int:
        return len(self._kinds)
