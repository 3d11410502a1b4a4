"""Ends a handler whose job sleeps or waits: what it waits for, and the exception that carries it out."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from holdfast.core.steps import SLEEP


class Wait(Struct, frozen=True):
    """What one call of an attempt waits for, and when that ends by itself."""

    event: str
    until_ms: int | None
    words: str


class Suspension(BaseException):
    """Ends the handler because its job sleeps or waits; no error, so handlers that catch errors do not catch it."""

    def __init__(self, delay_ms: int | None, event: str, words: str) -> None:
        super().__init__(words)
        self.delay_ms = delay_ms
        self.event = event

    @classmethod
    def of(cls, waits: Sequence[Wait], now_ms: int) -> Suspension:
        """The suspension of a job that waits for all of these.

        The first that ends by itself wakes it. One event does, too: the first that was asked for, before any sleep.
        """
        ends = [max(0, wait.until_ms - now_ms) for wait in waits if wait.until_ms is not None]
        first = min(waits, key=lambda wait: wait.event.startswith(SLEEP))
        return cls(min(ends, default=None), first.event, ", ".join(wait.words for wait in waits))

    def again(self) -> Suspension:
        """The same for another task of the handler."""
        return Suspension(self.delay_ms, self.event, str(self))
