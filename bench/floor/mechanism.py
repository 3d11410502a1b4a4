"""What a mechanism has to do to be measured: store something, and tell another process of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Told = Callable[[bytes], None]


class Mechanism(Protocol):
    """One process's end of it. The first one opened lays out what is stored in."""

    async def open(self) -> None:
        """Connect."""

    async def store(self, stamp: bytes) -> None:
        """Store, with the promise that a job is stored with. No process is told."""

    async def send(self, stamp: bytes) -> None:
        """Store, and wake the process that waits."""

    async def listen(self, told: Told) -> None:
        """Call `told` with all that is sent from now on."""
