"""Offers what verbs have changed to readers of live events: after the answer, in the background, within bounds."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Final, Protocol

from limpet.core.endings.transition import Settled, Succeed, Transition
from limpet.core.errors import LimpetError
from limpet.core.jobs.bulletin import UNKNOWN, Counted, Moved, Scope, write_bulletins
from limpet.core.jobs.job import Enqueued, Job
from limpet.core.jobs.lease import Claim, ClaimRequest, Signal
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Control, JobView
from limpet.stores.base import READER, Broadcasts, RetryRequest
from limpet.stores.callers import apart

KNOWN_S: Final = 6.0  # a beat, which is asked every 5 s, says whether there is a reader
LOOK_S: Final = 5.0  # between two looks of a process that does not beat
EVERY_S: Final = 0.1  # between two messages of changes
COUNTS_EVERY_S: Final = 0.5  # between two messages of counts
LAST_S: Final = 0.5  # how long closing a store waits for what is not told yet
MOST_A_SECOND: Final = 1_000  # changes that are told one by one; of more, the counts
MOST_COUNTS: Final = 1_000  # queues, tasks and states that are counted apart
MOST_LOOKED_UP: Final = 200  # jobs whose queue and task are asked for, for one message
MOST_KNOWN: Final = 100_000  # running jobs whose queue and task are remembered

logger = logging.getLogger("limpet.stores")


Verb = Callable[..., Awaitable[Any]]
Note = Callable[..., None]  # gets the outlet, the instant, the answer and what was asked


class Telling(Broadcasts, Protocol):
    """What a store must have to tell what it changed."""

    async def put_control(self, control: Control, *, expect: int | None = None) -> Control | None: ...
    async def controls(self, kind: str) -> list[Control]: ...
    async def now(self) -> int: ...
    async def get(self, ids: Sequence[bytes]) -> list[JobView | None]: ...


class Offers:
    """What one process tells of one store. Nothing is noted while there is no reader.

    It stands before the verbs that change jobs; where beats say that there is no reader it steps aside, so that a job
    does not pass it. Until it is first known whether there is one, changes are kept: a command ends before the next look.
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
            outlet = Outlet(self, loop)
            alive = {known: its for known, its in self._outlets.items() if not known.is_closed()}
            self._outlets = {**alive, loop: outlet}
        return outlet

    async def close(self) -> None:
        """Tell what this loop has not told yet, if that is soon done."""
        outlet = self._outlets.get(asyncio.get_running_loop())
        if outlet is not None and self._pid == os.getpid():
            await outlet.close()


class Outlet:
    """The changes of one event loop that are not told yet."""

    def __init__(self, offers: Offers, loop: asyncio.AbstractEventLoop) -> None:
        self._offers = offers
        self._store = offers.store
        self._loop = loop
        self._name = os.urandom(6).hex()
        self._number = 1  # of the next message
        self._held: dict[bytes, tuple[Scope, int]] = {}  # scope and attempt of the running jobs that this loop claimed
        self._later: asyncio.TimerHandle | None = None
        self._telling: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._second_s = 0.0  # when the second began in which changes are counted
        self._seen = 0
        self._counts_only = False
        self._clear()

    def _clear(self) -> None:
        self._moved: list[Moved] = []
        self._unknown: list[Moved] = []  # jobs that this process does not know
        self._counts: dict[tuple[Scope, State], int] = {}
        self._lost = 0

    # -- noting

    def begin(self) -> None:
        """A verb has changed something: see how many changes there are in a second, and tell soon."""
        now_s = self._loop.time()
        if now_s - self._second_s >= 1:
            self._counts_only = self._seen > MOST_A_SECOND and now_s - self._second_s < 2
            self._second_s, self._seen = now_s, 0
        if self._later is None:
            every_s = COUNTS_EVERY_S if self._counts_only else EVERY_S
            self._later = self._loop.call_later(every_s, self._tell_soon)

    def move(self, id: bytes, held: tuple[Scope, int] | None, kind: str, state: State, at_ms: int) -> None:
        """A job has moved; None where its scope and attempt are not known here."""
        self._seen += 1
        if self._counts_only or self._seen > MOST_A_SECOND:
            self.count(UNKNOWN if held is None else held[0], state)
        elif held is not None:
            self._moved.append(Moved(id, held[0], kind, state, held[1], at_ms))
        elif len(self._unknown) < MOST_LOOKED_UP:
            self._unknown.append(Moved(id, UNKNOWN, kind, state, 0, at_ms))
        else:
            self.count(UNKNOWN, state)

    def count(self, scope: Scope, state: State, by: int = 1) -> None:
        """So many jobs have come to a state."""
        key = scope, state
        if key in self._counts or len(self._counts) < MOST_COUNTS:
            self._counts[key] = self._counts.get(key, 0) + by
        else:
            self._lost += by

    def hold(self, id: bytes, held: tuple[Scope, int]) -> None:
        """A job is running here: how it ends is told with its scope and attempt."""
        if len(self._held) >= MOST_KNOWN:
            self._held.clear()  # of leases that were lost: those in use are looked up
        self._held[id] = held

    def end(self, id: bytes) -> tuple[Scope, int] | None:
        """A job does not run here any more; its scope and attempt, if it was claimed here."""
        return self._held.pop(id, None)

    # -- telling

    def look(self) -> None:
        """See in the background whether there is a reader."""
        if self._looking is None or self._looking.done():
            self._looking = self._loop.create_task(self._look(), context=apart())

    async def _look(self) -> None:
        listened = False
        with suppress(LimpetError):
            listened = await _is_listened(self._store)
        self._offers.heard(listened)

    def _tell_soon(self) -> None:
        self._later = None
        if self._telling is None or self._telling.done():
            self._telling = self._loop.create_task(self._tell(), context=apart())
        else:
            self._later = self._loop.call_later(EVERY_S, self._tell_soon)

    async def _tell(self) -> None:
        if self._looking is not None and not self._looking.done():
            await asyncio.wait({self._looking})
        if not self._offers.are_wanted:
            self._clear()
            self._held.clear()
            return
        if self._unknown:
            await self._look_up()
        news: list[Moved | Counted] = [*self._moved]
        news += [Counted(scope, state, count) for (scope, state), count in self._counts.items()]
        lost = self._lost
        self._clear()
        texts = write_bulletins(self._name, self._number, news, time.time_ns() // 1_000_000, lost)
        self._number += len(texts)  # what cannot be sent is missed by its number
        with suppress(LimpetError):
            for text in texts:
                await self._store.publish(text)

    async def _look_up(self) -> None:
        """Learn the queues and tasks of jobs that this process did not claim."""
        unknown, self._unknown = self._unknown, []
        found: dict[bytes, tuple[Scope, int]] = {}
        with suppress(LimpetError):
            views = await self._store.get([each.id for each in unknown])
            found = {view.id: ((view.lane.queue, view.lane.task), view.attempt) for view in views if view is not None}
        for each in unknown:
            scope, attempt = found.get(each.id, (UNKNOWN, 0))
            self._moved.append(Moved(each.id, scope, each.kind, each.state, attempt, each.at_ms))

    async def close(self) -> None:
        """Tell what is left, and stop."""
        if self._later is not None:
            self._later.cancel()
            self._tell_soon()
        ending = {task for task in (self._telling, self._looking) if task is not None and not task.done()}
        if ending:
            await asyncio.wait(ending, timeout=LAST_S)
            for task in ending:
                task.cancel()
        if self._later is not None:
            self._later.cancel()
            self._later = None


async def _is_listened(store: Telling) -> bool:
    """Whether live events have a reader."""
    kind, name = READER
    for control in await store.controls(kind):
        if control.name == name:
            return int(control.value) > await store.now()
    return False


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
    for job in claim.jobs:
        held = (job.lane.queue, job.lane.task), job.attempt
        outlet.hold(job.id, held)
        outlet.move(job.id, held, "claimed", State.running, at_ms)


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
    for transition, answer in zip(transitions, answers, strict=True):
        held, state = outlet.end(transition.id), answer.state
        if answer.answer == "done" and state is not None:
            kind = "succeeded" if state is State.succeeded and type(transition) is not Succeed else transition.counted
            outlet.move(transition.id, held, kind, state, at_ms)


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
    "settle": settled,
    "expire": expired,
    "cancel": cancelled,
    "retry": retried,
    "signal": signalled,
}
