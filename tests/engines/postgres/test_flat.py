"""A claim costs what it hands out: jobs that cannot run and jobs that have ended lie beside it and are not touched.

Cost is counted in pages that the server touches. With LIMPET_FULL=1 (`make matrix`) there are a million of the former
and ten million of the latter.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from limpet.core.gate import FOREVER_MS, GateChange, GateRule, Pause
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Query, Term
from limpet.stores.base import MAX_BATCH_JOBS
from limpet.stores.open import open_store
from limpet_contract.bench import Bench
from limpet_contract.hand import Hand
from limpet_contract.harness import Clock
from tests.engines.postgres.pages import Pages
from tests.servers.installations import POSTGRES
from tests.servers.postgres import CARELESS, PostgresServer, running
from tests.size import FULL, in_matrix

pytestmark = pytest.mark.timeout(3_600 if FULL else 120)
FEW, MANY, ENDED = (1_000, 1_000_000, 10_000_000) if FULL else (100, 4_000, 20_000)
CHUNK = 5_000
BATCH = 64
CLAIMS = 5
# A job is looked up in some ten indexes: with a million entries each of them is a page deeper.
DEEPER = 10 * BATCH if FULL else 0

# Jobs that ended, as settle leaves them, one a millisecond; every thousandth is dead.
HISTORY = """
INSERT INTO limpet.job (id, lane, policy, enqueued_ms, args)
SELECT {id}, j.lane, j.policy, j.enqueued_ms - n, j.args FROM limpet.job AS j, generate_series({first}, {last}) AS n
WHERE j.id = '\\x{pattern}';
INSERT INTO limpet.done (id, lane, finished_ms, due_ms, claimed_ms, attempt, lost, held, cost, state, priority, flags)
SELECT {id}, j.lane, j.enqueued_ms - n, j.enqueued_ms - n, j.enqueued_ms - n, 1, 0, 0, 1,
  CASE WHEN n % 1000 = 0 THEN 5 ELSE 4 END, 5, 0
FROM limpet.job AS j, generate_series({first}, {last}) AS n WHERE j.id = '\\x{pattern}'
"""


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """On a disk: what full size leaves behind has no room in memory."""
    folder = Path(tempfile.mkdtemp(prefix="limpet-flat-", dir="/var/tmp"))
    folder.chmod(0o711)
    settings = {**CARELESS, "max_wal_size": "4GB", "checkpoint_timeout": "1h", "autovacuum": "off"}
    with running(PostgresServer(POSTGRES, folder / "postgres", settings=settings)) as server:
        yield server
    shutil.rmtree(folder)


async def many(bench: Bench, count: int, chunk: int = CHUNK, **options: Any) -> None:
    for start in range(0, count, chunk):
        await bench.add_many(min(chunk, count - start), **options)


async def scheduled(bench: Bench, count: int) -> None:
    await many(bench, count, delay_ms=86_400_000)


async def blocked(bench: Bench, count: int) -> None:
    await many(bench, count, after=(await bench.add(delay_ms=86_400_000),))


async def limited(bench: Bench, count: int) -> None:
    """One customer has used up its rate."""
    await bench.declare(GateRule("limit:greedy", interval_us=3_600_000_000))
    await many(bench, count, task="limited", keys=("greedy",))


async def customers(bench: Bench, count: int) -> None:
    """Very many customers wait at one limit, ten jobs each."""
    await bench.declare(GateRule("limit:region", interval_us=3_600_000_000))
    for start in range(0, count // 10, CHUNK // 10):
        tenants = range(start, min(start + CHUNK // 10, count // 10))
        jobs = [bench.job(task="regional", keys=("region",), tenant=f"c{n}") for n in tenants for _ in range(10)]
        await bench.put(*jobs)


async def guarded(bench: Bench, count: int) -> None:
    await many(bench, count, task="guarded", breaker="provider")
    await bench.change(GateChange("breaker:provider", trip_ms=FOREVER_MS))


async def paused(bench: Bench, count: int) -> None:
    await bench.change(GateChange("queue:still", pause=Pause("ada", "why", bench.clock.now_ms)))
    await many(bench, count, queue="still")


async def unserved(bench: Bench, count: int) -> None:
    await many(bench, count, task="elsewhere", needs=("gpu",))


def ended(server: PostgresServer, pattern: bytes, count: int) -> None:
    """Jobs like this one that have ended."""
    id = "decode('01' || lpad(to_hex(n), 14, '0') || substr(md5(n::text), 1, 16), 'hex')"
    for first in range(1, count + 1, 1_000_000):
        last = min(first + 999_999, count)
        server.ask(HISTORY.format(id=id, first=first, last=last, pattern=pattern.hex()), timeout_s=600)


async def claimed(server: PostgresServer, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> float:
    """Pages that the middle one of some claims of a full batch touches."""
    hand = bench.hand("w1", tasks=("plain", "limited", "guarded", "regional", "t"))
    for _ in range(3):  # what is posted is filed, what cannot run is set aside
        while jobs := await hand.claim(256):
            await hand.succeed(*jobs)
    server.ask("VACUUM ANALYZE", timeout_s=600)  # that left remains behind: the janitor's task
    await bench.add_many((CLAIMS + 1) * BATCH, task="plain")
    await hand.succeed(*await hand.claim(BATCH))
    return await counted(hand, monkeypatch)


async def counted(hand: Hand, monkeypatch: pytest.MonkeyPatch, aged: int = 0) -> float:
    counts = []
    with monkeypatch.context() as patch:
        pages = Pages(patch, "claim")
        for _ in range(CLAIMS):
            before = pages.count
            jobs = await hand.claim(BATCH, aged=aged, most_urgent=4)
            assert {job.lane.priority for job in jobs} == {5}
            assert len(jobs) == BATCH
            counts.append(pages.count - before)
            await hand.succeed(*jobs)
    return median(counts)


async def until_filed(hand: Hand) -> None:
    """Claim until the jobs that were enqueued last are found: a claim files a few hundred new lanes at most."""
    filed = False
    while not filed:
        jobs = await hand.claim(BATCH, aged=BATCH, most_urgent=4)
        filed = jobs[-1].lane.priority == 5
        await hand.succeed(*jobs)


async def test_a_claim_of_many_jobs_of_one_instant_touches_those_it_takes(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(server.url, "instant")
    bench = Bench(store, Clock())
    await bench.add_many(20_000)
    hand, counts = bench.hand(), []
    await hand.claim()
    with monkeypatch.context() as patch:
        pages = Pages(patch, "claim")
        for _ in range(40):  # a lane notes where it begins once in ten claims
            pages.count = 0
            await hand.claim()
            counts.append(pages.count)
    await store.close()
    assert max(counts) <= median(counts) + 60, counts


@pytest.mark.parametrize(
    "lie",
    [
        scheduled,
        limited,
        customers,
        *in_matrix("further ways to lie still; each is an index of its own", blocked, guarded, paused, unserved),
    ],
)
async def test_jobs_that_cannot_run_cost_a_claim_nothing(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch, lie: Callable[[Bench, int], Awaitable[None]]
) -> None:
    costs = []
    for number, count in enumerate((FEW, MANY)):
        store = open_store(server.url, f"n{number}")
        bench = Bench(store, Clock())
        await lie(bench, count)
        costs.append(await claimed(server, bench, monkeypatch))
        await store.close()
    few, beside_many = costs
    assert beside_many <= few * 1.25 + DEEPER, f"{beside_many} pages beside {MANY:,} jobs, {few} beside {FEW:,}"


async def test_urgent_jobs_cost_nothing_to_those_that_pass_them(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = []
    for number, count in enumerate((FEW, MANY)):
        store = open_store(server.url, f"n{number}")
        bench, hand = Bench(store, Clock()), Bench(store, Clock()).hand()
        await many(bench, count // 2, priority=3)
        await many(bench, count // 2, priority=3, tenant=f"g{number}")
        for first in range(0, count // 10, MAX_BATCH_JOBS):
            last = min(first + MAX_BATCH_JOBS, count // 10)
            await bench.put(*(bench.job(priority=3, tenant=f"c{n}") for n in range(first, last)))
        await bench.add_many((CLAIMS + 1) * BATCH)
        await until_filed(hand)
        server.ask("VACUUM ANALYZE", timeout_s=600)
        costs.append(await counted(hand, monkeypatch, aged=BATCH))
        await store.close()
    few, beside_many = costs
    assert beside_many <= few * 1.25 + DEEPER, f"{beside_many} pages beside {MANY:,} jobs, {few} beside {FEW:,}"


async def test_jobs_that_have_ended_cost_a_claim_nothing_and_a_page_little(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(server.url)
    bench = Bench(store, Clock())
    pattern = await bench.add(task="t")
    before = await claimed(server, bench, monkeypatch)
    ended(server, pattern, ENDED)
    after = await claimed(server, bench, monkeypatch)
    assert after <= before * 1.25 + DEEPER, f"{after} pages beside {ENDED:,} ended jobs, {before} without"
    for state in (State.succeeded, State.dead, None):
        for terms in ((), (Term("queue", "nowhere"),), (Term("tag", "nowhere"),)):
            query = Query(None if state is None else frozenset({state}), terms)
            with monkeypatch.context() as patch:
                pages = Pages(patch, "find")
                found = await store.find(query, now_ms=bench.clock.now_ms)
                assert len(found.jobs) == (0 if terms else min(50, len(found.jobs)))
                # Each candidate has a place, a body and their two indexes; a page that is full soon looks at few.
                assert pages.count <= (10_000 * 10 if terms else 2_000), f"{pages.count} pages for {query}"
    await store.close()
