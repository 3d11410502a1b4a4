"""Budgets on Redis: when they open, what their events look like, and what workers without them leave of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from limpet.core.gate import GateChange, GateRule, left
from limpet.core.transition import Succeed
from tests.engines.redis.earlier import let_work
from tests.engines.redis.place import Place

USD = GateRule("limit:usd", unit="usd", cap=10, period="day")
WORDS = GateRule("limit:words", unit="words", interval_us=1_000, burst=100)


class Budgets(Place):
    """A place whose gates can be looked at."""

    async def rule(self, key: str) -> GateRule:
        found = await self.gate(key)
        assert found is not None
        return found.rule

    async def left(self, key: str) -> int:
        found = await self.gate(key)
        assert found is not None
        return left(found, self.clock.now_ms)

    def by_earlier(self, earlier: Path, step: str) -> list[bytes]:
        ids = let_work(earlier, self.server, self.namespace, self.clock.now_ms, step)
        assert self.sound()
        return list(ids)


@pytest.fixture
async def place() -> AsyncIterator[Budgets]:
    place = Budgets()
    yield place
    await place.store.close()


async def test_jobs_of_a_task_with_a_budget_are_given_only_for_free_slots(place: Budgets) -> None:
    await place.change(GateChange("task:work", rule=GateRule("task:work", cap=10, period="day")))
    full = place.hand("full")
    assert await full.claim(3, slots=0) == []
    await place.put(place.job(), place.job(priority=3))
    assert not (await full.wait(1)).work
    assert await full.claim(3, slots=0) == []
    assert len(await full.claim(3, slots=1)) == 1


async def test_an_event_names_whatever_key_there_is(place: Budgets) -> None:
    key = 'limit:a "b"/ü\\' + "\u4e16" * 200
    await place.change(GateChange(key, hold_ms=1_000))
    (entry,) = await place.store.read("event")
    until_ms = place.clock.now_ms + 1_000
    assert (entry.kind, msgspec.json.decode(entry.data)) == ("limit.held", {"gate": key, "until_ms": until_ms})
    assert (entry.at_ms, entry.actor, entry.job, entry.reason) == (place.clock.now_ms, "", None, "")


# -- beside workers of a release without them


async def test_an_earlier_release_leaves_a_budget_as_it_is_and_does_not_keep_it(place: Budgets, earlier: Path) -> None:
    await place.declare(USD)
    ids = await place.add_many(4, limits=("usd",), costs={"usd": 4})
    hand = place.hand()
    job = await hand.take()
    assert set(place.by_earlier(earlier, "run")) == set(ids)
    assert (await place.rule("limit:usd"), await place.left("limit:usd")) == (USD, 6)
    await hand.settle(Succeed(job.id, job.token), spent={job.id: {"usd": 1}})
    assert await place.left("limit:usd") == 9
    assert (await place.view(ids[1])).costs == {"usd": 4}


async def test_a_unit_that_an_earlier_release_dropped_comes_back_with_the_next_job(
    place: Budgets, earlier: Path
) -> None:
    await place.declare(WORDS)
    await place.add(limits=("words",), costs={"words": 10})
    place.by_earlier(earlier, "run")
    assert (await place.rule("limit:words")).unit == ""
    await place.put(place.job(limits=("words",), costs={"words": 10}), rules=[WORDS])
    assert await place.rule("limit:words") == WORDS


async def test_jobs_and_gates_of_an_earlier_release_are_counted_here(place: Budgets, earlier: Path) -> None:
    ids = place.by_earlier(earlier, "limited")
    hand = place.hand()
    jobs = await hand.claim(4)
    assert [(job.id, job.cost, job.costs, job.tags) for job in jobs] == [(id, 2, {}, ("old",)) for id in ids[1:3]]
    await hand.settle(Succeed(jobs[0].id, jobs[0].token), spent={jobs[0].id: {"": 0}})
    assert len(await hand.claim(4)) == 1
