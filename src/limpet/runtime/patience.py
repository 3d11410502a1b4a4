"""Decides how long to wait before asking a troubled store again: an outage is weather, not an error."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from limpet.core.errors import StoreError
from limpet.runtime.log import worker_log
from limpet.runtime.settings import WorkerCutOff

T = TypeVar("T")

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0  # work resumes within two seconds of the store's return


class Patience:
    """Asks again, with growing and jittered pauses, for as long as asking can help.

    The call must carry its own sequence number, so that an answer that was lost on the way is given again.
    """

    def __init__(self, rng: random.Random, cut_off_ms: int | None = None, *, hint: str = "") -> None:
        self._rng = rng
        self._cut_off_ms = cut_off_ms  # None: for ever
        self._hint = {"hint": hint} if hint else {}  # goes with the line that says that the store is away
        self._troubled = False
        self.on_back: Callable[[], None] = lambda: None  # a call that had failed was answered

    async def ask(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        """The answer of `call`, however long the store is away. What cannot heal by waiting is raised.

        A worker that can beat but not claim is as deaf as one that can do neither, so each verb is cut off alone.
        """
        failures, since_s = 0, 0.0
        while True:
            try:
                answer = await call()
            except StoreError as error:
                if not error.retryable:
                    raise
                since_s = since_s or time.monotonic()
                if self._cut_off_ms is not None and time.monotonic() - since_s > self._cut_off_ms / 1000:
                    raise cut_off(verb, time.monotonic() - since_s, error) from error
                self._note_trouble(verb, error)
                await asyncio.sleep(self.pause_s(failures))
                failures += 1
            else:
                # Only a call that has failed shows that the store is back: a wait for wake-ups ends without it.
                if failures and self._troubled:
                    self._troubled = False
                    worker_log(logging.WARNING, "store is back")
                if failures:
                    self.on_back()
                return answer

    def pause_s(self, failures: int) -> float:
        """How long to wait after so many failures in a row."""
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * (1 << min(failures, 10)))
        return longest * self._rng.uniform(0.5, 1.0)

    def _note_trouble(self, verb: str, error: StoreError) -> None:
        if not self._troubled:
            self._troubled = True
            worker_log(logging.WARNING, "store is away", code=error.code, error=error, **self._hint)


def cut_off(verb: str, silent_s: float, last: StoreError) -> WorkerCutOff:
    """The error of a worker that has been deaf for too long; `last` is what it met in the end."""
    return WorkerCutOff(
        f"the store was not reached for {silent_s:.0f} s: {last.message}",
        verb=verb,
        fix="check the store, then start the worker again",
    )
