"""What is posted is filed once, whatever order transactions begin, commit and are seen in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import permutations

import pytest

from limpet.core.gate import GateRule
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Serves
from limpet_contract.bench import Bench
from limpet_contract.making import JobOptions
from limpet_contract.seeds import chance_of
from tests.engines.postgres.guests import Guest, guest
from tests.engines.postgres.namespace import Namespace, fresh_namespace
from tests.engines.postgres.pages import Pages
from tests.servers.installations import POSTGRES
from tests.servers.postgres import shared
from tests.size import in_matrix

STEP = 256  # posts that one claim files
NOWHERE = Serves(queues=("nowhere",))


@pytest.fixture
async def place() -> AsyncIterator[Namespace]:
    async with fresh_namespace(shared(POSTGRES)) as namespace:
        yield namespace


async def file(bench: Bench) -> bool:
    """One claim that takes nothing; True when it left something to be filed."""
    hand = bench.hand("clerk")
    hand.serves = NOWHERE
    await hand.beat()
    return (await hand.ask()).again


@pytest.mark.parametrize("filed", [0, 1, 2, 3, 4])
async def test_one_that_commits_after_younger_ones_is_found(place: Namespace, filed: int) -> None:
    """Before, between and after the claims that file what was posted meanwhile."""
    bench = await place.bench()
    async with guest(place, bench) as old:
        late = bench.job(queue="late", tenant="new")
        await old.put(late)
        for n in range(3):
            await bench.put(*(bench.job(tenant=f"{n} {m}") for m in range(STEP - 20)))
        for _ in range(filed):
            await file(bench)
        await old.commit()
        await bench.add(queue="late")
    hand, found = bench.hand(queues=("late",)), []
    while more := await hand.ids(5):
        found += more
    assert late.id in found
    while await file(bench):
        pass
    assert place.one("SELECT count(*) FROM lp.lane") == 3 * (STEP - 20) + 2


@pytest.mark.parametrize("posts", [STEP - 1, STEP, STEP + 1])
async def test_one_that_commits_when_all_younger_ones_are_filed_is_found(place: Namespace, posts: int) -> None:
    """Nobody posts anything after it: who sleeps must hear of it, and the next claim take it."""
    bench = await place.bench()
    hand = bench.hand()
    async with guest(place, bench) as old:
        late = bench.job(task="late")
        await old.put(late)
        for _ in range(posts):
            await bench.add()
        while jobs := await hand.claim(50):
            await hand.succeed(*jobs)
        assert not (await hand.ask()).again
        await old.commit()
    assert place.one("SELECT lp.posted_since_1()")
    assert await hand.ids(5) == [late.id]


async def test_what_many_posted_is_served_in_its_order(place: Namespace) -> None:
    bench = await place.bench()
    for _ in range(2 * STEP):
        await bench.add(priority=8)
    urgent = await bench.add(priority=0)
    assert (await bench.hand().ids(10))[0] == urgent


async def test_what_lanes_posted_that_have_work_already_keeps_nobody_waiting(place: Namespace) -> None:
    bench = await place.bench()
    lanes: list[JobOptions] = [{"tenant": f"{n}", "priority": 8} for n in range(STEP + 50)]
    await bench.put(*(bench.job(**lane) for lane in lanes))
    while await file(bench):
        pass
    for _ in range(4):
        await bench.put(*(bench.job(**lane) for lane in lanes))
    urgent = await bench.add(priority=0)
    assert await bench.hand().ids() == [urgent]


async def test_what_was_filed_is_not_walked_over_again(place: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that was left alone has much to file at once, and nobody cleans up behind that for a minute."""
    bench, pages, touched = await place.untended_bench(), Pages(monkeypatch, "claim"), []
    for calls in (1, 40):
        for _ in range(calls):
            await bench.put(*(bench.job(tenant=f"{n}") for n in range(STEP)))
        while await file(bench):
            pass
        await file(bench)
        pages.count = 0
        await file(bench)
        touched.append(pages.count)
    assert touched[1] <= touched[0] + 10, f"{touched[1]} pages for a claim, after {touched[0]}"


async def test_every_order_of_commits(place: Namespace) -> None:
    bench = await place.bench()
    hand = bench.hand()
    for order in permutations(range(4)):
        async with contextlib.AsyncExitStack() as stack:
            guests = [await stack.enter_async_context(guest(place, bench)) for _ in range(4)]
            jobs = [bench.job(tenant=f"{order} {n}") for n in range(4)]
            for each, job in zip(guests, jobs, strict=True):
                await each.put(job)
            for n in order:
                await guests[n].commit()
                assert await hand.ids(5) == [jobs[n].id]


async def test_what_a_claim_posts_itself_is_left_to_the_next(place: Namespace) -> None:
    """A claim that waited for the floor is older than what it files."""
    bench, other = await place.bench(), await place.bench()
    rule = GateRule("limit:k", concurrency=1)
    await bench.put(*(bench.job(keys=("k",), tenant=tenant) for tenant in "ab"), rules=[rule])
    hand = bench.hand()
    job = await hand.take()
    assert await hand.claim() == []
    await bench.put(*(bench.job(queue="elsewhere", tenant=f"g{n}") for n in range(20)))
    waiter = other.hand("w2", queues=("default",))
    await waiter.beat()
    with contextlib.closing(place.connect()) as floor, contextlib.closing(place.connect()) as gate:
        floor.execute(place.sql("SELECT lp.lock(:FLOOR)"))
        claim = asyncio.create_task(waiter.ask())
        await place.until_waiting(1)
        await hand.succeed(job)
        gate.execute(place.sql("SELECT FROM lp.gate FOR UPDATE"))
        await bench.add_many(2, queue="elsewhere")
        floor.rollback()
        assert (await claim).jobs == ()  # the gate is in somebody's hands: it has to be looked at again
    assert len(await waiter.claim()) == 1


@pytest.mark.parametrize("seed", [0, *in_matrix("further seeds of the same way", 1, 2)])
async def test_no_post_is_lost_on_a_random_way(place: Namespace, seed: int) -> None:
    bench, rng = await place.bench(), chance_of(seed)
    hand = bench.hand()
    expected: set[bytes] = set()
    taken: list[bytes] = []
    open_guests: list[tuple[Guest, set[bytes]]] = []
    async with contextlib.AsyncExitStack() as stack:
        for step in range(80):
            what = rng.choices(["begin", "put", "end", "crowd", "single", "claim"], [2, 4, 2, 1, 2, 4])[0]
            if what == "begin" and len(open_guests) < 6:
                open_guests.append((await stack.enter_async_context(guest(place, bench)), set()))
            elif what == "put" and open_guests:
                who, own = rng.choice(open_guests)
                jobs = [bench.job(tenant=f"{step} {n}") for n in range(rng.choice([1, 3, 100]))]
                await who.put(*jobs)
                own.update(job.id for job in jobs)
            elif what == "end" and open_guests:
                who, own = open_guests.pop(rng.randrange(len(open_guests)))
                if rng.random() < 0.3:
                    await who.line.rollback()
                else:
                    await who.commit()
                    expected |= own
            elif what == "crowd":
                jobs = [bench.job(tenant=f"{step} {n}") for n in range(rng.choice([50, STEP, 400]))]
                await bench.put(*jobs)
                expected.update(job.id for job in jobs)
            elif what == "single":
                expected.add(await bench.add())
            else:
                await hand.beat()
                taken += [job.id for job in (await hand.ask(rng.choice([1, 20, 300]))).jobs]
            bench.clock.advance(1)
    while found := await hand.ids(1_000):
        taken += found
    assert len(taken) == len(set(taken))
    assert set(taken) == expected, [id_text(id) for id in list(expected - set(taken))[:3]]
