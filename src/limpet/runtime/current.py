"""Remembers which attempt runs here: in its own context, and in the tasks and threads that inherit it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from limpet.runtime.attempt import Attempt

current: Final[ContextVar[Attempt | None]] = ContextVar("limpet_attempt", default=None)
