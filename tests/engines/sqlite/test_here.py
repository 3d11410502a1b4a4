"""A lone enqueue is committed in the caller's thread when that waits for nothing, and otherwise in the writer's."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from limpet.core.errors import UnknownParent
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.stores.sqlite import SqliteStore
from limpet.stores.sqlite.connection import Sync
from limpet.stores.sqlite.library import library

LANE = Lane("default", "work")


def job(number: int, *, after: tuple[bytes, ...] = ()) -> Job:
    return Job(number.to_bytes(16, "big"), LANE, Policy(), b"{}", after=after)


async def opened(path: Path, sync: Sync = "normal") -> tuple[SqliteStore, list[bool]]:
    """A store that has been used, and whether each commit from here on is made in this thread."""
    store, here = SqliteStore(str(path), sync=sync), list[bool]()
    await store.enqueue([job(1)])

    def intercept(verb: str, when: str) -> None:
        if when == "before":
            here.append(threading.current_thread() is threading.main_thread())

    store.process.writer.intercept = intercept
    return store, here


@pytest.fixture
async def used(tmp_path: Path) -> AsyncIterator[tuple[SqliteStore, list[bool]]]:
    store, here = await opened(tmp_path / "jobs.db")
    yield store, here
    await store.close()


@contextmanager
def flocked(path: str) -> Iterator[None]:
    """Another process has the writers' turn."""
    descriptor = os.open(f"{path}-lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


Used = tuple[SqliteStore, list[bool]]


async def test_a_lone_job_is_written_here_and_many_are_not(used: Used) -> None:
    store, here = used
    await store.enqueue([job(2)])
    await store.enqueue([job(3), job(4)])
    assert here == [True, False]
    assert (await store.count()).enqueued == 4


async def test_a_commit_that_waits_for_the_disk_is_never_made_here(tmp_path: Path) -> None:
    store, here = await opened(tmp_path / "jobs.db", "full")
    await store.enqueue([job(2)])
    assert here == [False]
    await store.close()


async def test_while_another_thread_writes_it_waits_its_turn(used: Used) -> None:
    store, here = used
    begun, go_on = threading.Event(), threading.Event()

    def slow(conn: object) -> None:
        begun.set()
        assert go_on.wait(60)

    writing = asyncio.ensure_future(store.process.writer.submit("slow", slow))
    assert await asyncio.to_thread(begun.wait, 60)
    asking = asyncio.ensure_future(store.enqueue([job(2)]))
    await asyncio.sleep(0)  # it is not held up here
    go_on.set()
    await asyncio.gather(writing, asking)
    assert here == [False, False]


@pytest.mark.parametrize("holder", ["a process of ours", "a stranger"])
async def test_while_another_process_writes_the_loop_goes_on(used: Used, holder: str) -> None:
    store, here = used
    assert store.path is not None
    stranger = library.connect(store.path, isolation_level=None)
    try:
        if holder == "a stranger":
            stranger.execute("BEGIN IMMEDIATE")
            asking = asyncio.ensure_future(store.enqueue([job(2)]))
            await asyncio.sleep(0)
            stranger.execute("COMMIT")
        else:
            with flocked(store.path):
                asking = asyncio.ensure_future(store.enqueue([job(2)]))
                await asyncio.sleep(0)
        await asking
    finally:
        stranger.close()
    assert here == [False]
    assert (await store.count()).enqueued == 2
    # What follows waits for strangers again.
    assert await store.process.writer.submit("look", lambda conn: conn.execute("PRAGMA busy_timeout").fetchone()[0])


async def test_what_is_refused_is_refused_here_and_writes_nothing(used: Used) -> None:
    store, here = used
    with pytest.raises(UnknownParent):
        await store.enqueue([job(2, after=(b"x" * 16,))])
    assert here == [True]
    assert (await store.count()).enqueued == 1


async def test_a_file_that_was_replaced_gets_the_job_all_the_same(used: Used, tmp_path: Path) -> None:
    store, here = used
    other, _ = await opened(tmp_path / "other.db")
    await other.close()
    os.replace(tmp_path / "other.db", tmp_path / "jobs.db")
    await store.enqueue([job(2)])
    assert here[-1] is False
    assert [view is not None for view in await store.get([job(2).id])] == [True]


async def test_a_caller_that_asks_again_and_again_leaves_the_loop_to_others(used: Used) -> None:
    store, here = used
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(others())
    for number in range(2, 12):
        await store.enqueue([job(number)])
    beside.cancel()
    assert here == [True] * 10
    assert turns >= 10
