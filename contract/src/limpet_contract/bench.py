"""A workbench for one store: short words for making jobs, letting time pass and checking that the books balance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Unpack, cast

from limpet.core.errors import QueueFull
from limpet.core.gate import Gate, GateChange, GateRule
from limpet.core.jobs.ids import IdMaker
from limpet.core.jobs.job import Enqueued, Job
from limpet.core.jobs.lease import Serves, Signal, Takes
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Counts, FlowView, JobView, Query, Term
from limpet.stores.asking import examined, joining
from limpet.stores.base import CancelAnswer, Joins, RetryAnswer, RetryRequest, SignalAnswer, Store
from limpet_contract.hand import NONE, Hand
from limpet_contract.harness import Clock, Harness, Transactional, Visitor
from limpet_contract.making import JobOptions, make_job

SWEEP_MS = 1_000  # the pace of a janitor; a longer gap would make `expire` wait a lease time (D6)
WAITING = (State.blocked, State.scheduled, State.ready)
STORED = (State.blocked, State.scheduled, State.ready, State.running, State.dead)


class Books(NamedTuple):
    """What was read of a store to check its books."""

    counts: Counts
    jobs: list[JobView]
    gates: list[Gate]


class Bench:
    """One store, one clock, and as many workers as a test needs."""

    def __init__(self, store: Store, clock: Clock, harness: Harness | None = None) -> None:
        self.store = store
        self.clock = clock
        self.ids = IdMaker()
        self.hands: list[Hand] = []
        self._harness = harness

    @classmethod
    async def open(cls, harness: Harness) -> Bench:
        """A bench on a fresh, empty store."""
        return cls(await harness.open(), Clock(), harness)

    async def other(self) -> Bench:
        """A second handle on the same jobs, as another process has it, under the same clock."""
        assert self._harness is not None
        return Bench(await self._harness.reopen(self.store), self.clock, self._harness)

    async def visit(self) -> Visitor:
        """A caller with a database connection of its own, where the engine joins its transactions."""
        return await cast(Transactional, self._harness).visit(self.store)

    # -- producing

    def id(self) -> bytes:
        """An id larger than any before."""
        return self.ids.make(self.clock.now_ms)

    def job(self, **options: Unpack[JobOptions]) -> Job:
        """A job with sensible defaults; lane fields and job fields are named alike."""
        return make_job(self.id(), options)

    async def put(self, *jobs: Job, rules: Sequence[GateRule] = ()) -> list[Enqueued]:
        """Enqueue in one call."""
        return await self.store.enqueue(jobs, rules, now_ms=self.clock.now_ms)

    async def add(self, **options: Unpack[JobOptions]) -> bytes:
        """Enqueue one job; its id."""
        job = self.job(**options)
        answer = (await self.put(job))[0]
        assert not answer.existing
        return job.id

    async def add_many(self, count: int, **options: Unpack[JobOptions]) -> list[bytes]:
        """Enqueue equal jobs in one call; their ids in order."""
        jobs = [self.job(**options) for _ in range(count)]
        await self.put(*jobs)
        return [job.id for job in jobs]

    async def declare(self, *rules: GateRule) -> None:
        """Declare limits and breakers, as the code of an app does."""
        await self.change(*(GateChange(rule.key, rule=rule, declared=True) for rule in rules))

    # -- working

    def hand(
        self,
        session: str = "w1",
        *,
        queues: tuple[str, ...] | None = None,
        tasks: tuple[str, ...] | None = None,
        capabilities: tuple[str, ...] = (),
        ttl_ms: int = 15_000,
        takes: Takes = NONE,
    ) -> Hand:
        """A worker moved by hand; None = it serves any queue or task."""
        hand = Hand(self.store, self.clock, session, Serves(queues, tasks, capabilities), ttl_ms, takes)
        self.hands.append(hand)
        return hand

    async def sweep(self, ms: int, *alive: Hand) -> int:
        """Let time pass the way it does beside a janitor: `alive` beat, then expire runs, once a second."""
        taken = 0
        end_ms = self.clock.now_ms + ms
        while self.clock.now_ms < end_ms:
            self.clock.advance(min(SWEEP_MS, end_ms - self.clock.now_ms))
            for hand in alive:
                await hand.beat()
            taken += await self.store.expire(now_ms=self.clock.now_ms)
        return taken

    async def lose(self, id: bytes, *alive: Hand) -> None:
        """Let time pass until the sweep has taken this job from its silent holder."""
        token = (await self.view(id)).token
        for _ in range(90):
            await self.sweep(SWEEP_MS, *alive)
            if (await self.view(id)).token != token:
                return
        raise AssertionError("the lease of a silent session was never taken back")

    # -- asking and correcting

    async def view(self, id: bytes) -> JobView:
        """The job, which must be there."""
        view = (await self.store.get([id]))[0]
        assert view is not None, "a job has vanished"
        return view

    async def state(self, id: bytes) -> State:
        return (await self.view(id)).state

    async def states(self, ids: Sequence[bytes]) -> list[State | None]:
        return [view.state if view else None for view in await self.store.get(ids)]

    async def cancel(self, *ids: bytes, force: bool = False, reason: str = "not needed") -> list[CancelAnswer]:
        return await self.store.cancel(ids, reason, force=force, now_ms=self.clock.now_ms)

    async def retry(
        self, *ids: bytes, delay_ms: int = 0, args: bytes | None = None, forget: tuple[str, ...] = ()
    ) -> list[RetryAnswer]:
        request = RetryRequest(ids, delay_ms, args, forget=forget)
        return await self.store.retry(request, now_ms=self.clock.now_ms)

    async def signal(self, *signals: Signal) -> list[SignalAnswer]:
        return await self.store.signal(signals, now_ms=self.clock.now_ms)

    async def found(self, *terms: Term, states: frozenset[State] | None = None, limit: int = 50) -> list[bytes]:
        """The ids on the first page, which must be complete, oldest first."""
        query = Query(states, terms, limit, newest_first=False)
        page = await self.store.find(query, now_ms=self.clock.now_ms)
        assert page.complete
        return [job.id for job in page.jobs]

    async def change(self, *changes: GateChange) -> list[Gate]:
        return await self.store.change_gates(changes, now_ms=self.clock.now_ms)

    async def gate(self, key: str) -> Gate | None:
        """The gate of that key, if there is one."""
        return next(iter(await self.store.gates(keys=[key])), None)

    async def everything(self) -> list[JobView]:
        """Every job that is stored, oldest first."""
        jobs: list[JobView] = []
        query = Query(limit=500, newest_first=False)
        while True:
            page = await self.store.find(query, now_ms=self.clock.now_ms)
            jobs += page.jobs
            if page.cursor is None:
                return jobs
            query = Query(limit=500, newest_first=False, cursor=page.cursor)

    async def ids_ending_in(self, suffix: str) -> list[bytes]:
        """The jobs that the end of an id names."""
        return [job.id for job in (await self.store.find(Query(suffix=suffix))).jobs]

    @property
    def joined(self) -> Joins:
        """The store as one that takes part in the caller's transaction."""
        return joining(self.store, "enqueue")

    # -- the books

    async def check_books(self) -> Books:
        """What must be true of every store at every moment: counters sum up, and equal what is stored."""
        counts = await self.store.count()
        stored = sum(counts.total(state) for state in STORED)
        left = counts.succeeded + counts.cancelled + counts.discarded
        assert counts.enqueued == stored + left, f"{counts.enqueued} were enqueued, {stored} + {left} are accounted for"
        assert not [key for key, number in counts.now.items() if number < 0], "a counter is below zero"
        jobs = await self.everything()
        found = Counter((job.lane.queue, job.lane.task, job.state) for job in jobs)
        assert found == {key: number for key, number in counts.now.items() if number}, "counters and jobs differ"
        await self._check_holders([job for job in jobs if job.state is State.running])
        await self._check_flows(jobs)
        accounts = await examined(self.store).accounts()
        for account in accounts:
            gate = account.gate
            assert not account.leaked, f"{gate.key} counts {gate.used} slots, and running jobs hold {account.slots}"
            assert not account.uncounted, f"{gate.key} counts {gate.spent}, and {account.reserved} are reserved"
            assert not account.stuck, f"{gate.key} waits for a probe that does not run"
        return Books(counts, jobs, [account.gate for account in accounts])

    async def check_depth(self, queue: str, tenant: str | None) -> None:
        """A queue that may hold as many as wait in it takes no new job, and says how many those are."""
        waiting = [job for job in await self.everything() if job.lane.queue == queue and job.state in WAITING]
        counts, key = Counter(job.lane.tenant for job in waiting), f"queue:{queue}"
        for whose, most in ((None, len(waiting)), *([(tenant, counts[tenant])] if tenant is not None else [])):
            rule = GateRule(key, depth=most) if whose is None else GateRule(key, tenant_depth=most)
            await self.change(GateChange(key, rule=rule))
            said = ""
            try:
                await self.put(self.job(queue=queue, tenant=tenant))
            except QueueFull as full:
                said = str(full)
            assert f"its depth is {most:,}, {most:,} wait," in said, f"{most} wait in {queue} (tenant {whose}): {said}"
        await self.change(GateChange(key, rule=GateRule(key), declared=True, clear=True))

    async def _check_flows(self, jobs: Sequence[JobView]) -> None:
        """Every flow is listed with all of its jobs that are stored, and no other is."""
        first: dict[bytes, JobView] = {}
        counts: dict[bytes, Counter[State]] = {}
        for job in jobs:
            if job.flow is not None:
                first.setdefault(job.flow, job)
                counts.setdefault(job.flow, Counter())[job.state] += 1
        expected = [FlowView(id, counts[id], first[id].enqueued_at_ms) for id in sorted(counts, reverse=True)]
        assert await self.store.flows(limit=len(expected) + 1) == expected, "flows and their jobs differ"

    async def _check_holders(self, running: Sequence[JobView]) -> None:
        """A job that runs is held by the session it names, or no sweep would ever find it again."""
        sessions = {job.session for job in running if job.session is not None}
        held = {(one.id, one.token) for session in sessions for one in await self.store.held(session)}
        assert {(job.id, job.token) for job in running} == held, (
            "a job runs and is not held, or is held and does not run"
        )
