"""Offers what verbs have changed to readers of live events: after the answer, and only while there is a reader."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any, Final

from limpet.core.endings.transition import Settled, Transition
from limpet.core.jobs.bulletin import UNKNOWN
from limpet.core.jobs.job import Enqueued, Job
from limpet.core.jobs.lease import Claim, ClaimRequest, Signal, Wake
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Control
from limpet.stores.base import READER, RetryRequest
from limpet.stores.outlet import Outlet, Telling

KNOWN_S: Final = 6.0  # a beat, which is asked every 5 s, says whether there is a reader
LOOK_S: Final = 5.0  # between two looks of a process that does not beat

logger = logging.getLogger("limpet.stores")

Verb = Callable[..., Awaitable[Any]]
Note = Callable[..., None]  # gets the outlet, the instant, the answer and what was asked


class Offers:
    """What one process tells of one store. Nothing is noted while there is no reader.

    It stands before the verbs that change jobs. Where beats say that there is no reader it steps aside, so that a job
    does not pass it. Until it is known for the first time, changes are kept: a command ends before the next look.
    """

    def __init__(self, store: Telling) -> None:
        self.store = store
        self._verbs = {name: self._telling(getattr(store, name), note) for name, note in NOTES.items()}
        self._alarm: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None
        self._begin()
        self.attach()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._outlets: dict[asyncio.AbstractEventLoop, Outlet] = {}  # replaced, never changed: threads read it
        self._look_at_s = 0.0
        self._is_wanted = True

    @property
    def are_wanted(self) -> bool:
        """Whether to note what was changed. Looks for a reader in the background, when no beat has told of one."""
        now_s = time.monotonic()
        if now_s >= self._look_at_s:
            if self._pid != os.getpid():
                self._begin()
            self._look_at_s = now_s + LOOK_S
            self.here().look()
        return self._is_wanted

    def heard(self, listened: bool) -> None:
        """A beat, or a look, has said whether there is a reader."""
        self._look_at_s, self._is_wanted = time.monotonic() + KNOWN_S, listened
        if listened:
            self.attach()
        else:
            for outlet in self._outlets.values():
                outlet.forget()

    def beaten(self, listened: bool) -> None:
        """A beat has said it, and the next one will in time: until then nothing has to be looked for."""
        self.heard(listened)
        if not listened:
            self._detach()

    def attach(self) -> None:
        """Hear of what the verbs change."""
        vars(self.store).update(self._verbs)

    def _detach(self) -> None:
        """Be in no verb's way until the next beat, or until one is missing."""
        own = vars(self.store)
        for name, verb in self._verbs.items():
            if own.get(name) is verb:
                del own[name]
        loop = asyncio.get_running_loop()
        if self._alarm is not None and self._alarm[0] is loop:
            self._alarm[1].cancel()
        self._alarm = loop, loop.call_later(KNOWN_S, self._attach_if_late)

    def _attach_if_late(self) -> None:
        if time.monotonic() >= self._look_at_s:
            self.attach()

    def _telling(self, verb: Verb, note: Note) -> Verb:
        """The verb, which then tells what it has changed."""

        @wraps(verb)
        async def telling(*args: Any, **options: Any) -> Any:
            answer = await verb(*args, **options)
            if self.are_wanted:
                at_ms = options.pop("now_ms", None) or time.time_ns() // 1_000_000
                try:
                    note(self.here(), at_ms, answer, *args, **options)
                except Exception:  # the change is made: what is told of it must not make it look otherwise
                    logger.exception("could not tell of a change")
            return answer

        return telling

    async def announce(self, until_ms: int) -> None:
        """Until then there is a reader."""
        kind, name = READER
        await self.store.put_control(Control(kind, name, str(until_ms).encode()))
        self.heard(True)

    def here(self) -> Outlet:
        """What this loop tells."""
        loop = asyncio.get_running_loop()
        outlet = self._outlets.get(loop)
        if outlet is None:
            outlet = Outlet(self.store, self, loop)
            alive = {known: its for known, its in self._outlets.items() if not known.is_closed()}
            self._outlets = {**alive, loop: outlet}
        return outlet

    async def close(self) -> None:
        """Tell what this loop has not told yet, if that is soon done."""
        outlet = self._outlets.get(asyncio.get_running_loop())
        if outlet is not None and self._pid == os.getpid():
            await outlet.close()


# -- which verb tells what


def enqueued(outlet: Outlet, at_ms: int, answers: Sequence[Enqueued], jobs: Sequence[Job], *_: object) -> None:
    """New jobs are there."""
    outlet.begin()
    for job, answer in zip(jobs, answers, strict=True):
        if not answer.existing:
            outlet.move(answer.id, ((job.lane.queue, job.lane.task), 0), "enqueued", answer.state, at_ms)


def relayed(
    outlet: Outlet,
    at_ms: int,
    answers: Sequence[Enqueued] | None,
    source: str,
    batch: int,
    jobs: Sequence[Job],
    *_: object,
    always: bool = False,
) -> None:
    """New jobs are there that an outbox held."""
    if answers:
        enqueued(outlet, at_ms, answers, jobs)


def claimed(outlet: Outlet, at_ms: int, claim: Claim, request: ClaimRequest) -> None:
    """Jobs run."""
    if claim.jobs:
        outlet.begin()
        outlet.claim(claim.jobs, at_ms)


def woken(outlet: Outlet, at_ms: int, wake: Wake, *_: object) -> None:
    """Jobs run that were handed off."""
    if wake.jobs:
        outlet.begin()
        outlet.claim([handed.job for handed in wake.jobs], at_ms)


def settled(
    outlet: Outlet,
    at_ms: int,
    answers: Sequence[Settled],
    session: str,
    seq: int,
    transitions: Sequence[Transition],
    **_: object,
) -> None:
    """Attempts have ended."""
    outlet.begin()
    outlet.settle(transitions, answers, at_ms)


def expired(outlet: Outlet, at_ms: int, taken: int, *_: object) -> None:
    """Leases ran out; whose, the store does not say."""
    if taken:
        outlet.begin()
        outlet.count(UNKNOWN, State.ready, taken)


def cancelled(
    outlet: Outlet, at_ms: int, answers: Sequence[str], ids: Sequence[bytes], *_: object, **__: object
) -> None:
    """A person has cancelled jobs, or asked running ones to stop."""
    states = {"cancelled": State.cancelled, "cancelling": State.running}
    _answered(outlet, at_ms, ids, answers, states)


def retried(outlet: Outlet, at_ms: int, answers: Sequence[str], request: RetryRequest) -> None:
    """A person has brought jobs back."""
    state = State.scheduled if request.delay_ms > 0 else State.ready
    _answered(outlet, at_ms, request.ids, answers, {"retried": state})


def signalled(outlet: Outlet, at_ms: int, answers: Sequence[str], signals: Sequence[Signal]) -> None:
    """Jobs continue that have waited for an event."""
    _answered(outlet, at_ms, [signal.id for signal in signals], answers, {"woken": State.ready})


def _answered(
    outlet: Outlet, at_ms: int, ids: Sequence[bytes], answers: Sequence[str], states: dict[str, State]
) -> None:
    outlet.begin()
    for id, answer in zip(ids, answers, strict=True):
        if (state := states.get(answer)) is not None:
            outlet.move(id, None, answer, state, at_ms)


NOTES: Final[dict[str, Note]] = {
    "enqueue": enqueued,
    "relay": relayed,
    "claim": claimed,
    "wait": woken,
    "settle": settled,
    "expire": expired,
    "cancel": cancelled,
    "retry": retried,
    "signal": signalled,
}
