"""Rows that somebody removed or overwrote: after a repair no two places of the schema disagree, while claims go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import Final

import pytest

from limpet.core.errors import QueueFull
from limpet.core.gate import GateRule
from limpet.core.jobs.job import Unique
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import State
from limpet.stores.base import Examines
from limpet_contract.seeds import chance_of
from tests.engines.postgres.audit import faults
from tests.engines.postgres.places import Place, a_place
from tests.servers.installations import POSTGRES
from tests.size import in_matrix

# What a person can do to a schema, each to some of the rows. Lanes and gates stay: nothing else says what they were.
DAMAGE: Final = {
    "bodies": "DELETE FROM lp.job WHERE {some}",
    "waiting jobs": "DELETE FROM lp.wait WHERE {some}",
    "running jobs": "DELETE FROM lp.running WHERE {some}",
    "finished jobs": "DELETE FROM lp.done WHERE {some}",
    "seats": "DELETE FROM lp.seat",
    "active lanes": "UPDATE lp.lane_now SET state = 0, gate = NULL",
    "leases": "DELETE FROM lp.lease",
    "slots": "UPDATE lp.gate SET used = used + 3",
    "counters": "UPDATE lp.count SET n = n + 2",
    "depths": "UPDATE lp.depth SET n = n - 9",
    "tallies": "DELETE FROM lp.tally",
    "keys": "DELETE FROM lp.unique_key",
    "causes": "UPDATE lp.cause SET n = n + 1",
    "what children wait for": "DELETE FROM lp.dep WHERE NOT done",
}


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with a_place(POSTGRES) as place:
        yield place


async def live(place: Place, rng: Random) -> None:
    """Some jobs in every state."""
    hand = place.hand()
    await place.declare(GateRule("limit:smtp", concurrency=9), GateRule("queue:default", depth=999, tenant_depth=999))
    for number, ending in enumerate(("succeed", "bury", "drop", "fail", "wait", "release")):
        await place.put(
            *(place.job(limits=("smtp",), unique=Unique(f"{number} {n}"), flow=place.id()) for n in range(3)),
            *(place.job(task="other", tenant="acme", delay_ms=rng.choice([0, 60_000])) for _ in range(4)),
        )
        place.ask("SELECT lp.fold_1(2000)")
        for job in await hand.claim(5):
            await hand.save(job, Note("step", "one", b"1"))
            await hand.end(ending, job)
    for parent in await place.add_many(3):
        await place.put(place.job(after=(parent,)), place.job(after=(parent,), if_parent_fails="run"))
    await hand.claim(4)


ALL: Final = "all of it"


@pytest.mark.parametrize("seed", [1, *in_matrix("further seeds of the same damage", *range(2, 4))])
@pytest.mark.parametrize("what", [ALL, "bodies", "leases", *in_matrix("all of it is done at once", *DAMAGE)])
async def test_after_a_repair_no_two_places_disagree(place: Place, what: str, seed: int) -> None:
    rng = chance_of(seed)
    await live(place, rng)
    schema = f"limpet_{place.namespace}"
    assert faults(place.server, schema, place.clock.now_ms) == []
    for sql in DAMAGE.values() if what == ALL else [DAMAGE[what]]:
        place.ask(sql.format(some=f"get_byte(id, 15) % 3 = {seed % 3}"))
    assert isinstance(place.store, Examines)
    await place.store.repair(dry_run=False, now_ms=place.clock.now_ms)
    await place.hand("filer").claim(1, slots=0)
    await place.sweep(20_000)
    left = faults(place.server, schema, place.clock.now_ms)
    assert left == []
    assert await place.store.repair(dry_run=True, now_ms=place.clock.now_ms) == []
    await place.check_books()


async def test_a_body_without_a_state_is_a_dead_letter_with_its_arguments(place: Place) -> None:
    id = await place.add(args=b'{"to":"a@b.c"}')
    place.ask(f"DELETE FROM lp.wait WHERE id = '\\x{id.hex()}'")
    assert isinstance(place.store, Examines)
    await place.store.repair(dry_run=False, now_ms=place.clock.now_ms)
    view = await place.view(id)
    assert (view.state, view.args, view.error_type) == (State.dead, b'{"to":"a@b.c"}', "limpet.Undecodable")
    assert await place.retry(id) == ["retried"]
    assert await place.hand().ids() == [id]


async def test_a_bound_that_is_too_low_is_counted_anew(place: Place) -> None:
    await place.declare(GateRule("queue:default", depth=3))
    await place.add_many(3)
    place.ask("UPDATE lp.depth SET n = n - 9")
    assert isinstance(place.store, Examines)
    assert await place.store.repair(dry_run=False, now_ms=place.clock.now_ms) == [], "a bound is no count of jobs"
    with pytest.raises(QueueFull, match="3 wait"):
        await place.add()
