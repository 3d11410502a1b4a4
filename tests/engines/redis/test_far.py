"""Numbers that do not fit what is stored: an instant too far away is as good as never, a cost too high is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count

import pytest

from limpet.core.endings.transition import RetryAfter
from limpet.core.errors import InvalidOption
from limpet.core.gate import FOREVER_MS
from limpet.core.jobs.job import Unique
from limpet.core.jobs.state import State
from limpet.stores.base import RetryRequest
from limpet.stores.open import open_store
from limpet.stores.redis.fields import LAST_MS
from limpet.stores.redis.record import LONGEST_MS, MOST_COST
from limpet_contract.bench import Bench
from limpet_contract.hand import failure
from limpet_contract.harness import Clock
from tests.servers.flavours import REDIS
from tests.servers.redis import shared

FAR = [1 << 47, LAST_MS - 1, LAST_MS, (1 << 48) - 1, 1 << 48, 10**15, 1 << 53, 1 << 70]

_number = count()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    store = open_store(shared(REDIS).url, f"far-{next(_number)}")
    bench = Bench(store, Clock())
    yield bench
    await bench.check_books()
    await store.close()


@pytest.mark.parametrize("far", FAR)
async def test_what_is_due_very_late_does_not_run_now(bench: Bench, far: int) -> None:
    delayed, at = await bench.add(delay_ms=far), await bench.add(due_at_ms=far)
    assert await bench.states([delayed, at]) == [State.scheduled] * 2
    assert (await bench.view(delayed)).due_at_ms == bench.clock.now_ms + LONGEST_MS
    assert (await bench.view(at)).due_at_ms == (far if far < LAST_MS else FOREVER_MS)
    assert await bench.hand().claim(2) == []


@pytest.mark.parametrize("far", FAR)
async def test_what_expires_very_late_has_not_expired(bench: Bench, far: int) -> None:
    id = await bench.add(expires_ms=far)
    await bench.sweep(1_000)
    assert await bench.state(id) is State.ready


@pytest.mark.parametrize("far", FAR)
async def test_a_very_long_window_is_still_open(bench: Bench, far: int) -> None:
    unique = Unique("k", for_ms=far)
    first = await bench.add(unique=unique)
    hand = bench.hand()
    await hand.succeed(await hand.take())
    job = bench.job(unique=unique)
    (answer,) = await bench.store.enqueue([job], now_ms=bench.clock.now_ms)
    assert (answer.id, answer.existing) == (first, True)


@pytest.mark.parametrize("far", FAR)
async def test_what_is_put_off_for_very_long_does_not_run_now(bench: Bench, far: int) -> None:
    ids, hand = await bench.add_many(3), bench.hand()
    snoozed, failed, dead = await hand.claim(3)
    await hand.snooze(snoozed, far)
    await hand.settle(RetryAfter(failed.id, failed.token, failure(), far))
    await hand.bury(dead)
    await bench.store.retry(RetryRequest((dead.id,), delay_ms=far), now_ms=bench.clock.now_ms)
    assert await bench.states(ids) == [State.scheduled] * 3
    assert {(await bench.view(id)).due_at_ms for id in ids} == {bench.clock.now_ms + LONGEST_MS}
    assert await hand.claim(3) == []


@pytest.mark.parametrize("cost", [MOST_COST + 1, 1 << 62, 1 << 64])
async def test_a_cost_that_no_script_can_count_is_refused_by_its_place(bench: Bench, cost: int) -> None:
    for costly in (bench.job(cost=cost), bench.job(costs={"words": 1, "usd": cost})):
        with pytest.raises(InvalidOption, match="item 0 costs"):
            await bench.store.enqueue([costly, bench.job(), bench.job()])
    assert (await bench.store.count()).enqueued == 0
    await bench.add(cost=MOST_COST, costs={"usd": MOST_COST})
    job = await bench.hand().take()
    assert (job.cost, job.costs) == (MOST_COST, {"usd": MOST_COST})
