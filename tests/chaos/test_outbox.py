"""kill -9 of the relay, between any two of its steps and at any moment: every committed job arrives once, in order.

After each kill the store runs what has arrived and forgets it, ids included: what came twice would be counted twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest

from limpet.core.jobs.view import Retention
from limpet.stores.open import open_store
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from limpet_contract.seeds import seed_of
from tests.chaos.field import PATIENCE_S, ROOT
from tests.outbox.ground import Ground
from tests.servers.flavours import REDIS
from tests.servers.installations import POSTGRES
from tests.servers.postgres import own as own_postgres
from tests.servers.redis import RedisServer, own
from tests.size import FULL, in_matrix

pytestmark = pytest.mark.redis

FORGOTTEN_MS = 1_200_000  # an id is remembered for ten minutes
KILLS = 25 if FULL else 12
# With LIMPET_FULL=1 (`make matrix`) before every step; else before every third.
EVERY = 1 if FULL else 3
PRODUCERS = 2


@pytest.fixture(params=["sqlite", "postgres"])
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    """The user's database, as people run it: flushed with every commit."""
    with contextlib.ExitStack() as servers:
        if request.param == "sqlite":
            ground = Ground(f"sqlite:///{tmp_path}/app.db")
        else:
            ground = Ground(servers.enter_context(own_postgres(POSTGRES)).url)
        with ground.transaction() as conn:
            for statement in ground.outbox.schema.split(";"):
                conn.execute(statement)
        yield ground


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with own(REDIS, aof="everysec") as server:
        yield server


@pytest.fixture
async def bench(server: RedisServer) -> AsyncIterator[Bench]:
    bench = Bench(open_store(server.url), Clock())
    yield bench
    await bench.check_books()
    await bench.store.close()


async def run_and_forget(bench: Bench) -> list[Any]:
    """Run what has arrived, and let the store forget that it ever did; the jobs' arguments, in the order they ran."""
    hand, ran = bench.hand(f"w{bench.clock.advance(1_000)}"), []
    while jobs := await hand.claim(100):
        ran += [msgspec.json.decode(job.args) for job in jobs]
        await hand.succeed(*jobs)
    await hand.leave()
    bench.clock.advance(FORGOTTEN_MS)
    while await bench.store.prune(Retention(succeeded_ms=0), now_ms=bench.clock.now_ms):
        pass
    return ran


async def order(ground: Ground, conn: Any, name: str, number: int, *, commit: bool = True) -> None:
    """One transaction of a producer's."""
    args = msgspec.json.encode([name, number, commit])
    await ground.outbox.put(conn, [ground.job(args=args)])
    if commit:
        conn.commit()
    else:
        conn.rollback()


# -- between any two steps


@contextlib.contextmanager
def relays(ground: Ground, store: str, batch: int) -> Iterator[subprocess.Popen[str]]:
    """A process that starts relays which kill themselves."""
    command = [sys.executable, str(ROOT / "tests" / "chaos" / "start_relay.py"), ground.url, store]
    process = subprocess.Popen(
        [*command, ground.namespace, str(batch)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def start(process: subprocess.Popen[str], kill_at: int) -> str:
    """What became of a relay that ends itself at this boundary."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{kill_at}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


@pytest.mark.timeout(1_500 if FULL else 900)
async def test_a_relay_killed_between_any_two_steps(ground: Ground, bench: Bench, server: RedisServer) -> None:
    ran: list[Any] = []
    number, kills, step = 0, 0, 1
    with relays(ground, server.url, 2) as process, contextlib.closing(ground.connect()) as conn:
        while True:
            for _ in range(3):  # two batches
                await order(ground, conn, "a", number)
                number += 1
                await order(ground, conn, "a", number, commit=False)
            answer = await asyncio.to_thread(start, process, step)
            ran += await run_and_forget(bench)
            if answer != "killed":
                break
            kills += 1
            step += EVERY
            assert await asyncio.to_thread(start, process, 0) != "killed"
            ran += await run_and_forget(bench)
    assert answer.startswith("ended ")
    assert kills == -(-int(answer.removeprefix("ended ")) // EVERY)
    assert kills * EVERY > 40
    assert ran == [["a", each, True] for each in range(number)]
    assert (await bench.store.count()).enqueued == number
    assert ground.left() == []


# -- at any moment


def relay(ground: Ground, store: str, *, heard: bool = True) -> subprocess.Popen[str]:
    """The command, as people start it. When its log is not heard, it must not fill a pipe."""
    words = ["outbox", "--url", store, "--outbox", ground.url, "--batch", "3"]
    command = [sys.executable, "-m", "limpet.cli", *words]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_")}
    log = subprocess.PIPE if heard else subprocess.DEVNULL
    return subprocess.Popen(command, env=kept, cwd=ROOT, stderr=log, text=True)


def hear(process: subprocess.Popen[str], word: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if word in line:
            return
    raise AssertionError(f"it ended without saying {word!r}")


async def produce(ground: Ground, name: str, stop: asyncio.Event, seed: int) -> int:
    """Transactions one after the other, every fifth of them undone; how many were committed."""
    rng, number = random.Random(seed), 0
    with contextlib.closing(ground.connect()) as conn:
        while not stop.is_set():
            undone = rng.random() < 0.2
            await order(ground, conn, name, number, commit=not undone)
            number += not undone
            await asyncio.sleep(rng.uniform(0, 0.02))
    return number


@pytest.mark.parametrize(
    "ground", ["postgres", *in_matrix("a relay makes the same calls beside SQLite", "sqlite")], indirect=True
)
@pytest.mark.timeout(1_500 if FULL else 900)
async def test_a_relay_killed_at_any_moment(
    ground: Ground, bench: Bench, server: RedisServer, request: pytest.FixtureRequest
) -> None:
    seed = seed_of(crc32(request.node.nodeid.encode()))
    rng, stop, ran = random.Random(seed), asyncio.Event(), []
    producers = [asyncio.create_task(produce(ground, f"p{n}", stop, seed + n)) for n in range(PRODUCERS)]
    busy = 0  # kills of a relay that had relayed something
    for _ in range(KILLS):
        process = relay(ground, server.url)
        try:
            await asyncio.to_thread(hear, process, "relay started")
            for _ in range(rng.randrange(4)):
                await asyncio.to_thread(hear, process, " relayed ")
            await asyncio.sleep(rng.uniform(0, 0.03))
        finally:
            process.kill()
            process.communicate()
        got = await run_and_forget(bench)
        busy += bool(got)
        ran += got
    stop.set()
    committed = dict(zip((f"p{n}" for n in range(PRODUCERS)), await asyncio.gather(*producers), strict=True))
    last = relay(ground, server.url, heard=False)
    while ground.left():  # noqa: ASYNC110  # another process empties it
        await asyncio.sleep(0.05)
    last.terminate()
    last.communicate(timeout=PATIENCE_S)
    ran += await run_and_forget(bench)
    assert busy > KILLS / 3
    for name, count in committed.items():
        assert [each for each in ran if each[0] == name] == [[name, number, True] for number in range(count)]
    assert (await bench.store.count()).enqueued == sum(committed.values()) == len(ran)
