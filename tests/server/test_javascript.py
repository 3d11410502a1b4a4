"""The worker of examples/javascript through a real server: it works, stops, resumes, and is refused when it is late."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from limpet.core.jobs.view import JobView
from limpet.ops import Operator
from limpet.stores.base import Store
from limpet.stores.sqlite import SqliteStore
from tests.ops.making import job, put
from tests.server.serving import until
from tests.servers.programs import WORKER, Programs


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = SqliteStore(str(tmp_path / "jobs.db"), sync="normal")
    now_ms = await store.now()
    for at_ms in range(now_ms - 24_000, now_ms + 1, 4_000):  # a new one takes no lease back for 15 s
        await store.expire(now_ms=at_ms)
    yield store
    await store.close()


@pytest.fixture
def programs(store: Store, tmp_path: Path) -> Iterator[Programs]:
    with closing(Programs(f"sqlite:///{tmp_path}/jobs.db?sync=normal", tmp_path)) as programs:
        programs.serve()
        yield programs


async def view_of(store: Store, id: bytes) -> JobView:
    (view,) = await store.get([id])
    assert view is not None
    return view


def has(store: Store, id: bytes, true: Callable[[JobView], bool]) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return true(await view_of(store, id))

    return look


def page_of(view: JobView) -> int:
    """The checkpoint that it has kept."""
    (page,) = [msgspec.json.decode(note.body)["page"] for note in view.notes if note.kind == "checkpoint"]
    return int(page)


def no_sessions(store: Store) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return not await store.sessions()

    return look


def test_a_worker_in_javascript_is_short() -> None:
    lines = WORKER.read_text().splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 120


async def test_it_works_reports_errors_stops_and_resumes(store: Store, programs: Programs) -> None:
    short, fine, bad, long = await put(
        store,
        job("book.scan", args={"pages": 3, "ms": 1}),
        job("book.index", args={"title": "of bees"}),
        job("book.index"),
        job("book.scan", args={"pages": 10_000, "ms": 5}),
    )
    worker = programs.worker(lease_s=3)
    await until(has(store, short, lambda view: view.state is State.succeeded))
    await until(has(store, fine, lambda view: view.result == b'{"words":2}'))
    await until(has(store, bad, lambda view: view.state is State.dead))
    detail = await Operator(store, "ada").job(bad)
    assert (detail.error, detail.reason) == ("Error", "a book needs a title")
    assert "worker.mjs" in (detail.history[-1].traceback or "")
    await until(has(store, long, lambda view: bool(view.notes)))
    worker.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(worker.wait, 60) == 0, programs.said()
    stopped = await view_of(store, long)
    assert (stopped.state, stopped.attempt, stopped.lost) == (State.ready, 0, 0)
    kept = page_of(stopped)
    await until(no_sessions(store))

    programs.worker(lease_s=3)
    await until(has(store, long, lambda view: page_of(view) != kept))
    assert page_of(await view_of(store, long)) > kept, "it began again"
    await Operator(store, "ada").cancel([id_text(long)], reason="enough")
    await until(has(store, long, lambda view: view.state is State.cancelled))


async def test_it_is_refused_when_it_comes_back_too_late(store: Store, programs: Programs) -> None:
    (id,) = await put(store, job("book.scan", args={"pages": 40, "ms": 20}))
    frozen = programs.worker(lease_s=1)
    await until(has(store, id, lambda view: bool(view.notes)))
    frozen.send_signal(signal.SIGSTOP)
    await until(has(store, id, lambda view: view.lost == 1))
    programs.worker(lease_s=30)
    await until(has(store, id, lambda view: view.state is State.succeeded))
    frozen.send_signal(signal.SIGCONT)

    async def refused() -> bool:
        return any("lost: stale lease" in line for line in programs.said())

    await until(refused)
    ends = [line.kind for line in await Operator(store, "ada").audit(limit=100) if line.kind != "agent.claim"]
    assert ends == ["agent.complete"]
