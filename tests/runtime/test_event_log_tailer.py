"""Workers tell the log what became of breakers, limits and budgets, once, and nothing from before their time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from limpet.core.errors import StoreUnreachable
from limpet.core.gate import GateChange, GateRule
from limpet.core.jobs.lease import Beat, Serves
from limpet.core.jobs.view import Entry
from limpet.core.limits.budget import Budget
from limpet.runtime import WorkerEvents, current_job
from limpet.runtime.child_messages import Ready
from limpet.runtime.child_process import ChildProcess
from limpet.runtime.event_log_tailer import EventLogTailer
from limpet.runtime.patient_store import Patience
from limpet.runtime.settings import WorkerSettings
from limpet.runtime.supervisor import Supervisor, SupervisorSettings
from limpet.stores.sqlite import SqliteStore
from limpet_contract.making import make_job
from tests.runtime.running import Bench


class Heard(logging.Handler):
    """What was told about events, and when it was so much."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int, str]] = []
        self._news = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        fields = getattr(record, "limpet", {})
        if "kind" in fields:
            self.told.append((record.levelno, str(fields["event"])))
            self._news.set()

    async def until(self, count: int) -> None:
        try:
            async with asyncio.timeout(60):
                while len(self.told) < count:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"all that was told is {self.told}") from None


@pytest.fixture
async def heard() -> AsyncIterator[Heard]:
    log, handler = logging.getLogger("limpet.worker"), Heard()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler
    log.removeHandler(handler)
    log.setLevel(level)


async def test_a_worker_tells_what_happens_while_it_works(bench: Bench, heard: Heard) -> None:
    async def pays() -> None: ...

    spec = bench.task(pays, limits=[Budget("llm", usd=1, per="month")], cost={"usd": 0.4})
    await bench.store.append([Entry("event", 0, "breaker.opened", data=b'{"gate":"breaker:old"}')])
    stop = asyncio.Event()
    ready = asyncio.Event()
    worker = bench.worker({"beat_ms": 10}, events=WorkerEvents(on_ready=lambda info: ready.set()))
    work = asyncio.create_task(worker.run(stop))
    await ready.wait()
    for _ in range(3):
        await bench.put(spec)
    await heard.until(3)
    await bench.store.change_gates([GateChange("breaker:x", trip_ms=600_000)])
    await bench.store.change_gates([GateChange("breaker:x", reset=True)])
    await bench.store.append([Entry("event", 0, "of.tomorrow", data=b'{"level":1,"event":2,"kind":3,"new":4}')])
    await heard.until(6)
    stop.set()
    await work
    assert heard.told[:3] == [
        (logging.WARNING, "the budget 'llm' is at 50 %: $0.80 of $1 a month is spent or reserved"),
        (logging.WARNING, "the budget 'llm' is at 80 %: $0.80 of $1 a month is spent or reserved"),
        (logging.WARNING, "the budget 'llm' has $0.20 of $1 a month left, and a job waits for $0.40"),
    ]
    assert [(level, text.split(" until")[0]) for level, text in heard.told[3:]] == [
        (logging.WARNING, "breaker x opened"),
        (logging.INFO, "breaker x closed"),
        (logging.INFO, "of.tomorrow"),
    ]


class Slow(SqliteStore):
    """A store that takes its time to settle: somebody may look before it is done."""

    def __init__(self) -> None:
        super().__init__(None)
        self.looked = asyncio.Event()

    async def read(self, *args: Any, **options: Any) -> Any:
        self.looked.set()
        return await super().read(*args, **options)

    async def settle(self, *args: Any, **options: Any) -> Any:
        self.looked.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await self.looked.wait()
        return await super().settle(*args, **options)


async def test_a_worker_that_ends_before_its_first_look_has_a_last_one_when_all_is_settled(heard: Heard) -> None:
    bench, stop = Bench(Slow()), asyncio.Event()

    async def pays() -> None:
        current_job().spent(usd=0.9)
        stop.set()

    await bench.put(bench.task(pays, limits=[Budget("llm", usd=1, per="month")], cost={"usd": 0.4}))
    await bench.worker().run(stop)
    await bench.store.close()
    assert [text.split(":")[0] for _, text in heard.told] == [
        "the budget 'llm' is at 50 %",
        "the budget 'llm' is at 80 %",
    ]


class Away(SqliteStore):
    """A store that nobody reaches."""

    async def read(self, *args: Any, **options: Any) -> Any:
        raise StoreUnreachable("nobody answers", verb="read")


async def test_a_last_look_at_a_store_that_is_away_is_given_up() -> None:
    crier = EventLogTailer(partial(Away(None).read, "event"), Patience(random.Random()), 3_600_000, seen=0)
    await crier.start(lambda name, error: None)
    await crier.stop()


async def test_a_supervisor_tells_it_once_for_all_its_children(
    tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    early = SqliteStore(str(tmp_path / "jobs.db"))
    await early.open()
    await early.append([Entry("event", 0, "breaker.opened", data=b'{"gate":"breaker:old"}')])
    job = make_job(b"1" * 16, {"queue": "pdf", "task": "pdf.make", "keys": ("tokens/day:x",), "costs": {"tokens": 6}})
    await early.enqueue([job], [GateRule("limit:tokens/day:x", unit="tokens", cap=10, period="day")])
    turns, heard_ready = asyncio.Lock(), ChildProcess.heard_ready

    async def heard_late(child: ChildProcess) -> Ready | None:
        """The first child is heard when the job is taken, the others after it."""
        ready = await heard_ready(child)
        async with turns, asyncio.timeout(60):
            while len(await early.read("event", 0, 2)) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.001)  # a busy machine has the children to run, too
        return ready

    monkeypatch.setattr(ChildProcess, "heard_ready", heard_late)
    ready: list[object] = []
    both = asyncio.Event()

    def on_ready(child: object) -> None:
        ready.append(child)
        if len(ready) == 2:
            both.set()

    settings = SupervisorSettings(
        app_ref="tests.cli.shop:app",
        path=(str(Path.cwd()),),
        processes=2,
        url=url,
        worker=WorkerSettings(beat_ms=50),
    )
    supervisor = Supervisor(settings, on_ready)
    running = asyncio.create_task(supervisor.run())
    await both.wait()
    await early.change_gates([GateChange("breaker:x", trip_ms=600_000)])
    await heard.until(2)
    supervisor.stop()
    assert await running == 0
    await early.close()
    assert [text.split(" until")[0].split(":")[0] for _, text in heard.told] == [
        "the budget 'x' is at 50 %",  # by the first job that it took
        "breaker x opened",
    ]


async def freeze(pid: int, store: SqliteStore) -> None:
    """Stop a process, but not inside a write, which would stop all others."""
    observer = Beat("observer", 60_000, Serves((), ()))
    while True:
        os.kill(pid, signal.SIGSTOP)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await store.beat(observer)
                return
        os.kill(pid, signal.SIGCONT)


async def test_a_supervisor_looks_with_the_eyes_of_its_child_and_else_with_its_own(
    tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = SqliteStore(str(tmp_path / "jobs.db"))
    await early.open()
    seen: list[object] = []
    look, ready = ChildProcess.look, asyncio.Event()

    async def looks(child: ChildProcess, after: int, most: int) -> list[Entry] | None:
        entries = await look(child, after, most)
        seen.append(entries)
        return entries

    monkeypatch.setattr(ChildProcess, "look", looks)
    supervisor = Supervisor(
        SupervisorSettings(
            app_ref="tests.cli.shop:app",
            path=(str(Path.cwd()),),
            url=f"sqlite:///{tmp_path / 'jobs.db'}",
            worker=WorkerSettings(beat_ms=50),
        ),
        on_ready=lambda child: ready.set(),
    )
    running = asyncio.create_task(supervisor.run())
    await ready.wait()
    await early.change_gates([GateChange("breaker:seen", trip_ms=600_000)])
    await heard.until(1)
    assert seen[-1], "it was the child that saw it"
    (pid,) = supervisor.pids()
    await freeze(pid, early)
    await early.change_gates([GateChange("breaker:blind", trip_ms=600_000)])
    await heard.until(2)
    os.kill(pid, signal.SIGCONT)
    supervisor.stop()
    assert await running == 0
    await early.close()
    assert [text.split(" until")[0] for _, text in heard.told] == ["breaker seen opened", "breaker blind opened"]
