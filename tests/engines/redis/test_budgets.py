"""Budgets on Redis: when they open, and what their events look like."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from limpet.core.gate import GateChange, GateRule
from tests.engines.redis.place import Place


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    place = Place()
    yield place
    await place.store.close()


async def test_jobs_of_a_task_with_a_budget_are_given_only_for_free_slots(place: Place) -> None:
    await place.change(GateChange("task:work", rule=GateRule("task:work", cap=10, period="day")))
    full = place.hand("full")
    assert await full.claim(3, slots=0) == []
    await place.put(place.job(), place.job(priority=3))
    assert not (await full.wait(1)).work
    assert await full.claim(3, slots=0) == []
    assert len(await full.claim(3, slots=1)) == 1


async def test_an_event_names_whatever_key_there_is(place: Place) -> None:
    key = 'limit:a "b"/ü\\' + "\u4e16" * 200
    await place.change(GateChange(key, hold_ms=1_000))
    (entry,) = await place.store.read("event")
    until_ms = place.clock.now_ms + 1_000
    assert (entry.kind, msgspec.json.decode(entry.data)) == ("limit.held", {"gate": key, "until_ms": until_ms})
    assert (entry.at_ms, entry.actor, entry.job, entry.reason) == (place.clock.now_ms, "", None, "")
