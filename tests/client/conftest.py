"""Apps for tests: one in memory, one on a file; and a real engine that counts and can be held up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from limpet import Limpet
from limpet.core.gate import GateRule
from limpet.core.jobs.job import Enqueued, Job
from limpet.stores.sqlite import SqliteStore


@pytest.fixture(params=["memory", "file"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Limpet]:
    """A fresh app on each kind of store."""
    app = Limpet("sqlite://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db?sync=normal")
    yield app
    await app.close()


class CountingStore(SqliteStore):
    """The real engine in memory; counts calls, and while `open_gate` is clear it does not answer."""

    def __init__(self) -> None:
        super().__init__(None)
        self.calls: list[int] = []
        self.called = asyncio.Event()
        self.open_gate = asyncio.Event()
        self.open_gate.set()
        self.trouble: Exception | None = None

    async def enqueue(
        self, jobs: Sequence[Job], rules: Sequence[GateRule] = (), *, now_ms: int | None = None
    ) -> list[Enqueued]:
        self.calls.append(len(jobs))
        self.called.set()
        await self.open_gate.wait()
        if self.trouble is not None:
            raise self.trouble
        return await super().enqueue(jobs, rules, now_ms=now_ms)


@pytest.fixture
async def counting() -> AsyncIterator[CountingStore]:
    """A store that counts."""
    store = CountingStore()
    yield store
    await store.close()


@pytest.fixture
async def forward(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the loop's clock on by so many seconds: a deadline is met at once, and on a slow machine by nobody else."""
    loop = asyncio.get_running_loop()
    clock_s, ahead_s = loop.time, 0.0

    def forward(seconds: float) -> None:
        nonlocal ahead_s
        ahead_s += seconds

    monkeypatch.setattr(loop, "time", lambda: clock_s() + ahead_s)
    return forward
