"""Concurrent single enqueues share round trips; nobody waits for strangers, pays for their faults, or hangs."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from limpet import Limpet
from limpet.client.late import EnqueueTimeout
from limpet.client.producer import Connection, Producer
from limpet.core.errors import StoreError, StoreFull, UnknownParent
from limpet.core.gate import GateRule
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Enqueued, Job, Lane, Policy, Unique
from limpet.core.jobs.view import Query
from limpet.stores.callers import join, joined
from limpet.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from tests.client.conftest import CountingStore

LANE, POLICY = Lane("default", "t"), Policy()


def _job(producer: Producer, *, after: tuple[bytes, ...] = (), size: int = 2) -> Job:
    return Job(producer.batcher().new_id(), LANE, POLICY, b"{}".ljust(size), after=after)


async def test_callers_of_one_loop_turn_share_one_round_trip(counting: CountingStore) -> None:
    producer = Producer(Connection(lambda: counting), 60)
    answers = await asyncio.gather(*(producer.enqueue(_job(producer), ()) for _ in range(50)))
    assert counting.calls == [50]
    assert len({answer.id for answer in answers}) == 50


async def test_a_lone_caller_is_sent_at_once(counting: CountingStore) -> None:
    producer = Producer(Connection(lambda: counting), 60)
    for _ in range(3):
        await producer.enqueue(_job(producer), ())
    assert counting.calls == [1, 1, 1]


async def test_those_who_come_while_a_call_is_under_way_share_the_next(counting: CountingStore) -> None:
    producer = Producer(Connection(lambda: counting), 60)
    counting.open_gate.clear()
    first = asyncio.create_task(producer.enqueue(_job(producer), ()))
    await counting.called.wait()
    rest = [asyncio.create_task(producer.enqueue(_job(producer), ())) for _ in range(20)]
    await asyncio.sleep(0)
    counting.open_gate.set()
    await asyncio.gather(first, *rest)
    assert counting.calls == [1, 20]


async def lone(counting: CountingStore, timeout_s: float = 60) -> Producer:
    """A producer whose last call carried one job: the next caller is a lone one."""
    producer = Producer(Connection(lambda: counting), timeout_s)
    await producer.enqueue(_job(producer), ())
    counting.calls.clear()
    counting.called.clear()
    return producer


async def test_a_lone_caller_makes_its_call_itself(counting: CountingStore) -> None:
    producer = await lone(counting)
    asking = asyncio.create_task(producer.enqueue(_job(producer), ()))
    await asyncio.sleep(0)
    assert counting.calls == [1]  # in its first turn of the loop
    await asking


async def test_callers_that_come_while_a_lone_one_is_answered_share_the_next_call(counting: CountingStore) -> None:
    producer = await lone(counting)
    counting.open_gate.clear()
    callers = [asyncio.create_task(producer.enqueue(_job(producer), ())) for _ in range(20)]
    await counting.called.wait()
    assert counting.calls == [1]
    counting.open_gate.set()
    await asyncio.gather(*callers)
    assert counting.calls == [1, 19]
    await asyncio.gather(*(producer.enqueue(_job(producer), ()) for _ in range(20)))
    assert counting.calls == [1, 19, 20]  # many come: the first of them waits for the others


async def test_a_lone_caller_that_is_cancelled_leaves_the_next_call_to_the_others(counting: CountingStore) -> None:
    producer = await lone(counting)
    counting.open_gate.clear()
    first, *others = [asyncio.create_task(producer.enqueue(_job(producer), ())) for _ in range(3)]
    await counting.called.wait()
    first.cancel()
    counting.open_gate.set()
    assert len({answer.id for answer in await asyncio.gather(*others)}) == 2
    assert counting.calls == [1, 2]


async def test_a_lone_caller_is_told_when_its_time_is_over(
    counting: CountingStore, forward: Callable[[float], None]
) -> None:
    producer = await lone(counting)
    counting.open_gate.clear()
    asking = asyncio.create_task(producer.enqueue(job := _job(producer), ()))
    await counting.called.wait()
    forward(60)
    with pytest.raises(EnqueueTimeout) as told:
        await asking
    assert told.value.ids == [id_text(job.id)]
    counting.open_gate.set()
    await producer.enqueue(_job(producer), ())


async def test_who_waits_for_a_key_keeps_nobody_else(counting: CountingStore) -> None:
    producer = Producer(Connection(lambda: counting), 60)
    counting.open_gate.clear()
    keyed = asyncio.create_task(producer.enqueue(replace(_job(producer), unique=Unique("u")), ()))
    await counting.called.wait()
    counting.called.clear()
    plain = asyncio.create_task(producer.enqueue(_job(producer), ()))
    await counting.called.wait()
    counting.open_gate.set()
    await asyncio.gather(keyed, plain)
    assert counting.calls == [1, 1]


async def test_what_one_caller_has_joined_is_not_the_others(
    counting: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Open:
        is_open = True

    producer, seen = Producer(Connection(lambda: counting), 60), list[object]()
    plain = counting.enqueue

    async def enqueue(jobs: Sequence[Job], rules: Sequence[GateRule] = ()) -> list[Enqueued]:
        seen.append(joined())
        return await plain(jobs, rules)

    monkeypatch.setattr(counting, "enqueue", enqueue)
    join(Open())
    await producer.enqueue(_job(producer), ())  # whoever asks next may be served by the same task
    assert seen == [()]


async def test_one_bad_job_fails_alone(counting: CountingStore) -> None:
    producer = Producer(Connection(lambda: counting), 60)
    jobs = [_job(producer) for _ in range(16)]
    jobs[5] = _job(producer, after=(b"x" * 16,))
    answers = await asyncio.gather(*(producer.enqueue(job, ()) for job in jobs), return_exceptions=True)
    assert isinstance(answers[5], UnknownParent)
    assert [a.id for a in answers if isinstance(a, Enqueued)] == [j.id for j in jobs if not j.after]
    assert len(counting.calls) <= 1 + 2 * 4  # halved until the bad one stands alone, not one call per job
    assert len((await counting.find(Query(limit=100))).jobs) == 15


async def test_a_job_that_the_engine_cannot_write_fails_alone(counting: CountingStore) -> None:
    producer = Producer(Connection(lambda: counting), 60)
    jobs = [_job(producer) for _ in range(6)]
    jobs[2] = replace(jobs[2], tags=("caf\udce9",))
    answers = await asyncio.gather(*(producer.enqueue(job, ()) for job in jobs), return_exceptions=True)
    assert isinstance(answers[2], UnicodeEncodeError)
    assert [a.id for a in answers if isinstance(a, Enqueued)] == [j.id for j in jobs if not j.tags]


async def test_large_payloads_do_not_share_more_than_a_bounded_call(counting: CountingStore) -> None:
    producer = Producer(Connection(lambda: counting), 60)
    await asyncio.gather(*(producer.enqueue(_job(producer, size=200_000), ()) for _ in range(100)))
    assert sum(counting.calls) == 100
    assert max(counting.calls) <= 22  # 4 MiB


async def test_a_silent_store_is_a_timeout_that_names_the_id_and_how_to_ask_again(
    counting: CountingStore, forward: Callable[[float], None]
) -> None:
    producer = Producer(Connection(lambda: counting), 60)
    counting.open_gate.clear()
    job = _job(producer)
    asking = asyncio.create_task(producer.enqueue(job, ()))
    await counting.called.wait()
    forward(60)
    with pytest.raises(EnqueueTimeout) as caught:
        await asking
    assert caught.value.code == "store_timeout"
    assert caught.value.retryable
    assert caught.value.ids == [id_text(job.id)]
    assert f'options(id="{id_text(job.id)}")' in caught.value.fix
    counting.open_gate.set()
    assert not (await producer.enqueue(job, ())).existing
    assert (await producer.enqueue(job, ())).existing


async def test_those_behind_a_call_that_never_answers_get_one_of_their_own(
    counting: CountingStore, forward: Callable[[float], None]
) -> None:
    producer = Producer(Connection(lambda: counting), 60)
    counting.open_gate.clear()
    first = asyncio.create_task(producer.enqueue(_job(producer), ()))
    await counting.called.wait()
    forward(30)
    second = asyncio.create_task(producer.enqueue(_job(producer), ()))
    await asyncio.sleep(0)
    forward(30)
    with pytest.raises(EnqueueTimeout):
        await first
    counting.open_gate.set()
    assert not (await second).existing


async def test_a_caller_that_gave_up_before_its_job_was_sent_stores_nothing(counting: CountingStore) -> None:
    producer = Producer(Connection(lambda: counting), 60)
    counting.open_gate.clear()
    first = asyncio.create_task(producer.enqueue(_job(producer), ()))
    await counting.called.wait()
    given_up = asyncio.create_task(producer.enqueue(_job(producer), ()))
    await asyncio.sleep(0)
    given_up.cancel()
    counting.open_gate.set()
    await first
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert counting.calls == [1]


async def test_trouble_reaches_every_caller_as_an_error_of_its_own(counting: CountingStore) -> None:
    producer = Producer(Connection(lambda: counting), 60)
    counting.trouble = StoreFull("no space", verb="enqueue")
    counting.trouble.__cause__ = OSError(28, "ENOSPC")
    errors = await asyncio.gather(*(producer.enqueue(_job(producer), ()) for _ in range(3)), return_exceptions=True)
    assert len({id(error) for error in errors}) == 3
    for error in errors:
        assert isinstance(error, StoreFull)
        assert isinstance(error.__cause__, OSError)
        assert error.verb == "enqueue"


async def test_a_batch_that_is_not_answered_names_its_ids(counting: CountingStore) -> None:
    producer = Producer(Connection(lambda: counting), 0.05)
    counting.open_gate.clear()
    jobs = [_job(producer) for _ in range(3)]
    with pytest.raises(StoreError) as caught:
        await producer.enqueue_batch(jobs, ())
    assert isinstance(caught.value, EnqueueTimeout)
    assert caught.value.ids == [id_text(job.id) for job in jobs]
    with pytest.raises(EnqueueTimeout) as later:
        await producer.enqueue_batch(jobs, (), ["earlier"])
    assert later.value.ids == ["earlier", *caught.value.ids]
    assert "jobs[:4], ids=error.ids, atomic=False" in later.value.fix


def test_two_event_loops_in_two_threads_use_one_producer() -> None:
    from tests.client.conftest import CountingStore

    store = CountingStore()
    producer = Producer(Connection(lambda: store), 60)
    ids: list[set[bytes]] = []

    async def many() -> None:
        store_answers = await asyncio.gather(*(producer.enqueue(_job(producer), ()) for _ in range(200)))
        ids.append({answer.id for answer in store_answers})

    threads = [threading.Thread(target=asyncio.run, args=(many(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids[0] | ids[1]) == 400
    asyncio.run(store.close())


def test_loops_that_have_ended_are_let_go() -> None:
    producer = Producer(Connection(lambda: SqliteStore(None)), 5)

    async def loop_of() -> weakref.ref[asyncio.AbstractEventLoop]:
        producer.batcher()
        return weakref.ref(asyncio.get_running_loop())

    ended = [asyncio.run(loop_of()) for _ in range(5)]
    gc.collect()
    assert sum(loop() is not None for loop in ended) <= 1


async def test_what_is_under_way_when_other_code_cancels_all_tasks_is_sent_again(counting: CountingStore) -> None:
    """As a handler does that shuts down what it takes for its own: callers waited for ever."""
    producer = Producer(Connection(lambda: counting), 60)
    counting.open_gate.clear()
    caller = asyncio.create_task(producer.enqueue(_job(producer), ()))
    await counting.called.wait()
    for task in asyncio.all_tasks() - {caller, asyncio.current_task()}:
        task.cancel()
    counting.open_gate.set()
    async with asyncio.timeout(30):
        assert (await caller).id
    assert counting.calls == [1, 1]
    assert (await counting.count()).enqueued == 1


async def test_a_producer_says_once_that_its_store_was_emptied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = Limpet(f"sqlite:///{tmp_path / 'jobs.db'}?sync=normal")

    @app.task
    async def work() -> None: ...

    def told() -> int:
        return sum("another store answers here" in line.getMessage() for line in caplog.records)

    async with app:
        await work.enqueue()
        await work.enqueue()
        assert told() == 0
        async with Limpet(f"sqlite:///{tmp_path / 'new.db'}?sync=normal") as other:
            await other.publish()
        os.replace(tmp_path / "new.db", tmp_path / "jobs.db")
        await work.enqueue()
        assert told() == 1
        await work.enqueue()
        await app.enqueue_many([work.job(), work.job()])
        assert told() == 1
