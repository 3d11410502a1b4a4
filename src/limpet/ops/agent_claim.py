"""Runs one claim of an agent, from its first look for jobs to those that it gets, or to its end without any."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from limpet.core.jobs.lease import Claim, Claimed, ClaimRequest, Serves
from limpet.ops.agent_sessions import AgentSessions

WAITING_TTL_MS: Final = 15_000  # while it only waits: a killed caller must not swallow wake-ups for long
BEAT_MS: Final = 4_000  # also the pace of sweeps, which a gap of 5 s would put off
LOOK_MS: Final = 30_000  # between looks without a wake-up, should one have been lost
# The only question of a session: asked again it is answered with what it got, which is how a key makes a claim safe to
# repeat. A claim that got nothing leaves no answer behind.
SEQ: Final = 1


@dataclass(frozen=True)
class Asked:
    """What one claim asks for."""

    session: str
    serves: Serves
    most: int
    lease_ms: int
    lease_of: Callable[[Sequence[Claimed]], Awaitable[int]]  # for these jobs, whose types may ask for another
    wait_ms: int
    keyed: bool  # another call may ask the same, now or later
    over: asyncio.Event  # set when no one waits for the answer any more


class AgentClaim:
    """One claim. `sweep` takes back what dead agents held; without workers only other agents can."""

    def __init__(self, sessions: AgentSessions, asked: Asked, sweep: Callable[[], Awaitable[object]]) -> None:
        self._sessions = sessions
        self._store = sessions.store
        self._asked = asked
        self._sweep = sweep
        self.lease_ms = asked.lease_ms  # that the jobs got

    async def jobs(self) -> tuple[Claimed, ...]:
        """Up to as many jobs as were asked for, leased; none leave no session behind."""
        while jobs := await self._jobs_or_leave():
            if self._asked.over.is_set():
                if not self._asked.keyed:  # else the client may have asked again, and been answered with these
                    await self._sessions.leave(self._asked.session)
                return ()
            self.lease_ms = await self._asked.lease_of(jobs)
            if not await self._beat(self.lease_ms):
                return jobs
            # The session was closed in between, by another call with the key or as a silent one: it holds nothing.
        return ()

    async def _jobs_or_leave(self) -> tuple[Claimed, ...]:
        jobs: tuple[Claimed, ...] = ()
        try:
            jobs = await self._first_jobs()
        finally:
            if not jobs:
                await self._leave()
        return jobs

    async def _first_jobs(self) -> tuple[Claimed, ...]:
        asked, until_s, look_at_s = self._asked, time.monotonic() + self._asked.wait_ms / 1000, 0.0
        ttl_ms = WAITING_TTL_MS
        if asked.keyed and await self._store.held(asked.session):
            ttl_ms = asked.lease_ms  # what the first call got must not end sooner because it is asked again
        while True:
            fresh = await self._beat(ttl_ms)
            await self._sweep()
            if fresh or time.monotonic() >= look_at_s:
                claim = await self._claim()
                if claim.jobs:
                    return claim.jobs
                if asked.over.is_set():
                    return ()
                if claim.again:
                    continue
                look_at_s = time.monotonic() + _until_due_s(claim)
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return ()
            if await self._woken(min(left_s, look_at_s - time.monotonic(), _until_beat_s())):
                look_at_s = 0.0
            if asked.over.is_set():
                return ()

    async def _claim(self) -> Claim:
        asked = self._asked
        request = ClaimRequest(asked.session, asked.serves, asked.most, asked.most, SEQ, "agent")
        return await self._store.claim(request, now_ms=self._sessions.asked_ms)

    async def _beat(self, ttl_ms: int) -> bool:
        pulse = await self._sessions.beat(self._asked.session, self._asked.serves, ttl_ms)
        return pulse.fresh

    async def _woken(self, seconds: float) -> bool:
        """Wait for work; True when there may be some, False when the time or the claim is over."""
        waiting = asyncio.ensure_future(self._store.wait(self._asked.session, max(1, round(seconds * 1000))))
        ending = asyncio.ensure_future(self._asked.over.wait())
        try:
            await asyncio.wait({waiting, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                return False
            wake = waiting.result()
            return wake.work or wake.urgent
        finally:
            waiting.cancel()
            ending.cancel()

    async def _leave(self) -> None:
        """A session with a key may be another call's, too, which has got something by now."""
        if self._asked.keyed:
            await self._sessions.leave_empty([self._asked.session])
        else:
            await self._sessions.leave(self._asked.session)


def _until_due_s(claim: Claim) -> float:
    if claim.next_at_ms is None:
        return LOOK_MS / 1000
    return min(LOOK_MS, max(1, claim.next_at_ms - claim.now_ms)) / 1000


def _until_beat_s() -> float:
    """Until the next of the instants at which all beat: the beats of many calls of one process meet in few writes."""
    return (BEAT_MS - time.monotonic_ns() // 1_000_000 % BEAT_MS) / 1000
