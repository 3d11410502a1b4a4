"""A random walk: a store and the model go the same way step by step, and must agree after every step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast.core.gate import GateChange, GateRule, Pause
from holdfast.core.job import LEAST_URGENT, IfParentFails, Job, Policy, Unique
from holdfast.core.lease import Claimed, ClaimRequest
from holdfast.core.state import FINISHED, State
from holdfast.core.transition import Lose, Release
from holdfast.core.view import JobView
from holdfast.testing.bench import SWEEP_MS, Bench
from holdfast.testing.hand import ENDINGS, Hand, next_seq
from holdfast.testing.harness import Harness
from holdfast.testing.making import JobOptions
from holdfast.testing.model import Model

T = TypeVar("T")

CEILINGS = {"shared": 3, "k1": 1, "k2": 2}
TTL_MS = 4_000
PATIENCE_MS = TTL_MS + 17_000  # a silent session's jobs are back by then, even after a gap (D6)

LANES: list[JobOptions] = [
    {},
    {"task": "other"},
    {"group": "acme"},
    {"queue": "second", "group": "acme"},
    {"priority": 3},
    {"limits": ("shared",)},
    {"keys": ("k1",)},
    {"task": "other", "keys": ("k1", "k2"), "limits": ("shared",), "priority": 3},
    {"needs": ("gpu",)},
]
WORKERS: list[tuple[tuple[str, ...] | None, tuple[str, ...] | None, tuple[str, ...]]] = [
    (None, None, ("gpu",)),
    (("default",), None, ()),
    (None, ("other",), ()),
]

AFTER: list[IfParentFails] = ["cancel", "cancel", "run", "wait"]

picks = st.integers(0, 1 << 20)
delays = st.sampled_from([0, 0, 0, 1_500, 9_000])


class StoreWalk(RuleBasedStateMachine):
    """The rules; `walk` runs them."""

    def __init__(self, harness: Harness) -> None:
        super().__init__()
        self.harness = harness
        self.runner = asyncio.Runner()
        self.bench = self.run(Bench.open(harness))
        self.model = Model(CEILINGS)
        self.made: list[Job] = []
        self.given: list[tuple[Claimed, str]] = []  # everything ever handed out, with its session
        self.alive: dict[str, Hand] = {}
        self.silent: dict[str, int] = {}  # session → when it beat last
        self.born = 0

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(step)

    @property
    def now_ms(self) -> int:
        return self.bench.clock.now_ms

    @initialize(lanes=st.lists(picks, min_size=4, max_size=12))
    def begin(self, lanes: list[int]) -> None:
        self.run(self.bench.declare(*(GateRule(f"limit:{key}", concurrency=cap) for key, cap in CEILINGS.items())))
        for kind in range(len(WORKERS)):
            self._hire(kind)
        self.put(lanes, 0, None, 10)

    # -- producers

    @rule(
        lanes=st.lists(picks, min_size=1, max_size=6),
        delay_ms=delays,
        unique=st.sampled_from([None, None, "u1", "u2"]),
        max_lost=st.sampled_from([1, 2, 10]),
    )
    def put(self, lanes: list[int], delay_ms: int, unique: str | None, max_lost: int) -> None:
        jobs = []
        for lane in lanes:
            options = LANES[lane % len(LANES)].copy()
            options["unique"] = Unique(unique) if unique else None
            options["delay_ms"] = delay_ms
            options["policy"] = Policy(max_lost=max_lost)
            jobs.append(self.bench.job(**options))
        self._put(jobs)

    @precondition(lambda self: self.model.jobs)
    @rule(parents=st.lists(picks, min_size=1, max_size=4), delay_ms=delays, then=st.sampled_from(AFTER))
    def put_after(self, parents: list[int], delay_ms: int, then: IfParentFails) -> None:
        known = [job.id for job in self.model.jobs.values() if job.state is not State.cancelled]
        if known:
            after = [known[parent % len(known)] for parent in parents]
            self._put([self.bench.job(after=(id,), if_parent_fails=then, delay_ms=delay_ms) for id in after])

    @precondition(lambda self: self.made)
    @rule(pick=picks)
    def put_again(self, pick: int) -> None:
        job = self.made[pick % len(self.made)]
        assert self.run(self.bench.put(job))[0].existing

    def _put(self, jobs: list[Job]) -> None:
        answers = self.run(self.bench.put(*jobs))
        expected = [self.model.enqueue(job, self.now_ms) for job in jobs]
        assert [(answer.id, answer.existing) for answer in answers] == expected
        self.made += [job for job, answer in zip(jobs, answers, strict=True) if not answer.existing]

    # -- workers

    def _hand(self, pick: int) -> Hand:
        names = sorted(self.alive)
        return self.alive[names[pick % len(names)]]

    @precondition(lambda self: self.alive)
    @rule(pick=picks, limit=st.integers(1, 5), slots=st.integers(0, 5), urgent=st.booleans(), unheard=st.booleans())
    def claim(self, pick: int, limit: int, slots: int, urgent: bool, unheard: bool) -> None:
        hand = self._hand(pick)
        self.run(self._beat(hand))
        self.run(self._claim(hand, limit, min(limit, 5 - slots), 3 if urgent else LEAST_URGENT, unheard=unheard))

    async def _claim(
        self, hand: Hand, limit: int, slots: int, least_urgent: int = LEAST_URGENT, *, unheard: bool = False
    ) -> list[Claimed]:
        before = await self._views()
        seq = next_seq()
        answer = await hand.ask(limit, slots=slots, least_urgent=least_urgent, seq=seq)
        given = list(answer.jobs)
        if given and unheard:
            again = await hand.ask(limit, slots=slots, least_urgent=least_urgent, seq=seq)
            assert sorted((job.id, job.token) for job in again.jobs) == sorted((job.id, job.token) for job in given)
        request = ClaimRequest(hand.session, hand.serves, limit, slots, seq, least_urgent=least_urgent)
        self.model.claimed(given, request, before, all_given=not answer.again, now_ms=self.now_ms)
        known = {(claimed.id, claimed.token) for claimed, _ in self.given}
        assert not [job for job in given if (job.id, job.token) in known], "a token was given twice"
        self.given += [(claimed, hand.session) for claimed in given]
        return given

    @precondition(lambda self: self.given and self.alive)
    @rule(picked=st.lists(picks, min_size=1, max_size=3), ending=st.sampled_from(sorted(ENDINGS)), twice=st.booleans())
    def settle(self, picked: list[int], ending: str, twice: bool) -> None:
        """Newest first, so that live tokens are met often; old ones are the stale holders."""
        chosen = [self.given[-1 - pick % len(self.given)] for pick in picked]
        hand = self.alive.get(chosen[0][1]) or next(iter(self.alive.values()))
        # Holding a gate would starve the walk; a release moves the job alike.
        transitions = [ENDINGS["release" if ending == "hold" else ending](claimed) for claimed, _ in chosen]
        seq = next_seq()
        expected = [self.model.settle(transition, self.now_ms) for transition in transitions]
        answers = self.run(hand.settle(*transitions, seq=seq))
        assert [answer.answer for answer in answers] == expected
        if twice:
            assert self.run(hand.settle(*transitions, seq=seq)) == answers

    @rule(pick=picks, how=st.sampled_from(["hire", "crash", "leave", "die"]))
    def turn_over(self, pick: int, how: str) -> None:
        """Workers come and go: a new one, one that falls silent, one that leaves, one whose supervisor cleans up."""
        if how == "hire" or not self.alive:
            self._hire(pick)
            return
        hand = self._hand(pick)
        self.run(self._beat(hand))
        del self.alive[hand.session]
        mine = [job for job in self.model.jobs.values() if job.session == hand.session]
        if how == "crash":
            self.silent[hand.session] = self.now_ms
        elif how == "leave":
            self.run(hand.leave())
            for job in mine:
                assert self.model.settle(Release(job.id, job.token), self.now_ms) == "done"
        else:
            held = self.run(self.bench.store.held(hand.session))
            assert {(one.id, one.token, one.lost) for one in held} == {(job.id, job.token, job.lost) for job in mine}
            lost = [Lose(one.id, one.token) for one in held]
            assert [self.model.settle(each, self.now_ms) for each in lost] == ["done"] * len(lost)
            self.run(hand.settle(*lost))
            self.run(hand.leave())

    def _hire(self, kind: int) -> None:
        if len(self.alive) < 4:
            self.born += 1
            queues, tasks, capabilities = WORKERS[kind % len(WORKERS)]
            name = f"w{self.born}"
            hand = self.bench.hand(name, queues=queues, tasks=tasks, capabilities=capabilities, ttl_ms=TTL_MS)
            assert self.run(hand.beat()).fresh
            self.alive[name] = hand

    async def _beat(self, hand: Hand) -> None:
        pulse = await hand.beat()
        mine = [job for job in self.model.jobs.values() if job.session == hand.session]
        assert set(pulse.cancels) == {(job.id, job.token) for job in mine if job.cancel_requested}
        assert not pulse.fresh

    # -- people

    @precondition(lambda self: self.made)
    @rule(pick=picks, force=st.booleans())
    def cancel(self, pick: int, force: bool) -> None:
        id = self.made[-1 - pick % len(self.made)].id
        answer = self.run(self.bench.cancel(id, force=force))
        assert answer == [self.model.cancel(id, force=force, now_ms=self.now_ms)]

    @precondition(lambda self: any(job.state is State.dead for job in self.model.jobs.values()))
    @rule(pick=picks, discard=st.booleans())
    def bring_back_or_discard(self, pick: int, discard: bool) -> None:
        dead = [job.id for job in self.model.jobs.values() if job.state is State.dead]
        id = dead[pick % len(dead)]
        childless = not any(job.parent == id for job in self.model.jobs.values())
        if discard and childless:
            assert self.run(self.bench.store.discard([id], now_ms=self.now_ms)) == self.model.discard(id)
        else:
            assert self.run(self.bench.retry(id)) == [self.model.retry(id, self.now_ms)]

    @rule(what=st.sampled_from(["default", "second", "reopen"]))
    def operate(self, what: str) -> None:
        """Pause or resume a queue; or let everybody go on through another handle, as after a restart."""
        if what == "reopen":
            self.bench.store = self.run(self.harness.reopen(self.bench.store))
            for hand in self.alive.values():
                hand.store = self.bench.store
        elif what in self.model.paused:
            self._resume(what)
        else:
            self.run(self.bench.change(GateChange(f"queue:{what}", pause=Pause("walk", "", self.now_ms))))
            self.model.paused.add(what)

    def _resume(self, queue: str) -> None:
        self.run(self.bench.change(GateChange(f"queue:{queue}", resume=True)))
        self.model.paused.discard(queue)

    # -- time

    @rule(ms=st.sampled_from([1, 1_000, 5_000, 25_000]), outage=st.booleans())
    def let_time_pass(self, ms: int, outage: bool) -> None:
        """Beside a janitor; or, in an outage, nobody beats or sweeps, and who lives beats first when it is over."""
        if outage:
            self.bench.clock.advance(ms)
            for hand in self.alive.values():
                self.run(self._beat(hand))
        else:
            self.run(self._sweep(ms))

    async def _sweep(self, ms: int) -> None:
        await self.bench.sweep(ms, *self.alive.values())
        await self._notice()

    async def _notice(self) -> None:
        """Follow the store in what it alone decides: when a silent session has lost its jobs."""
        views = await self._views()
        for job in [job for job in self.model.jobs.values() if job.token]:
            if views[job.id].token != job.token:
                assert job.session in self.silent, "a lease was taken from a session that lives"
                assert self.now_ms - self.silent[job.session] >= TTL_MS, "a lease was taken too early"
                assert self.model.settle(Lose(job.id, job.token), self.now_ms) == "done"

    # -- judging

    async def _views(self) -> dict[bytes, JobView]:
        return {view.id: view for view in await self.bench.everything()}

    @invariant()
    def agree(self) -> None:
        self.run(self._agree())

    async def _agree(self) -> None:
        self.model.check(await self._views(), self.now_ms)
        await self.bench.check_books()
        counts = await self.bench.store.count()
        assert (counts.enqueued, counts.discarded) == (self.model.enqueued, self.model.discarded)
        assert (counts.lost, counts.stale) == (self.model.lost, self.model.stale)
        for key, cap in CEILINGS.items():
            gate = await self.bench.gate(f"limit:{key}")
            assert gate is None or gate.used <= cap

    def teardown(self) -> None:
        try:
            self._heal()
        finally:
            self.run(self.harness.close())
            self.runner.close()

    def _heal(self) -> None:
        """When all faults are over, everything that can run does: nothing is stuck."""
        for queue in sorted(self.model.paused):
            self._resume(queue)
        self.silent.update(dict.fromkeys(self.alive, self.now_ms))
        self.alive.clear()
        self.run(self._sweep(2 * PATIENCE_MS))
        assert not [job for job in self.model.jobs.values() if job.token], "a lease outlives its silent session"
        self._hire(0)
        (healer,) = self.alive.values()
        for _ in range(2 * len(self.made) + 10):
            given = self.run(self._claim(healer, 8, 8))
            for claimed in given:
                assert self.model.settle(ENDINGS["succeed"](claimed), self.now_ms) == "done"
                self.run(healer.end("succeed", claimed))
            self.run(self._sweep(SWEEP_MS if given else 3 * SWEEP_MS))
            if all(job.state in FINISHED or job.state is State.blocked for job in self.model.jobs.values()):
                break
        self.run(self._agree())
        stuck = [job for job in self.model.jobs.values() if job.state not in FINISHED and job.if_parent_fails != "wait"]
        assert not [job for job in stuck if self._could_run(job.id)], "jobs are stuck though nothing stops them"

    def _could_run(self, id: bytes) -> bool:
        """False when an ancestor that failed makes this job wait for a person."""
        job = self.model.jobs[id]
        while job.parent is not None:
            if job.if_parent_fails == "wait":
                return False
            job = self.model.jobs[job.parent]
        return True


def walk(open_harness: Callable[[], Harness], *, examples: int = 30, steps: int = 40) -> None:
    """Walk `examples` times for `steps` steps, each on a fresh store; a failure prints the shortest way to it."""

    class Machine(StoreWalk):
        def __init__(self) -> None:
            super().__init__(open_harness())

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
