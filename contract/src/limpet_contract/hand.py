"""A worker moved by hand: every verb of a worker in one short word, with its sequence numbers kept right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Final

from msgspec.structs import replace

from limpet.core.endings.transition import (
    Bury,
    Drop,
    ErrorKind,
    Failure,
    Hold,
    Lose,
    Refuse,
    Release,
    RetryAfter,
    Settled,
    Snooze,
    Succeed,
    Suspend,
    Transition,
)
from limpet.core.jobs.job import LEAST_URGENT, Lane
from limpet.core.jobs.lease import (
    Beat,
    Claim,
    Claimed,
    ClaimOptions,
    ClaimRequest,
    Handed,
    Note,
    Pulse,
    Serves,
    Takes,
    Wake,
)
from limpet.stores.base import NOTHING_SPENT, Store
from limpet_contract.harness import Clock


def failure(kind: ErrorKind = "transient", message: str = "it broke", cause: str = "broke") -> Failure:
    """An error such as a handler leaves behind."""
    return Failure(kind=kind, type="builtins.RuntimeError", message=message, traceback="Traceback ...", cause=cause)


def relaned(lane: Lane) -> Lane:
    """The same lane for other workers: those with the capability "gpu", or all if it was for them."""
    return replace(lane, needs=() if lane.needs else ("gpu",))


# Every way in which a holder can end its hold on a job, by name.
ENDINGS: Final[dict[str, Callable[[Claimed], Transition]]] = {
    "succeed": lambda job: Succeed(job.id, job.token, b'"late"'),
    "fail": lambda job: RetryAfter(job.id, job.token, failure(), 60_000),
    "bury": lambda job: Bury(job.id, job.token, failure("permanent")),
    "drop": lambda job: Drop(job.id, job.token, "no use"),
    "release": lambda job: Release(job.id, job.token),
    "snooze": lambda job: Snooze(job.id, job.token, 60_000, "later"),
    "sleep": lambda job: Suspend(job.id, job.token, 60_000),
    "wait": lambda job: Suspend(job.id, job.token, None, ("go", "stop")),
    "hold": lambda job: Hold(job.id, job.token, f"task:{job.lane.task}", 60_000, "429"),
    "refuse": lambda job: Refuse(job.id, job.token, failure("permanent"), "1a2b", relaned(job.lane)),
    "lose": lambda job: Lose(job.id, job.token, False, "killed"),
    "prove": lambda job: Lose(job.id, job.token, True, "killed alone"),
}


NONE: Final = Takes()
_SEQ = count(1)


def next_seq() -> int:
    """A number no call has used: two hands of one session never repeat a question by accident."""
    return next(_SEQ)


class Hand:
    """One session. It beats by itself when time has passed since its last beat, unless a test asks it not to."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        session: str,
        serves: Serves,
        ttl_ms: int = 15_000,
        takes: Takes = NONE,
    ) -> None:
        self.store = store
        self.clock = clock
        self.session = session
        self.serves = serves
        self.ttl_ms = ttl_ms
        self.takes = takes
        self._beaten_at_ms: int | None = None

    async def beat(self, notes: Sequence[tuple[bytes, int, Note]] = ()) -> Pulse:
        now_ms = self.clock.now_ms
        pulse = await self.store.beat(Beat(self.session, self.ttl_ms, self.serves, notes=tuple(notes)), now_ms=now_ms)
        self._beaten_at_ms = now_ms  # not before it is answered: claims at the same time must find the session
        return pulse

    async def ask(
        self,
        limit: int = 1,
        *,
        slots: int | None = None,
        least_urgent: int = LEAST_URGENT,
        aged: int = 0,
        most_urgent: int = 0,
        needing: str = "",
        claimer: str = "fetcher",
        seq: int | None = None,
    ) -> Claim:
        """One claim, exactly as asked, without a beat; a given `seq` repeats an earlier question."""
        seq = next_seq() if seq is None else seq
        slots = limit if slots is None else slots
        options = ClaimOptions(least_urgent, aged, most_urgent, needing)
        request = ClaimRequest(self.session, self.serves, limit, slots, seq, claimer, options, self.takes)
        return await self.store.claim(request, now_ms=self.clock.now_ms)

    async def claim(
        self,
        limit: int = 1,
        *,
        slots: int | None = None,
        least_urgent: int = LEAST_URGENT,
        aged: int = 0,
        most_urgent: int = 0,
    ) -> list[Claimed]:
        """What a worker gets in the end: it beats when it should, and asks again when told to."""
        if self._beaten_at_ms != self.clock.now_ms:
            await self.beat()
        jobs: list[Claimed] = []
        free = limit if slots is None else slots
        for _ in range(1_000):
            left = limit - len(jobs)
            answer = await self.ask(
                left, slots=free, least_urgent=least_urgent, aged=max(0, aged - len(jobs)), most_urgent=most_urgent
            )
            jobs += answer.jobs
            free -= sum(1 for job in answer.jobs if job.lane.limited or job.lost or job.probe)
            if len(jobs) >= limit or not answer.again:
                return jobs
        raise AssertionError("the store says 'ask again' for ever")

    async def ids(self, limit: int = 1, *, slots: int | None = None) -> list[bytes]:
        """The ids that a claim gives, in order."""
        return [job.id for job in await self.claim(limit, slots=slots)]

    async def take(self) -> Claimed:
        """Exactly one job, which must be there."""
        jobs = await self.claim()
        assert jobs, "there should be a job to claim"
        return jobs[0]

    async def settle(
        self,
        *transitions: Transition,
        seq: int | None = None,
        spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT,
    ) -> list[Settled]:
        seq = next_seq() if seq is None else seq
        return await self.store.settle(self.session, seq, transitions, spent=spent, now_ms=self.clock.now_ms)

    async def end(self, how: str, *jobs: Claimed) -> list[Settled]:
        """End the hold on each job in one of the ENDINGS."""
        return await self.settle(*(ENDINGS[how](job) for job in jobs))

    async def succeed(self, *jobs: Claimed, result: bytes | None = None) -> list[Settled]:
        return await self.settle(*(Succeed(job.id, job.token, result) for job in jobs))

    async def fail(self, job: Claimed, *, delay_ms: int = 0, kind: ErrorKind = "transient") -> Settled:
        return (await self.settle(RetryAfter(job.id, job.token, failure(kind), delay_ms)))[0]

    async def bury(
        self, job: Claimed, *, kind: ErrorKind = "permanent", cause: str = "broke", message: str = "it broke"
    ) -> Settled:
        return (await self.settle(Bury(job.id, job.token, failure(kind, message, cause))))[0]

    async def drop(self, job: Claimed, reason: str = "no use") -> Settled:
        return (await self.settle(Drop(job.id, job.token, reason)))[0]

    async def release(self, *jobs: Claimed, started: bool = False) -> list[Settled]:
        return await self.settle(*(Release(job.id, job.token, started) for job in jobs))

    async def snooze(self, job: Claimed, delay_ms: int) -> Settled:
        return (await self.settle(Snooze(job.id, job.token, delay_ms, "later")))[0]

    async def suspend(self, job: Claimed, delay_ms: int | None, *events: str) -> Settled:
        return (await self.settle(Suspend(job.id, job.token, delay_ms, events)))[0]

    async def hold(self, job: Claimed, gate: str, delay_ms: int) -> Settled:
        return (await self.settle(Hold(job.id, job.token, gate, delay_ms, "429")))[0]

    async def trip(self, job: Claimed, gate: str, delay_ms: int) -> Settled:
        return (await self.settle(Hold(job.id, job.token, gate, delay_ms, "no money left", trips=True)))[0]

    async def lose(self, job: Claimed, *, proven: bool = False) -> Settled:
        return (await self.settle(Lose(job.id, job.token, proven, "killed")))[0]

    async def save(self, job: Claimed, note: Note) -> bool:
        return await self.store.save(job.id, job.token, note, now_ms=self.clock.now_ms)

    async def leave(self) -> None:
        await self.store.leave(self.session, now_ms=self.clock.now_ms)

    async def wait(self, timeout_ms: int) -> Wake:
        return await self.store.wait(self.session, timeout_ms)

    async def handed(self, timeout_ms: int = 60_000) -> list[Handed]:
        """What it was handed while it slept; waits for the first."""
        return list((await self.store.wait(self.session, timeout_ms)).jobs)

    async def drain(self, limit: int = 16) -> list[bytes]:
        """Claim and succeed until nothing is left; the ids in the order in which they came."""
        done: list[bytes] = []
        while jobs := await self.claim(limit):
            done += [job.id for job in jobs]
            await self.succeed(*jobs)
        return done
