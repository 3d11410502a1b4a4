"""Measures what one claim costs beside many jobs that cannot run, and how long a small tenant waits for a large one."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from statistics import median

from bench.ours.place import Place, fill
from bench.ours.tasks import app, for_tenant, guarded, limited, noop
from bench.ours.throughput import Figures
from limpet.core.endings.transition import Succeed
from limpet.core.gate import FOREVER_MS, GateChange
from limpet.core.jobs.lease import Beat, Claim, ClaimRequest, Serves
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Query, Term
from limpet.stores.base import Store
from limpet.stores.open import open_store

BATCH = 64
ROUND = 500_000  # jobs that are enqueued before they are worked off


class Hand:
    """A worker moved by hand: claims and settles at once."""

    def __init__(self, store: Store, session: str) -> None:
        self._store = store
        self._session = session
        self._seq = 0

    async def beat(self) -> None:
        await self._store.beat(Beat(self._session, 600_000, Serves()))

    async def claim(self, limit: int) -> Claim:
        self._seq += 1
        return await self._store.claim(ClaimRequest(self._session, Serves(), limit, limit, self._seq))

    async def settle(self, claim: Claim) -> None:
        await self._store.settle(self._session, self._seq, [Succeed(job.id, job.token) for job in claim.jobs])

    async def timed_claim_us(self) -> float:
        """How long the claim of one full batch took."""
        at_ns = time.perf_counter_ns()
        claim = await self.claim(BATCH)
        took_us = (time.perf_counter_ns() - at_ns) / 1000
        assert len(claim.jobs) == BATCH, f"{len(claim.jobs)} jobs claimed"
        await self.settle(claim)
        return took_us


async def ineligible(template: str, reason: str, few: int, many: int, claims: int) -> Figures:
    """The median claim of 64 beside `many` jobs that cannot run, by that beside `few`; claimed in turns."""
    async with AsyncExitStack() as stack:
        hands = []
        for number, count in enumerate((few, many)):
            place = Place(template, number)
            stack.callback(place.leave)
            async with place.opened():
                await _lay_out(reason, count)
                hand = Hand(app.store, "before")
                await hand.beat()
                await hand.settle(await hand.claim(BATCH))  # the first claim meets the limit and sets the lane aside
                await fill(noop.job(), claims * BATCH)
            store = open_store(place.url, app.namespace)
            stack.push_async_callback(store.close)
            hands.append(Hand(store, "bench"))
            await hands[-1].beat()
        costs_us: list[list[float]] = [[], []]
        for _ in range(claims):
            for hand, costs in zip(hands, costs_us, strict=True):
                costs.append(await hand.timed_claim_us())
    few_us, many_us = map(median, costs_us)
    return {"ratio": many_us / few_us, "claim_us": many_us}


async def _lay_out(reason: str, count: int) -> None:
    if reason == "scheduled":
        await fill(noop.options(delay=86_400).job(), count)
    elif reason == "limited":
        await fill(limited.job("greedy"), count)
    else:
        await fill(guarded.job(), count)
        await app.store.change_gates([GateChange("breaker:provider", trip_ms=FOREVER_MS)])


async def finished(place: Place, many: int, claims: int) -> Figures:
    """The median claim of 64 beside `many` finished jobs, by that before there were any; and the slowest page."""
    hand = Hand(app.store, "bench")
    await hand.beat()
    costs_us = []
    for history in (0, many):
        for start in range(0, history, ROUND):
            await fill(noop.job(), min(ROUND, history - start))
            await app.work(until_empty=True)
        await hand.beat()
        await fill(noop.job(), (claims + 1) * BATCH)
        await hand.timed_claim_us()
        costs_us.append(median([await hand.timed_claim_us() for _ in range(claims)]))
    before_us, beside_us = costs_us
    return {"ratio": beside_us / before_us, "claim_us": beside_us, "page_ms": await _slowest_page_ms()}


async def _slowest_page_ms() -> float:
    """Of several questions, each asked a few times: the one that takes longest."""
    slowest_ms = 0.0
    for states in (None, frozenset({State.succeeded}), frozenset({State.dead}), frozenset({State.ready})):
        for terms in ((), (Term("queue", "nowhere"),), (Term("tag", "nothing"),), (Term("args.to", "absent"),)):
            took_ms = []
            for _ in range(3):
                at_s = time.perf_counter()
                await app.store.find(Query(states, terms))
                took_ms.append((time.perf_counter() - at_s) * 1000)
            slowest_ms = max(slowest_ms, median(took_ms))
    return slowest_ms


async def fairness(place: Place, large: int, claims: int) -> Figures:
    """One tenant has a backlog and is being served, another adds one job: jobs handed out until it comes."""
    hand = Hand(app.store, "bench")
    await hand.beat()
    await fill(for_tenant.job("large"), large)
    for _ in range(claims):
        await hand.settle(await hand.claim(1))
    await for_tenant.enqueue("small")
    handed_out = 0
    while True:
        claim = await hand.claim(1)
        await hand.settle(claim)
        handed_out += 1
        if claim.jobs[0].lane.tenant == "small":
            return {"jobs": handed_out}
