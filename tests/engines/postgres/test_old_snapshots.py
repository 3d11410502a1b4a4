"""Somebody's transaction stays open for long: what the engine removed cannot be cleaned up, and is not walked over.

Counted in pages that the server touches, not in seconds.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest

from limpet.core.endings.transition import Release
from limpet.core.gate import GateRule
from limpet_contract.bench import Bench
from limpet_contract.making import JobOptions
from tests.engines.postgres.namespace import Namespace, fresh_namespace
from tests.servers.installations import POSTGRES
from tests.servers.postgres import shared
from tests.size import in_matrix

JOBS = 20_000
CROWD = 500
TAKEN = 20  # jobs of one claim
CLAIM = """
SELECT * FROM lp.claim_1(
  'probe', 'fetcher', {seq}, {limit}, {limit}, NULL, NULL, '{{}}', '{{}}', {now}
)
"""

READER = "SELECT count(*) FROM pg_class"
WRITER = "SELECT pg_current_xact_id()"
RULE = GateRule("limit:k", concurrency=1_000)
TENANTS: list[JobOptions] = [{"tenant": f"g{n}"} for n in range(5)]
LIMITED: list[JobOptions] = [{"limits": ("k",)}]
KEYED: list[JobOptions] = [{"keys": ("k",)}]


@pytest.fixture
async def place() -> AsyncIterator[Namespace]:
    async with fresh_namespace(shared(POSTGRES)) as namespace:
        yield namespace


@contextlib.contextmanager
def staying_open(place: Namespace, statement: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that has seen the world as it was, and stays."""
    with contextlib.closing(place.connect()) as line:
        line.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        line.execute(statement.encode())
        yield line
        line.rollback()


class Probe:
    """Claims on one connection that knows its plans already, and counts the pages that each touches."""

    def __init__(self, place: Namespace, bench: Bench) -> None:
        self.place = place
        self.bench = bench
        self.hand = bench.hand("probe")
        self.line = place.connect(autocommit=True)
        self.seq = 0

    async def claim(self, count: int = TAKEN) -> int:
        self.seq += 1
        await self.hand.beat()
        claim = CLAIM.format(seq=self.seq, limit=count, now=self.bench.clock.now_ms)
        query = self.place.sql(f"EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT json) {claim}")
        plan = self.line.execute(query).fetchall()[0][0][0]["Plan"]
        held = await self.bench.store.held("probe")
        assert len(held) == count
        await self.hand.settle(*(Release(job.id, job.token) for job in held))
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


class Flow:
    """Jobs that come and go."""

    def __init__(self, bench: Bench, ways: list[JobOptions]) -> None:
        self.bench = bench
        self.ways = ways
        self.hand = bench.hand()

    async def put(self, count: int) -> None:
        self.bench.clock.advance(10)
        jobs = [self.bench.job(**self.ways[n % len(self.ways)]) for n in range(count)]
        await self.bench.put(*jobs, rules=[RULE])

    async def crowds(self, count: int) -> None:
        """Many at once, so that there is always more."""
        for _ in range(count // CROWD):
            await self.put(CROWD)
            for _ in range(CROWD // TAKEN):
                jobs = await self.hand.claim(TAKEN)
                assert len(jobs) == TAKEN
                await self.hand.succeed(*jobs)

    async def trickle(self, count: int) -> None:
        """One after the other, with nothing in between."""
        for _ in range(count):
            await self.put(1)
            await self.hand.succeed(*await self.hand.claim(TAKEN))
            assert (await self.hand.ask(TAKEN)).jobs == ()


async def touched(place: Namespace, ways: list[JobOptions], holder: str, count: int) -> list[int]:
    """The pages of a claim before and after so many jobs went by, while somebody's transaction stayed open."""
    bench = await place.untended_bench()
    flow, probe = Flow(bench, ways), Probe(place, bench)
    await flow.crowds(2 * CROWD)
    await flow.put(2 * TAKEN)
    await probe.claim()
    with contextlib.closing(probe.line), staying_open(place, holder):
        before = await probe.claim()
        await flow.crowds(count)
        return [before, min([await probe.claim() for _ in range(3)])]


@pytest.mark.parametrize("holder", [WRITER, *in_matrix("a reader holds back less than a writer", READER)])
async def test_claims_from_a_busy_lane_stay_flat(place: Namespace, holder: str) -> None:
    before, after = await touched(place, [{}], holder, JOBS)
    assert after < 1.5 * before  # where a claim begins is moved on by one in ten


@pytest.mark.parametrize("ways", [LIMITED, *in_matrix("a key is a limit of its own lane", KEYED)])
async def test_claims_under_a_limit_stay_flat(place: Namespace, ways: list[JobOptions]) -> None:
    before, after = await touched(place, ways, READER, JOBS // 4)
    assert after < 1.3 * before


@pytest.mark.matrix("a known cost, measured to be seen when it goes")
@pytest.mark.xfail(strict=True, reason="61_choose walks over all places that members have left since")
async def test_claims_from_tenants_stay_flat(place: Namespace) -> None:
    before, after = await touched(place, TENANTS, READER, JOBS // 4)
    assert after < 1.5 * before


@pytest.mark.matrix("the busy lane says it on an ordinary day")
async def test_claims_from_a_lane_that_is_mostly_idle_stay_flat(place: Namespace) -> None:
    bench = await place.untended_bench()
    flow, probe = Flow(bench, [{}]), Probe(place, bench)

    async def first_of_an_idle_lane() -> int:
        pages = []
        for _ in range(3):
            await flow.put(1)
            pages.append(await probe.claim(1))
            await flow.trickle(1)
        return min(pages)

    await flow.trickle(20)
    await first_of_an_idle_lane()
    with contextlib.closing(probe.line), staying_open(place, READER):
        before = await first_of_an_idle_lane()
        await flow.trickle(200)
        assert await first_of_an_idle_lane() < 1.5 * before
