"""What the file promises when processes are killed: an acknowledged job is there, a half-done step is not."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from limpet.core.jobs.job import Job, Lane, Policy
from limpet.core.jobs.lease import Beat, ClaimRequest, Serves
from limpet.core.jobs.state import State
from limpet.stores.sqlite import SqliteStore

PRODUCER = """
import asyncio, sys, time
from limpet.core.jobs.ids import IdMaker
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.stores.sqlite import SqliteStore

async def main(path, sync):
    store, ids, lane, policy = SqliteStore(path, sync=sync), IdMaker(), Lane("default", "work"), Policy()
    while True:
        jobs = [Job(id, lane, policy, b"{}") for id in ids.make_many(7, time.time_ns() // 1_000_000)]
        await store.enqueue(jobs)
        sys.stdout.write("".join(job.id.hex() + "\\n" for job in jobs))
        sys.stdout.flush()

asyncio.run(main(*sys.argv[1:]))
"""

WORKER = """
import asyncio, sys
from limpet.core.jobs.lease import Beat, ClaimRequest, Serves
from limpet.core.endings.transition import Succeed
from limpet.stores.sqlite import SqliteStore

async def main(path, session):
    store, serves, seq = SqliteStore(path, sync="normal"), Serves(), 0
    await store.beat(Beat(session, 15_000, serves))
    while True:
        seq += 1
        claim = await store.claim(ClaimRequest(session, serves, 5, 5, seq))
        if not claim.jobs and not claim.again:
            break
        for job in claim.jobs:
            sys.stdout.write(job.id.hex() + "\\n")
        await store.settle(session, seq, [Succeed(job.id, job.token) for job in claim.jobs])
    await store.leave(session)
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


def start(code: str, *args: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, *args], stdout=subprocess.PIPE)


@pytest.mark.parametrize("sync", ["full", "normal"])
async def test_a_job_that_was_acknowledged_survives_kill_minus_9_of_its_producer(tmp_path: Path, sync: str) -> None:
    path = str(tmp_path / "jobs.db")
    with start(PRODUCER, path, sync) as producer:
        assert producer.stdout is not None
        acknowledged = [bytes.fromhex(producer.stdout.readline().decode()) for _ in range(300)]
        producer.send_signal(signal.SIGKILL)
        acknowledged += [bytes.fromhex(line.decode()) for line in producer.stdout if len(line) == 33]
    store = SqliteStore(path)
    assert all(job is not None and job.state is State.ready for job in await store.get(acknowledged))
    counts = await store.count()
    assert counts.enqueued == counts.total(State.ready)
    assert counts.enqueued % 7 == 0, "a batch is stored whole or not at all"
    await store.close()


async def test_processes_that_share_a_file_run_each_job_once(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    store = SqliteStore(path, sync="normal")
    lane, policy = Lane("default", "work"), Policy()
    jobs = [Job(number.to_bytes(16, "big"), lane, policy, b"{}") for number in range(600)]
    await store.enqueue(jobs)
    workers = [start(WORKER, path, f"w{number}") for number in range(3)]
    outputs = await asyncio.gather(*(asyncio.to_thread(worker.communicate) for worker in workers))
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    ran = [line for out, _ in outputs for line in out.decode().split()]
    assert sorted(ran) == [job.id.hex() for job in jobs]
    assert (await store.count()).succeeded == len(jobs)
    await store.close()


async def test_a_worker_killed_with_a_lease_gives_its_jobs_back(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    store = SqliteStore(path, sync="normal")
    await store.enqueue([Job(bytes(16), Lane("default", "work"), Policy(), b"{}")])
    child = os.fork()
    if child == 0:  # claims and dies without a word
        asyncio.new_event_loop().run_until_complete(_claim_and_die(path))
    await asyncio.to_thread(os.waitpid, child, 0)
    (view,) = await store.get([bytes(16)])
    assert view is not None
    assert view.state is State.running
    assert view.claimed_at_ms is not None
    assert await store.expire(now_ms=view.claimed_at_ms + 1) == 0
    for later in range(1, 17):
        await store.expire(now_ms=view.claimed_at_ms + later * 1_000)
    (view,) = await store.get([bytes(16)])
    assert view is not None
    assert (view.state, view.attempt, view.lost) == (State.ready, 0, 1)
    await store.close()


async def _claim_and_die(path: str) -> None:
    store = SqliteStore(path, sync="normal")
    await store.beat(Beat("doomed", 15_000, Serves()))
    claim = await store.claim(ClaimRequest("doomed", Serves(), 1, 1, 1))
    os.kill(os.getpid(), signal.SIGKILL if claim.jobs else signal.SIGTERM)


async def test_a_store_works_on_in_a_forked_child_and_in_its_parent(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"), sync="normal")
    lane, policy = Lane("default", "work"), Policy()
    await store.enqueue([Job(b"a" * 16, lane, policy, b"{}")])
    child = os.fork()
    if child == 0:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(store.enqueue([Job(b"b" * 16, lane, policy, b"{}")]))
        os._exit(0)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert status == 0
    await store.enqueue([Job(b"c" * 16, lane, policy, b"{}")])
    assert (await store.count()).enqueued == 3
    await store.close()


async def test_a_session_in_another_process_is_woken_by_an_enqueue(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    store = SqliteStore(path, sync="normal")
    await store.beat(Beat("sleeper", 15_000, Serves()))
    claim = await store.claim(ClaimRequest("sleeper", Serves(), 1, 1, 1))
    assert claim.jobs == ()
    sleeping = asyncio.create_task(store.wait("sleeper", 60_000))
    with start(PRODUCER, path, "normal") as producer:
        wake = await sleeping
        producer.kill()
    assert wake.work
    claim = await store.claim(ClaimRequest("sleeper", Serves(), 1, 1, 2))
    assert len(claim.jobs) == 1
    await store.close()


async def test_two_event_loops_in_one_process_share_a_store(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"), sync="normal")
    lane, policy = Lane("default", "work"), Policy()

    def elsewhere() -> None:
        asyncio.run(store.enqueue([Job(b"a" * 16, lane, policy, b"{}")]))

    await asyncio.gather(asyncio.to_thread(elsewhere), store.enqueue([Job(b"b" * 16, lane, policy, b"{}")]))
    assert (await store.count()).enqueued == 2
    await store.close()
