"""Follows a call on its way to a server: whether it may have arrived, and how soon a refused connection is told.

Both are said to the engine around the call, not through it: most callers ask for neither
(ADR 31).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final


class Sending:
    """How far one call has come. Of an engine that does not say so, each call may have arrived."""

    __slots__ = ("_why", "out", "where")

    def __init__(self) -> None:
        self.out = 0  # requests that were sent and not refused
        self.where = "the store"
        self._why: Callable[[], str] | None = None

    def begin(self, where: str, why: Callable[[], str]) -> None:
        """A request begins. `where` is its server; `why` says what keeps it from being reached, if anything."""
        self.where, self._why = where, why

    @property
    def refused(self) -> bool:
        """True when nothing of the call has arrived: it was never sent, or each time refused."""
        return self._why is not None and not self.out

    @property
    def why(self) -> str:
        """What keeps the server from being reached, in its own words; empty when nothing does."""
        return "" if self._why is None else self._why()


_current: Final[ContextVar[Sending | None]] = ContextVar("limpet_sending", default=None)
_at_once: Final[ContextVar[bool]] = ContextVar("limpet_refusals_at_once", default=False)

current_sending: Final = _current.get
refusals_at_once: Final = _at_once.get


@contextmanager
def followed(sending: Sending | None = None) -> Iterator[Sending]:
    """Follow the call that is made inside."""
    sending = sending or Sending()
    token = _current.set(sending)
    try:
        yield sending
    finally:
        _current.reset(token)


def tell_refusals_at_once(at_once: bool = True) -> None:
    """From here on in this context: a store whose very first connection is refused says so, instead of trying on."""
    _at_once.set(at_once)
