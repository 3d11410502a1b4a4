"""Suspended jobs on Redis: the record says whether there are notes, and a full memory stops no job that pauses."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from limpet.core.errors import StoreFull
from limpet.core.jobs.lease import Note, Signal
from limpet.core.jobs.state import State
from tests.engines.redis.place import Place
from tests.servers.flavours import REDIS
from tests.servers.redis import own


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    place = Place()
    yield place
    await place.store.close()


async def test_the_record_says_whether_there_are_notes(place: Place) -> None:
    id = await place.add()
    hand = place.hand()
    waits: list[tuple[str, ...]] = [("approved",), (), ("paid", "left"), ("paid",), ()]
    for events in waits:
        await hand.suspend(await hand.take(), 1_000, *events)
        assert place.sound()
        assert len((await place.view(id)).notes) == len(events)
        place.clock.advance(1_000)
    job = await hand.take()
    await hand.save(job, Note("step", "charge", b"1"))
    await hand.bury(job)
    assert await place.retry(id, forget=("charge",)) == ["retried"]
    assert (await place.view(id)).notes == ()
    assert place.sound()
    await place.signal(Signal(id, "approved", b"1"))
    assert place.sound()


async def test_a_job_that_waits_without_end_makes_nobody_look_at_the_clock(place: Place) -> None:
    hand = place.hand()
    ids = await place.add_many(3)
    asleep, waiting, timed = await hand.claim(3)
    await hand.suspend(asleep, None)
    await hand.suspend(waiting, None, "approved")
    assert (await hand.ask()).next_at_ms is None
    await hand.suspend(timed, 5_000, "approved")
    assert (await hand.ask()).next_at_ms == place.clock.now_ms + 5_000
    assert place.sound()
    place.clock.advance(5_000)
    assert await hand.ids(3) == [ids[2]]
    assert (await hand.ask()).next_at_ms is None
    assert place.sound()


async def test_memory_that_is_full_stops_signals_and_no_job_that_pauses() -> None:
    with own(REDIS) as server:
        place = Place(server)
        hand = place.hand()
        ids = await place.add_many(2)
        jobs = await hand.claim(2)
        await place.signal(Signal(place.id(), "approved", b"1"))  # the server knows the script
        server.ask("CONFIG", "SET", "maxmemory", 1)
        assert (await hand.suspend(jobs[0], 1_000)).state is State.scheduled
        assert (await hand.suspend(jobs[1], None, "approved")).state is State.scheduled
        with pytest.raises(StoreFull):
            await place.signal(Signal(ids[1], "approved", b"1"))
        assert [note.kind for note in (await place.view(ids[1])).notes] == ["waiting"]
        server.ask("CONFIG", "SET", "maxmemory", 0)
        assert await place.signal(Signal(ids[1], "approved", b"1")) == ["woken"]
        assert place.sound()
        await place.store.close()
