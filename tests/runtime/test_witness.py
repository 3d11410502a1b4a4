"""A worker whose store is emptied or set back says so once, and goes on with the one that is there."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from limpet.core.jobs.lease import Pulse
from limpet.core.jobs.state import State
from limpet.ops import Operator
from limpet.runtime import WorkerEvents
from limpet.runtime.witness import SURE_S, Witness
from limpet.stores.sqlite import SqliteStore
from tests.runtime.running import Bench


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def pulse(token: int, store: str = "a") -> Pulse:
    return Pulse(fresh=False, store=store, token=token)


def test_another_store_is_noticed_with_the_next_beat_and_once() -> None:
    witness = Witness(Clock())
    assert witness.heard(pulse(5)) is None
    found = witness.heard(pulse(9, "b"))
    assert found is not None
    assert found.kind == "other"
    assert witness.heard(pulse(9, "b")) is None
    assert witness.report().changes == (found,)
    assert witness.report().sight.store == "b"


def test_a_store_that_was_set_back_is_noticed_and_once() -> None:
    clock = Clock()
    witness = Witness(clock)
    for clock.now_s in (0, 5, 10):
        assert witness.heard(pulse(1_000)) is None
    found = witness.heard(pulse(900))
    assert found is not None
    assert found.kind == "older"
    for clock.now_s in (15, 20, 25, 30):
        assert witness.heard(pulse(900)) is None
    clock.now_s = 35
    assert witness.heard(pulse(899)) is not None, "set back once more"


def test_what_a_crash_of_the_server_may_cost_is_no_news() -> None:
    clock = Clock()
    witness = Witness(clock)
    for clock.now_s, token in ((0, 100), (5, 200), (10, 300), (10 + SURE_S / 2, 400)):
        assert witness.heard(pulse(token)) is None
    assert witness.heard(pulse(250)) is None, "300 and 400 were given out moments before the last answer"


def test_an_answer_that_names_no_store_says_nothing() -> None:
    witness = Witness(Clock())
    witness.heard(pulse(5))
    assert witness.heard(Pulse(fresh=True)) is None
    assert witness.report().sight.store == "a"


async def test_a_worker_lives_through_an_emptied_store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    path = tmp_path / "jobs.db"
    store, new = SqliteStore(str(path), sync="normal"), SqliteStore(f"{path}-new", sync="normal")
    bench = Bench(store)
    started, stopped = asyncio.Event(), asyncio.Event()

    async def long() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def short() -> None: ...

    running, later = bench.task(long), bench.task(short)
    published: list[int] = []

    async def publish() -> int:
        published.append(1)
        return 0

    await bench.put(running)
    worker = bench.worker({"beat_ms": 20}, events=WorkerEvents(on_other_store=publish))
    stop = asyncio.Event()
    working = asyncio.create_task(worker.run(stop))
    async with asyncio.timeout(60):
        await started.wait()
        await new.open()
        await new.close()
        os.replace(f"{path}-new", path)
        await stopped.wait()  # what ran for the old store is stopped: nobody would take its end
        await bench.until([await bench.put(later)], State.succeeded)
        findings = {each.code: each for each in await Operator(store, "ada").doctor()}
        while "store_other" not in findings:
            findings = {each.code: each for each in await Operator(store, "ada").doctor()}
    stop.set()
    await working
    assert findings["store_other"].level == "error"
    assert "live workers that saw it: 1" in findings["store_other"].text
    assert "enqueue them again under their ids" in (findings["store_other"].fix or "")
    assert published == [1], "the new store knows what the code declares"
    told = [line.getMessage() for line in caplog.records if "another store answers here" in line.getMessage()]
    assert len(told) == 1
    await store.close()


async def test_doctor_hears_of_it_at_once_and_not_with_the_next_beat(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    store, new = SqliteStore(str(path), sync="normal"), SqliteStore(f"{path}-new", sync="normal")
    bench = Bench(store)

    async def noop() -> None: ...

    bench.task(noop)
    started, stop = asyncio.Event(), asyncio.Event()
    events = WorkerEvents(on_ready=lambda info: started.set())
    worker = bench.worker({"beat_ms": 300_000, "ttl_ms": 600_000}, events=events)  # longer than the test
    working = asyncio.create_task(worker.run(stop))
    async with asyncio.timeout(60):
        await started.wait()
        await new.open()
        await new.close()
        os.replace(f"{path}-new", path)
        assert worker._run is not None
        worker._run._keeper.beat_now()  # the one that is told of the other store
        while "store_other" not in {each.code for each in await Operator(store, "ada").doctor()}:
            pass
    stop.set()
    await working
    await store.close()
