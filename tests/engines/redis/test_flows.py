"""Flows and keys on Redis: their indexes follow the jobs, cost little, and survive workers that do not know them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from limpet.core.ids import id_text
from limpet.core.job import Unique
from limpet.core.lease import Input, Note, Signal
from limpet.core.view import Query, Retention, Term
from limpet.stores.redis.route import Route
from limpet.stores.redis.together import of_flow
from limpet.stores.redis.url import parse_redis
from limpet.stores.redis.walk import Walk
from limpet.testing.seeds import chance_of
from tests.engines.redis.earlier import let_work
from tests.engines.redis.place import Place

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


@pytest.mark.parametrize("seed", range(5))
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
    route = Route(parse_redis(place.server.url), f"limpet:{place.namespace}")
    seen: list[bytes] = []
    async for batch in of_flow(Walk(route, place.key(b""), newest_first, batch=64), flow):
        seen += [id for _, id in batch]
        await place.finish(10)
        await place.prune()
    route.drop()
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


# -- workers of a release without them


def by_earlier(earlier: Path, place: Flows, step: str) -> Sequence[bytes]:
    return let_work(earlier, place.server, place.namespace, place.clock.now_ms, step)


async def test_an_earlier_release_runs_and_erases_jobs_of_flows(place: Flows, earlier: Path) -> None:
    flow, other = place.id(), place.id()
    parents = [place.job(flow=flow) for _ in range(70)]
    child = place.job(flow=flow, after=tuple(job.id for job in parents))
    await place.put(*parents, child)
    hand = place.hand()
    suspended = await place.add(flow=other, priority=0)
    job = await hand.take()
    assert job.id == suspended
    await hand.suspend(job, None, "approved")
    ran = by_earlier(earlier, place, "run")
    assert set(ran) == {*(job.id for job in parents), child.id, suspended}
    assert await place.found(with_flow(flow), limit=100) == [job.id for job in (*parents, child)]
    assert (await place.view(child.id)).after == child.after
    assert place.sound()

    by_earlier(earlier, place, "prune")
    assert [view.id for view in await place.store.flows()] == [other]
    assert await place.found(with_flow(flow)) == []
    assert await place.signal(Signal(suspended, "approved", b"1")) == ["woken"]
    assert (await hand.take()).notes == (Note("event", "approved", b"1"),)
    await place.prune()
    assert place.server.ask("EXISTS", place.key(b"fl:" + flow)) == 0
    assert place.sound()


async def test_a_join_of_an_earlier_release_runs_here(place: Flows, earlier: Path) -> None:
    *parents, child = by_earlier(earlier, place, "join")
    assert (await place.view(child)).after == tuple(parents)
    await place.finish()
    job = await place.hand().take()
    assert (job.id, job.after, job.inputs) == (child, tuple(parents), dict.fromkeys(parents, Input()))
    assert place.sound()


async def test_former_holders_that_an_earlier_release_erased_are_forgotten_by_and_by(
    place: Flows, earlier: Path
) -> None:
    for _ in range(3):
        await place.add(unique=Unique("once"))
        await place.finish()
    by_earlier(earlier, place, "prune")
    assert await place.found(Term("unique", "once")) == []
    left = []
    for _ in range(3):
        await place.add(unique=Unique("once"))
        await place.finish()
        left.append(place.server.ask("ZCARD", place.key(b"uh:once")))
    assert left == [2, 1, 2]
    assert place.sound()
