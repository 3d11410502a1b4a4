"""Sends the changes of one event loop to readers of live events: in the background, within bounds."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from limpet.core.endings.transition import Settled, Transition
from limpet.core.errors import LimpetError
from limpet.core.jobs.bulletin import UNKNOWN, Counted, Moved, Scope, write_bulletins
from limpet.core.jobs.job import Lane
from limpet.core.jobs.lease import Claimed
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Control, JobView
from limpet.stores.base import READER, Broadcasts
from limpet.stores.callers import apart
from limpet.stores.errand import errand

EVERY_S: Final = 0.1  # between two messages of changes
COUNTS_EVERY_S: Final = 0.5  # between two messages of counts
QUIET_S: Final = 2.0  # after the last change
LAST_S: Final = 0.5  # how long closing a store waits for what is not told yet
MOST_A_SECOND: Final = 1_000  # changes that are told one by one; of more, the counts
MOST_COUNTS: Final = 1_000  # queues, tasks and states that are counted apart
MOST_LOOKED_UP: Final = 200  # jobs whose queue and task are asked for, for one message
MOST_KNOWN: Final = 100_000  # running jobs whose queue and task are remembered


class Telling(Broadcasts, Protocol):
    """What a store must have to tell what it changed."""

    async def put_control(self, control: Control, *, expect: int | None = None) -> Control | None: ...
    async def controls(self, kind: str) -> list[Control]: ...
    async def now(self) -> int: ...
    async def get(self, ids: Sequence[bytes]) -> list[JobView | None]: ...


def _scope_of(job: Claimed) -> tuple[Scope, int]:
    return (job.lane.queue, job.lane.task), job.attempt


def _state_of_all(answers: Sequence[Settled]) -> State | None:
    """The state that all these jobs have come to; None where they differ, or one was not the worker's any more."""
    states = [each.state for each in answers]
    alike = states.count(states[0]) == [each.answer for each in answers].count("done") == len(answers)
    return states[0] if alike else None


class Wants(Protocol):
    """What knows whether there is a reader."""

    @property
    def are_wanted(self) -> bool: ...

    def heard(self, listened: bool) -> None: ...


class Outlet:
    """The changes of one event loop that are not told yet."""

    def __init__(self, store: Telling, offers: Wants, loop: asyncio.AbstractEventLoop) -> None:
        self._offers = offers
        self._store = store
        self._loop = loop
        self._name = os.urandom(6).hex()
        self._number = 1  # of the next message
        self._held: dict[bytes, Claimed] = {}  # running jobs that this loop has claimed
        self._later: asyncio.TimerHandle | None = None
        self._quiet: asyncio.TimerHandle | None = None
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
        """This number of jobs has come to a state."""
        key = scope, state
        if key in self._counts or len(self._counts) < MOST_COUNTS:
            self._counts[key] = self._counts.get(key, 0) + by
        else:
            self._lost += by

    def claim(self, jobs: Sequence[Claimed], at_ms: int) -> None:
        """Jobs run here: how they end is told with their queue, task and attempt."""
        if len(self._held) >= MOST_KNOWN:
            self._held.clear()  # of leases that were lost: those in use are looked up
        self._held.update({job.id: job for job in jobs})
        if self._is_crowded(len(jobs)):
            self._count_lanes([job.lane for job in jobs], State.running)
            return
        for job in jobs:
            self.move(job.id, _scope_of(job), "claimed", State.running, at_ms)

    def settle(self, transitions: Sequence[Transition], answers: Sequence[Settled], at_ms: int) -> None:
        """Jobs do not run any more."""
        crowded, pop = self._is_crowded(len(answers)), self._held.pop
        jobs = [pop(each.id, None) for each in transitions]
        if crowded and jobs and all(jobs) and (state := _state_of_all(answers)) is not None:
            self._count_lanes([job.lane for job in jobs if job is not None], state)
            return
        lanes: dict[int, tuple[State, list[Lane]]] = {}  # by the identity of a state: its hash costs more than all else
        for transition, job, answer in zip(transitions, jobs, answers, strict=True):
            state = answer.state
            if answer.answer != "done" or state is None:
                continue
            if crowded and job is not None:
                found = lanes.get(id(state)) or lanes.setdefault(id(state), (state, []))
                found[1].append(job.lane)
                continue
            kind = "succeeded" if state is State.succeeded else transition.counted
            self.move(transition.id, None if job is None else _scope_of(job), kind, state, at_ms)
        for state, each in lanes.values():
            self._count_lanes(each, state)

    def _is_crowded(self, more: int) -> bool:
        """Whether there are too many changes in this second to tell each."""
        return self._counts_only or self._seen + more > MOST_A_SECOND

    def _count_lanes(self, lanes: Sequence[Lane], state: State) -> None:
        """Count jobs by their lanes, of which a process has one for each definition."""
        self._seen += len(lanes)
        first = lanes[0]
        if lanes.count(first) == len(lanes):  # as with most: a comparison with itself costs next to nothing
            self.count((first.queue, first.task), state, len(lanes))
            return
        places = list(map(id, lanes))
        for lane in dict(zip(places, lanes, strict=True)).values():
            self.count((lane.queue, lane.task), state, places.count(id(lane)))

    def forget(self) -> None:
        """There is no reader: from here on it is not heard what becomes of jobs."""
        self._clear()
        self._held = {}

    # -- telling

    def look(self) -> None:
        """See in the background whether there is a reader."""
        if self._looking is None or self._looking.done():
            self._looking = errand(self._look(), self._loop, context=apart())

    async def _look(self) -> None:
        listened = False
        with suppress(LimpetError):
            listened = await _is_listened(self._store)
        self._offers.heard(listened)

    def _tell_soon(self) -> None:
        self._later = None
        if self._telling is None or self._telling.done():
            self._telling = errand(self._tell(), self._loop, context=apart())
        else:
            self._later = self._loop.call_later(EVERY_S, self._tell_soon)

    async def _tell(self) -> None:
        if self._looking is not None and not self._looking.done():
            await asyncio.wait({self._looking})
        if not self._offers.are_wanted:
            self.forget()
            return
        if self._unknown:
            await self._look_up()
        news: list[Moved | Counted] = [*self._moved]
        news += [Counted(scope, state, count) for (scope, state), count in self._counts.items()]
        lost = self._lost
        self._clear()
        if news or lost:
            await self._send(news, lost)
            if self._quiet is not None:
                self._quiet.cancel()
            self._quiet = self._loop.call_later(QUIET_S, self._end_quietly)

    async def _send(self, news: Sequence[Moved | Counted] = (), lost: int = 0) -> None:
        texts = write_bulletins(self._name, self._number, news, time.time_ns() // 1_000_000, lost)
        self._number += len(texts)  # what cannot be sent is missed by its number
        with suppress(LimpetError):
            for text in texts:
                await self._store.publish(text)

    def _end_quietly(self) -> None:
        """Nothing has changed for a while: a message without news shows a reader whether it has missed the last one."""
        self._quiet = None
        if self._later is None and (self._telling is None or self._telling.done()):
            self._telling = errand(self._send(), self._loop, context=apart())

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
        for timer in (self._later, self._quiet):
            if timer is not None:
                timer.cancel()
        self._later = self._quiet = None


async def _is_listened(store: Telling) -> bool:
    """Whether live events have a reader."""
    kind, name = READER
    for control in await store.controls(kind):
        if control.name == name:
            return int(control.value) > await store.now()
    return False
