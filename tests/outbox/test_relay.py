"""A relay in time: it hears of commits, waits out trouble on either side, and ends when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, cast

import pytest

from limpet.core.errors import StoreCorrupt, StoreFull, StoreUnreachable
from limpet.core.gate import GateChange, GateRule
from limpet.core.jobs.job import Enqueued, Job
from limpet.outbox import postgres as postgres_room
from limpet.outbox import relay as relay_room
from limpet.outbox import sqlite as sqlite_room
from limpet.outbox.carrier import Report
from limpet.outbox.relay import Relay
from limpet.outbox.table import Table
from limpet.stores.open import open_store
from limpet.stores.sqlite import SqliteStore
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.outbox.ground import Ground, drain
from tests.servers.flavours import REDIS
from tests.servers.installations import POSTGRES
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import own as own_postgres
from tests.servers.postgres import shared
from tests.servers.process import running
from tests.servers.redis import own as own_redis

pytestmark = [pytest.mark.redis, pytest.mark.postgres]

PATIENCE_S = 60


class WithGate(SqliteStore):
    """The real engine in memory; a test may hold its relays up, or let them fail."""

    def __init__(self) -> None:
        super().__init__(None)
        self.open_gate = asyncio.Event()
        self.open_gate.set()
        self.asked = asyncio.Event()
        self.arrived = asyncio.Event()
        self.trouble: list[Exception] = []

    async def relay(
        self,
        source: str,
        batch: int,
        jobs: Sequence[Job],
        rules: Sequence[GateRule] = (),
        *,
        always: bool = False,
        now_ms: int | None = None,
    ) -> list[Enqueued] | None:
        self.asked.set()
        await self.open_gate.wait()
        if self.trouble:
            raise self.trouble.pop()
        answers = await super().relay(source, batch, jobs, rules, always=always, now_ms=now_ms)
        self.arrived.set()
        return answers


@pytest.fixture
async def store() -> AsyncIterator[WithGate]:
    store = WithGate()
    yield store
    await store.close()


@contextlib.asynccontextmanager
async def at_work(relay: Relay) -> AsyncIterator[asyncio.Event]:
    """A relay that runs beside the block; it ends well when the block does."""
    stop = asyncio.Event()
    task = asyncio.create_task(relay.run(stop))
    try:
        yield stop
    finally:
        stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await task


async def until(true: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if await true():
                return
            await asyncio.sleep(0.01)


# -- hearing


class Drowsy:
    """The real table; it says when whoever uses it falls asleep."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.asleep = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    async def wait(self, timeout_s: float) -> None:
        self.asleep.set()
        await self._table.wait(timeout_s)
        self.asleep.clear()


async def test_a_commit_is_heard_of_long_before_the_next_look(
    ground: Ground, store: WithGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_room, "IDLE_S", 600)
    table = Drowsy(ground.table())
    async with at_work(Relay(store, cast(Table, table))):
        for _ in range(3):
            async with asyncio.timeout(PATIENCE_S):
                await table.asleep.wait()
            store.arrived.clear()
            await ground.add(1)
            async with asyncio.timeout(PATIENCE_S):
                await store.arrived.wait()


async def test_what_a_turn_has_seen_wakes_nobody_after_it(ground: Ground) -> None:
    table = ground.table()
    async with table.turn():
        pass
    await ground.add(2)
    async with table.turn():
        pass
    sleeper = asyncio.create_task(table.wait(PATIENCE_S))
    await asyncio.wait({sleeper}, timeout=0.3)
    assert not sleeper.done()
    await ground.add(1)
    async with asyncio.timeout(PATIENCE_S / 2):
        await sleeper


async def test_another_namespace_wakes_nobody_here(postgres_ground: Ground) -> None:
    other, table = Ground(postgres_ground.url, "other"), postgres_ground.table()
    async with table.turn():
        pass
    sleeper = asyncio.create_task(table.wait(PATIENCE_S))
    await other.add(1)
    other_table = other.table()
    async with other_table.turn():
        pass
    await asyncio.wait({sleeper}, timeout=0.2)
    assert not sleeper.done()
    await postgres_ground.add(1)
    async with asyncio.timeout(PATIENCE_S / 2):
        await sleeper
    await other.close()


async def test_what_is_told_of_during_a_turn_is_not_slept_through(postgres_ground: Ground) -> None:
    table = postgres_ground.table()
    async with table.turn() as turn:
        assert turn is not None
        assert await turn.fresh(1, ()) == []
        await postgres_ground.add(1)
        await turn.under_way()  # the notice comes with an answer
        await turn.holds(["nobody"])
    async with asyncio.timeout(PATIENCE_S):
        await table.wait(600)


async def test_through_a_pooler_that_tells_nothing_a_job_waits_for_the_next_look(store: WithGate) -> None:
    with running(PgBouncer(shared(POSTGRES))) as pooler:
        ground = Ground(pooler.url_of("postgres"))
        await ground.table().create()
        ground.ask("DELETE FROM limpet_outbox")
        async with at_work(Relay(store, ground.table())):
            await ground.add(20)

            async def all_there() -> bool:
                return (await store.count()).enqueued == 20

            await until(all_there)
        await ground.close()


async def test_a_relay_that_vanished_in_its_turn_does_not_keep_others_out_for_ever(
    postgres_ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_room, "VANISHED_MS", 100)
    vanished, other = postgres_ground.table(), postgres_ground.table()

    async def others_turn() -> bool:
        async with other.turn() as turn:
            return turn is not None

    async def vanish() -> None:
        async with vanished.turn() as turn:
            assert turn is not None
            monkeypatch.undo()  # the turns of those who are only slow last as long as they like
            await until(others_turn)

    with pytest.raises(StoreUnreachable, match="cannot be reached"):
        await vanish()
    async with vanished.turn() as turn:
        assert turn is not None  # it is alive after all, and begins anew


# -- ending


async def test_it_says_what_it_did_when_it_is_told_to_stop(
    ground: Ground, store: WithGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_room, "GRACE_S", PATIENCE_S)
    await ground.add(3)
    relay = Relay(store, ground.table())
    async with at_work(relay):
        async with asyncio.timeout(PATIENCE_S):
            await store.arrived.wait()
    assert relay.report == Report(relayed=3)
    assert ground.left() == []


async def test_once_ends_when_nothing_is_left_that_can_go(ground: Ground, store: WithGate) -> None:
    await Bench(store, Clock()).change(GateChange("queue:old", drain=True))
    await ground.add(3)
    await ground.add(1, queue="old")
    await ground.add(1, after=(ground.ids.make(1),))
    report = await Relay(store, ground.table()).run(asyncio.Event(), once=True)
    assert report == Report(relayed=3, failed=1)
    tally = await ground.table().tally()
    assert (tally.waiting, tally.failed) == (1, 1)
    assert tally.oldest_ms is not None


async def test_a_store_that_does_not_answer_is_not_waited_for_at_the_end(
    ground: Ground, store: WithGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_room, "GRACE_S", 0.05)
    await ground.add(2)
    store.open_gate.clear()
    async with at_work(Relay(store, ground.table())), asyncio.timeout(PATIENCE_S):
        await store.asked.wait()
    store.open_gate.set()
    assert await Relay(store, ground.table()).run(asyncio.Event(), once=True) == Report(relayed=2)
    assert (await store.count()).enqueued == 2


async def test_a_relay_that_is_cancelled_leaves_what_another_finds(ground: Ground, store: WithGate) -> None:
    await ground.add(2)
    store.open_gate.clear()
    task = asyncio.create_task(Relay(store, ground.table()).run(asyncio.Event()))
    async with asyncio.timeout(PATIENCE_S):
        await store.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    store.open_gate.set()
    assert await Relay(store, ground.table()).run(asyncio.Event(), once=True) == Report(relayed=2)


# -- trouble


async def test_trouble_that_passes_is_waited_out(ground: Ground, store: WithGate) -> None:
    store.trouble = [StoreFull("no room"), StoreUnreachable("nobody there")]
    ids = await ground.add(2)
    async with at_work(Relay(store, ground.table())), asyncio.timeout(PATIENCE_S):
        await store.arrived.wait()
    assert await Bench(store, Clock()).hand().drain() == ids
    assert store.trouble == []


async def test_trouble_that_does_not_pass_ends_the_relay(ground: Ground, store: WithGate) -> None:
    store.trouble = [StoreCorrupt("unreadable")]
    await ground.add(1)
    with pytest.raises(StoreCorrupt):
        await Relay(store, ground.table()).run(asyncio.Event())


async def test_once_does_not_wait_out_trouble(ground: Ground, store: WithGate) -> None:
    store.trouble = [StoreUnreachable("nobody there")]
    await ground.add(1)
    with pytest.raises(StoreUnreachable, match="nobody there"):
        await Relay(store, ground.table()).run(asyncio.Event(), once=True)
    assert len(ground.left()) == 1


async def test_a_file_that_somebody_locks_is_waited_for(
    sqlite_ground: Ground, store: WithGate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_room, "BUSY_S", 0.01)

    async def noticed() -> bool:
        return "outbox is away" in caplog.text

    async def all_there() -> bool:
        return sqlite_ground.left() == []

    ids = await sqlite_ground.add(2)
    store.open_gate.clear()
    async with at_work(Relay(store, sqlite_ground.table())):
        async with asyncio.timeout(PATIENCE_S):
            await store.asked.wait()
        with contextlib.closing(sqlite_ground.connect()) as conn:
            conn.execute("BEGIN EXCLUSIVE")
            store.open_gate.set()  # they arrive, and cannot be removed
            await until(noticed)
            conn.rollback()
        ids += await sqlite_ground.add(1)
        await until(all_there)
    assert await Bench(store, Clock()).hand().drain() == ids


async def test_a_missing_database_is_not_made_and_is_waited_for_until_the_cut_off(store: WithGate, folder: Any) -> None:
    ground = Ground(f"sqlite:///{folder}/nowhere.db")
    for once in (Relay(store, ground.table()).begin(), Relay(store, ground.table()).run(asyncio.Event(), once=True)):
        with pytest.raises(StoreUnreachable, match="cannot be reached"):
            await once
    with pytest.raises(StoreUnreachable, match=r"nothing could be relayed for .* the outbox is away"):
        await Relay(store, ground.table(), cut_off_ms=100).run(asyncio.Event())
    assert list(folder.iterdir()) == []
    await ground.close()


async def test_a_relay_that_is_told_to_stop_before_it_reached_both_sides_ends(store: WithGate, folder: Any) -> None:
    ground, stop = Ground(f"sqlite:///{folder}/nowhere.db"), asyncio.Event()
    relaying = asyncio.create_task(Relay(store, ground.table()).run(stop))
    stop.set()
    async with asyncio.timeout(PATIENCE_S):
        assert await relaying == Report()
    await ground.close()


async def test_a_redis_without_room_keeps_jobs_in_the_outbox_until_there_is_some(sqlite_ground: Ground) -> None:
    with own_redis(REDIS) as server:
        bench = Bench(open_store(server.url), Clock())
        ids = await sqlite_ground.add(3)
        carrier = sqlite_ground.carrier(bench.store)
        await carrier.step()
        server.ask("CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(StoreFull):
            await carrier.step()
        assert (await bench.store.count()).enqueued == 0
        assert len(sqlite_ground.left()) == 3
        server.ask("CONFIG", "SET", "maxmemory", 0)
        await drain(carrier)
        assert await bench.hand().drain() == ids
        await bench.check_books()
        await bench.store.close()


async def test_jobs_arrive_once_while_the_redis_server_is_killed_and_started(sqlite_ground: Ground) -> None:
    with own_redis(REDIS, aof="always") as server:
        store = open_store(f"{server.url}?timeout=0.5")
        async with at_work(Relay(store, sqlite_ground.table(), batch=5)):
            ids: list[bytes] = []
            for _ in range(4):
                ids += await sqlite_ground.add(20)
                server.kill()
                ids += await sqlite_ground.add(5)
                server.start()

            async def all_there() -> bool:
                return sqlite_ground.left() == []

            await until(all_there)
        await store.close()
        store = open_store(server.url)  # which has all the time it needs
        assert (await store.count()).enqueued == len(ids)
        assert await Bench(store, Clock(None)).hand().drain() == ids
        await store.close()


async def test_jobs_arrive_once_while_the_postgresql_server_is_killed_and_started(store: WithGate) -> None:
    with own_postgres(POSTGRES) as server:
        ground = Ground(server.url)
        await ground.table().create()
        async with at_work(Relay(store, ground.table(), batch=5)):
            ids: list[bytes] = []
            for _ in range(3):
                ids += await ground.add(20)
                server.kill()
                server.start()

            async def all_there() -> bool:
                return ground.left() == []

            await until(all_there)
        assert (await store.count()).enqueued == len(ids)
        assert await Bench(store, Clock()).hand().drain() == ids
        await ground.close()
