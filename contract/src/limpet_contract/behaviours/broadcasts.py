"""Behaviours of live events: changes reach those that listen just then, and cost nothing while none does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from limpet.core.jobs.bulletin import MOST_BYTES, UNKNOWN, Counted, Moved, read_bulletin
from limpet.core.jobs.state import State
from limpet.stores.asking import broadcasting
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench

LEASE_MS = 15_000


class Ear:
    """What one subscription has heard."""

    def __init__(self) -> None:
        self.messages: list[str | None] = []
        self._more = asyncio.Event()

    def hear(self, message: str | None) -> None:
        self.messages.append(message)
        self._more.set()

    async def until(self, enough: Callable[[], bool]) -> None:
        """Listen until there is enough."""
        async with asyncio.timeout(120):  # a busy machine is late
            while not enough():
                self._more.clear()
                await self._more.wait()

    async def messages_of(self, count: int) -> list[str | None]:
        """The first messages."""
        await self.until(lambda: len(self.messages) >= count)
        return self.messages[:count]

    @property
    def news(self) -> list[Moved | Counted]:
        """What all messages say."""
        bulletins = [read_bulletin(message) for message in self.messages if message is not None]
        return [each for bulletin in bulletins if bulletin is not None for each in bulletin.news]

    @property
    def moved(self) -> list[Moved]:
        """The changes that were told one by one."""
        return [each for each in self.news if isinstance(each, Moved)]

    async def moves(self, count: int) -> list[tuple[bytes, str, State]]:
        """The first changes: job, kind and state."""
        await self.until(lambda: len(self.news) >= count)
        return [(each.id, each.kind, each.state) for each in self.moved]


@asynccontextmanager
async def listening(bench: Bench) -> AsyncIterator[Ear]:
    """A subscription."""
    ear = Ear()
    stop = await broadcasting(bench.store).subscribe(ear.hear)
    try:
        yield ear
    finally:
        stop()


async def has_reader(bench: Bench) -> None:
    """From here on there is a reader, by the clock of the test and by that of the engine."""
    await broadcasting(bench.store).announce(bench.clock.now_ms + 600_000)


@asynchronous
class TestBroadcasts:
    async def test_a_message_reaches_all_that_listen_in_order(self, bench: Bench) -> None:
        other = await bench.other()
        async with listening(bench) as here, listening(other) as there:
            sent = ['{"a": "é"}', "[" + "7," * (MOST_BYTES // 2 - 4) + "7]", "3"]
            for message in sent:
                await broadcasting(other.store).publish(message)
            assert await here.messages_of(3) == sent
            assert await there.messages_of(3) == sent

    async def test_what_was_sent_before_is_not_heard_and_nothing_after_the_end(self, bench: Bench) -> None:
        async with listening(bench) as first, listening(bench) as second:
            await broadcasting(bench.store).publish("1")
            await first.messages_of(1)
            await second.messages_of(1)
        async with listening(bench) as later:
            await broadcasting(bench.store).publish("2")
            assert await later.messages_of(1) == ["2"]
        assert first.messages == ["1"]

    async def test_nobody_need_listen(self, bench: Bench) -> None:
        await broadcasting(bench.store).publish("1")

    async def test_a_beat_says_whether_there_is_a_reader_by_the_clock_of_the_engine(self, bench: Bench) -> None:
        hand = bench.hand()
        assert not (await hand.beat()).listened
        await broadcasting(bench.store).announce(bench.clock.now_ms + LEASE_MS)
        assert (await hand.beat()).listened
        bench.clock.advance(LEASE_MS - 1)
        assert (await hand.beat()).listened
        bench.clock.advance(1)
        assert not (await hand.beat()).listened
        await broadcasting(bench.store).announce(bench.clock.now_ms + LEASE_MS)
        assert (await hand.beat()).listened


@asynchronous
class TestLiveEvents:
    async def test_the_life_of_a_job_is_told_after_each_step(self, bench: Bench) -> None:
        await has_reader(bench)
        async with listening(bench) as ear:
            id, hand = await bench.add(), bench.hand()
            await hand.fail(await hand.take(), delay_ms=0)
            await hand.succeed(await hand.take())
            assert await ear.moves(5) == [
                (id, "enqueued", State.ready),
                (id, "claimed", State.running),
                (id, "retried", State.ready),
                (id, "claimed", State.running),
                (id, "succeeded", State.succeeded),
            ]
            *_, claimed, succeeded = ear.moved
            assert claimed.scope == succeeded.scope == ("default", "work")
            assert (claimed.attempt, succeeded.attempt, claimed.at_ms) == (2, 2, bench.clock.now_ms)

    async def test_what_changes_nothing_is_not_told(self, bench: Bench) -> None:
        await has_reader(bench)
        async with listening(bench) as ear:
            job, hand = bench.job(), bench.hand()
            await bench.put(job)
            await bench.put(job)
            claimed = await hand.take()
            await hand.succeed(claimed)
            await hand.succeed(claimed)
            assert await hand.claim() == []
            last = await bench.add(task="last")
            moves = await ear.moves(4)
            assert [kind for id, kind, _ in moves if id == job.id] == ["enqueued", "claimed", "succeeded"]
            assert moves[-1][0] == last

    async def test_what_people_do_is_told_with_the_queue_and_task_of_the_job(self, bench: Bench) -> None:
        await has_reader(bench)
        one, two, hand = await bench.add(), await bench.add(), bench.hand()
        async with listening(bench) as ear:
            await hand.bury(await hand.take())
            await bench.retry(one)
            await bench.cancel(two)
            told = {(one, "dead", State.dead), (one, "retried", State.ready), (two, "cancelled", State.cancelled)}
            await ear.until(lambda: told <= {(each.id, each.kind, each.state) for each in ear.moved})
            assert {each.scope for each in ear.news} == {("default", "work")}

    async def test_a_lost_lease_is_counted(self, bench: Bench) -> None:
        await has_reader(bench)
        id, hand = await bench.add(), bench.hand()
        await hand.take()
        async with listening(bench) as ear:
            await bench.lose(id)
            await ear.until(lambda: Counted(UNKNOWN, State.ready, 1) in ear.news)

    async def test_of_many_changes_the_counts_are_told_and_none_is_missing(self, bench: Bench) -> None:
        await has_reader(bench)
        async with listening(bench) as ear:
            await bench.add_many(3_000)

            def told() -> int:
                return sum(each.count if isinstance(each, Counted) else 1 for each in ear.news)

            await ear.until(lambda: told() >= 3_000)
            assert told() == 3_000
            counts = [each for each in ear.news if isinstance(each, Counted)]
            assert sum(each.count for each in counts) == 2_000
            assert {(each.scope, each.state) for each in counts} == {(("default", "work"), State.ready)}

    async def test_a_process_that_does_not_beat_finds_the_reader_by_itself(self, bench: Bench) -> None:
        await broadcasting(bench.store).announce(await bench.store.now() + 600_000)
        other = await bench.other()
        async with listening(bench) as ear:
            id = await other.add()
            assert await ear.moves(1) == [(id, "enqueued", State.ready)]

    @pytest.mark.parametrize("beats", [True, False])
    async def test_without_a_reader_nothing_is_sent(self, bench: Bench, beats: bool) -> None:
        async with listening(bench) as ear:
            hand = bench.hand()
            for _ in range(2):  # before it is known that there is none, and after
                if beats:
                    await hand.beat()  # each time: a store in memory forgets its sessions when it is closed
                await bench.add()
                if beats:
                    await hand.succeed(await hand.take())
                await bench.store.close()  # what was not told yet would be told now
                await bench.store.open()
            await broadcasting(bench.store).publish("1")
            assert await ear.messages_of(1) == ["1"]

    async def test_messages_are_numbered_for_each_publisher(self, bench: Bench) -> None:
        await has_reader(bench)
        async with listening(bench) as ear:
            for count in range(3):
                await bench.add()
                await ear.moves(count + 1)
            found = [bulletin for each in ear.messages if each and (bulletin := read_bulletin(each)) is not None]
            assert len({bulletin.publisher for bulletin in found}) == 1
            assert [bulletin.number for bulletin in found] == list(range(found[0].number, found[0].number + len(found)))
