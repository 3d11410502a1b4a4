"""Decides how long to wait before asking a troubled store again: an outage is weather, not an error."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.core.errors import StoreError
from holdfast.runtime.log import worker_log

T = TypeVar("T")

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0  # work resumes within two seconds of the store's return


class Patience:
    """Asks again, with growing and jittered pauses, for as long as asking can help.

    The call must carry its own sequence number, so that an answer that was lost on the way is given again.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._troubled = False

    async def ask(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        """The answer of `call`, however long the store is away. What cannot heal by waiting is raised."""
        failures = 0
        while True:
            try:
                answer = await call()
            except StoreError as error:
                if not error.retryable:
                    raise
                self._note_trouble(verb, error)
                await asyncio.sleep(self.pause_s(failures))
                failures += 1
            else:
                if self._troubled:
                    self._troubled = False
                    worker_log(logging.WARNING, "store is back", verb=verb)
                return answer

    def pause_s(self, failures: int) -> float:
        """How long to wait after so many failures in a row."""
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * (1 << min(failures, 10)))
        return longest * self._rng.uniform(0.5, 1.0)

    def _note_trouble(self, verb: str, error: StoreError) -> None:
        if not self._troubled:
            self._troubled = True
            worker_log(logging.WARNING, "store is away", verb=verb, code=error.code, error=error)
