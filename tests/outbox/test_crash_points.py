"""A relay that is broken off between any two of its steps, and another that goes on: each job arrives once, in order.

Before the other goes on, the store has run and forgotten all that had arrived, so that a job that came twice would be
two jobs, and not be known by its id.
"""

from __future__ import annotations

import os
import shutil
from itertools import count
from pathlib import Path

import pytest

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Unique
from limpet.core.jobs.view import Retention
from limpet.outbox.carrier import Carrier
from limpet.stores.sqlite import SqliteStore
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.outbox.breaking import broken
from tests.outbox.ground import Cut, Ground, drain, texts
from tests.size import in_matrix

pytestmark = pytest.mark.postgres

LONG_MS = 30 * 86_400_000  # no engine remembers the id of a finished job so long


class Knife:
    """Cuts at the n-th boundary; 0 = never."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.places: list[str] = []

    def __call__(self, place: str) -> None:
        self.places.append(place)
        if len(self.places) == self.at:
            raise Cut(place)


async def story(ground: Ground) -> tuple[list[bytes], list[str]]:
    """Rows of every kind; the ids of those that should run, in order, and of those that are set aside."""
    good = [ground.job(), ground.job(unique=Unique("k")), ground.job(), ground.job()]
    orphan, spoilt = ground.job(after=(ground.ids.make(1),)), ground.job()
    sign = "?" if ground.place.dialect == "sqlite" else "%s"
    with ground.transaction() as conn:
        await ground.outbox.put(conn, [*good[:2], orphan, *good[2:], spoilt])
        conn.execute(f"UPDATE limpet_outbox SET job = {sign} WHERE id = {sign}", (b"junk", id_text(spoilt.id)))
    return [job.id for job in good], texts([orphan.id, spoilt.id])


async def forget(bench: Bench) -> list[bytes]:
    """Run what is there, and let the store forget it; what ran, in order."""
    bench.clock.advance(60_000)
    ran = await bench.hand(f"w{bench.clock.now_ms}").drain()
    bench.clock.advance(LONG_MS)
    while await bench.store.prune(Retention(succeeded_ms=0), now_ms=bench.clock.now_ms):
        pass
    return ran


async def moved(ground: Ground) -> Ground:
    """The same file in another place, as a copy is that is all that is left."""
    await ground.close()
    old = Path(str(ground.place.database))
    new = old.with_name(f"{old.name}.moved")
    shutil.copy(old, new)
    os.unlink(old)
    return Ground(f"sqlite:///{new}?sync=normal")


async def cut_at(ground: Ground, at: int, *, move: bool = False) -> list[str]:
    """Break a relay off at one boundary, go on with another, and look at what became of the jobs; the boundaries."""
    knife = Knife(at)
    bench = Bench(SqliteStore(None), Clock())
    should_run, should_fail = await story(ground)
    ran: list[bytes] = []
    try:
        await drain(Carrier(*broken(bench.store, ground.table(), knife), batch=3))
    except Cut:
        ran += await forget(bench)
    if move:
        ground = await moved(ground)
    await drain(ground.carrier(bench.store, batch=3))
    ran += await forget(bench)
    assert ran == should_run
    assert (await bench.store.count()).enqueued == len(should_run)
    assert ground.left() == should_fail
    ground.ask("DELETE FROM limpet_outbox")
    await bench.store.close()
    await ground.close()
    return knife.places


CALLS = ("turn", "under_way", "fresh", "stamp", "remove", "set_aside", "holds", "relay", "controls", "commit")


@pytest.mark.timeout(600)  # a connection for each of many relays: ten seconds on a machine that has nothing else to do
@pytest.mark.parametrize("first", [0, *in_matrix("chaos kills a relay at the same places, every third too", 1, 2)])
async def test_each_job_arrives_once_wherever_the_relay_is_broken_off(ground: Ground, first: int) -> None:
    places = await cut_at(ground, 0)
    for call in CALLS:
        assert f"before {call}" in places, "every call of a relay is a place where it can end"
    for at, place in list(enumerate(places, 1))[first::3]:
        try:
            await cut_at(ground, at)
        except AssertionError as error:
            raise AssertionError(f"cut {place} (boundary {at}): {error}") from error


async def test_each_job_arrives_once_though_the_database_is_moved_before_another_relay_goes_on(folder: Path) -> None:
    async def fresh() -> Ground:
        """An outbox that came from elsewhere itself, so that its first batch gets it a new name."""
        ground = Ground(f"sqlite:///{folder}/app{next(numbers)}.db?sync=normal")
        await ground.table().create()
        ground.ask("INSERT INTO limpet_outbox_relay (namespace, source) VALUES ('default', 'cafe@elsewhere')")
        return ground

    numbers = count()
    places = await cut_at(await fresh(), 0, move=True)
    assert "before rename" in places
    for at, place in enumerate(places, 1):
        try:
            await cut_at(await fresh(), at, move=True)
        except AssertionError as error:
            raise AssertionError(f"cut {place} (boundary {at}): {error}") from error
