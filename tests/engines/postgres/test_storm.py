"""Everything at once on one namespace: flows, settlements, cancels, retries, sweeps and pruning leave it sound."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from typing import Any

import psycopg
import pytest

from limpet.core.endings.transition import Hold, Lose, Release, RetryAfter, Snooze, Succeed, Transition
from limpet.core.errors import UnknownParent
from limpet.core.gate import BreakerRule, GateRule
from limpet.core.jobs.job import Job, Policy
from limpet.core.jobs.lease import Claimed, Note
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Query, Retention
from limpet.stores.asking import joining
from limpet_contract.bench import Bench
from limpet_contract.hand import ENDINGS, Hand, failure, next_seq
from limpet_contract.seeds import chance_of
from tests.engines.postgres.namespace import Namespace, fresh_namespace
from tests.servers.installations import POSTGRES
from tests.servers.postgres import shared
from tests.size import in_matrix

ROUNDS = 60
LANES: list[dict[str, Any]] = [
    {"queue": "a", "task": "plain"},
    {"queue": "a", "task": "shared", "tenant": "g"},
    {"queue": "b", "task": "limited", "limits": ("k",)},
    {"queue": "b", "task": "broken", "limits": ("k",), "breaker": "api"},
    {"queue": "c", "task": "urgent", "priority": 2},
]
RULES = [
    GateRule("limit:k", concurrency=3),
    GateRule("breaker:api", breaker=BreakerRule(failures=5, within_ms=1_000, cooldown_ms=50, probe_after_ms=50)),
]


class Storm:
    """Actors that know nothing of each other."""

    def __init__(self, namespace: Namespace, seed: int) -> None:
        self.namespace = namespace
        self.random = chance_of(seed)
        self.producing = 2
        self.known: list[bytes] = []
        self.answers: Counter[str] = Counter()

    # -- producers

    def job(self, bench: Bench, siblings: list[Job]) -> Job:
        draw, near = self.random, [job.id for job in siblings[-5:]] + self.known[-60:]
        after = tuple(draw.sample(near, min(len(near), draw.choice([1, 1, 2, 3])))) if draw.random() < 0.6 else ()
        return bench.job(
            **draw.choice(LANES),
            after=after,
            if_parent_fails=draw.choice(["cancel", "cancel", "run", "wait"]),
            delay_ms=draw.choice([0, 0, 0, 200]),
            expires_ms=draw.choice([None, None, None, 3_000]),
            policy=draw.choice([Policy(max_lost=2), Policy()]),
        )

    async def produce(self, bench: Bench) -> None:
        for _ in range(ROUNDS):
            jobs: list[Job] = []
            for _ in range(self.random.choice([1, 1, 3, 10, 40])):
                jobs.append(self.job(bench, jobs))
            try:
                await bench.put(*jobs, rules=RULES)
                self.known += [job.id for job in jobs]
            except UnknownParent:  # pruned meanwhile
                self.answers["refused"] += 1
        self.producing -= 1

    # -- workers

    def ending(self, job: Claimed) -> Transition:
        draw, (id, token) = self.random, (job.id, job.token)
        few: list[Transition] = [
            RetryAfter(id, token, failure(), draw.choice([0, 50])),
            ENDINGS["bury"](job),
            ENDINGS["drop"](job),
            Release(id, token, draw.random() < 0.5),
            Snooze(id, token, 50, "later"),
            Hold(id, token, "limit:k", 30, "429"),
            Lose(id, token),
        ]
        return Succeed(id, token, draw.choice([None, b"1"])) if draw.random() < 0.6 else draw.choice(few)

    async def work(self, bench: Bench, name: str) -> None:
        late: list[Claimed] = []
        lives = count(1)
        while self.producing:
            hand = bench.hand(f"{name}.{next(lives)}", ttl_ms=2_000)
            for _ in range(12):
                jobs = await hand.claim(self.random.choice([1, 4, 32]))
                late = (await self.end(hand, jobs, late)) or late
            if self.random.random() < 0.5:  # else it falls silent
                await hand.leave()

    async def end(self, hand: Hand, jobs: list[Claimed], late: list[Claimed]) -> list[Claimed]:
        """Settle all but one of some jobs in several calls, some of them twice; one more that was settled before."""
        draw, kept = self.random, jobs[: self.random.choice([0, 0, 0, 1])]
        for job in jobs[:: draw.choice([5, 100])]:
            await hand.beat([(job.id, job.token, Note("progress", "", b"1"))])
            await self.note(hand, job)
        transitions = [self.ending(job) for job in [*jobs[len(kept) :], *late[:1]]]
        draw.shuffle(transitions)
        while transitions:
            size, seq = draw.choice([1, 8, 64]), next_seq()
            part, transitions = transitions[:size], transitions[size:]
            said = await asyncio.gather(*(hand.settle(*part, seq=seq) for _ in range(draw.choice([1, 1, 2]))))
            assert all(each == said[0] for each in said)
            self.answers.update(each.answer for each in said[0])
        return jobs

    async def note(self, hand: Hand, job: Claimed) -> None:
        """Its handler settles it in a transaction of its own, which may come to nothing."""
        async with await psycopg.AsyncConnection.connect(self.namespace.server.url) as conn:
            await joining(hand.store, "complete a job").settle_on(
                conn, job.id, job.token, b'"noted"', now_ms=hand.clock.now_ms
            )
            if self.random.random() < 0.5:
                await conn.rollback()

    # -- people and janitors

    async def meddle(self, bench: Bench) -> None:
        draw = self.random
        while self.producing:
            some = draw.sample(self.known, min(3, len(self.known)))
            dead = [job.id for job in (await bench.store.find(Query(states=frozenset({State.dead})))).jobs]
            draw.shuffle(dead)
            match draw.randrange(5):
                case 0 | 1:
                    self.answers.update(await bench.cancel(*some, force=draw.random() < 0.5))
                case 2 | 3:
                    self.answers.update(await bench.retry(*dead[:5]))
                case _:
                    await bench.store.discard(dead[:1], now_ms=bench.clock.now_ms)
                    retention = Retention(succeeded_ms=500, cancelled_ms=500, dead_ms=3_000)
                    await bench.store.prune(retention, now_ms=bench.clock.now_ms)

    async def pass_time(self, bench: Bench) -> None:
        while self.producing:
            bench.clock.advance(self.random.choice([5, 20, 80]))
            await bench.store.expire(now_ms=bench.clock.now_ms)

    async def blow(self) -> None:
        benches = [await self.namespace.bench() for _ in range(10)]  # one each: calls of one store share connections
        await asyncio.gather(
            *(self.produce(bench) for bench in benches[:2]),
            *(self.work(bench, f"w{number}") for number, bench in enumerate(benches[2:7])),
            *(self.meddle(bench) for bench in benches[7:9]),
            self.pass_time(benches[9]),
        )

    async def calm_down(self) -> None:
        """All that can still run, runs: silent sessions lose what they hold, and nobody fails any more."""
        bench = await self.namespace.bench()
        hand = bench.hand("last")
        for _ in range(40):
            bench.clock.advance(1_000)
            await hand.beat()
            await bench.store.expire(now_ms=bench.clock.now_ms)
            while jobs := await hand.claim(64):
                await hand.succeed(*jobs)
        counts = await bench.store.count()
        assert [counts.total(state) for state in (State.scheduled, State.ready, State.running)] == [0, 0, 0]


@pytest.mark.parametrize("seed", [1, *in_matrix("another storm", 2)])
async def test_a_storm_leaves_everything_in_its_place(seed: int) -> None:
    async with fresh_namespace(shared(POSTGRES)) as namespace:
        storm = Storm(namespace, seed)
        await storm.blow()
        assert namespace.faults() == []
        await storm.calm_down()
        assert {"done", "stale", "cancelled"} <= storm.answers.keys()
