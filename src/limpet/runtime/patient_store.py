"""The store as a worker asks it: a verb waits, with growing pauses, for as long as the store is away."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from limpet.core.endings.transition import Settled, Transition
from limpet.core.errors import StoreError
from limpet.core.jobs.lease import Claim, ClaimRequest, Held, Note, Wake
from limpet.core.jobs.view import Control, Retention
from limpet.runtime.log import worker_log
from limpet.runtime.settings import WorkerCutOff
from limpet.stores.base import NOTHING_SPENT, Store

T = TypeVar("T")
Answer = Coroutine[Any, Any, T]

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0  # work resumes within two seconds of the store's return


class Patience:
    """Asks again until the store answers. An error that waiting cannot heal is raised.

    `on_back` is called when a call that had failed is answered; `hint` goes with the log line about an outage.
    """

    def __init__(
        self,
        rng: random.Random,
        cut_off_ms: int | None = None,
        *,
        hint: str = "",
        on_back: Callable[[], None] = lambda: None,
    ) -> None:
        self._rng = rng
        self._cut_off_ms = cut_off_ms  # None: for ever
        self._hint = {"hint": hint} if hint else {}
        self._on_back = on_back
        self._troubled = False

    async def ask(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        """The answer of `call`, which may be several verbs in a row: then all of them are asked again.

        A worker that can beat but not claim is of no more use than one that can do neither, so each verb is cut off
        alone.
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
                await asyncio.sleep(pause_s(failures, self._rng))
                failures += 1
            else:
                # Only a call that has failed shows that the store is back: a wait for wake-ups ends without it.
                if failures and self._troubled:
                    self._troubled = False
                    worker_log(logging.WARNING, "store is back")
                if failures:
                    self._on_back()
                return answer

    def _note_trouble(self, verb: str, error: StoreError) -> None:
        if not self._troubled:
            self._troubled = True
            worker_log(logging.WARNING, "store is away", code=error.code, error=error, **self._hint)


class PatientStore(Patience):
    """The verbs of a worker, each asked again until the store answers.

    A verb that is asked again carries the same number as before, so that an answer that was lost is given again.
    """

    def __init__(
        self,
        store: Store,
        rng: random.Random,
        cut_off_ms: int | None = None,
        *,
        hint: str = "",
        on_back: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(rng, cut_off_ms, hint=hint, on_back=on_back)
        self.store = store

    def claim(self, request: ClaimRequest) -> Answer[Claim]:
        return self.ask("claim", partial(self.store.claim, request))

    def settle(
        self,
        session: str,
        seq: int,
        transitions: Sequence[Transition],
        *,
        spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT,
    ) -> Answer[Sequence[Settled]]:
        call = partial(self.store.settle, session, seq, transitions)
        return self.ask("settle", partial(call, spent=spent) if spent else call)

    def wait(self, session: str, timeout_ms: int) -> Answer[Wake]:
        return self.ask("wait", partial(self.store.wait, session, timeout_ms))

    def save(self, id: bytes, token: int, note: Note) -> Answer[bool]:
        return self.ask("save", partial(self.store.save, id, token, note))

    def held(self, session: str) -> Answer[Sequence[Held]]:
        return self.ask("held", partial(self.store.held, session))

    def leave(self, session: str) -> Answer[None]:
        return self.ask("leave", partial(self.store.leave, session))

    def expire(self, limit: int) -> Answer[int]:
        return self.ask("expire", partial(self.store.expire, limit))

    def prune(self, retention: Retention, limit: int) -> Answer[int]:
        return self.ask("prune", partial(self.store.prune, retention, limit))

    def controls(self, kind: str) -> Answer[Sequence[Control]]:
        return self.ask("controls", partial(self.store.controls, kind))


def pause_s(failures: int, rng: random.Random) -> float:
    """How long to wait after this many failures in a row."""
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * (1 << min(failures, 10)))
    return longest * rng.uniform(0.5, 1.0)


def cut_off(verb: str, silent_s: float, last: StoreError) -> WorkerCutOff:
    """The error of a worker that has not reached the store for too long; `last` is the newest error of the store."""
    return WorkerCutOff(
        f"the store was not reached for {silent_s:.0f} s: {last.message}",
        verb=verb,
        fix="check the store, then start the worker again",
    )
