"""Ends a handler whose job sleeps or waits: what it waits for, and the exception that carries it out."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Wait(Struct, frozen=True):
    """What one call of an attempt waits for, and when that ends by itself."""

    event: str
    until_ms: int | None
    words: str


class Suspension(BaseException):
    """Ends the handler because its job sleeps or waits; no error, so handlers that catch errors do not catch it."""

    def __init__(self, delay_ms: int | None, events: tuple[str, ...], words: str) -> None:
        super().__init__(words)
        self.delay_ms = delay_ms
        self.events = events

    @classmethod
    def of(cls, waits: Sequence[Wait], now_ms: int) -> Suspension:
        """The suspension of a job that waits for these: the first event, or the first end, wakes it."""
        ends = [max(0, wait.until_ms - now_ms) for wait in waits if wait.until_ms is not None]
        events = dict.fromkeys(wait.event for wait in waits)  # two calls may wait for one event
        return cls(min(ends, default=None), tuple(events), ", ".join(wait.words for wait in waits))

    def again(self) -> Suspension:
        """The same for another task of the handler."""
        return Suspension(self.delay_ms, self.events, str(self))
