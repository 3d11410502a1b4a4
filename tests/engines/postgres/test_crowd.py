"""Everybody at once: producers, workers, people and janitors act on the same jobs; nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import Final

import pytest

from limpet.core.errors import UnknownParent
from limpet.core.gate import GateRule
from limpet.core.jobs.job import Policy, Unique
from limpet.core.jobs.lease import Beat, ClaimRequest, Serves
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Retention
from limpet.stores.base import RetryRequest, Store
from limpet_contract.hand import ENDINGS, next_seq
from limpet_contract.making import JobOptions
from limpet_contract.seeds import chance_of
from tests.engines.postgres.places import Place, a_place
from tests.servers.installations import POSTGRES
from tests.size import in_matrix

RULES: Final = [GateRule("limit:x", concurrency=2), GateRule("limit:y", concurrency=3)]
# Not those that put a job, or all of them, off for a minute.
# Of these endings, a refused job needs this capability from then on.
ALL: Final = Serves(capabilities=("gpu",))
ENDS: Final = [*(end for end in ENDINGS if end not in ("fail", "hold", "sleep", "snooze", "wait")), *["succeed"] * 6]
BRIEF: Final = Retention(succeeded_ms=200, cancelled_ms=300, dead_ms=400)


class Crowd:
    """People who act at random on the same jobs, until the producers have made enough of them."""

    def __init__(self, place: Place, stores: list[Store], seed: int) -> None:
        self.place = place
        self.stores = stores
        self.rng = chance_of(seed)
        self.ids: deque[bytes] = deque(maxlen=200)
        self.left = 300  # calls of the producers

    async def gather(self) -> None:
        one, two, three, four = self.stores
        await asyncio.gather(
            *(self.produce(store) for store in (one, two)),
            *(self.work(store, f"w{n}") for n, store in enumerate((two, three, four))),
            *(self.operate(store) for store in (three, four)),
            *(self.keep_house(store) for store in (one, four)),
        )

    def options(self) -> JobOptions:
        options: JobOptions = {"policy": Policy(max_lost=2)}
        if self.rng.random() < 0.3:
            options["unique"] = Unique(f"k{self.rng.randrange(5)}")
        if self.rng.random() < 0.4:
            options["limits"] = (self.rng.choice("xy"),)
        if self.rng.random() < 0.3:
            options["tenant"] = f"g{self.rng.randrange(4)}"
        if self.rng.random() < 0.2:
            options["delay_ms"] = self.rng.choice([5, 50])
        if self.rng.random() < 0.1:
            options["expires_ms"] = 100
        return options

    async def produce(self, store: Store) -> None:
        while self.left > 0:
            self.left -= 1
            options = self.options()
            if self.ids and self.rng.random() < 0.3:
                options["after"] = (self.rng.choice(self.ids),)
                options["if_parent_fails"] = self.rng.choice(["cancel", "run", "wait"])
            jobs = [self.place.job(**options) for _ in range(self.rng.randint(1, 4))]
            with contextlib.suppress(UnknownParent):  # pruned or discarded by now
                self.ids.extend(answer.id for answer in await store.enqueue(jobs, RULES))

    async def work(self, store: Store, name: str) -> None:
        while self.left > 0:
            await store.beat(Beat(name, 400, ALL))
            for _ in range(self.rng.randint(1, 6)):
                jobs = (await store.claim(ClaimRequest(name, ALL, 8, 8, next_seq()))).jobs
                if jobs and self.rng.random() < 0.9:
                    await store.settle(name, next_seq(), [ENDINGS[self.rng.choice(ENDS)](job) for job in jobs])
            if self.rng.random() < 0.05:
                await store.leave(name)
        await store.leave(name)

    async def operate(self, store: Store) -> None:
        while self.left > 0:
            await asyncio.sleep(0)  # as long as there are no jobs nothing is asked
            some = self.rng.sample(list(self.ids), min(len(self.ids), 5))
            act = self.rng.randrange(5)
            if act < 2:
                await store.cancel(some, "enough", force=self.rng.random() < 0.5)
            elif act < 4:
                await store.retry(RetryRequest(tuple(some)))
            else:
                await store.discard(some[:2])

    async def keep_house(self, store: Store) -> None:
        while self.left > 0:
            await store.expire(64)
            await store.prune(BRIEF, 100)
            await asyncio.sleep(0.01)


async def work_off(store: Store) -> None:
    """Let everything that can run succeed, also what a session holds that fell silent on a busy machine."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        await store.beat(Beat("last", 60_000, ALL))
        await store.expire(64)
        claim = await store.claim(ClaimRequest("last", ALL, 64, 64, next_seq()))
        await store.settle("last", next_seq(), [ENDINGS["succeed"](job) for job in claim.jobs])
        if not claim.jobs and not claim.again:
            if claim.next_at_ms is None and not (await store.count()).total(State.running):
                return
            await asyncio.sleep(0.01)
    raise AssertionError("there is no end of jobs")


@pytest.mark.parametrize("seed", [0, *in_matrix("another crowd", 1)])
async def test_a_crowd_loses_and_doubles_nothing(seed: int) -> None:
    async with a_place(POSTGRES) as place:
        stores: list[Store] = [place.store, *[(await place.another()).store for _ in range(3)]]
        await Crowd(place, stores, seed).gather()
        await place.check_books()
        await work_off(place.store)
        counts = await place.store.count()
        assert [counts.total(state) for state in (State.ready, State.scheduled, State.running)] == [0, 0, 0]
        assert place.ask("SELECT count(*) FROM lp.gate WHERE used <> 0") == [(0,)]
        # Whoever still waits, waits for one that failed and may be retried, or for one that waits so.
        waits = "SELECT FROM lp.dep AS d WHERE d.child = w.id AND NOT d.done AND lp.state_of(d.parent) IN (0, 5, 6)"
        assert place.ask(f"SELECT count(*) FROM lp.wait AS w WHERE NOT EXISTS ({waits})") == [(0,)]
