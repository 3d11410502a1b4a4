"""Very many keys with a breaker each, on every engine: an open one costs the others nothing, and there is a bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from limpet.core.endings.transition import Succeed
from limpet.core.gate import MOST_BREAKERS, OPEN, BreakerRule, GateRule, WorstFirst
from limpet.core.jobs.view import Retention
from limpet.ops import Operator
from limpet_contract.bench import Bench
from limpet_contract.hand import Hand
from tests.contract.harnesses import HARNESSES, SHARED
from tests.engines.vandal import Vandal
from tests.size import in_matrix

OWN = "breaker:hook"
RULE = GateRule(OWN, breaker=BreakerRule(failures=2, cooldown_ms=30_000, probe_after_ms=10_000))
LATER_MS = 3_600_000


@pytest.fixture(params=SHARED)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES[request.param](tmp_path)
    yield await Bench.open(harness)
    await harness.close()


async def put(bench: Bench, *keys: str) -> None:
    jobs = [bench.job(task="hook", breaker="hook", breaker_key=f"hook:{key}") for key in keys]
    for at in range(0, len(jobs), 5_000):
        await bench.put(*jobs[at : at + 5_000], rules=[RULE])


async def fail(bench: Bench, hand: Hand, key: str) -> tuple[str, ...]:
    """A job of this key fails; the gates that are shut by then."""
    await put(bench, key)
    job = await hand.take()
    assert job.lane.breaker_key == f"hook:{key}"
    return (await hand.fail(job, delay_ms=LATER_MS)).shut


@pytest.mark.parametrize("count", [300, *in_matrix("ten thousand lanes", 10_000)])
async def test_of_very_many_keys_one_is_open_and_the_others_go_on(bench: Bench, count: int) -> None:
    hand = bench.hand()
    for _ in range(2):
        shut = await fail(bench, hand, "down")
    assert shut == ("breaker:hook:down",)
    await put(bench, *["down"] * 10, *(f"c{number}" for number in range(count)))
    seen = Counter[str]()
    while jobs := await hand.claim(500):
        seen.update(str(job.lane.breaker_key) for job in jobs)
        await hand.settle(*(Succeed(job.id, job.token) for job in jobs))
    assert seen == Counter(f"hook:c{number}" for number in range(count))
    assert {gate.key for gate in await bench.store.gates("breaker:")} == {OWN, "breaker:hook:down"}
    bench.clock.advance(10_000)
    probes = await hand.claim(10)
    assert [(job.probe, job.lane.breaker_key) for job in probes] == [(True, "hook:down")]
    await hand.succeed(*probes)
    assert len(await hand.claim(20)) == 9


async def test_beyond_the_bound_further_keys_count_at_the_breaker_of_their_task(bench: Bench) -> None:
    await put(bench, "first")  # the breaker of the task counts as one, too
    hand = bench.hand()
    await hand.succeed(await hand.take())
    Vandal(bench.store).crowd(MOST_BREAKERS - 2, bench.clock.now_ms + LATER_MS)
    await bench.store.prune(Retention(), now_ms=bench.clock.now_ms)  # PostgreSQL counts them again there
    assert await fail(bench, hand, "known") == ()
    assert await fail(bench, hand, "new") == ()
    keys = [OWN, "breaker:hook:known", "breaker:hook:new"]
    assert {gate.key: len(gate.failed_at_ms) for gate in await bench.store.gates(keys=keys)} == {
        OWN: 1,
        "breaker:hook:known": 1,
    }
    await put(bench, "other")
    await hand.succeed(await hand.take())  # of a key without a record: a success starts the count of the task anew
    assert await fail(bench, hand, "new") == ()
    assert await fail(bench, hand, "known") == ("breaker:hook:known",), "it has a record, and goes on counting there"
    assert await fail(bench, hand, "third") == (OWN,)
    await put(bench, "known", "new", "other")
    assert await hand.claim(5) == []
    bench.clock.advance(10_000)
    (probe,) = await hand.claim(5)
    await hand.succeed(probe)
    assert len(await hand.claim(5)) == 2


async def test_very_many_open_breakers_are_listed_by_the_page(bench: Bench) -> None:
    await put(bench, "first")
    Vandal(bench.store).crowd(20_000, bench.clock.now_ms + LATER_MS)
    operator = Operator(bench.store, "ada", clock=lambda: bench.clock.now_ms)
    page = await operator.gates.breakers(limit=3)
    assert [gate.key for gate in page.breakers] == [f"breaker:crowd:{number:06d}" for number in (1, 2, 3)]
    page = await operator.gates.breakers("crowd:0199", limit=60, cursor=page.cursor)
    assert (len(page.breakers), page.breakers[0].key) == (60, "breaker:crowd:019900")
    page = await operator.gates.breakers("crowd:0199", limit=60, cursor=page.cursor)
    assert (len(page.breakers), page.cursor) == (40, None)
    last = await bench.store.gates(worst_first=WorstFirst(2, (OPEN, "breaker:crowd:019999")))
    assert [gate.key for gate in last] == ["breaker:crowd:020000", OWN]
    found = [finding for finding in await operator.doctor() if finding.code.startswith("breaker")]
    assert [finding.code for finding in found] == ["breakers_open"]
    assert "10,000 or more breakers are open" in found[0].text


async def test_open_breakers_by_the_thousand_do_not_stop_pruning(bench: Bench) -> None:
    Vandal(bench.store).crowd(3_000, bench.clock.now_ms + LATER_MS)
    await put(bench, "old")
    hand = bench.hand()
    await hand.fail(await hand.take(), delay_ms=LATER_MS)
    bench.clock.advance(60_000)
    for _ in range(10):  # each looks at some of them
        await bench.store.prune(Retention(), 500, now_ms=bench.clock.now_ms)
    assert await bench.gate("breaker:hook:old") is None
    assert await bench.gate("breaker:crowd:000001") is not None
