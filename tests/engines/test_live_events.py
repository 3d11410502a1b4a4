"""Live events between real processes on every engine: readers and publishers that are killed, frozen or cut off."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from limpet import Limpet, State
from limpet.core.errors import StoreError
from limpet.core.jobs.lease import Beat, Serves
from limpet.ops import EventStream
from limpet.records import EventGap, JobEvent
from limpet.stores.asking import broadcasting
from limpet.stores.base import READER
from limpet.stores.open import open_store
from tests.flows.conftest import ENGINES, app_on
from tests.servers import postgres, redis
from tests.servers.flavours import REDIS
from tests.servers.installations import POSTGRES

WITHIN_S = 100
MANY = 3_000
SERVERS: dict[str, Callable[[], AbstractContextManager[redis.RedisServer | postgres.PostgresServer]]] = {
    "redis": lambda: redis.own(REDIS, aof="always"),
    "postgres": lambda: postgres.own(POSTGRES),
}
ENQUEUES = """
import asyncio, signal, sys, time
from limpet import Limpet, State
app = Limpet(sys.argv[1], namespace=sys.argv[2])
async def main():
    await app.store.now()
    for number in range(3):
        await app.enqueue("other", {})
    signal.raise_signal(signal.SIGKILL)
asyncio.run(main())
"""


@pytest.fixture(params=ENGINES)
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Limpet]:
    app = app_on(request.param, tmp_path, "?timeout=60")

    @app.task(name="nothing")
    async def nothing() -> None: ...

    yield app
    await app.close()


@contextmanager
def reading(app: Limpet, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that follows live events."""
    command = [sys.executable, "-m", "limpet.cli", "events", "--follow", "--jsonl", *words]
    process = subprocess.Popen(
        [*command, "--url", app.url, "--namespace", app.namespace], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate(timeout=WITHIN_S)


async def until_listened(app: Limpet) -> None:
    """Return when there is a reader."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            if await app.store.controls(READER[0]):
                return
            await asyncio.sleep(0.01)


async def line(process: subprocess.Popen[bytes]) -> Any:
    """The next line that it prints."""
    assert process.stdout is not None
    read = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), WITHIN_S)
    return msgspec.json.decode(read)


async def states(stream: EventStream, count: int) -> list[str]:
    """The states of the next changes."""
    async with asyncio.timeout(WITHIN_S):
        found = [await anext(stream) for _ in range(count)]
    return [event.state for event in found if isinstance(event, JobEvent)]


async def nothing_waits(app: Limpet) -> None:
    """A worker has run all there was, and each job succeeded."""
    await app.work(until_empty=True)
    counts = await app.store.count()
    assert {state.value for _, _, state in counts.now} <= {"succeeded"}


async def test_another_process_is_told_and_costs_nothing_soon_after_it_was_killed(app: Limpet) -> None:
    await app.store.open()
    with reading(app, "task:nothing") as reader:
        await until_listened(app)
        job = await app.enqueue("nothing", {})
        await app.work(until_empty=True)
        told = [await line(reader) for _ in range(3)]
        assert [(each["kind"], each["state"], each["job"]) for each in told] == [
            ("enqueued", "ready", job.id),
            ("claimed", "running", job.id),
            ("succeeded", "succeeded", job.id),
        ]
        reader.kill()
        reader.wait(WITHIN_S)
        (control,) = await app.store.controls(READER[0])
        until_ms = int(control.value)
        assert until_ms <= await app.store.now() + 15_000
        serves = Serves()
        assert (await app.store.beat(Beat("late", 15_000, serves), now_ms=until_ms - 1)).listened
        assert not (await app.store.beat(Beat("late", 15_000, serves), now_ms=until_ms)).listened
        await app.enqueue("nothing", {})
        await nothing_waits(app)


async def test_a_frozen_reader_does_not_hold_up_a_drain_and_learns_that_it_missed_something(app: Limpet) -> None:
    await app.store.open()
    with reading(app) as reader:
        await until_listened(app)
        await app.enqueue("nothing", {})
        assert (await line(reader))["kind"] == "enqueued"
        reader.send_signal(signal.SIGSTOP)
        async with app.events("task:nothing state:succeeded") as here:
            for _ in range(5):
                await app.enqueue_many(app.tasks["nothing"].job() for _ in range(MANY // 5))
                await nothing_waits(app)
            seen = 0
            async with asyncio.timeout(WITHIN_S):
                while seen < MANY + 1:
                    event = await anext(here)
                    assert not isinstance(event, EventGap), "the reader beside it misses nothing"
                    seen += 1 if isinstance(event, JobEvent) else event.count
            reader.send_signal(signal.SIGCONT)
            told = 1  # the one that it has shown
            async with asyncio.timeout(WITHIN_S):
                while told < 3 * MANY:
                    shown = await line(reader)
                    if shown["type"] == "gap":
                        break
                    told += shown.get("count", 1)


async def test_a_publisher_that_is_killed_loses_only_its_own_last_events(app: Limpet) -> None:
    await app.store.open()
    async with app.events() as stream:
        killed = await asyncio.create_subprocess_exec(sys.executable, "-c", ENQUEUES, app.url, app.namespace)
        assert await asyncio.wait_for(killed.wait(), WITHIN_S) == -signal.SIGKILL
        assert (await app.store.count()).total(State.ready) == 3
        await app.enqueue("nothing", {})
        async with asyncio.timeout(WITHIN_S):
            while True:
                event = await anext(stream)
                assert isinstance(event, JobEvent)
                if event.task == "nothing":
                    break


@pytest.mark.parametrize("engine", SERVERS)
async def test_a_store_that_was_away_is_a_gap_and_then_events_come_again(engine: str) -> None:
    with SERVERS[engine]() as server:
        app = Limpet(server.url, enqueue_timeout=60)
        async with app, app.events() as stream:
            await app.enqueue("nothing", {})
            assert await states(stream, 1) == ["ready"]
            if isinstance(server, redis.RedisServer):
                server.kill()
            else:
                server.stop()
            server.start()
            async with asyncio.timeout(WITHIN_S):
                gap = await anext(stream)
            assert isinstance(gap, EventGap)
            assert gap.reason == "lost"
            await app.enqueue("nothing", {})
            assert await states(stream, 1) == ["ready"]


@pytest.mark.sqlite
async def test_a_folder_of_sockets_that_is_gone_is_a_gap(tmp_path: Path) -> None:
    app = app_on("sqlite", tmp_path)
    async with app, app.events() as stream:
        shutil.rmtree(f"{tmp_path}/jobs.db-wake")
        async with asyncio.timeout(WITHIN_S):
            assert isinstance(await anext(stream), EventGap)
        await app.enqueue("nothing", {})
        assert await states(stream, 1) == ["ready"]


@pytest.mark.parametrize("engine", ENGINES)
async def test_namespaces_of_one_store_hear_only_their_own(engine: str, tmp_path: Path) -> None:
    one, two = app_on(engine, tmp_path), app_on(engine, tmp_path)
    async with one, two, one.events() as first, two.events() as second:
        await one.enqueue("one", {})
        await two.enqueue("two", {})
        for stream, task in ((first, "one"), (second, "two")):
            async with asyncio.timeout(WITHIN_S):
                event = await anext(stream)
            assert isinstance(event, JobEvent)
            assert event.task == task


@pytest.mark.redis
async def test_databases_of_one_server_hear_only_their_own() -> None:
    with redis.own(REDIS) as server:
        stores = [
            open_store(f"{server.url}/{number}" if server.url.count("/") < 3 else server.url) for number in (0, 1)
        ]
        heard: asyncio.Queue[str | None] = asyncio.Queue()
        stop = await broadcasting(stores[0]).subscribe(heard.put_nowait)
        await broadcasting(stores[1]).publish("1")
        await broadcasting(stores[0]).publish("0")
        assert await asyncio.wait_for(heard.get(), WITHIN_S) == "0"
        stop()
        for store in stores:
            await store.close()


@pytest.mark.redis
async def test_a_user_without_rights_to_the_channel_is_told_so_and_its_changes_are_made() -> None:
    with redis.own(REDIS) as server:
        rules = ["~{limpet:*}*", "resetchannels", "+@all", "-@dangerous", "+info", "+role", "+config|get"]
        server.ask("ACL", "SETUSER", "deaf", "on", ">secret", *rules)
        app = Limpet(server.url.replace("redis://", "redis://deaf:secret@"))
        async with app:
            await broadcasting(app.store).announce(await app.store.now() + 60_000)
            await app.enqueue("nothing", {})
            with pytest.raises(StoreError, match="does not permit") as refused:
                async with app.events():
                    raise AssertionError
            assert "&{limpet:*}*" in refused.value.fix
