"""Faults that a reviewer found in the file engine, each as the behaviour that it broke."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from limpet.core.endings.transition import Failure, RetryAfter, Succeed
from limpet.core.errors import StoreTimeout
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.core.jobs.lease import Beat, Claim, ClaimRequest, Serves
from limpet.core.jobs.state import State
from limpet.stores.asking import examined
from limpet.stores.sqlite import SqliteStore, writer
from limpet.stores.sqlite.connection import connect
from limpet.stores.sqlite.library import library
from limpet.stores.sqlite.link import Link
from limpet.stores.sqlite.statements import prefix_of
from limpet_contract.hand import next_seq

LANE = Lane("default", "work")
ANY = Serves()
LONG_S = 20  # far longer than anything here takes


def job(number: int, delay_ms: int = 0) -> Job:
    return Job(number.to_bytes(16, "big"), LANE, Policy(), b"{}", delay_ms=delay_ms)


async def beat(store: SqliteStore, session: str) -> None:
    await store.beat(Beat(session, 15_000, ANY))


async def claim(store: SqliteStore, session: str) -> Claim:
    return await store.claim(ClaimRequest(session, ANY, 1, 1, next_seq()))


@pytest.fixture
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """A file; a test that asks for None gets a store in memory."""
    return str(tmp_path / "jobs.db") if getattr(request, "param", "file") else None


@pytest_asyncio.fixture
async def store(path: str | None) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, sync="normal")
    yield store
    await store.close()


class TestClocks:
    """Every process reads a clock of its own, and a clock may be set back."""

    class Time:
        """Stands for the module `time`: a wall clock that can be set, and a steady one that cannot."""

        def __init__(self) -> None:
            self.real_ms = 1_800_000_000_000
            self.steady_ms = 5_000

        def time_ns(self) -> int:
            return self.real_ms * 1_000_000

        def monotonic_ns(self) -> int:
            return self.steady_ms * 1_000_000

        def run(self, ms: int) -> None:
            self.real_ms += ms
            self.steady_ms += ms

    @pytest.fixture
    def time(self, monkeypatch: pytest.MonkeyPatch) -> Time:
        time = self.Time()
        monkeypatch.setattr("limpet.stores.sqlite.store.time", time)
        return time

    async def test_a_process_whose_clock_is_behind_keeps_its_jobs(
        self, store: SqliteStore, path: str, time: Time
    ) -> None:
        await beat(store, "old")
        await store.expire()
        time.real_ms -= 60_000
        new = SqliteStore(path, sync="normal")
        await new.enqueue([job(1)])
        await beat(new, "new")
        (held,) = (await claim(new, "new")).jobs
        for _ in range(90):
            time.run(1_000)
            await beat(new, "new")
            assert await store.expire() == 0, "a live session was taken for a silent one"
        assert (await new.settle("new", 1, [Succeed(held.id, held.token)]))[0].answer == "done"
        (view,) = await store.get([held.id])
        assert view is not None
        assert (view.state, view.lost) == (State.succeeded, 0)
        await new.close()

    async def test_a_new_process_is_never_behind_the_last_token(
        self, store: SqliteStore, path: str, time: Time
    ) -> None:
        await store.enqueue([job(1)])
        await beat(store, "old")
        before = await claim(store, "old")
        assert len(before.jobs) == 1
        time.real_ms -= 3_600_000
        new = SqliteStore(path, sync="normal")
        await beat(new, "new")
        assert (await claim(new, "new")).now_ms >= before.now_ms
        assert [session.session for session in await new.sessions()] == ["new", "old"]
        await new.close()

    async def test_time_goes_on_after_the_clock_was_set_back(self, store: SqliteStore, time: Time) -> None:
        await beat(store, "one")
        before = await claim(store, "one")
        time.real_ms -= 3_600_000
        await store.enqueue([job(1, delay_ms=10_000)])
        time.run(9_000)
        await beat(store, "one")
        assert (await claim(store, "one")).jobs == ()
        time.run(1_000)
        after = await claim(store, "one")
        assert len(after.jobs) == 1
        assert after.now_ms - before.now_ms == 10_000


FORKED_AND_CLOSED = """
import asyncio, os, sys
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.stores.sqlite import SqliteStore

store = SqliteStore(sys.argv[1])

def put(*numbers):
    async def main():
        for number in numbers:
            await store.enqueue([Job(number.to_bytes(16, "big"), Lane("default", "work"), Policy(), b"{}")])
    asyncio.run(main())

def close():
    asyncio.run(store.close())

put(1, 2, 3)
heard, say = os.pipe()
told, tell = os.pipe()
child = os.fork()
if child == 0:
    put(11, 12)
    os.write(say, b"x")
    os.read(told, 1)
    put(13, 14, 15, 16, 17)
    if sys.argv[2] == "closes":
        close()
    os._exit(0)
os.read(heard, 1)
close()
os.write(tell, b"x")
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""

FORKED_WHILE_WRITING = """
import asyncio, os, sys, threading
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.stores.sqlite import SqliteStore

store, over, written = SqliteStore(sys.argv[1], sync="normal"), threading.Event(), threading.Semaphore(0)

def jobs(first, count):
    return [Job(n.to_bytes(16, "big"), Lane("default", "work"), Policy(), b"{}") for n in range(first, first + count)]

async def write():
    first = 1
    while not over.is_set():
        await store.enqueue(jobs(first, 200))
        first += 200
        written.release()

writer = threading.Thread(target=lambda: asyncio.run(write()))
writer.start()
children = []
for number in range(6):
    written.acquire()
    child = os.fork()
    if child == 0:
        asyncio.run(store.enqueue(jobs(10**9 + number, 1)))
        os._exit(0)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
over.set()
writer.join()
asyncio.run(store.close())
assert codes == [0] * 6, codes
"""


class TestForks:
    """SQLite must not be carried over a fork; a store may be."""

    def run(self, code: str, *args: str) -> None:
        subprocess.run([sys.executable, "-c", code, *args], check=True, timeout=60)

    @pytest.mark.parametrize("how", ["closes", "exits"])
    async def test_what_a_child_was_told_is_stored_is_there_after_the_parent_closes(
        self, store: SqliteStore, path: str, how: str
    ) -> None:
        self.run(FORKED_AND_CLOSED, path, how)
        acknowledged = [number.to_bytes(16, "big") for number in (1, 2, 3, *range(11, 18))]
        assert [view and view.state for view in await store.get(acknowledged)] == [State.ready] * 10
        assert not [finding for finding in await examined(store).check() if finding.level == "error"]

    async def test_children_forked_in_the_middle_of_writing_can_write(self, store: SqliteStore, path: str) -> None:
        self.run(FORKED_WHILE_WRITING, path)
        children = [(10**9 + number).to_bytes(16, "big") for number in range(6)]
        assert [view and view.state for view in await store.get(children)] == [State.ready] * 6
        counts = await store.count()
        assert counts.enqueued == counts.total(State.ready)


@pytest.mark.parametrize("path", [None, "file"], indirect=True)
async def test_a_watcher_is_told_by_word_and_does_not_wait_for_its_next_look(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limpet.stores.waiters.LOOK_S", 10 * LONG_S)
    await beat(store, "one")
    for number in range(1, 9):
        await store.enqueue([job(number)])
        (held,) = (await claim(store, "one")).jobs
        watching = asyncio.ensure_future(store.watch(held.id, None))
        await asyncio.sleep(0)  # it has asked, and may not sleep yet when the job finishes
        await store.settle("one", number, [Succeed(held.id, held.token)])
        assert await asyncio.wait_for(watching, LONG_S)


async def test_a_lease_ends_with_the_last_of_its_jobs(store: SqliteStore) -> None:
    async def left() -> list[tuple[int]]:
        rows: list[tuple[int]] = await store.process.writer.submit(
            "look", lambda conn: conn.execute("SELECT left FROM limpet_lease").fetchall()
        )
        return rows

    await store.enqueue([job(1), job(2), job(3)])
    await beat(store, "one")
    request = ClaimRequest("one", Serves(), 3, 3, next_seq())
    first, second, third = (await store.claim(request)).jobs
    assert await left() == [(3,)]
    await store.settle("one", 1, [Succeed(first.id, first.token)])
    assert await left() == [(2,)]
    failed = RetryAfter(second.id, second.token, Failure("transient", "E", "no"), 1_000)
    await store.settle("one", 2, [failed, Succeed(third.id, third.token)])  # both ways in one step
    assert await left() == []


async def test_a_watcher_notices_a_finish_whose_word_was_never_sent(
    store: SqliteStore, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.enqueue([job(1)])
    watching = asyncio.ensure_future(store.watch(job(1).id, None))
    await asyncio.sleep(0)
    other = SqliteStore(path, sync="normal")
    await beat(other, "dies")
    (held,) = (await claim(other, "dies")).jobs
    # As when the process is killed right after its commit.
    monkeypatch.setattr(other.process.receiver, "send", lambda *told: False)
    await other.settle("dies", 1, [Succeed(held.id, held.token)])
    view = await asyncio.wait_for(watching, LONG_S)
    assert view is not None
    assert view.state is State.succeeded
    await other.close()


@contextmanager
def standing_still(lock_path: str) -> Iterator[None]:
    """Hold the writers' turn, as a process does that is stopped in the middle of its commit."""
    fd = os.open(lock_path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(fd)


class TestStandingStill:
    """A process may stop for ever while it holds the writers' turn; the others say so instead of waiting."""

    def writer(self, path: str) -> writer.Writer:
        link = Link(lambda: connect(path, "normal", prefix_of("default"), 1_000), f"{path}-lock")
        return writer.Writer(link, answer_s=LONG_S)

    async def test_a_verb_that_gets_no_turn_says_so_and_the_next_one_works(self, path: str) -> None:
        mine = self.writer(path)
        assert await mine.submit("first", lambda conn: 1) == 1
        mine._answer_s = 0.2
        with standing_still(f"{path}-lock"), pytest.raises(StoreTimeout, match="did not answer"):
            await asyncio.wait_for(mine.submit("stuck", lambda conn: 2), LONG_S)
        mine._answer_s = LONG_S
        assert await mine.submit("next", lambda conn: 3) == 3
        mine.close()

    async def test_closing_waits_for_nobody_for_ever(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer, "CLOSE_S", 0.1)
        mine = self.writer(path)
        await mine.submit("first", lambda conn: 1)
        mine._answer_s = 0.2
        with standing_still(f"{path}-lock"):
            with pytest.raises(StoreTimeout):
                await asyncio.wait_for(mine.submit("stuck", lambda conn: 2), LONG_S)
            await asyncio.wait_for(asyncio.to_thread(mine.close), LONG_S)


async def test_a_guest_that_drops_its_connection_blocks_nobody(store: SqliteStore, path: str) -> None:
    await store.open()

    def guest() -> None:
        conn = library.connect(path, isolation_level=None)
        conn.execute("BEGIN IMMEDIATE")
        asyncio.run(store.enqueue_on(conn, [job(1)]))  # and then neither commit nor rollback, nor a close

    thread = threading.Thread(target=guest)
    thread.start()
    await asyncio.to_thread(thread.join)
    await asyncio.wait_for(store.enqueue([job(2)]), LONG_S)
    assert [view is not None for view in await store.get([job(1).id, job(2).id])] == [False, True]
