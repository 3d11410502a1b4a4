"""Bounds how many requests wait at one server: for a job to claim, or for the end of one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from limpet.core.access.refusal import TooManyWaiting

RETRY_S: Final = 5.0  # when a request that may not wait should come again


class Places:
    """The places for requests that wait; each holds a connection, and a session or a watch in the store."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Take a place until the end of the block."""
        if self._taken >= self._most:
            raise TooManyWaiting(
                f"{self._taken} requests wait at this server, and it lets no more wait",
                fix="wait as long as Retry-After says; [server] waiting says how many may wait, or ask with wait 0",
                retry_after_s=RETRY_S,
            )
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1
