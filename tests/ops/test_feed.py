"""A feed of live events: filters, gaps, and readers that come, go and come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from limpet.core.jobs.bulletin import Counted, Moved, write_bulletins
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Beat, Serves
from limpet.core.jobs.state import State
from limpet.ops import InvalidQuery
from limpet.ops.feed import KEPT, KNOWN_S, LEASE_MS, MOST_WAITING, EventStream, Feed
from limpet.records import EventGap, JobCounts, JobEvent
from limpet.stores.sqlite import SqliteStore

MAIL, PDF = ("mail", "send"), ("pdf", "render")


class Publisher:
    """Tells changes that no job has made."""

    def __init__(self, store: SqliteStore, name: str = "p") -> None:
        self._store = store
        self._name = name
        self.number = 1

    async def tell(self, *news: Moved | Counted, lost: int = 0) -> None:
        texts = write_bulletins(self._name, self.number, news, 1_000, lost)
        self.number += len(texts)
        for text in texts:
            await self._store.publish(text)


def moved(number: int, scope: tuple[str, str] = MAIL, state: State = State.succeeded) -> Moved:
    return Moved(number.to_bytes(16), scope, state.value, state, 1, 1_000)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
async def memory() -> AsyncIterator[SqliteStore]:
    store = SqliteStore(None)
    yield store
    await store.close()


@pytest.fixture
def publisher(memory: SqliteStore) -> Publisher:
    return Publisher(memory)


async def take(stream: EventStream, count: int) -> list[Any]:
    """The next events: a job by its number, a count, or the reason of a gap."""
    async with asyncio.timeout(60):
        return [said(await anext(stream)) for _ in range(count)]


def said(event: object) -> Any:
    match event:
        case JobEvent():
            return int(event.job.replace("-", ""), 16)
        case JobCounts():
            return event.queue, event.count
        case EventGap():
            return event.reason
    raise AssertionError(event)


async def test_an_event_says_what_happened_to_which_job(memory: SqliteStore, publisher: Publisher) -> None:
    async with Feed(memory).events() as stream:
        await publisher.tell(moved(7), Counted(PDF, State.ready, 12))
        one, many = await anext(stream), await anext(stream)
    assert isinstance(one, JobEvent)
    assert isinstance(many, JobCounts)
    shape = one.to_dict()
    assert shape.pop("id").endswith("-1")
    assert shape == {
        "type": "job",
        "at": "1970-01-01T00:00:01.000Z",
        "kind": "succeeded",
        "job": id_text((7).to_bytes(16)),
        "queue": "mail",
        "task": "send",
        "state": "succeeded",
        "attempt": 1,
    }
    assert (many.type, many.queue, many.task, many.state, many.count) == ("counts", "pdf", "render", "ready", 12)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("", [1, 2, 3]),
        ("queue:mail", [1, 3]),
        ("-queue:mail", [2]),
        ("task:rend*", [2]),
        ("state:dead", [3]),
        ("state:dead,ready queue:pdf", [2]),
        (f"id:{id_text((3).to_bytes(16))}", [3]),
        ("id:0002", [2]),
        ("-id:0002 queue:mail", [1, 3]),
    ],
)
async def test_a_reader_gets_what_it_asks_for(
    memory: SqliteStore, publisher: Publisher, query: str, wanted: list[int]
) -> None:
    feed = Feed(memory)
    async with feed.events(query) as stream, feed.events() as everything:
        await publisher.tell(moved(1), moved(2, PDF, State.ready), moved(3, MAIL, State.dead))
        await take(everything, 3)
        publisher.number += 1
        await publisher.tell()
        assert await take(stream, len(wanted) + 1) == [*wanted, "lost"]


async def test_counts_have_no_id_and_an_unknown_job_has_no_queue(memory: SqliteStore, publisher: Publisher) -> None:
    feed = Feed(memory)
    async with feed.events("id:1") as by_id, feed.events("queue:m*") as by_queue, feed.events() as everything:
        await publisher.tell(Counted(MAIL, State.ready, 4), moved(5, ("", "")), moved(1), lost=1)
        assert await take(everything, 4) == ["lost", 5, 1, ("mail", 4)]
        assert await take(by_id, 2) == ["lost", 1]
        assert await take(by_queue, 3) == ["lost", 1, ("mail", 4)]


async def test_a_reader_gets_nothing_of_queues_that_it_may_not_see(memory: SqliteStore, publisher: Publisher) -> None:
    feed = Feed(memory)
    async with feed.events(sees={"pdf"}.__contains__) as stream, feed.events() as everything:
        await publisher.tell(moved(1), moved(2, ("", "")), moved(3, PDF), Counted(MAIL, State.dead, 1))
        await take(everything, 4)
        assert await take(stream, 1) == [3]


@pytest.mark.parametrize("query", ["args.user:4", "error:Timeout", "timeout", "age>1h", "tag:eu", "attempt>2"])
def test_what_no_event_can_answer_is_refused(memory: SqliteStore, query: str) -> None:
    with pytest.raises(InvalidQuery, match="live events cannot be asked for") as refused:
        Feed(memory).events(query)
    assert "state, queue, task, id" in refused.value.fix


async def test_a_missing_number_is_a_gap_and_each_publisher_has_its_own(memory: SqliteStore) -> None:
    one, two = Publisher(memory, "one"), Publisher(memory, "two")
    one.number = 50  # it told others before
    async with Feed(memory).events() as stream:
        await one.tell(moved(1))
        await two.tell(moved(2))
        await one.tell(moved(3))
        two.number += 1
        await two.tell(moved(4))
        await one.tell(moved(5), lost=3)
        assert await take(stream, 7) == [1, 2, 3, "lost", 4, "lost", 5]


async def test_a_publisher_that_is_new_begins_with_one(memory: SqliteStore) -> None:
    clock = Clock()
    one, two = Publisher(memory, "one"), Publisher(memory, "two")
    async with Feed(memory, clock_s=clock).events() as stream:
        clock.now_s = KNOWN_S
        await one.tell(moved(1))
        two.number = 2
        await two.tell(moved(2))
        assert await take(stream, 3) == [1, "lost", 2]


async def test_what_others_write_is_ignored(memory: SqliteStore, publisher: Publisher) -> None:
    async with Feed(memory).events() as stream:
        for text in ("hello", "[]", '["p",1,0,[],[[1]]]'):
            await memory.publish(text)
        await publisher.tell(moved(1))
        assert await take(stream, 1) == [1]


async def test_a_reader_that_is_too_slow_gets_a_gap_and_what_comes_then(
    memory: SqliteStore, publisher: Publisher
) -> None:
    feed = Feed(memory)
    async with feed.events("queue:mail") as slow, feed.events("queue:pdf") as other:
        await publisher.tell(*(moved(number) for number in range(MOST_WAITING + 2)), moved(1, PDF))
        await take(other, 1)
        assert await take(slow, 2) == ["slow", MOST_WAITING + 1]


class TestComingBack:
    async def test_a_reader_continues_after_the_last_event_that_it_got(
        self, memory: SqliteStore, publisher: Publisher
    ) -> None:
        feed = Feed(memory, linger_s=600)
        async with feed.events("queue:mail") as stream:
            await publisher.tell(moved(1), moved(2, PDF), moved(3))
            last = await anext(stream)
        async with feed.events() as everything:
            await publisher.tell(moved(4))
            await take(everything, 1)
        async with feed.events("queue:mail", after=last.id) as again:
            assert await take(again, 2) == [3, 4]
            await publisher.tell(moved(5))
            assert await take(again, 1) == [5]
        async with feed.events(after=last.id) as again:
            assert await take(again, 4) == [2, 3, 4, 5]
        feed.close()

    async def test_after_an_id_that_is_not_known_comes_a_gap(self, memory: SqliteStore, publisher: Publisher) -> None:
        feed = Feed(memory, linger_s=600)
        async with feed.events() as stream:
            await publisher.tell(moved(1))
            last = await anext(stream)
        epoch, _, number = last.id.rpartition("-")
        for after in ("", "x", f"ffffffff-{number}", f"{epoch}-{int(number) + 1}", f"{epoch}-x", f"{epoch}-{'9' * 30}"):
            async with feed.events(after=after) as again:
                gap = await anext(again)
                assert isinstance(gap, EventGap)
                assert (gap.reason, gap.id) == ("unknown_id", last.id)
                assert not again.has_more
        async with feed.events(after=last.id) as again:
            assert not again.has_more
        feed.close()

    async def test_after_an_event_that_is_no_longer_kept_comes_a_gap(
        self, memory: SqliteStore, publisher: Publisher
    ) -> None:
        feed = Feed(memory)
        async with feed.events() as first, feed.events("queue:pdf") as marks:
            await publisher.tell(moved(0))
            oldest = await anext(first)
            await publisher.tell(*(moved(number) for number in range(KEPT)), moved(1, PDF))
            await take(marks, 1)
            async with feed.events(after=oldest.id) as again:
                assert await take(again, 1) == ["unknown_id"]

    async def test_ids_of_a_feed_that_stopped_listening_mean_nothing(
        self, memory: SqliteStore, publisher: Publisher
    ) -> None:
        feed = Feed(memory)
        async with feed.events() as stream:
            await publisher.tell(moved(1))
            last = await anext(stream)
        await gone()
        async with feed.events(after=last.id) as again:
            assert await take(again, 1) == ["unknown_id"]


async def gone() -> None:
    """Return when no task of a feed is left."""
    left = {task for task in asyncio.all_tasks() if task.get_name() == "limpet-feed"}
    if left:
        assert await asyncio.wait(left, timeout=60) == (left, set())


class TestLife:
    async def test_it_listens_while_it_has_readers(self, memory: SqliteStore) -> None:
        feed = Feed(memory)
        one, two = feed.events(), feed.events()
        async with one:
            async with two:
                tasks = [task for task in asyncio.all_tasks() if task.get_name() == "limpet-feed"]
                assert len(tasks) == 1, "all readers share one"
            assert not tasks[0].done()
        await gone()
        assert [event async for event in one] == []

    async def test_a_loop_that_is_left_needs_no_close(self, memory: SqliteStore, publisher: Publisher) -> None:
        async def first() -> object:
            async for event in Feed(memory).events():
                return event
            return None

        reading = asyncio.create_task(first())
        await listened(memory)
        await publisher.tell(moved(1))
        assert said(await reading) == 1
        del reading
        await gone()

    async def test_close_ends_those_that_wait(self, memory: SqliteStore) -> None:
        feed = Feed(memory)
        stream = feed.events()
        waiting = asyncio.create_task(anext(stream, None))
        await listened(memory)
        feed.close()
        assert await waiting is None
        await gone()

    async def test_a_reader_is_a_lease_that_ends_by_itself(self, memory: SqliteStore) -> None:
        async with Feed(memory).events():
            assert await is_listened(memory, 0)
            assert not await is_listened(memory, LEASE_MS + 1_000)


async def is_listened(store: SqliteStore, after_ms: int) -> bool:
    now_ms = await store.now() + after_ms
    return (await store.beat(Beat("w", 15_000, Serves()), now_ms=now_ms)).listened


async def listened(store: SqliteStore) -> None:
    async with asyncio.timeout(60):
        while True:
            if await is_listened(store, 0):
                return
            await asyncio.sleep(0.001)
