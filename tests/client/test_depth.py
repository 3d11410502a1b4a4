"""Queues with a depth: who is refused, who waits for room, and what a refusal costs."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import pytest

from limpet import InvalidOption, Limpet, Queue, QueueFull, State, chain
from limpet.client.producer import Connection, Producer
from limpet.core.errors import StoreUnreachable
from limpet.core.gate import GateChange, GateRule
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.core.jobs.lease import Beat, ClaimRequest, Serves
from limpet.core.tasks.declaration import Declaration

if TYPE_CHECKING:
    from tests.client.conftest import CountingStore

ANY = Serves()
SEQ = itertools.count(1)


async def claim(app: Limpet, count: int = 1) -> int:
    """Make room for so many."""
    await app.store.beat(Beat("w", 60_000, ANY))
    return len((await app.store.claim(ClaimRequest("w", ANY, count, count, next(SEQ)))).jobs)


async def test_a_queue_is_declared_with_a_depth_and_a_depth_of_each_tenant(app: Limpet) -> None:
    @app.task(queue=Queue("mail", depth=3, tenant_depth=2), tenant="customer")
    async def send(customer: str) -> None: ...

    for customer in ("acme", "acme"):
        await send.enqueue(customer)
    with pytest.raises(QueueFull, match="full for tenant 'acme': its depth is 2, 2 wait") as full:
        await send.enqueue("acme")
    assert "limpet limits set queue:mail --tenant-depth 4" in full.value.fix
    await send.enqueue("zeta")
    with pytest.raises(QueueFull, match="queue 'mail' is full: its depth is 3, 3 wait") as full:
        await send.enqueue("zeta")
    assert "limpet limits set queue:mail --depth 6" in full.value.fix
    await claim(app)
    await send.enqueue("zeta")


async def test_an_app_lists_its_queues_with_what_it_says_of_them() -> None:
    app = Limpet("sqlite://", queues=["default", Queue("mail", depth=1)])

    @app.task(queue="mail")
    async def send() -> None: ...

    async with app:
        await send.enqueue()
        with pytest.raises(QueueFull):
            await send.enqueue()
    with pytest.raises(InvalidOption, match="not a list"):
        Limpet("sqlite://", queues="mail")


@pytest.mark.parametrize("depth", [0, -1, True, 1.5, "many", 2**40])
def test_a_depth_is_a_number_of_jobs(depth: object) -> None:
    with pytest.raises(InvalidOption, match="the number must be an integer from 1 to"):
        Queue("mail", depth=depth)  # type: ignore[arg-type]


def test_a_depth_is_published_for_programs_without_the_code() -> None:
    app = Limpet("sqlite://")

    @app.task(queue=Queue("mail", concurrency=5, depth=7, tenant_depth=3))
    async def send() -> None: ...

    spec = Declaration.of(send.spec).spec()
    assert spec.queues["mail"].rule == GateRule("queue:mail", concurrency=5, depth=7, tenant_depth=3)


async def test_who_waits_gets_the_room_that_comes(app: Limpet) -> None:
    @app.task(queue=Queue("mail", depth=1))
    async def send() -> None: ...

    await send.enqueue()
    waiting = asyncio.create_task(send.options(wait=60).enqueue())
    asked = asyncio.create_task(send.options(wait=60).job().enqueue())
    await asyncio.sleep(0)
    done: set[asyncio.Task[object]] = set()
    while len(done) < 2:
        await claim(app)
        done, _ = await asyncio.wait({waiting, asked}, timeout=0.01)
    for task in (waiting, asked):
        assert (await task.result().status()).state in (State.ready, State.running)


async def test_the_wait_for_room_ends_with_the_time_of_an_enqueue() -> None:
    async with Limpet("sqlite://", enqueue_timeout=0.2) as app:

        @app.task(queue=Queue("mail", depth=1))
        async def send() -> None: ...

        await send.enqueue()
        for wait in (True, 0.05, "10ms"):
            with pytest.raises(QueueFull):
                await send.options(wait=wait).enqueue()
        assert (await app.store.count()).enqueued == 1


async def test_a_bulk_and_a_flow_wait_whole(app: Limpet) -> None:
    @app.task(queue=Queue("mail", depth=3))
    async def send(n: int = 0) -> None: ...

    await send.enqueue()
    with pytest.raises(QueueFull, match="brings 3 more"):
        await app.enqueue_many([send.job(n) for n in range(3)])
    with pytest.raises(QueueFull):
        await chain(send.job(), send.options(wait="10ms").job(), send.job()).enqueue()
    assert (await app.store.count()).enqueued == 1
    bulk = asyncio.create_task(app.enqueue_many([send.options(wait=60).job(n) for n in range(3)]))
    while not bulk.done():
        await claim(app)
        await asyncio.wait({bulk}, timeout=0.01)
    assert len(bulk.result()) == 3


async def test_nothing_waits_inside_a_transaction_of_the_caller(app: Limpet) -> None:
    @app.task
    async def send() -> None: ...

    for options in ({"wait": True, "conn": object()}, {"conn": object(), "wait": 5}):
        with pytest.raises(InvalidOption, match="wait= cannot be kept with conn="):
            send.options(**options)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="wait= cannot be kept with conn="):
        await app.enqueue_many([send.options(wait=1).job()], conn=object())


async def test_a_crowd_before_a_full_queue_is_refused_in_few_calls(counting: CountingStore) -> None:
    await counting.change_gates([GateChange("queue:mail", rule=GateRule("queue:mail", depth=5))])
    producer = Producer(Connection(lambda: counting), 60)
    mail, other = Lane("mail", "t"), Lane("default", "t")

    def job(lane: Lane) -> Job:
        return Job(producer.batcher().new_id(), lane, Policy(), b"{}")

    jobs = [job(other if n % 10 == 0 else mail) for n in range(200)]
    answers = await asyncio.gather(*(producer.enqueue(each, ()) for each in jobs), return_exceptions=True)
    refused = [one for one, answer in zip(jobs, answers, strict=True) if isinstance(answer, QueueFull)]
    assert len(refused) == 175
    assert all(one.lane is mail for one in refused)
    assert len(counting.calls) == 2
    stored = [one for one in jobs if one not in refused]
    again = [*stored, *(job(mail) for _ in range(20))]
    answers = await asyncio.gather(*(producer.enqueue(each, ()) for each in again), return_exceptions=True)
    assert [isinstance(answer, QueueFull) for answer in answers] == [False] * 25 + [True] * 20
    assert len(counting.calls) <= 4


async def test_a_store_that_falls_silent_then_is_told_to_everybody(
    counting: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(ids: object) -> list[object]:
        raise StoreUnreachable("it is away", verb="get")

    await counting.change_gates([GateChange("queue:mail", rule=GateRule("queue:mail", depth=1))])
    monkeypatch.setattr(counting, "get", away)
    producer = Producer(Connection(lambda: counting), 60)
    jobs = [Job(producer.batcher().new_id(), Lane("mail", "t"), Policy(), b"{}") for _ in range(3)]
    answers = await asyncio.gather(*(producer.enqueue(each, ()) for each in jobs), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnreachable] * 3
