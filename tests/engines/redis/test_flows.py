"""Flows and keys on Redis: their indexes follow the jobs and cost little."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import pytest

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Unique
from limpet.core.jobs.view import Query, Retention, Term
from limpet.stores.redis.client import Client
from limpet.stores.redis.find_by_name import of_flow
from limpet.stores.redis.find_cursor import Cursor
from limpet.stores.redis.url import parse_redis
from limpet_contract.seeds import chance_of
from tests.engines.redis.place import Place
from tests.size import in_matrix

NOTHING = Retention(succeeded_ms=0, cancelled_ms=0, dead_ms=0)


class Flows(Place):
    """A place where jobs end, and are forgotten at once."""

    async def prune(self) -> int:
        return await self.store.prune(NOTHING, now_ms=self.clock.now_ms)

    async def finish(self, most: int = 1_000) -> None:
        hand = self.hand()
        await hand.succeed(*await hand.claim(most))


@pytest.fixture
async def place() -> AsyncIterator[Flows]:
    place = Flows()
    yield place
    await place.store.close()


def with_flow(flow: bytes) -> Term:
    return Term("flow", id_text(flow))


# -- flows


@pytest.mark.parametrize("seed", [0, *in_matrix("further seeds of the same history", *range(1, 5))])
async def test_the_jobs_of_flows_are_known_after_any_history(place: Flows, seed: int) -> None:
    rng = chance_of(seed)
    flows = [place.id() for _ in range(4)]
    hand = place.hand()
    for _ in range(40):
        step = rng.randrange(6)
        if step < 2:
            jobs = [place.job(flow=rng.choice([*flows, None, None])) for _ in range(rng.choice([1, 3, 70, 200]))]
            rng.shuffle(jobs)
            await place.put(*jobs, *rng.sample(jobs, min(3, len(jobs))))
        elif step < 4:
            claimed = await hand.claim(rng.choice([1, 40, 150]))
            await hand.end(rng.choice(["succeed", "bury", "drop"]), *claimed)
        elif step == 4:
            await place.store.prune(NOTHING, rng.choice([1, 50, 1_000]), now_ms=place.clock.now_ms)
        else:
            found = await place.store.find(Query(terms=(with_flow(rng.choice(flows)),)), now_ms=place.clock.now_ms)
            await place.store.discard([job.id for job in found.jobs], now_ms=place.clock.now_ms)
        assert place.sound()
        stored = await place.everything()
        expected = {flow: Counter(job.state for job in stored if job.flow == flow) for flow in flows}
        assert {view.id: view.counts for view in await place.store.flows()} == {f: c for f, c in expected.items() if c}


async def test_jobs_that_came_together_are_one_entry_of_their_flow(place: Flows) -> None:
    flow = place.id()
    await place.add_many(5_000, flow=flow)
    assert place.server.ask("ZCARD", place.key(b"fl:" + flow)) == 1


async def test_a_flow_that_goes_on_for_ever_keeps_nothing_of_what_is_gone(place: Flows) -> None:
    flow = place.id()
    await place.add(flow=flow, delay_ms=1 << 40)
    for _ in range(20):
        await place.add(flow=flow)
        await place.add()
        await place.add_many(3, flow=flow)
        await place.finish()
        await place.prune()
        assert place.sound()
    assert place.server.ask("ZCARD", place.key(b"fl:" + flow)) == 1


async def test_a_flow_is_found_without_a_look_at_others(place: Flows) -> None:
    costs = []
    for _ in range(2):
        flow = place.id()
        await place.add_many(10, flow=flow)
        await place.add_many(3_000, flow=place.id())
        await place.store.flows([flow])
        place.reset()
        assert len(await place.found(with_flow(flow))) == 10
        assert len(await place.store.flows([flow])) == 1
        costs.append(place.commands().total())
    assert costs[1] <= costs[0] < 30


@pytest.mark.parametrize("newest_first", [True, False])
async def test_a_walk_over_a_flow_meets_nobody_twice_while_others_are_erased(place: Flows, newest_first: bool) -> None:
    flow = place.id()
    ids = await place.add_many(300, flow=flow)
    client = Client(parse_redis(place.server.url), f"limpet:{place.namespace}")
    seen: list[bytes] = []
    async for batch in of_flow(Cursor(client, place.key("m"), newest_first, batch=64), flow):
        seen += [id for _, id in batch]
        await place.finish(10)
        await place.prune()
    client.drop()
    assert len(seen) == len(set(seen))
    assert set(ids[100:]) <= set(seen), "whoever is there all the time is met"


# -- keys


async def test_who_held_a_key_is_known_as_long_as_it_is_stored(place: Flows) -> None:
    ids = []
    for _ in range(6):
        ids.append(await place.add(unique=Unique("once")))
        await place.finish()
        place.clock.advance(1)
    assert await place.found(Term("unique", "once")) == ids
    assert place.sound()
    await place.prune()
    assert await place.found(Term("unique", "once")) == []
    assert place.server.ask("EXISTS", place.key(b"uh:once")) == 0
    assert place.sound()


async def test_a_key_that_goes_back_to_a_former_holder_leaves_the_other_behind(place: Flows) -> None:
    hand = place.hand()
    first = await place.add(unique=Unique("once"))
    await hand.bury(await hand.take())
    second = await place.add(unique=Unique("once"))
    await hand.succeed(await hand.take())
    assert await place.retry(first) == ["retried"]
    assert place.server.ask("ZRANGE", place.key(b"uh:once"), 0, -1) == [second]
    assert await place.found(Term("unique", "once")) == [first, second]
    assert place.sound()


async def test_a_key_is_found_without_a_look_at_all_jobs(place: Flows) -> None:
    await place.add_many(2_000)
    id = await place.add(task="report", unique=Unique("once"))
    await place.found(Term("unique", "once"))
    place.reset()
    assert await place.found(Term("unique", "once")) == [id]
    assert place.commands().total() < 20
