"""Behaviours of a store's own name: a beat answers which store it is, and its newest token."""

from __future__ import annotations

from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench
from limpet_contract.harness import Harness


@asynchronous
class TestIdentity:
    async def test_every_beat_names_the_store_and_always_by_the_same_name(self, bench: Bench) -> None:
        first = await bench.hand("w1").beat()
        await bench.add()
        await bench.hand("w1").take()
        other = await bench.other()
        assert first.store
        assert {(await bench.hand("w1").beat()).store, (await other.hand("w2").beat()).store} == {first.store}

    async def test_another_store_has_another_name(self, bench: Bench, engine: Harness) -> None:
        mine = (await bench.hand().beat()).store
        other = await Bench.open(engine)
        assert (await other.hand().beat()).store not in ("", mine)

    async def test_a_beat_says_the_newest_token_that_was_given_out(self, bench: Bench) -> None:
        await bench.add_many(3)
        hand = bench.hand()
        tokens = []
        for _ in range(3):
            tokens.append((await hand.take()).token)
            assert (await bench.hand("other").beat()).token == tokens[-1]
        assert tokens == sorted(tokens)

    async def test_the_newest_token_stays_when_its_job_has_ended(self, bench: Bench) -> None:
        await bench.add()
        hand = bench.hand()
        job = await hand.take()
        await hand.succeed(job)
        assert (await hand.beat()).token == job.token

    async def test_an_enqueue_tells_which_store_it_is(self, bench: Bench) -> None:
        await bench.add()
        name = bench.store.identity
        await bench.add()
        other = await bench.other()
        await other.add()
        assert name
        assert {bench.store.identity, other.store.identity} == {name}
