"""A schema that comes to another server, as a dump does, goes on there: its jobs, and new ones."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import psycopg
import pytest

from limpet.core.errors import WrongContext
from limpet.stores.open import open_store
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.servers.installations import POSTGRES, programs
from tests.servers.postgres import CARELESS, PostgresServer, running


@pytest.fixture
def servers() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """An old one and a fresh one, set up alike."""
    with (
        running(PostgresServer(POSTGRES, settings=CARELESS)) as old,
        running(PostgresServer(POSTGRES, settings=CARELESS)) as new,
    ):
        yield old, new


def carry(old: PostgresServer, new: PostgresServer) -> None:
    tools = programs(POSTGRES)
    dump = subprocess.run([tools / "pg_dump", "-d", old.url], capture_output=True, check=True).stdout
    subprocess.run(
        [tools / "psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", new.url], input=dump, check=True, capture_output=True
    )


async def test_a_dump_goes_on_elsewhere(servers: tuple[PostgresServer, PostgresServer]) -> None:
    old, new = servers
    for _ in range(500):  # it has lived for a while: its transactions have larger numbers than those of the other
        old.ask("SELECT pg_current_xact_id()")
    bench = Bench(open_store(old.url), Clock())
    for _ in range(20):
        await bench.add()
    hand = bench.hand()
    while jobs := await hand.claim(1):
        await hand.succeed(*jobs)
    kept = [await bench.add(), await bench.add(delay_ms=5_000)]
    await bench.store.close()
    carry(old, new)

    # The copy has the same system identifier here (both are of one template), so its numbers alone must tell.
    bench = Bench(open_store(new.url), bench.clock)
    hand = bench.hand()
    assert await hand.ids(5) == kept[:1]
    fresh = [await bench.add(task="another"), await bench.add(tenant="new")]
    assert set(await hand.ids(5)) == set(fresh)
    bench.clock.advance(5_000)
    assert await hand.ids(5) == kept[1:]
    await bench.store.close()


async def test_a_dump_is_known_by_its_server(servers: tuple[PostgresServer, PostgresServer]) -> None:
    """Also when the other server has long passed the numbers that came along."""
    old, new = servers
    bench = Bench(open_store(old.url), Clock())
    await bench.add()
    await bench.store.close()
    carry(old, new)
    for _ in range(50):
        new.ask("SELECT pg_current_xact_id()")
    new.ask("UPDATE limpet.home SET server = 1")  # as of another server
    new.ask("UPDATE limpet.floor SET filed = pg_current_snapshot()")  # by its numbers all is filed
    bench = Bench(open_store(new.url), bench.clock)
    assert len(await bench.hand().ids(5)) == 1
    await bench.store.close()


async def test_a_store_on_a_server_that_was_set_up_alike_is_another(
    servers: tuple[PostgresServer, PostgresServer],
) -> None:
    ours, other = (Bench(open_store(server.url), Clock()) for server in servers)
    await ours.store.open()
    await other.store.open()
    with psycopg.connect(servers[1].url) as conn, pytest.raises(WrongContext, match="does not hold this store"):
        await ours.joined.enqueue_on(conn, [ours.job()])
    await ours.store.close()
    await other.store.close()


async def test_a_schema_that_was_made_anew_is_still_ours(servers: tuple[PostgresServer, PostgresServer]) -> None:
    (server, _) = servers
    bench = Bench(open_store(server.url), Clock())
    for _ in range(2):
        with psycopg.connect(server.url) as conn:
            await bench.joined.enqueue_on(conn, [bench.job()])
        server.ask("DROP SCHEMA limpet CASCADE")
        again = open_store(server.url)
        await again.open()
        await again.close()
    await bench.store.close()
