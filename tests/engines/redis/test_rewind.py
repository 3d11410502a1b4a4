"""The server comes back in an older state, as after a kill with a log flushed every second, or a failover: what was
given out or ended since is so no longer, and nobody may be misled by what they remember."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from limpet.core.jobs.state import State
from limpet.stores.base import Store
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.servers.flavours import REDIS
from tests.servers.redis import RedisServer, own


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """Without a log: it comes back as it was at its last SAVE."""
    with own(REDIS) as server:
        yield server


def rewind(server: RedisServer) -> None:
    server.kill()
    server.start()


async def test_a_token_given_out_before_a_rewind_is_never_given_again(server: RedisServer, store: Store) -> None:
    bench = Bench(store, Clock())
    id = await bench.add()
    hand = bench.hand()
    await hand.beat()
    server.ask("SAVE")
    before = await hand.take()
    rewind(server)
    bench.clock.advance(1)
    after = await hand.take()
    assert (before.id, after.id) == (id, id)
    assert after.token > before.token
    assert [each.answer for each in await hand.succeed(before)] == ["stale"]
    assert [each.answer for each in await hand.succeed(after)] == ["done"]
    await bench.check_books()


async def test_a_job_whose_end_was_rewound_is_held_again_and_can_be_ended_again(
    server: RedisServer, store: Store
) -> None:
    bench = Bench(store, Clock())
    await bench.add_many(3)
    hand = bench.hand()
    jobs = await hand.claim(3)
    server.ask("SAVE")
    await hand.succeed(*jobs)
    rewind(server)
    assert {(each.id, each.token) for each in await store.held(hand.session)} == {(job.id, job.token) for job in jobs}
    assert [each.answer for each in await hand.succeed(*jobs)] == ["done"] * 3
    await bench.check_books()


async def test_what_this_process_has_read_of_the_store_before_a_rewind_does_not_mislead_it(
    server: RedisServer, store: Store
) -> None:
    """Lanes, classes and policies are written once and remembered by writers; a rewind forgets them."""
    bench = Bench(store, Clock())
    await bench.add()
    server.ask("SAVE")
    options = {"task": "other", "queue": "new", "tenant": "acme", "priority": 3}
    await bench.add(**options)  # type: ignore[arg-type]
    rewind(server)
    again = await bench.add(**options)  # type: ignore[arg-type]
    job = await bench.hand(queues=("new",)).take()
    assert (job.id, job.lane.task, job.lane.tenant) == (again, "other", "acme")
    counts = await store.count()
    assert (counts.enqueued, counts.total(State.ready), counts.total(State.running)) == (2, 1, 1)
    await bench.check_books()


async def test_a_server_that_comes_back_empty_is_a_fresh_store(server: RedisServer, store: Store) -> None:
    bench = Bench(store, Clock())
    await bench.add_many(3)
    hand = bench.hand()
    jobs = await hand.claim(2)
    rewind(server)
    assert (await store.count()).enqueued == 0
    assert [each.answer for each in await hand.succeed(*jobs)] == ["gone"] * 2
    assert (await hand.beat()).fresh
    id = await bench.add()
    assert await hand.ids() == [id]
    await bench.check_books()
