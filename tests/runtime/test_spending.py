"""What a job says it has spent: told to the gates with whatever ends the attempt, and kept with the job for people."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from limpet.core.endings.signals import Cancel, Dead, RateLimited, RetryLater, Snooze
from limpet.core.endings.transition import Succeed
from limpet.core.errors import InvalidOption
from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.lease import Claimed, Note
from limpet.core.jobs.state import State
from limpet.core.limits.budget import Budget
from limpet.core.limits.spending import Bill, spent_of
from limpet.runtime import WorkerEvents, current_job
from limpet.runtime.attempt import Attempt
from limpet.runtime.barred_gates import BarredGates
from limpet.runtime.local_queue import Demand, LocalQueue, Slots
from limpet.runtime.patient_store import PatientStore
from limpet.runtime.settings import WorkReport
from limpet.runtime.settler import Notebook, SettleQueue, Settler
from limpet.stores.sqlite import SqliteStore
from limpet.stores.sqlite.library import library
from tests.runtime import isolated_jobs
from tests.runtime.running import Bench, now_ms

BUDGET = Budget("llm", usd=10, tokens=1_000, per="month")
COST = {"usd": 1, "tokens": 100}


async def level(bench: Bench, unit: str) -> int:
    """What the budget counts as spent."""
    (gate,) = await bench.store.gates(f"limit:{unit}/month:llm")
    return gate.spent


async def kept(bench: Bench, id: bytes) -> dict[str, int]:
    return spent_of((await bench.view(id)).notes)


@pytest.mark.parametrize("kind", ["async", "thread", "step"])
async def test_what_was_spent_adds_up_and_takes_the_place_of_the_estimate(bench: Bench, kind: str) -> None:
    def pays() -> None:
        current_job().spent(usd=0.1, tokens=7)
        current_job().spent(usd=0.1)

    async def pays_in_the_loop() -> None:
        pays()

    async def pays_in_steps() -> None:
        job = current_job()
        await asyncio.gather(*(job.step(f"s{n}", lambda: current_job().spent(usd=0.02, tokens=1)) for n in range(10)))
        job.spent(tokens=0)

    fn: Callable[[], Any] = {"async": pays_in_the_loop, "thread": pays, "step": pays_in_steps}[kind]
    id = await bench.put(bench.task(fn, limits=[BUDGET], cost=COST))
    await bench.drain()
    tokens = 10 if kind == "step" else 7
    assert (await bench.view(id)).state is State.succeeded
    assert (await level(bench, "usd"), await level(bench, "tokens")) == (200_000, tokens)
    assert await kept(bench, id) == {"tokens": tokens, "usd": 200_000}


async def test_of_a_unit_that_is_not_named_the_estimate_stands(bench: Bench) -> None:
    async def pays() -> None:
        current_job().spent(tokens=0)

    await bench.put(bench.task(pays, limits=[BUDGET], cost=COST))
    await bench.drain()
    assert (await level(bench, "usd"), await level(bench, "tokens")) == (1_000_000, 0)


ENDINGS: dict[str, BaseException | None] = {
    "failure": ConnectionError(),
    "asks for later": RetryLater(3600),
    "dead": Dead("no"),
    "cancelled": Cancel("no"),
    "snoozed": Snooze(3600),
    "held": RateLimited(3600),
    "suspended": None,
}


@pytest.mark.parametrize("how", ENDINGS)
async def test_it_counts_however_the_attempt_ends(bench: Bench, how: str) -> None:
    async def pays() -> None:
        current_job().spent(usd=0.25)
        error = ENDINGS[how]
        if error is not None:
            raise error
        await current_job().sleep(3600)

    id = await bench.put(bench.task(pays, limits=[BUDGET], cost=COST, retry=[3600]))
    await bench.drain()
    assert await level(bench, "usd") == 250_000
    assert await kept(bench, id) == {"usd": 250_000}


@pytest.mark.parametrize(("said", "counts"), [(0.25, 1_000_000), (3, 3_000_000)])
async def test_a_job_that_is_cut_short_has_spent_its_estimate_or_more(bench: Bench, said: float, counts: int) -> None:
    started, stop = asyncio.Event(), asyncio.Event()
    stubborn = True

    async def pays() -> None:
        current_job().spent(usd=said)
        started.set()
        while stubborn:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    id = await bench.put(bench.task(pays, limits=[BUDGET], cost=COST))
    work = asyncio.create_task(bench.worker({"grace_ms": 1, "cleanup_ms": 1}).run(stop))
    await started.wait()
    stop.set()
    await work
    spent, stubborn = await level(bench, "usd"), False
    assert spent == counts
    await bench.drain()  # every attempt adds to the sum
    assert await level(bench, "usd") == counts + said * 1_000_000
    assert await kept(bench, id) == {"usd": 2 * said * 1_000_000}


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_job_that_is_given_up_may_go_on_spending(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    said, go_on, ended = threading.Event(), threading.Event(), asyncio.Event()
    loop, out_of_time = asyncio.get_running_loop(), Attempt._hard

    def once_it_spoke(attempt: Attempt) -> None:
        said.wait(60)  # a slow machine may not have begun with its thread
        out_of_time(attempt)

    monkeypatch.setattr(Attempt, "_hard", once_it_spoke)

    async def stays() -> None:
        current_job().spent(usd=0.25)
        said.set()
        while not go_on.is_set():
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.sleep(0.001)
        ended.set()

    def blocks() -> None:
        current_job().spent(usd=0.25)
        said.set()
        go_on.wait()
        loop.call_soon_threadsafe(ended.set)

    limited = {"limits": [BUDGET], "cost": COST, "timeout": 0.001, "hard_timeout": 0.002, "retry": None}
    id = await bench.put(bench.task(stays if kind == "async" else blocks, **limited))
    try:
        await bench.drain({"cleanup_ms": 1})
        assert (await bench.view(id)).state is State.dead
        assert (await level(bench, "usd"), await kept(bench, id)) == (1_000_000, {"usd": 250_000})
    finally:
        go_on.set()
        await ended.wait()


async def test_it_counts_for_a_job_completed_in_its_own_transaction(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    bench = Bench(SqliteStore(path, sync="normal"))
    await bench.store.open()

    async def pays() -> None:
        conn = library.connect(path)
        conn.execute("BEGIN IMMEDIATE")
        await current_job().complete(conn, 1)
        conn.commit()
        conn.close()
        current_job().spent(usd=0.25)

    id = await bench.put(bench.task(pays, limits=[BUDGET], cost=COST))
    await bench.drain()
    assert (await bench.view(id)).state is State.succeeded
    assert (await level(bench, "usd"), await kept(bench, id)) == (250_000, {"usd": 250_000})
    await bench.store.close()


async def test_it_is_seen_with_the_beat_while_the_job_runs(bench: Bench) -> None:
    said, go_on = asyncio.Event(), asyncio.Event()

    async def pays() -> None:
        current_job().spent(usd=0.25)
        said.set()
        await go_on.wait()

    id = await bench.put(bench.task(pays))
    stop, beaten = asyncio.Event(), asyncio.Event()
    worker = bench.worker({"beat_ms": 10}, events=WorkerEvents(on_beat=beaten.set))
    work = asyncio.create_task(worker.run(stop))
    await said.wait()
    while not await kept(bench, id):
        beaten.clear()
        await beaten.wait()
    go_on.set()
    stop.set()
    await work


@pytest.mark.parametrize(
    ("amounts", "says"),
    [
        ({"token": 1}, r"spent\(\) counts 'token' \(units are"),
        ({"usd": -1}, r"spent\(\): usd must be an amount of usd, got -1"),
        ({"tokens": 1.5}, r"spent\(\): tokens must be .* got 1.5"),
        ({"tokens": True}, r"spent\(\): tokens must be .* got True"),
    ],
)
async def test_what_is_no_amount_is_refused_by_name(bench: Bench, amounts: dict[str, Any], says: str) -> None:
    async def pays() -> None:
        with pytest.raises(InvalidOption, match=says):
            current_job().spent(**amounts)

    id = await bench.put(bench.task(pays))
    await bench.drain()
    view = await bench.view(id)
    assert (view.state, view.notes) == (State.succeeded, ())


async def test_an_amount_that_nobody_knows_is_not_said(bench: Bench) -> None:
    """Providers leave numbers out; a job that failed for it would pay again."""
    amounts: dict[str, Any] = {"tokens": None}

    async def pays() -> None:
        current_job().spent(**amounts)

    id = await bench.put(bench.task(pays, limits=[BUDGET], cost=COST))
    await bench.drain()
    view = await bench.view(id)
    assert (view.state, view.notes, await level(bench, "tokens")) == (State.succeeded, (), 100)


async def test_it_crosses_the_pipe_from_a_process_and_outlives_its_death() -> None:
    bench = Bench(SqliteStore(None))
    bench.tasks = dict(isolated_jobs.app.tasks)
    paid = await bench.put(bench.tasks["spends"])
    died = await bench.put(bench.tasks["spends_and_dies"])
    await bench.put(bench.tasks["learns"])
    await bench.drain({"job_processes": 1}, app_ref="tests.runtime.isolated_jobs:app", resources=[isolated_jobs.number])
    assert await kept(bench, paid) == {"tokens": 12, "usd": 20_000}
    assert await kept(bench, died) == {"usd": 30_000}
    (gate,) = await bench.store.gates("limit:usd/month:llm")
    assert gate.spent == 20_000 + 100_000  # what the dead one had not said yet, nobody knows
    (taught,) = await bench.store.gates("limit:model")
    assert 0 < taught.held_until_ms - now_ms() <= 20 * 60_000
    await bench.store.close()


class Recorded(SqliteStore):
    """Remembers what was asked about costs."""

    def __init__(self) -> None:
        super().__init__(None)
        self.asked: list[str] = []

    async def settle(self, *args: Any, **options: Any) -> Any:
        self.asked.append(f"settle {sorted(options)}")
        return await super().settle(*args, **options)

    async def save(self, id: bytes, token: int, note: Note, *, now_ms: int | None = None) -> bool:
        self.asked.append(f"save {note.body.decode()}")
        return await super().save(id, token, note, now_ms=now_ms)


async def test_jobs_that_say_nothing_are_settled_as_ever() -> None:
    store = Recorded()
    bench = Bench(store)

    async def quiet() -> None: ...

    await bench.put(bench.task(quiet))
    await bench.drain()
    assert store.asked == ["settle []"]
    await store.close()


def test_a_beat_that_failed_does_not_replace_the_last_word_with_an_older_one() -> None:
    notebook = Notebook()
    notebook.add(b"job", 7, Note("spent", "", b'{"usd":1}'))
    notebook.take()  # a beat is under way
    notebook.add(b"job", 7, Note("spent", "", b'{"usd":2}'))
    notebook.put_back()
    assert notebook.take() == ((b"job", 7, Note("spent", "", b'{"usd":2}')),)


async def test_of_two_attempts_that_end_together_the_later_ones_word_counts(bench: Bench) -> None:
    async def pays() -> None: ...

    await bench.put(bench.task(pays, limits=[BUDGET], cost=COST))
    (first,) = await bench.claim_as("w")
    await bench.store.leave("w")
    (second,) = await bench.claim_as("w")
    rng, queue = random.Random(), SettleQueue(Notebook())
    held = LocalQueue({}, Slots(1), Slots(1), Slots(1), isolates=False, demand=Demand())
    gates = BarredGates({}, held, None)
    settler = Settler(queue, PatientStore(bench.store, rng), "w", WorkReport(), gates, lambda: None)
    for job, usd in ((second, 250_000), (first, 900_000)):
        queue.put(Succeed(job.id, job.token), Bill.of(job, {"usd": usd}))
    await settler.start(lambda name, error: None)
    await settler.finish(60)
    assert await level(bench, "usd") == 1_000_000 + 250_000  # what the first reserved was lost with its lease


def test_a_note_that_cannot_be_read_counts_for_nothing() -> None:
    for body in (b"x", b"[]", b'{"usd":-1}', b'{"usd":"y"}'):
        assert spent_of([Note("spent", "", body)]) == {}
    assert spent_of([Note("log", "", b"1"), Note("spent", "", b'{"usd":0.5,"eur":1}')]) == {"usd": 500_000}


def test_the_sum_of_a_job_is_in_dollars_and_its_bill_in_millionths() -> None:
    job = msgspec.structs.replace(_claimed(), notes=(Note("spent", "", b'{"usd":0.5,"cost":1}'),))
    bill = Bill.of(job, {"usd": 250_000, "cost": 2})
    assert bill.costs == {"usd": 250_000, "": 2}
    assert bill.note == Note("spent", "", b'{"cost":3,"usd":0.75}')
    assert Bill.of(job, {"usd": 250_000, "cost": 2}, cut_short=True) == ({"usd": 250_000, "": 2}, bill.note)
    dear = msgspec.structs.replace(job, cost=3, costs={"usd": 250_001})
    assert Bill.of(dear, {"usd": 250_000, "cost": 2}, cut_short=True) == ({"usd": 250_001, "": 3}, bill.note)


def test_a_bill_asks_no_engine_for_more_than_it_can_count() -> None:
    """Amounts add up over calls without a bound."""
    bill = Bill.of(_claimed(), {"tokens": 10**15, "cost": 10**9, "usd": 10**18})
    assert bill.costs == {"tokens": 10**9, "": 100_000, "usd": 10**12}


def _claimed() -> Claimed:
    return Claimed(b"i" * 16, 1, 1, 0, Lane("q", "t"), Policy(), b"{}", 0, 0, 0)
