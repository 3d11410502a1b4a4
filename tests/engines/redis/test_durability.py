"""What the engine promises when the server is killed: with an append-only file, what was acknowledged is there."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import IO

import pytest

from limpet.core.endings.transition import Succeed
from limpet.core.gate import GateChange, GateRule, Pause
from limpet.core.jobs.job import Unique
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Control, Entry
from limpet.stores.asking import attempts_of, examined
from limpet.stores.base import Store
from limpet.stores.open import open_store
from limpet_contract.bench import Bench
from limpet_contract.hand import next_seq
from limpet_contract.harness import Clock
from tests.servers.flavours import REDIS
from tests.servers.fleet import until
from tests.servers.redis import Aof, RedisServer, own

AOFS: tuple[Aof, ...] = ("everysec", "always")
BATCH = 7

PRODUCER = """
import asyncio, sys, time
from limpet.core.errors import StoreError
from limpet.core.jobs.ids import IdMaker
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.stores.open import open_store

async def main(url, batch):
    store, ids, lane, policy = open_store(url), IdMaker(), Lane("default", "work"), Policy()
    while True:
        jobs = [Job(id, lane, policy, b"{}") for id in ids.make_many(int(batch), time.time_ns() // 1_000_000)]
        try:
            await store.enqueue(jobs)
        except StoreError as error:
            sys.stderr.write(error.code)
            return await store.close()
        sys.stdout.write("".join(job.id.hex() + "\\n" for job in jobs))
        sys.stdout.flush()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(params=AOFS)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A server with every way of flushing."""
    with own(REDIS, aof=request.param) as server:
        yield server


def produce(url: str) -> subprocess.Popen[bytes]:
    """A process that enqueues without a pause and prints the ids that were acknowledged."""
    command = [sys.executable, "-c", PRODUCER, url, str(BATCH)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def some(acknowledged: IO[bytes] | None, count: int) -> list[bytes]:
    assert acknowledged is not None
    return [bytes.fromhex(acknowledged.readline().decode()) for _ in range(count)]


def rest(acknowledged: IO[bytes] | None) -> list[bytes]:
    assert acknowledged is not None
    return [bytes.fromhex(line.decode()) for line in acknowledged if len(line) == 33]


async def test_a_job_that_was_acknowledged_survives_kill_minus_9_of_the_server(
    server: RedisServer, store: Store
) -> None:
    with produce(f"{server.url}?timeout=1.5") as producer:
        ids = some(producer.stdout, 300)
        server.kill()
        ids += rest(producer.stdout)
        assert producer.stderr is not None
        # Whether the last batch was under way when the server died, nobody can know for sure.
        assert producer.stderr.read().split()[-1] in (b"store_unreachable", b"store_timeout")
    server.start()
    await stored_once(store, ids, server.aof)


async def test_a_producer_works_through_kills_of_the_server_and_stores_each_job_once(
    server: RedisServer, store: Store
) -> None:
    with produce(f"{server.url}?timeout=60") as producer:
        ids = some(producer.stdout, 70)
        for _ in range(3):
            server.kill()
            server.start()
            ids += some(producer.stdout, 70)
        producer.send_signal(signal.SIGKILL)
        ids += rest(producer.stdout)
    await stored_once(store, ids, server.aof)


async def stored_once(store: Store, ids: list[bytes], aof: Aof | None) -> None:
    """Flushed always: all are there. Flushed every second: what is missing is what a kill caught in the buffer."""
    found: list[bool] = []
    for start in range(0, len(ids), 1_000):
        views = await store.get(ids[start : start + 1_000])
        found += [view is not None and view.state is State.ready for view in views]
    missing = found.count(False)
    batches = {
        all(found[start : start + BATCH]) or not any(found[start : start + BATCH])
        for start in range(0, len(found), BATCH)
    }
    assert batches == {True}, "a batch is stored whole or not at all"
    assert missing == 0 or aof == "everysec"
    counts = await store.count()
    assert counts.enqueued == counts.total(State.ready)
    assert counts.enqueued % BATCH == 0
    assert found.count(True) <= counts.enqueued <= found.count(True) + BATCH, "one batch may be stored and unheard"


async def test_leases_survive_a_kill_of_the_server_and_tokens_grow(server: RedisServer, store: Store) -> None:
    bench = Bench(store, Clock())
    await bench.add_many(10)
    hand = bench.hand()
    jobs = await hand.claim(6)
    await hand.succeed(*jobs[:2], result=b'"kept"')
    server.kill_when_written()
    server.start()
    held = {(each.id, each.token) for each in await store.held(hand.session)}
    assert held == {(job.id, job.token) for job in jobs[2:]}
    assert [view.result for view in await store.get([job.id for job in jobs[:2]]) if view] == [b'"kept"'] * 2
    assert {each.answer for each in await hand.succeed(*jobs[:2])} == {"stale"}
    assert {each.answer for each in await hand.succeed(*jobs[2:])} == {"done"}
    later = await hand.claim(4)
    assert len(later) == 4
    assert min(job.token for job in later) > max(job.token for job in jobs)
    await bench.check_books()


async def test_a_lost_answer_is_given_again_after_a_kill_of_the_server(server: RedisServer, store: Store) -> None:
    bench = Bench(store, Clock())
    await bench.add_many(6)
    hand = bench.hand()
    await hand.beat()
    claim_seq, settle_seq = next_seq(), next_seq()
    claimed = await hand.ask(3, seq=claim_seq)
    server.kill_when_written()
    server.start()
    again = await hand.ask(3, seq=claim_seq)
    assert [(job.id, job.token) for job in again.jobs] == [(job.id, job.token) for job in claimed.jobs]
    ending = Succeed(claimed.jobs[0].id, claimed.jobs[0].token)
    settled = await hand.settle(ending, seq=settle_seq)
    server.kill_when_written()
    server.start()
    assert await hand.settle(ending, seq=settle_seq) == settled
    assert settled[0].answer == "done"
    counts = await store.count()
    assert (counts.succeeded, counts.total(State.running), counts.stale) == (1, 2, 0)
    await bench.check_books()


@pytest.mark.parametrize("compacted", [False, True], ids=["log", "rewritten log"])
async def test_everything_that_is_stored_survives_a_kill_of_the_server(
    server: RedisServer, store: Store, compacted: bool
) -> None:
    bench = Bench(store, Clock())
    await furnish(bench)
    if compacted:
        server.ask("BGREWRITEAOF")
        until("the log is rewritten", lambda: b"aof_rewrite_in_progress:0" in server.ask("INFO", "persistence"))
    before = await seen(bench)
    server.kill_when_written()
    server.start()
    assert await seen(bench) == before
    await bench.check_books()


async def furnish(bench: Bench) -> None:
    """One of everything that a store can hold."""
    parent = await bench.add(task="parent")
    await bench.add(task="child", after=(parent,))
    await bench.add(delay_ms=60_000)
    await bench.add(expires_ms=60_000, tags=("a", "b"), meta=b'{"m":1}')
    await bench.add(args=b'{"a":"' + b"x" * 5_000 + b'"}', unique=Unique("u"))
    await bench.declare(GateRule("limit:k", concurrency=1))
    await bench.add_many(3, keys=("k",), tenant="acme")
    hand = bench.hand()
    running = await hand.claim(5)
    await hand.save(running[0], Note("checkpoint", "", b"7"))
    await hand.succeed(running[1], result=b'{"r":1}')
    await hand.bury(running[2])
    await hand.fail(running[3], delay_ms=5_000)
    now_ms = bench.clock.now_ms
    await bench.change(GateChange("queue:other", pause=Pause("ada", "lunch", now_ms)))
    await bench.store.put_control(Control("weight", "queue:default", b"3"))
    await bench.store.append([Entry("audit", now_ms, "pause", "ada", reason="lunch")])


async def seen(bench: Bench) -> list[object]:
    """All that can be asked of a store."""
    store, jobs = bench.store, await bench.everything()
    return [
        jobs,
        [await attempts_of(store, job.id) for job in jobs],
        await store.count(),
        await store.gates(),
        (await store.count(queues=True)).queues,
        await store.causes(),
        await store.sessions(),
        await store.controls("weight"),
        await store.read("audit"),
        [await store.held(view.session) for view in await store.sessions()],
    ]


async def test_without_an_append_only_file_the_store_says_so() -> None:
    with own(REDIS) as server:
        store = open_store(server.url)
        findings = await examined(store).check()
        await store.close()
    assert [finding for finding in findings if finding.level != "ok"], findings
