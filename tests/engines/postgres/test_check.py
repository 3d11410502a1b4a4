"""What doctor and a start say about the server, and that the hot tables are kept small."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from limpet.core.errors import StoreError
from limpet.core.jobs.view import Finding
from limpet.stores.open import open_store
from limpet.stores.postgres import check, migrate, vacuum
from limpet.stores.postgres.client import Client
from limpet.stores.postgres.url import parse_postgres
from tests.engines.postgres.ways import until
from tests.servers.installations import POSTGRES
from tests.servers.postgres import PostgresServer, own


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with own(POSTGRES, max_prepared_transactions=1, wal_level="logical") as server:
        yield server


@pytest.fixture
async def client(server: PostgresServer) -> AsyncIterator[Client]:
    client = Client(parse_postgres(server.url), "limpet")
    await migrate.ready(client)
    yield client
    client.drop()


def set_to(server: PostgresServer, name: str, value: str | None) -> None:
    server.ask(f"ALTER SYSTEM RESET {name}" if value is None else f"ALTER SYSTEM SET {name} = {value}")
    server.ask("SELECT pg_reload_conf()")
    deadline = time.monotonic() + 60
    while value is not None and server.ask(f"SHOW {name}") != [(value.strip("'"),)]:
        assert time.monotonic() < deadline


async def found(server: PostgresServer, code: str, role: str = "postgres") -> list[Finding]:
    """What is said about it, on a connection that has heard of every change."""
    client = Client(parse_postgres(server.url.replace("postgres@", f"{role}@")), "limpet")
    try:
        return [finding for finding in await check.findings(client) if finding.code == code]
    finally:
        client.drop()


async def test_a_good_server_is_called_good(client: Client) -> None:
    findings = await check.findings(client)
    assert {finding.level for finding in findings} == {"ok"}
    assert {finding.code for finding in findings} >= {"version", "sync", "layout"}


@pytest.mark.parametrize(
    ("name", "value", "code", "level"),
    [
        ("fsync", "off", "sync", "error"),
        ("synchronous_commit", "off", "sync", "error"),
        ("full_page_writes", "off", "pages", "warning"),
        ("autovacuum", "off", "autovacuum", "error"),
        ("track_counts", "off", "autovacuum", "error"),
    ],
)
async def test_a_setting_that_may_lose_jobs_or_speed_is_found_with_its_fix(
    server: PostgresServer, client: Client, name: str, value: str, code: str, level: str
) -> None:
    set_to(server, name, value)
    try:
        (finding,) = await found(server, code)
        assert finding.level == level
        assert name in finding.text
        assert f"{name} = on" in finding.fix
    finally:
        set_to(server, name, None)


async def test_a_start_warns_and_a_strict_start_refuses(
    server: PostgresServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    strict = open_store(f"{server.url}?strict=1")
    await strict.open()
    await strict.close()
    set_to(server, "fsync", "off")
    try:
        strict = open_store(f"{server.url}?strict=1")
        with pytest.raises(StoreError, match="refused, because strict=1 and fsync is off") as caught:
            await strict.open()
        assert caught.value.fix == "set fsync = on"
        await strict.close()
        lax = open_store(server.url)
        await lax.open()
        await lax.close()
        assert [record.levelno for record in caplog.records if "fsync" in record.getMessage()] == [logging.ERROR]
    finally:
        set_to(server, "fsync", None)


async def test_a_transaction_that_stays_open_is_found(
    server: PostgresServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "OLD_S", -1)
    with closing(psycopg.connect(server.url, application_name="forgotten")) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT 1")
        (finding,) = await found(server, "old-transaction")
        assert "forgotten" in finding.text
        assert finding.fix == f"SELECT pg_terminate_backend({other.info.backend_pid})"
        assert finding.level == "warning"
    assert await found(server, "old-transaction") == []


async def test_a_prepared_transaction_that_nobody_ends_is_found(
    server: PostgresServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(psycopg.connect(server.url)) as other:
        other.execute("CREATE TABLE two_phase ()")
        other.execute("PREPARE TRANSACTION 'left alone'")
    monkeypatch.setattr(check, "OLD_S", -1)
    try:
        (finding,) = await found(server, "old-transaction")
        assert "prepared transaction left alone is open" in finding.text
        assert finding.fix == "ROLLBACK PREPARED 'left alone', or COMMIT PREPARED"
    finally:
        server.ask("ROLLBACK PREPARED 'left alone'")
    assert await found(server, "old-transaction") == []


async def test_a_replication_slot_that_nobody_reads_is_found(
    server: PostgresServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await found(server, "old-snapshot") == []
    server.ask("SELECT pg_create_logical_replication_slot('idle', 'pgoutput')")
    monkeypatch.setattr(check, "OLD_XIDS", 3)
    try:
        assert await found(server, "old-snapshot") == []
        for _ in range(4):
            server.ask("SELECT pg_current_xact_id()")
        (finding,) = await found(server, "old-snapshot")
        assert finding.level == "warning"
        assert "replication slot idle" in finding.text
        assert "pg_drop_replication_slot('idle')" in finding.fix
    finally:
        server.ask("SELECT pg_drop_replication_slot('idle')")


async def test_a_role_that_cannot_see_others_is_told_which_grant_it_needs(
    server: PostgresServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.ask('CREATE ROLE "a worker" LOGIN')
    server.ask('GRANT USAGE ON SCHEMA limpet TO "a worker"')
    server.ask('GRANT SELECT ON limpet.migration TO "a worker"')
    monkeypatch.setattr(check, "OLD_S", -1)
    with closing(psycopg.connect(server.url, application_name="forgotten")) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT 1")
        assert await found(server, "old-transaction", "a%20worker") == []
        (finding,) = await found(server, "blind", "a%20worker")
        assert (finding.level, finding.fix) == ("warning", 'GRANT pg_read_all_stats TO "a worker"')
        server.ask(finding.fix)
        assert await found(server, "blind", "a%20worker") == []
        assert len(await found(server, "old-transaction", "a%20worker")) == 1


async def test_a_clock_that_differs_is_found(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    for shift, side in ((30, "behind"), (-30, "ahead of")):
        monkeypatch.setattr(time, "time", lambda shift=shift: real() + shift)
        (finding,) = [each for each in await check.findings(client) if each.code == "clock"]
        assert f"30.0 s {side} this machine's" in finding.text


def test_what_cannot_be_seen_here_is_said_as_it_should_be() -> None:
    facts: dict[str, Any] = {
        "number": 140_011,
        "version": "14.11",
        "fsync": True,
        "synchronous_commit": "on",
        "full_page_writes": True,
        "autovacuum": True,
        "encoding": "SQL_ASCII",
        "connections": 95,
        "max_connections": 100,
        "standbys": 1,
        "synchronous_standbys": "",
    }
    assert check._version(facts).level == "warning"
    assert [finding.code for finding in check._settings(facts)] == ["encoding", "connections"]
    assert [finding.code for finding in check._standbys(facts)] == ["standbys"]
    assert check._standbys({**facts, "synchronous_standbys": "ANY 1 (*)"}) == []
    assert check._standbys({**facts, "synchronous_standbys": "ANY 1 (*)", "synchronous_commit": "local"})
    (finding,) = check._bloat([("wait", 1_234_567)])
    assert "wait holds 1,234,567 dead rows" in finding.text


# -- the hot tables


async def test_dead_rows_of_a_hot_table_are_removed_once_a_minute_by_one_of_many(
    server: PostgresServer, client: Client
) -> None:
    await client.rows("ALTER TABLE lp.tally SET (autovacuum_enabled = off)", verb="test")  # it could be faster
    assert await vacuum.vacuum(client) == 0, "nothing is to be done"
    await client.rows("INSERT INTO lp.tally SELECT 1, '{1}', '{1}' FROM generate_series(1, 5000)", verb="test")
    await client.rows("DELETE FROM lp.tally", verb="test")
    await client.rows("SELECT pg_stat_force_next_flush()", verb="test")  # it would count them some seconds later
    dead = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE schemaname = 'limpet' AND relname = 'tally'"
    await until(lambda: server.ask(dead) >= [(vacuum.ENOUGH,)])
    assert await vacuum.vacuum(client) == 0, "this loop has looked a moment ago"
    others = [Client(parse_postgres(server.url), "limpet") for _ in range(3)]
    assert sum(await asyncio.gather(*(vacuum.vacuum(other) for other in others))) >= 1
    assert server.ask(dead) == [(0,)]
    last = Client(parse_postgres(server.url), "limpet")
    await client.rows("INSERT INTO lp.tally SELECT 1, '{1}', '{1}' FROM generate_series(1, 5000)", verb="test")
    await client.rows("DELETE FROM lp.tally", verb="test")
    await client.rows("SELECT pg_stat_force_next_flush()", verb="test")  # it would count them some seconds later
    await until(lambda: server.ask(dead) >= [(vacuum.ENOUGH,)])
    assert await vacuum.vacuum(last) == 0, "somebody did it less than a minute ago"
    await client.rows("ALTER TABLE lp.tally RESET (autovacuum_enabled)", verb="test")
    for other in (*others, last):
        other.drop()


async def test_a_table_that_is_locked_is_not_waited_for(server: PostgresServer, client: Client) -> None:
    with closing(psycopg.connect(server.url)) as other:
        other.execute("LOCK TABLE limpet.wait")
        await client.rows(vacuum._VACUUM.format("wait"), verb="vacuum", timeout_s=30)  # or it would wait in vain


async def test_vacuum_is_never_the_callers_trouble(server: PostgresServer) -> None:
    client = Client(parse_postgres("postgresql://u@127.0.0.1:1/x?timeout=0.2"), "limpet")
    assert await vacuum.vacuum(client) == 0
    client.drop()


async def test_every_hot_table_is_there(client: Client) -> None:
    rows = await client.rows("SELECT tablename::text FROM pg_tables WHERE schemaname = 'limpet'", verb="test")
    assert set(vacuum.HOT) <= {name for (name,) in rows}
