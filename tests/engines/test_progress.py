"""What running jobs say is seen within a second, on every engine, and costs the store one call for all of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from limpet.client.watching import LOOK_S
from limpet.core.jobs.lease import Beat, Note, Pulse
from limpet.runtime import current_job
from limpet.runtime.isolated_child import PROGRESS_S
from limpet.runtime.keeper import SEEN_S
from tests.contract.harnesses import HARNESSES, SHARED
from tests.runtime.running import Bench

# No regular beat comes while a test runs.
RARELY: Final = {"beat_ms": 600_000, "ttl_ms": 1_800_000}
JOBS: Final = 200


@pytest.fixture(params=SHARED)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES[request.param](tmp_path)
    yield Bench(await harness.open())
    await harness.close()


async def said(bench: Bench, id: bytes, kind: str, last: object) -> list[Any]:
    """What a job has said of that kind, once this is the last of it."""
    async with asyncio.timeout(60):
        while True:
            bodies = [msgspec.json.decode(note.body) for note in (await bench.view(id)).notes if note.kind == kind]
            if bodies and bodies[-1] == last:
                return bodies
            await asyncio.sleep(0.01)


def test_all_waits_between_a_handler_and_a_watcher_are_a_second() -> None:
    assert PROGRESS_S + SEEN_S + LOOK_S <= 1.0


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_what_a_job_says_is_seen_before_the_next_regular_beat(bench: Bench, executor: str) -> None:
    steps = [threading.Event() for _ in range(3)]

    def says(at: int) -> None:
        current_job().progress(at, 10, f"step {at}")
        current_job().log(f"line {at}")

    async def in_loop() -> None:
        for at, step in enumerate(steps):
            says(at)
            await asyncio.to_thread(step.wait, 60)

    def in_thread() -> None:
        for at, step in enumerate(steps):
            says(at)
            step.wait(60)

    id = await bench.put(bench.task(in_loop if executor == "async" else in_thread))
    work = asyncio.create_task(bench.drain(RARELY))
    for at, step in enumerate(steps):
        progress = {"done": at, "total": 10, "message": f"step {at}"}
        assert await said(bench, id, "progress", progress) == [progress]
        assert await said(bench, id, "log", f"line {at}") == [f"line {line}" for line in range(at + 1)]
        step.set()
    assert (await work).succeeded == 1


async def test_many_jobs_that_report_each_turn_share_a_call_now_and_then(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, beat, save = asyncio.get_running_loop(), bench.store.beat, bench.store.save
    began_s: list[float] = []
    carried: list[int] = []
    saved: list[Note] = []
    enough = asyncio.Event()

    async def counted(asked: Beat, **how: Any) -> Pulse:
        if asked.notes and not enough.is_set():
            began_s.append(loop.time())
            carried.append(len({id for id, _, _ in asked.notes}))
            if len(began_s) == 4:
                loop.call_soon_threadsafe(enough.set)
        return await beat(asked, **how)

    async def counted_save(id: bytes, token: int, note: Note, **how: Any) -> bool:
        saved.append(note)
        return await save(id, token, note, **how)

    monkeypatch.setattr(bench.store, "beat", counted)
    monkeypatch.setattr(bench.store, "save", counted_save)

    async def counts() -> None:
        done = 0
        while not enough.is_set():
            current_job().progress(done := done + 1)
            await asyncio.sleep(0)

    spec = bench.task(counts)
    for _ in range(JOBS):
        await bench.put(spec)
    report = await bench.drain({"concurrency": JOBS, **RARELY})
    assert report.succeeded == JOBS
    # Three times as long; a busy machine may see the first call late. Without the pause all four are made at once.
    assert began_s[-1] - began_s[0] > SEEN_S, "however often they report, the store is called once in that time"
    assert carried[-1] == JOBS, "and once for all of them"
    assert saved == []
