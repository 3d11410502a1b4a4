"""A random walk: a store and the model go the same way step by step, and must agree after every step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

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
from msgspec.structs import replace

from limpet.core.endings.transition import Hold
from limpet.core.gate import BreakerRule, GateChange, GateRule
from limpet.core.jobs.job import LEAST_URGENT, IfParentFails, Policy, Unique
from limpet.core.jobs.lease import Claimed, Note, Serves, Signal
from limpet.core.jobs.state import State
from limpet_contract.hand import ENDINGS, Hand
from limpet_contract.harness import Harness
from limpet_contract.making import JobOptions
from limpet_contract.model import Model
from limpet_contract.tandem import Tandem

SHARED = GateRule("limit:shared", concurrency=3)
KEYED = GateRule("limit:k2", concurrency=2)
SLOW = GateRule("limit:slow", interval_us=700_000, burst=2)
WORDS = GateRule("limit:words", unit="words", interval_us=1_000_000, burst=4)
ADAPTIVE = GateRule("limit:adaptive", concurrency=4, floor=250, climb_ms=20_000)
USD = GateRule("limit:usd", unit="usd", cap=14, period="minute")
PLAIN = GateRule("limit:plain", cap=7, period="minute")
RULES = [
    SHARED,
    GateRule("limit:k1", concurrency=1),
    KEYED,
    SLOW,
    WORDS,
    ADAPTIVE,
    USD,
    PLAIN,
    GateRule("breaker:shaky", breaker=BreakerRule(failures=1, cooldown_ms=4_000, probe_after_ms=4_000)),
    GateRule("breaker:hook", breaker=BreakerRule(failures=2, cooldown_ms=4_000, probe_after_ms=4_000)),
]
# What operators do to limits while jobs hold something of them; a rule without numbers is what `limits clear` leaves.
CHANGES = [
    *(GateChange(rule.key, rule=rule, declared=True, clear=True) for rule in RULES if rule.breaker is None),
    *(GateChange(rule.key, reset=True) for rule in (USD, ADAPTIVE, WORDS)),
    *(GateChange("limit:usd", rule=replace(USD, cap=cap)) for cap in (4, 30)),
    GateChange("limit:usd", rule=GateRule("limit:usd")),
    GateChange("limit:plain", rule=replace(PLAIN, cap=15)),
    GateChange("limit:shared", rule=replace(SHARED, concurrency=1)),
    GateChange("limit:adaptive", rule=GateRule("limit:adaptive", interval_us=500_000, burst=3)),
    GateChange("limit:k2", rule=GateRule("limit:k2")),
    GateChange("limit:k2", hold_ms=3_000),
    GateChange("limit:slow", rule=GateRule("limit:slow", concurrency=2)),
    GateChange("limit:slow", rule=replace(SLOW, interval_us=3_000_000)),
    GateChange("limit:words", rule=replace(WORDS, burst=2)),
    GateChange("limit:adaptive", ceiling=500),
    GateChange("limit:adaptive", trip_ms=2_000),
]
LANES: list[JobOptions] = [
    {},
    {"task": "other"},
    {"tenant": "acme"},
    {"queue": "second", "tenant": "acme"},
    {"priority": 3},
    {"limits": ("shared",)},
    {"keys": ("k1",)},
    {"task": "other", "keys": ("k1", "k2"), "limits": ("shared",), "priority": 3},
    {"needs": ("gpu",)},
    {"task": "slow", "limits": ("slow",)},
    {"task": "shaky", "breaker": "shaky"},
    {"task": "shaky", "breaker": "shaky", "tenant": "acme", "priority": 3},
    {"task": "asks", "limits": ("adaptive", "words")},
    {"task": "asks", "limits": ("adaptive",)},
    {"task": "pays", "limits": ("usd",)},
    {"task": "pays", "limits": ("usd",), "tenant": "acme", "priority": 3},
    {"task": "pays", "limits": ("usd",), "keys": ("plain",)},
    {"task": "pays", "keys": ("plain", "adaptive")},
    {"task": "pays", "breaker": "shaky", "limits": ("adaptive", "usd")},
    {"task": "hook", "breaker": "hook", "breaker_key": "hook:a"},
    {"task": "hook", "breaker": "hook", "breaker_key": "hook:b", "keys": ("k1",)},
    {"task": "hook", "breaker": "hook", "breaker_key": "hook:a", "tenant": "acme", "priority": 3},
]
PLAIN_LANES = LANES[:5]
RESTLESS = 4  # claims until a worker sleeps
COSTS = [(1, 1), (1, 3), (2, 5), (3, 2), (4, 9), (1, 6)]  # of the plain unit, and of the others
SAID: dict[str, Callable[[int], int]] = {  # what a job says that it cost, by what it was to cost
    "nothing at all": lambda cost: 0,
    "half": lambda cost: cost // 2,
    "as told": lambda cost: cost,
    "more": lambda cost: 2 * cost + 1,
}
WORKERS = [Serves(capabilities=("gpu",)), Serves(queues=("default",)), Serves(tasks=("other",))]
MAX_WORKERS = 4
AFTER: list[IfParentFails] = ["cancel", "cancel", "run", "wait"]
DELAYS = [0, 0, 0, 1_500, 9_000]
EXPIRIES = [None, None, None, 2_000, 10_000]
UNIQUES = [None, None, "u1", "u2"]
MAX_LOST = [1, 2, 10]
TURNS = ["hire", "crash", "leave", "die"]
FLOWS = [None, None, b"flow 1".ljust(16), b"flow 2".ljust(16)]
EVENTS = ["go", "go", "stop"]
RECORDED = ["fetch", "send"]
FORGOTTEN: list[tuple[str, ...]] = [(), (), ("fetch",), ("*",)]
OPERATIONS = ["default", "second", "reopen", "prune", "fill"]
EVERYTHING = (LEAST_URGENT, 0, 0)
LEVELS = [EVERYTHING, EVERYTHING, (3, 0, 0), (LEAST_URGENT, 2, 4), (3, 1, 4)]  # least urgent, aged, most urgent
SPANS_MS = [1, 1_000, 5_000, 25_000]
SHUT_MS = [500, 2_000, 6_000]
ENDS = [*sorted(ENDINGS), "succeed", "succeed", "succeed"]

picks = st.integers(0, 1 << 20)
seldom = st.sampled_from([False, False, False, True])
endings = st.sampled_from(ENDS)
said = st.sampled_from([None, None, *SAID])
delays = st.sampled_from(DELAYS)


class StoreWalk(RuleBasedStateMachine):
    """The rules. Few and full, since a walk takes only some of them, each only a few times."""

    def __init__(self, harness: Harness) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.harness = harness
        self.tandem: Tandem = self.runner.run(Tandem.open(harness, RULES))

    def run(self, step: Coroutine[Any, Any, Any]) -> None:
        self.runner.run(step)

    @property
    def model(self) -> Model:
        return self.tandem.model

    @initialize(lanes=st.lists(picks, min_size=4, max_size=12), hooked=st.booleans())
    def begin(self, lanes: list[int], hooked: bool) -> None:
        if hooked:
            self.run(self.tandem.hook())
        for serves in WORKERS:
            self.run(self.tandem.hire(serves))
        self.put(lanes, 0, None, 10, None, FLOWS[-1])

    # -- producers

    @rule(
        lanes=st.lists(picks, min_size=1, max_size=6),
        delay_ms=delays,
        unique=st.sampled_from(UNIQUES),
        max_lost=st.sampled_from(MAX_LOST),
        expires_ms=st.sampled_from(EXPIRIES),
        flow=st.sampled_from(FLOWS),
    )
    def put(
        self,
        lanes: list[int],
        delay_ms: int,
        unique: str | None,
        max_lost: int,
        expires_ms: int | None,
        flow: bytes | None,
    ) -> None:
        jobs = []
        for lane in lanes:
            options = LANES[lane % len(LANES)].copy()
            options["unique"] = Unique(unique) if unique else None
            options["delay_ms"] = delay_ms
            options["expires_ms"] = expires_ms
            options["flow"] = flow
            options["policy"] = Policy(max_lost=max_lost)
            options["cost"], other = COSTS[lane // len(LANES) % len(COSTS)]
            options["costs"] = {"usd": other, "words": other}
            jobs.append(self.tandem.bench.job(**options))
        self.run(self.tandem.put(jobs))

    @precondition(lambda self: self.tandem.alive)
    @rule(pick=picks, lane=picks, asleep=st.booleans())
    def put_alone(self, pick: int, lane: int, asleep: bool) -> None:
        """A lone plain job, often while a worker sleeps that has taken all it can get."""
        hand = self._hand(pick)
        for _ in range(RESTLESS if asleep else 0):
            self.run(self.tandem.beat(hand))
            if not self.runner.run(self.tandem.claim(hand, 8, 8)):
                break
        for at in (lane, lane // len(PLAIN_LANES)):
            self.run(self.tandem.put_alone(self.tandem.bench.job(**PLAIN_LANES[at % len(PLAIN_LANES)])))

    @precondition(lambda self: self.model.jobs)
    @rule(parents=st.lists(picks, min_size=1, max_size=2), delay_ms=delays, then=st.sampled_from(AFTER))
    def put_after(self, parents: list[int], delay_ms: int, then: IfParentFails) -> None:
        stored = [job for job in self.model.jobs.values() if job.state is not State.cancelled]
        # Parents that run have an end soon, and with it something to say to their dependents.
        known = [job.id for job in stored if job.token] or [job.id for job in stored]
        if known:
            after = [known[parent % len(known)] for parent in parents]
            jobs = [
                self.tandem.bench.job(after=(id,), if_parent_fails=then, delay_ms=delay_ms, flow=FLOWS[-1])
                for id in after
            ]
            self.run(self.tandem.put(jobs))

    @precondition(lambda self: self.tandem.made)
    @rule(pick=picks)
    def put_again(self, pick: int) -> None:
        # An id that was pruned is remembered for some minutes only, and a walk may take longer.
        known = [job for job in self.tandem.made if job.id in self.model.jobs]
        if known:
            self.run(self.tandem.put_again(known[pick % len(known)]))

    # -- workers

    def _hand(self, pick: int) -> Hand:
        hands = list(self.tandem.alive.values())
        return hands[pick % len(hands)]

    @precondition(lambda self: self.tandem.alive)
    @rule(pick=picks, limit=st.integers(1, 8), taken=st.integers(0, 4), levels=st.sampled_from(LEVELS), unheard=seldom)
    def claim(self, pick: int, limit: int, taken: int, levels: tuple[int, int, int], unheard: bool) -> None:
        hand, slots, (least, aged, most) = self._hand(pick), max(0, limit - taken), levels
        self.run(self.tandem.beat(hand))
        claim = self.tandem.claim(hand, limit, slots, least_urgent=least, aged=aged, most_urgent=most, unheard=unheard)
        self.run(claim)

    @precondition(lambda self: self.tandem.given and self.tandem.alive)
    @rule(picked=st.lists(picks, min_size=1, max_size=3), ending=endings, said=said, stale=seldom, unheard=seldom)
    def settle(self, picked: list[int], ending: str, said: str | None, stale: bool, unheard: bool) -> None:
        """With tokens that hold, or with those of holders that were overtaken; with a word about costs, or none."""
        among = (self.tandem.overtaken() if stale else self.tandem.held()) or self.tandem.given
        chosen = [(among[pick % len(among)], pick // len(among)) for pick in picked]
        hand = self.tandem.alive.get(chosen[0][0][1]) or self._hand(0)
        ends = [_shut(job, pick) if ending == "hold" else ENDINGS[ending](job) for (job, _), pick in chosen]
        spent = {job.id: _said(job, SAID[said]) for (job, _), _ in chosen} if said else {}
        self.run(self.tandem.settle(hand, ends, spent, unheard=unheard))

    @precondition(lambda self: self.tandem.given)
    @rule(pick=picks, name=st.sampled_from(RECORDED), stale=seldom)
    def record(self, pick: int, name: str, stale: bool) -> None:
        """A step is recorded, by its holder or by one that was overtaken."""
        among = (self.tandem.overtaken() if stale else self.tandem.held()) or self.tandem.given
        self.run(self.tandem.save(among[pick % len(among)][0], Note("step", name, b"%d" % pick)))

    @rule(pick=picks, how=st.sampled_from(TURNS))
    def turn_over(self, pick: int, how: str) -> None:
        """Workers come and go: a new one, one that falls silent, one that leaves, one whose supervisor cleans up."""
        if how == "hire" or not self.tandem.alive:
            if len(self.tandem.alive) < MAX_WORKERS:
                self.run(self.tandem.hire(WORKERS[pick % len(WORKERS)]))
            return
        hand = self._hand(pick)
        if how == "crash":
            self.run(self.tandem.fall_silent(hand))
        elif how == "leave":
            self.run(self.tandem.leave(hand))
        else:
            self.run(self.tandem.die_supervised(hand))

    # -- people

    @precondition(lambda self: self.tandem.made)
    @rule(pick=picks, force=st.booleans())
    def cancel(self, pick: int, force: bool) -> None:
        """Any job that was ever made, or one that runs: it holds something."""
        made, held = [job.id for job in self.tandem.made], [claimed.id for claimed, _ in self.tandem.held()]
        among = held if held and pick % 2 else made
        self.run(self.tandem.cancel(among[pick // 2 % len(among)], force=force))

    @precondition(lambda self: self.tandem.made)
    @rule(picked=st.lists(picks, min_size=1, max_size=3), event=st.sampled_from(EVENTS))
    def signal(self, picked: list[int], event: str) -> None:
        """To jobs that wait for it, if any do; else to any that was ever made."""
        waiting = [job.id for job in self.model.jobs.values() if job.waits_for(event)]
        among = waiting or [job.id for job in self.tandem.made]
        self.run(self.tandem.signal([Signal(among[pick % len(among)], event, b"%d" % pick) for pick in picked]))

    @precondition(lambda self: self.tandem.stopped())
    @rule(pick=picks, discard=seldom, forget=st.sampled_from(FORGOTTEN))
    def bring_back_or_discard(self, pick: int, discard: bool, forget: tuple[str, ...]) -> None:
        stopped = self.tandem.stopped()
        id = stopped[pick % len(stopped)]
        self.run(self.tandem.discard(id) if discard else self.tandem.retry(id, forget))

    @rule(pick=picks)
    def change_limits(self, pick: int) -> None:
        """Of limits that running jobs hold something of, if there are any; what was set is soon cleared."""
        held = {f"limit:{key}" for job, _ in self.tandem.held() for key in (*job.lane.limits, *job.lane.keys)}
        operated = self.model.ledger.operated if pick % 2 else set()
        among = [change for change in CHANGES if change.clear and change.key in operated]
        among = among or [change for change in CHANGES if change.key in held] or CHANGES
        self.run(self.tandem.change(among[pick // 2 % len(among)]))

    @rule(what=st.sampled_from(OPERATIONS))
    def operate(self, what: str) -> None:
        if what == "prune":
            self.run(self.tandem.prune())
        elif what == "fill":
            for queue, tenant in (("default", None), ("default", "acme"), ("second", "acme")):
                self.run(self.tandem.bench.check_depth(queue, tenant))
        else:
            self.run(self.tandem.reopen() if what == "reopen" else self.tandem.pause_or_resume(what))

    # -- time

    @rule(ms=st.sampled_from(SPANS_MS), outage=st.booleans())
    def let_time_pass(self, ms: int, outage: bool) -> None:
        self.run(self.tandem.outage(ms) if outage else self.tandem.sweep(ms))

    # -- judging

    @invariant()
    def agree(self) -> None:
        self.run(self.tandem.agree())

    def teardown(self) -> None:
        try:
            self.run(self.tandem.heal())
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the store, whatever state it is in."""
        self.run(self.harness.close())
        self.runner.close()


def _shut(job: Claimed, pick: int) -> Hold:
    """A provider has pushed back, or reports that no money is left: at a limit of the job, or at another one."""
    keys, delay_ms = (*job.lane.limits, *job.lane.keys, "adaptive"), SHUT_MS[pick % len(SHUT_MS)]
    return Hold(job.id, job.token, f"limit:{keys[pick % len(keys)]}", delay_ms, "429", trips=pick % 7 < 2)


def _said(job: Claimed, real: Callable[[int], int]) -> dict[str, int]:
    """What a job says that it cost; of the plain unit it speaks only when that was more than one."""
    costs = job.costs if job.cost == 1 else {"": job.cost, **job.costs}
    return {unit: real(cost) for unit, cost in costs.items()}


def walk(open_harness: Callable[[], Harness], *, examples: int | None = None, steps: int = 40) -> None:
    """Walk `examples` times for `steps` steps, each on a fresh store; a failure prints the shortest way to it.

    Without a number, three tenths of what the loaded hypothesis profile asks for: a walk is a long example.
    """

    class Machine(StoreWalk):
        def __init__(self) -> None:
            super().__init__(open_harness())

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=settings().max_examples * 3 // 10 if examples is None else examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
