"""Many stores on one schema at once, each going its own random way, judged by what they were answered.

Every walker draws from its own seed. What happens between them is the server's to order, so a run is not repeated
exactly; what must be true is true in every order.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from random import Random
from typing import Any, Final, NamedTuple

import psycopg

from limpet.core.endings.transition import Succeed
from limpet.core.errors import UnknownParent
from limpet.core.gate import BreakerRule, GateChange, GateRule, Pause
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Enqueued, Job, OnDuplicate, Policy, Unique
from limpet.core.jobs.lease import Claimed, Note, Signal
from limpet.core.jobs.state import FINISHED, State
from limpet.core.jobs.view import Control, Query, Retention, Term
from limpet_contract.bench import Bench
from limpet_contract.hand import ENDINGS, Hand
from limpet_contract.making import JobOptions
from limpet_contract.seeds import chance_of
from limpet_contract.walk import AFTER
from tests.engines.postgres.namespace import Namespace

Line = psycopg.AsyncConnection[Any]

CAPABILITIES: Final = ("gpu",)  # a job that a hand has refused needs it
TTL_MS: Final = 15_000
RULES: Final = [
    GateRule("limit:shared", concurrency=6),
    GateRule("limit:k1", concurrency=1),
    GateRule("limit:k2", concurrency=4),
    GateRule("limit:slow", interval_us=300_000, burst=2),
    GateRule("breaker:shaky", breaker=BreakerRule(failures=2, cooldown_ms=2_000, probe_after_ms=2_000)),
]
LIMITS: Final = {rule.key: rule.concurrency for rule in RULES if rule.concurrency is not None}
LANES: Final[list[JobOptions]] = [
    {},
    {},
    {"task": "other"},
    {"tenant": "acme"},
    {"queue": "second", "tenant": "acme"},
    {"queue": "second", "tenant": "zeta", "priority": 3},
    {"limits": ("shared",)},
    {"keys": ("k1",)},
    {"keys": ("k1",), "tenant": "acme"},
    {"task": "other", "keys": ("k1", "k2"), "limits": ("shared",), "priority": 3},
    {"task": "slow", "limits": ("slow",)},
    {"task": "shaky", "breaker": "shaky"},
]
KEYS: Final = ["u1", "u2", "u3"]
FLOWS: Final = [bytes([n]) * 16 for n in range(3)]
EVENT: Final = "go"  # what some of the ENDINGS wait for
WAYS: Final = [how for how in ENDINGS if how != "hold"]  # that one would keep everybody waiting for a minute
ON_DUPLICATE: Final[list[OnDuplicate]] = ["existing", "replace", "debounce"]

FUNCTIONS: Final = """
SELECT pg_get_functiondef(p.oid) FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang AND l.lanname = 'plpgsql'
WHERE p.provolatile = 'v' AND p.pronamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'lp.floor'::regclass)"""
HESITATE: Final = "IF random() < 0.05 THEN PERFORM pg_sleep(0.004); END IF;"

# Jobs that run under a limit, by what their lanes name: no more at once than it allows.
RUNNING: Final = """
SELECT g.gate, count(*) FROM lp.running AS r JOIN lp.lane_gate AS g ON g.lane = r.lane GROUP BY g.gate"""


class Mix(NamedTuple):
    """What people do how often, and with what."""

    steps: dict[str, int]
    lanes: list[JobOptions]
    unique: float = 0.3  # how many of the jobs have a key
    expires: float = 0.2  # and how many must start within a second


MIXES: Final = {
    "everything": Mix(
        {
            "put": 5, "put_after": 3, "put_again": 1, "visit": 3, "claim": 10, "settle": 8, "settle_late": 2,
            "signal": 2, "complete": 1, "cancel": 2, "retry": 2, "discard": 1, "gates": 2, "expire": 2, "prune": 1,
            "turn_over": 1, "look": 1, "weigh": 1,
        },
        LANES,
    ),
    "limits": Mix(
        {"put": 2, "claim": 10, "settle": 10, "settle_late": 2, "cancel": 1, "expire": 1, "turn_over": 1},
        [
            {"limits": ("shared",)},
            {"limits": ("shared",), "tenant": "acme"},
            {"keys": ("k1",)},
            {"keys": ("k2",)},
            {"keys": ("k2", "k1"), "tenant": "acme"},
        ],
        unique=0.0,
        expires=0.0,
    ),
    "families": Mix(
        {
            "put": 2, "put_after": 5, "visit": 3, "claim": 10, "settle": 8, "complete": 1, "cancel": 2, "retry": 3,
            "discard": 1, "prune": 1, "expire": 1,
        },
        [{}],
        unique=0.1,
    ),
    "events": Mix(
        {
            "put": 3, "visit": 1, "claim": 10, "suspend": 10, "settle": 3, "settle_late": 1, "signal": 8, "complete": 1,
            "cancel": 1, "retry": 3, "expire": 1, "turn_over": 1, "prune": 1,
        },
        [{}, {"keys": ("k2",)}, {"tenant": "acme"}],
        unique=0.1,
    ),
    "keys": Mix(
        {"put": 5, "visit": 4, "claim": 6, "settle": 6, "cancel": 2, "retry": 2, "discard": 1, "prune": 1, "expire": 1},
        [{}, {"tenant": "acme"}],
        unique=0.8,
    ),
}  # fmt: skip


class World:
    """What everybody was told so far."""

    def __init__(self, place: Namespace) -> None:
        self.place = place
        self.jobs: dict[bytes, Job] = {}  # that were stored, by their own ids
        self.newest: dict[bytes, int] = {}  # tokens
        self.held: dict[
            bytes, tuple[int, str]
        ] = {}  # who holds a job for all that is known, and nothing was asked since
        self.given: list[tuple[Claimed, str]] = []
        self.succeeded: Counter[bytes] = Counter()
        self.beaten_ms: dict[str, int] = {}

    def stored(self, jobs: list[Job], answers: list[Enqueued]) -> None:
        for job, answer in zip(jobs, answers, strict=True):
            if not answer.existing:
                assert answer.id == job.id
                self.jobs[job.id] = job

    def claimed(self, job: Claimed, session: str) -> None:
        assert job.token > self.newest.get(job.id, 0), "a token did not grow"
        self.newest[job.id] = job.token
        _, holder = self.held.get(job.id, (0, None))
        if holder is not None:
            silent_ms = self.place.clock.now_ms - self.beaten_ms.get(holder, 0)
            assert silent_ms >= TTL_MS, f"{id_text(job.id)} was taken from {holder}, who lives, for {session}"
        self.held[job.id] = (job.token, session)
        self.given.append((job, session))

    def touched(self, *ids: bytes) -> None:
        """Somebody is about to end what holds these jobs, or may be."""
        for id in ids:
            self.held.pop(id, None)

    def let_go(self, session: str) -> None:
        self.touched(*[id for id, (_, holder) in self.held.items() if holder == session])


class Walker:
    """One process: a store of its own, a worker's session, and a caller's connection beside them."""

    def __init__(self, world: World, bench: Bench, line: Line, name: str, rng: Random, mix: Mix) -> None:
        self.world = world
        self.bench = bench
        self.line = line
        self.name = name
        self.rng = rng
        self.hired = 0
        self.hand: Hand
        self.mine: list[Claimed] = []
        self.mix = mix

    @property
    def now_ms(self) -> int:
        return self.bench.clock.now_ms

    async def hire(self) -> None:
        self.hired += 1
        self.mine = []
        self.hand = self.bench.hand(f"{self.name}.{self.hired}", capabilities=CAPABILITIES, ttl_ms=TTL_MS)
        await self.beat()

    async def beat(self) -> None:
        at_ms = self.now_ms
        await self.hand.beat()
        self.world.beaten_ms[self.hand.session] = at_ms

    async def walk(self, steps: int) -> None:
        await self.hire()
        kinds, weights = list(self.mix.steps), list(self.mix.steps.values())
        for _ in range(steps):
            if self.now_ms - self.world.beaten_ms[self.hand.session] > TTL_MS // 5:
                await self.beat()
            await getattr(self, self.rng.choices(kinds, weights)[0])()

    def any_ids(self, most: int) -> list[bytes]:
        known = list(self.world.jobs)
        return list({self.rng.choice(known) for _ in range(self.rng.randint(1, most))}) if known else []

    def parents(self, most: int) -> list[bytes]:
        """Mostly such as run just now: their ends are near."""
        held = list(self.world.held)[-8:]
        if held and self.rng.random() < 0.7:
            return self.rng.sample(held, min(len(held), self.rng.randint(1, most)))
        return self.any_ids(most)

    # -- producers

    def some_jobs(self, *, unique: bool) -> list[Job]:
        rng = self.rng
        jobs = []
        for _ in range(rng.randint(1, 5)):
            options = rng.choice(self.mix.lanes).copy()
            options["delay_ms"] = rng.choice([0, 0, 0, 300, 2_000])
            options["expires_ms"] = 1_000 if rng.random() < self.mix.expires else None
            options["policy"] = Policy(max_lost=rng.choice([1, 2, 10]))
            options["flow"] = rng.choice([None, None, *FLOWS])
            if unique and rng.random() < self.mix.unique:
                options["unique"] = Unique(
                    rng.choice(KEYS), on_duplicate=rng.choice(ON_DUPLICATE), for_ms=rng.choice([None, 500])
                )
            jobs.append(self.bench.job(**options))
        return jobs

    async def put(self) -> None:
        jobs = self.some_jobs(unique=True)
        self.world.stored(jobs, await self.bench.put(*jobs, rules=RULES))

    async def put_after(self) -> None:
        parents = tuple(self.parents(2))
        how = self.rng.choice(AFTER)
        options: JobOptions = {**self.rng.choice(self.mix.lanes), "after": parents, "if_parent_fails": how}
        jobs = [self.bench.job(**options) for _ in range(self.rng.randint(1, 3))]
        with contextlib.suppress(UnknownParent):  # pruned meanwhile
            self.world.stored(jobs, await self.bench.put(*jobs, rules=RULES))

    async def put_again(self) -> None:
        for id in self.any_ids(1):
            (answer,) = await self.bench.put(self.world.jobs[id], rules=RULES)
            assert answer.existing

    async def visit(self) -> None:
        """Jobs and dependents in a transaction of a caller's own, which takes its time and may come to nothing."""
        jobs = self.some_jobs(unique=self.rng.random() < 0.5)
        if parents := self.parents(2):
            jobs.append(self.bench.job(after=tuple(parents), if_parent_fails=self.rng.choice(AFTER)))
        jobs = sorted(jobs, key=lambda job: job.unique is None)
        try:
            answers = await self.bench.joined.enqueue_on(self.line, jobs, RULES, now_ms=self.now_ms)
        except UnknownParent:
            await self.line.rollback()
            return
        await asyncio.sleep(self.rng.choice([0, 0.005, 0.05]))
        if self.rng.random() < 0.3:
            await self.line.rollback()
        else:
            await self.line.commit()
            self.world.stored(jobs, answers)

    # -- workers

    async def claim(self) -> None:
        limit = self.rng.randint(1, 8)
        answer = await self.hand.ask(limit, slots=self.rng.choice([limit, limit, limit, 1, 0]))
        for job in answer.jobs:
            self.world.claimed(job, self.hand.session)
        self.mine += answer.jobs

    async def settle(self) -> None:
        chosen = [self.mine.pop(self.rng.randrange(len(self.mine))) for _ in range(min(len(self.mine), 3))]
        await self.end(chosen, self.rng.choice([*WAYS, "succeed", "succeed", "succeed"]))

    async def suspend(self) -> None:
        """Some wait for the event, which may have come, come just now, or come later."""
        chosen = [self.mine.pop() for _ in range(min(len(self.mine), 3))]
        await self.end(chosen, self.rng.choice(["wait", "wait", "sleep"]))

    async def settle_late(self) -> None:
        """What was given to anybody at any time: most of it is long over, and some is in others' hands by now."""
        given = self.world.given
        if given:
            overtaken = [job for job, _ in given if job.id in self.world.held and self.world.newest[job.id] > job.token]
            job = self.rng.choice(overtaken or [job for job, _ in given])
            await self.end([job], self.rng.choice([*WAYS, "succeed", "succeed", "succeed"]))

    async def end(self, chosen: list[Claimed], how: str) -> None:
        overtaken = {(job.id, job.token) for job in chosen if self.world.newest[job.id] > job.token}
        self.world.touched(*(job.id for job in chosen))
        answers = await self.hand.end(how, *chosen)
        for job, answer in zip(chosen, answers, strict=True):
            if answer.answer == "done":
                assert (job.id, job.token) not in overtaken, "a stale settlement was done"
                self.world.succeeded[job.id] += answer.state is State.succeeded
        assert max(self.world.succeeded.values(), default=0) <= 1, "a job succeeded twice"

    async def complete(self) -> None:
        """Success in a handler's own transaction; what is said later makes no difference."""
        if not self.mine:
            return
        job = self.mine.pop()
        self.world.touched(job.id)
        if not await self.bench.joined.settle_on(self.line, job.id, job.token, b'"own"', now_ms=self.now_ms):
            await self.line.rollback()
            return
        await asyncio.sleep(self.rng.choice([0, 0.02]))
        await self.line.commit()
        (answer,) = await self.hand.end(self.rng.choice(WAYS), job)
        assert answer.state in (State.succeeded, None)
        self.world.succeeded[job.id] += answer.answer == "done"

    async def turn_over(self) -> None:
        """It leaves, or falls silent, and another takes its place; notes ride on its last beat."""
        if self.mine and self.rng.random() < 0.5:
            await self.hand.beat([(job.id, job.token, Note("progress", "", b"1")) for job in self.mine])
        self.world.let_go(self.hand.session)
        if self.rng.random() < 0.6:
            await self.hand.leave()
        await self.hire()

    # -- operators and the janitor

    async def signal(self) -> None:
        ids = self.any_ids(4)
        if held := list(self.world.held)[-8:]:  # mostly to such as run just now, and may be about to wait
            ids += self.rng.sample(held, min(len(held), 4))
        answers = await self.bench.signal(*(Signal(id, EVENT, b"1") for id in ids))
        again = await self.bench.signal(*(Signal(id, EVENT, b"2") for id in ids))
        kept = [answer for before, answer in zip(answers, again, strict=True) if before in ("woken", "kept", "already")]
        assert set(kept) <= {"already", "finished", "gone"}, "an event was kept twice"

    async def cancel(self) -> None:
        ids = self.any_ids(3)
        self.world.touched(*ids)
        await self.bench.cancel(*ids, force=self.rng.random() < 0.4)

    async def retry(self) -> None:
        if ids := self.any_ids(20):
            forget = self.rng.choice([(), ("*",)])
            await self.bench.retry(*ids, delay_ms=self.rng.choice([0, 0, 500]), forget=forget)

    async def discard(self) -> None:
        await self.bench.store.discard(self.any_ids(5), now_ms=self.now_ms)

    async def gates(self) -> None:
        key = self.rng.choice(["queue:second", "task:other", "limit:slow", "breaker:shaky"])
        how = [
            GateChange(key, pause=Pause(self.name, "", self.now_ms)), GateChange(key, resume=True, reset=True),
            GateChange(key, hold_ms=300), GateChange(key, reset=True), GateChange(key, resume=True, reset=True),
        ]  # fmt: skip
        await self.bench.change(self.rng.choice(how), self.rng.choice(how))

    async def expire(self) -> None:
        await self.bench.store.expire(now_ms=self.bench.clock.advance(self.rng.choice([50, 250, 900])))

    async def prune(self) -> None:
        await self.bench.store.prune(Retention(succeeded_ms=0, cancelled_ms=0), now_ms=self.now_ms)

    async def weigh(self) -> None:
        name = self.rng.choice(["queue:second", "tenant:acme"])
        await self.bench.store.put_control(Control("weight", name, str(self.rng.randint(1, 3)).encode()))

    async def look(self) -> None:
        counts = await self.bench.store.count()
        assert not [key for key, number in counts.now.items() if number < 0]
        by_flow, by_key = Term("flow", id_text(self.rng.choice(FLOWS))), Term("unique", self.rng.choice(KEYS))
        for terms in ((), (by_flow,), (by_key,)):
            page = await self.bench.store.find(Query(terms=terms, limit=50), now_ms=self.now_ms)
            assert len({job.id for job in page.jobs}) == len(page.jobs)
        assert not [view for view in await self.bench.store.flows() if not all(view.counts.values())]


class Watch:
    """Looks all the time, in snapshots of its own, whether everything agrees and no limit is passed."""

    def __init__(self, place: Namespace) -> None:
        self.place = place
        self.looks = 0
        self._over = asyncio.Event()

    async def __call__(self) -> None:
        while not self._over.is_set():
            for gate, running in await asyncio.to_thread(self.place.ask, RUNNING):
                assert running <= LIMITS.get(gate, running), f"{running} run under {gate}"
            if self.looks % 10 == 0:
                found = await asyncio.to_thread(self.place.faults)
                assert not found, found
            self.looks += 1

    def end(self) -> None:
        self._over.set()


def slow_motion(place: Namespace) -> None:
    """Let every function of the schema hesitate now and then when it begins: what may come between comes between."""
    with contextlib.closing(place.connect(autocommit=True)) as line:
        bodies = line.execute(place.sql(FUNCTIONS)).fetchall()
        for (definition,) in bodies:
            line.execute(definition.replace("\nBEGIN\n", f"\nBEGIN\n{HESITATE}\n", 1).encode())


async def walk_together(place: Namespace, seed: int, mix: Mix, *, people: int, steps: int) -> World:
    """Let them walk; whoever fails ends all."""
    world = World(place)
    watch = Watch(place)
    await place.open()
    slow_motion(place)
    async with contextlib.AsyncExitStack() as stack:
        walkers = []
        for n in range(people):
            line = await psycopg.AsyncConnection.connect(place.server.url)
            stack.push_async_callback(line.close)
            walkers.append(Walker(world, await place.bench(), line, f"walker {n}", chance_of(seed, f"{n}"), mix))
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch())
            walks = [group.create_task(walker.walk(steps)) for walker in walkers]
            await asyncio.gather(*walks)
            watch.end()
            await watching
    return world


async def heal(world: World) -> None:
    """When everybody has gone, all that can run does, and nothing is lost."""
    bench = await world.place.bench()
    await bench.change(*(GateChange(gate.key, resume=True, reset=True) for gate in await bench.store.gates()))
    healer = bench.hand("healer", capabilities=CAPABILITIES, ttl_ms=TTL_MS)
    await bench.sweep(3 * TTL_MS, healer)
    await bench.signal(*(Signal(id, EVENT, b"3") for id in world.jobs))
    for _ in range(400):
        jobs = await healer.claim(20)
        await healer.settle(*(Succeed(job.id, job.token) for job in jobs))
        await bench.sweep(0 if jobs else 1_000, healer)
        counts = await bench.store.count()
        if not any(counts.total(state) for state in (State.ready, State.scheduled, State.running)):
            break
    ids = list(world.jobs)
    states = dict(zip(ids, await bench.states(ids), strict=True))
    gone = {bytes(id) for (id,) in world.place.ask("SELECT id FROM lp.gone")}
    assert not [id_text(id) for id, state in states.items() if state is None and id not in gone], "lost"
    assert set(states.values()) <= {*FINISHED, State.blocked, None}
    assert (await bench.store.count()).enqueued == len(ids)
    for id, times in world.succeeded.items():
        assert times == 0 or states[id] in (State.succeeded, None), f"{id_text(id)} succeeded, and is {states[id]}"
    await bench.check_books()
