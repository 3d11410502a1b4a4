"""Jobs that are handed off on SQLite travel as datagrams: what cannot be delivered is taken back by its sender."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from limpet.core.gate import GateRule
from limpet.core.jobs.lease import Takes
from limpet.core.jobs.state import State
from limpet.stores.sqlite import SqliteStore
from limpet.stores.sqlite.library import library
from limpet.stores.waiters import HANDED
from limpet_contract.bench import Bench
from limpet_contract.hand import Hand
from limpet_contract.harness import Clock

SOON_S = 60
TEN = Takes(10, 10)

# Dies when the job is stored, and before its record is sent.
DIES = """
import asyncio, os, signal, sys
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.stores.sqlite import SqliteStore
from limpet.stores.sqlite.wake import WakeupReceiver
from limpet.stores.waiters import HANDED

def send(self, address, kind, said):
    if kind == HANDED:
        os.kill(os.getpid(), signal.SIGKILL)

WakeupReceiver.send = send

async def main(path):
    job = Job(bytes.fromhex(sys.argv[2]), Lane("default", "work"), Policy(), b"{}")
    await SqliteStore(path, sync="normal").enqueue([job])

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    store = SqliteStore(str(tmp_path / "jobs.db"), sync="normal")
    bench = Bench(store, Clock())
    yield bench
    await bench.check_books()
    await store.close()


async def asleep(bench: Bench, session: str = "w1") -> Hand:
    hand = bench.hand(session, takes=TEN)
    assert await hand.claim() == []
    return hand


def path_of(bench: Bench) -> Path:
    assert isinstance(bench.store, SqliteStore)
    assert bench.store.path is not None
    return Path(bench.store.path)


def hears_at(bench: Bench, session: str, address: str) -> None:
    """Its wake-ups go to another socket from here on, until it beats."""
    with library.connect(path_of(bench)) as conn:
        conn.execute("UPDATE limpet_session SET ear = ? WHERE id = ?", (address, session))
    conn.close()


async def until_ready(bench: Bench, id: bytes) -> None:
    for _ in range(SOON_S * 1_000):
        if await bench.state(id) is State.ready:
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it was not taken back")


async def test_a_job_for_a_process_that_is_gone_is_taken_back_unspent_and_another_sleeper_is_woken(
    bench: Bench,
) -> None:
    await asleep(bench, "gone")
    hears_at(bench, "gone", "7ffffffe-00")
    other = bench.hand("other")
    assert await other.claim() == []
    id = await bench.add()
    await until_ready(bench, id)
    assert (await other.wait(SOON_S * 1_000)).work, "the one that is gone was woken instead"
    (job,) = await other.claim()
    assert (job.id, job.attempt, job.lost) == (id, 1, 0)
    await other.succeed(job)
    assert await other.claim() == []
    id = await bench.add()  # nobody is handed jobs at a dead address again, nor woken there
    assert await bench.state(id) is State.ready
    assert (await other.wait(SOON_S * 1_000)).work


async def test_a_job_that_finds_no_room_in_the_socket_of_its_worker_is_taken_back(bench: Bench) -> None:
    await asleep(bench, "full")
    folder = Path(f"{path_of(bench)}-wake")
    inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    inbox.bind(str(folder / "1-00"))
    out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    out.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            out.sendto(b"w", str(folder / "1-00"))
    hears_at(bench, "full", "1-00")
    id = await bench.add()
    await until_ready(bench, id)
    assert [session.idle for session in await bench.store.sessions()] == [False], "it was woken, as always"
    out.close()
    inbox.close()


async def test_a_worker_finds_the_job_of_a_caller_that_was_killed_before_it_could_send_it(bench: Bench) -> None:
    hand = await asleep(bench)
    id = bench.id()
    program = [sys.executable, "-c", DIES, str(path_of(bench)), id.hex()]
    died = await asyncio.to_thread(subprocess.run, program, timeout=SOON_S, check=False)
    assert died.returncode == -signal.SIGKILL
    assert await bench.state(id) is State.running
    pulse = await hand.beat()
    (held,) = await bench.store.held("w1")
    assert (held.id, held.handed) == (id, pulse.handed)
    (view,) = await bench.store.get([id])
    assert view is not None
    bench.clock.now_ms = max(bench.clock.now_ms, view.claimed_at_ms or 0)
    await bench.sweep(60_000, bench.hand("janitor"))
    assert await bench.state(id) is State.ready


async def test_a_message_that_cannot_be_read_is_dropped(bench: Bench) -> None:
    hand = await asleep(bench)
    assert isinstance(bench.store, SqliteStore)
    receiver = bench.store.process.receiver
    address = receiver.address
    out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    out.sendto(HANDED + b"\x01\x02", f"{path_of(bench)}-wake/{address}")
    out.close()
    await bench.add()
    assert len(await hand.handed()) == 1


async def test_what_a_gate_holds_back_does_not_matter_until_it_opens(bench: Bench) -> None:
    await bench.declare(GateRule("limit:x", interval_us=10_000_000))
    await bench.add_many(3, task="limited", limits=("x",))
    hand = bench.hand(takes=TEN)
    assert len(await hand.claim(10)) == 1
    assert await hand.claim(10) == []
    assert await bench.state(await bench.add()) is State.running
    await hand.succeed((await hand.handed())[0].job)
    bench.clock.advance(10_000)
    assert await bench.state(await bench.add()) is State.ready
