"""Records that somebody has spoilt: no script fails half way, nothing leaks, and what cannot be read can be seen."""

from __future__ import annotations

from typing import Any

import pytest

from limpet.core.errors import QueueFull, StoreError
from limpet.core.gate import BreakerRule, GateChange, GateRule
from limpet.core.jobs.job import Lane
from limpet.core.jobs.lease import Note
from limpet.core.jobs.repair import Difference
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Retention
from limpet.stores.asking import examined
from limpet.stores.base import Examines
from limpet.stores.redis import RedisStore
from limpet.stores.redis.enqueue import definition
from limpet.stores.redis.fields import NOTES
from limpet.stores.redis.scripts import script, source
from limpet_contract.seeds import chance_of
from tests.engines.redis.place import Place
from tests.engines.redis.wreck import DAMAGES, Wreck
from tests.size import in_matrix

FLAGS = 3  # the byte of a record that has the bits of NOTES and its neighbours
SEEDS = [1, *in_matrix("further seeds of the same damage", *range(2, 12))]


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_cannot_be_read_ends_in_the_dead_letters_from_every_state(seed: int) -> None:
    place = Place()
    wreck = Wreck(place, chance_of(seed))
    await wreck.build()
    assert place.sound()
    wreck.spoil(DAMAGES["another version"])
    await wreck.every_verb()
    await wreck.clear()
    assert place.sound()
    views = [view for view in await place.store.get(wreck.spoilt) if view is not None]
    assert views
    assert {view.state for view in views} <= {State.dead, State.succeeded, State.cancelled}
    assert any(view.error_type == "limpet.Undecodable" for view in views)
    await place.store.close()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("damage", DAMAGES)
async def test_no_damage_makes_a_verb_fail_or_a_slot_leak_and_a_repair_makes_all_sound(damage: str, seed: int) -> None:
    place = Place()
    wreck = Wreck(place, chance_of(seed))
    await wreck.build()
    wreck.spoil(DAMAGES[damage])
    await wreck.every_verb()
    await wreck.clear()
    for account in await examined(place.store).accounts():
        assert (account.leaked, account.stuck) == (0, False), account
    assert isinstance(place.store, Examines)
    await place.store.repair(dry_run=False, now_ms=place.clock.now_ms)
    assert place.sound()
    assert await place.store.repair(dry_run=True, now_ms=place.clock.now_ms) == []
    await place.check_books()
    await place.store.close()


def test_the_lane_of_jobs_that_name_none_is_written_as_every_lane_is() -> None:
    for part in definition(Lane("unreadable", "unreadable")):
        assert part.hex() in source("lib/effect_ending.lua").replace('" .. "', "")


async def count_on(place: Place, cursor: bytes) -> list[Any]:
    """One step of a count."""
    assert isinstance(place.store, RedisStore)
    args = (place.clock.now_ms, "a repair", 1, "count", cursor, "")
    answer: list[Any] = await place.store._client.script("repair", script("repair"), place.key("m"), args)
    return answer


async def test_jobs_that_move_while_they_are_counted_are_counted_once() -> None:
    place = Place()
    ids = await place.add_many(1_100, tenant="acme")
    (cursor, _, _) = await count_on(place, b"0")
    assert cursor == b"1", "it has not counted all"
    hand = place.hand()
    jobs = await hand.claim(60)
    await hand.succeed(*jobs[:20])
    await hand.release(*jobs[20:30])
    await hand.bury(jobs[30])
    await place.cancel(*ids[1_000:1_100:3])
    await place.add_many(50, delay_ms=1_000, tenant="acme")
    place.clock.advance(1_000)
    await hand.claim(5)
    (cursor, found, (counters, total)) = await count_on(place, cursor)
    assert (cursor, found, counters, total) == (b"0", [], [], None)
    assert place.sound()
    await place.store.close()


async def test_a_repair_that_is_killed_leaves_nothing_behind() -> None:
    place = Place()
    store = place.store
    assert isinstance(store, RedisStore)
    await place.add_many(1_100)
    (cursor, _, _) = await count_on(place, b"0")
    assert cursor == b"1", "it has not counted all"
    with pytest.raises(StoreError, match="another repair"):
        await store.repair(dry_run=True, now_ms=place.clock.now_ms)
    hand = place.hand()
    assert len(await hand.drain(100)) == 1_100
    place.clock.advance(31_000)
    assert await store.repair(dry_run=False, now_ms=place.clock.now_ms) == []
    assert place.sound()
    await store.close()


async def test_what_a_spoilt_record_hid_is_found_when_its_job_is_gone() -> None:
    place = Place()
    hand = place.hand()
    await place.add_many(2)
    hidden, _ = jobs = await hand.claim(2)
    for job in jobs:
        await hand.save(job, Note("step", "one", b"1"))
    await hand.succeed(*jobs)
    raw = bytearray(place.server.ask("HGET", place.key("J"), hidden.id))
    raw[FLAGS] &= ~NOTES
    place.server.ask("HSET", place.key("J"), hidden.id, bytes(raw))
    place.clock.advance(1_000)
    while await place.store.prune(Retention(succeeded_ms=0), now_ms=place.clock.now_ms):
        pass
    assert place.server.ask("HLEN", place.key("J")) == 0
    assert isinstance(place.store, Examines)
    found = await place.store.repair(dry_run=True, now_ms=place.clock.now_ms)
    assert [(each.what, each.jobs) for each in found] == [
        ("jobs that are gone and left notes, attempts or parents", (hidden.id,))
    ]
    await place.store.repair(dry_run=False, now_ms=place.clock.now_ms)
    assert place.sound()
    await place.store.close()


async def test_a_queue_with_a_depth_or_a_drain_is_known_again() -> None:
    place = Place()
    bounded, drained = GateRule("queue:default", depth=2), GateChange("queue:closed", drain=True)
    await place.change(GateChange(bounded.key, rule=bounded), drained)
    await place.add_many(2)
    place.server.ask("DEL", place.key("dp"), place.key("dr"))
    place.server.ask("SADD", place.key("dp"), "queue:closed")
    assert isinstance(place.store, Examines)
    for dry_run in (True, False):
        found = await place.store.repair(dry_run=dry_run, now_ms=place.clock.now_ms)
        assert found == [Difference("index", "queues whose depth or drain is not known", 3)]
    assert place.sound()
    with pytest.raises(QueueFull):
        await place.add()
    await place.store.close()


@pytest.mark.parametrize("damage", ["removed", "noise"])
async def test_a_job_under_a_breaker_may_fail_when_its_record_is_spoilt(damage: str) -> None:
    place = Place()
    await place.declare(GateRule("breaker:api", breaker=BreakerRule()))
    id = await place.add(breaker="api")
    hand = place.hand()
    job = await hand.take()
    spoilt = DAMAGES[damage](bytes(place.server.ask("HGET", place.key("J"), id)), chance_of(1))
    place.server.ask(*(("HDEL", place.key("J"), id) if spoilt is None else ("HSET", place.key("J"), id, spoilt)))
    await hand.fail(job)
    assert place.server.ask("HEXISTS", place.key("run"), id) == 0
    assert isinstance(place.store, Examines)
    await place.store.repair(dry_run=False, now_ms=place.clock.now_ms)
    assert place.sound()
    await place.store.close()
