"""Losing the server in every way, and finding it again: nobody hears of what passes in time."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import psycopg
import pytest

from limpet.core.errors import StoreError, StoreTimeout, StoreUnreachable
from limpet.stores.postgres.client import Client
from limpet.stores.postgres.url import PostgresUrl, parse_postgres
from limpet.stores.postgres.wakeup_receiver import WakeupReceiver
from limpet.stores.server.url import TIMEOUT_S
from limpet.stores.waiters import WORK, Waiters
from tests.engines.postgres.ways import PATIENT, PID, SLEEP, WAIT, held, pid, route_to, until, until_waiting
from tests.servers.door import door
from tests.servers.installations import POSTGRES, programs
from tests.servers.postgres import PostgresServer, own
from tests.servers.process import running
from tests.servers.servant import servant

SOON_S = 30.0  # half of the time that a client has here to try again and again


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with own(POSTGRES) as server:
        yield server


@pytest.fixture
async def client(server: PostgresServer) -> AsyncIterator[Client]:
    client = route_to(server, PATIENT)
    yield client
    client.drop()


async def under_way(server: PostgresServer) -> None:
    """Until a call sleeps on the server."""
    await until(lambda: server.ask("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))


# -- losing the server


async def test_a_killed_server_is_found_again_when_it_is_back(
    server: PostgresServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="limpet.stores.postgres")
    await pid(client)
    server.kill()
    waiting = [asyncio.create_task(pid(client)) for _ in range(20)]
    await until(lambda: caplog.records)
    server.start()
    await asyncio.gather(*waiting)
    messages = [record.getMessage() for record in caplog.records]
    assert [message.split(":")[0] for message in messages] == ["cannot reach postgresql", "connected to postgresql"]
    assert "again" in messages[1]


async def test_a_call_under_way_when_the_server_is_killed_is_asked_again(
    server: PostgresServer, client: Client
) -> None:
    server.ask("CREATE TABLE done (n integer)")
    slow = "INSERT INTO public.done SELECT 1 FROM pg_sleep(%b::double precision) RETURNING n"
    waiting = asyncio.create_task(client.row(slow, (0.5,), verb="test"))
    await under_way(server)
    server.kill()
    server.start()
    assert await waiting == (1,)
    assert server.ask("SELECT count(*) FROM done") == [(1,)]


async def test_a_call_that_must_not_be_repeated_is_not(server: PostgresServer, client: Client) -> None:
    waiting = asyncio.create_task(client.row(SLEEP, (60,), verb="pay", repeat=False))
    await under_way(server)
    server.kill()
    with pytest.raises(StoreUnreachable, match="so it may have happened") as caught:
        await waiting
    assert caught.value.fix == "check whether the job was stored before you retry"


async def test_a_restart_in_good_order_is_survived_by_everybody(server: PostgresServer, client: Client) -> None:
    working = True

    async def work() -> int:
        calls = 0
        while working:
            await client.row("SELECT %b::integer, pg_sleep(0.005)", (1,), verb="test")
            calls += 1
        return calls

    workers = [asyncio.create_task(work()) for _ in range(8)]
    for _ in range(2):
        await asyncio.sleep(0.2)
        server.restart()
    await pid(client)
    working = False
    assert all(calls > 0 for calls in await asyncio.gather(*workers))


async def test_a_connection_that_somebody_cut_while_it_was_idle_is_replaced_in_silence(
    server: PostgresServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        server.ask("SELECT pg_terminate_backend(%s)", await pid(client))
        assert await pid(client)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


async def test_a_connection_that_is_cut_under_a_call_is_replaced(server: PostgresServer, client: Client) -> None:
    number = await pid(client)
    with held(server):
        waiting = asyncio.create_task(client.row(WAIT, verb="test"))
        await until_waiting(server, 1)
        server.ask("SELECT pg_terminate_backend(%s)", number)
        await until(lambda: server.ask("SELECT 1 FROM pg_stat_activity WHERE pid = %s", number) == [])
    assert (await waiting)[0] != number


async def test_a_server_that_is_not_there_is_named_with_the_reason_by_the_deadline(server: PostgresServer) -> None:
    server.kill()
    client = Client(parse_postgres(f"postgresql://ada:hunter2@127.0.0.1:{server.port}/x?timeout=0.4"), "limpet")
    start = time.monotonic()
    with pytest.raises(StoreUnreachable) as caught:
        await client.row(PID, verb="enqueue")
    assert 0.3 < time.monotonic() - start < TIMEOUT_S
    text = str(caught.value)
    assert f"127.0.0.1:{server.port}" in text
    assert "Connection refused" in text
    assert "nothing was sent" in text
    assert "hunter2" not in text
    assert caught.value.verb == "enqueue"
    client.drop()


async def test_while_the_server_is_away_nobody_hammers_it(server: PostgresServer) -> None:
    """Many callers share one attempt at a time, with pauses that grow."""
    server.kill()
    knocks = 0

    async def slam(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal knocks
        knocks += 1

    async with door(slam, server.port) as port:
        client = Client(parse_postgres(f"postgresql://u@127.0.0.1:{port}/x?timeout=3&sslmode=disable"), "limpet")
        answers = await asyncio.gather(*(pid(client) for _ in range(100)), return_exceptions=True)
        client.drop()
    assert all(isinstance(answer, StoreUnreachable) for answer in answers)
    assert 2 <= knocks <= 16


async def test_a_frozen_server_is_given_up_by_the_deadline_and_used_again_when_it_lives(
    server: PostgresServer, client: Client
) -> None:
    await pid(client)
    server.freeze()
    start = time.monotonic()
    with pytest.raises(StoreTimeout, match=r"did not answer within 0\.5 s; the call may have happened all the same"):
        await client.rows(PID, verb="test", timeout_s=0.5)
    assert 0.4 < time.monotonic() - start < SOON_S
    with pytest.raises(StoreUnreachable):
        await client.rows(PID, verb="test", timeout_s=0.5)
    server.thaw()
    assert await pid(client)


async def test_a_statement_that_nobody_waits_for_any_more_is_stopped_on_the_server(
    server: PostgresServer, client: Client
) -> None:
    """It may wait for a lock, and hold others."""
    await pid(client)
    with pytest.raises(StoreTimeout):
        await client.rows(SLEEP, (600,), verb="test", timeout_s=0.4)
    await until(lambda: server.ask("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'") == [])
    assert await pid(client)


async def test_an_answer_that_got_lost_and_no_server_until_the_deadline_may_have_happened(
    server: PostgresServer, client: Client
) -> None:
    await pid(client)
    waiting = asyncio.create_task(client.rows(SLEEP, (60,), verb="settle", timeout_s=4))
    await under_way(server)
    server.kill()
    with pytest.raises(StoreTimeout, match="the call may have happened all the same"):
        await waiting


async def test_a_deadlock_is_repeated_until_it_is_none(server: PostgresServer, client: Client) -> None:
    server.ask("CREATE TABLE two (id integer PRIMARY KEY, n integer)")
    server.ask("INSERT INTO two VALUES (1, 0), (2, 0)")
    server.ask("ALTER DATABASE postgres SET deadlock_timeout = '20ms'")
    server.ask(
        "CREATE FUNCTION both_of_them() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN "
        "UPDATE two SET n = n + 1 WHERE id = 1; PERFORM pg_advisory_xact_lock_shared(4711); "
        "UPDATE two SET n = n + 1 WHERE id = 2; RETURN 1; END $$"
    )
    with closing(psycopg.connect(server.url)) as other:
        other.execute("SET deadlock_timeout = '10min'")  # it is not the one that gives way
        other.execute("UPDATE two SET n = n + 1 WHERE id = 2")
        with held(server):
            waiting = asyncio.create_task(client.row("SELECT public.both_of_them()", verb="test"))
            await until_waiting(server, 1)
            back = asyncio.to_thread(other.execute, "UPDATE two SET n = n + 1 WHERE id = 1")
            meeting = asyncio.create_task(back)
            await until_waiting(server, 2)
        await meeting
        other.commit()
    assert await waiting == (1,)
    assert server.ask("SELECT n FROM two") == [(2,), (2,)]
    assert "deadlock detected" in server.log(), "or nothing was tested"


async def test_the_error_of_a_store_that_cannot_be_reached_is_the_same_for_all(server: PostgresServer) -> None:
    server.kill()
    client = route_to(server, "timeout=0.3")
    for call in (client.row(PID, verb="a"), client.rows(PID, verb="a"), client.change(PID, verb="a")):
        with pytest.raises(StoreError) as caught:
            await call
        assert type(caught.value) is StoreUnreachable
    client.drop()


# -- another server takes over


def standby_of(primary: PostgresServer) -> PostgresServer:
    """A server that follows another, from a copy of its data."""
    standby = PostgresServer(primary.flavour)
    servant().give(standby.folder)
    words = [str(programs(primary.flavour) / "pg_basebackup"), "-D", str(standby.data), "-R", "-c", "fast"]
    words += ["-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres"]
    subprocess.run(words, check=True, capture_output=True, cwd="/", **servant().credentials())
    return standby


def test_a_failover_is_survived_by_calls_under_way_and_by_wake_ups() -> None:
    # No commit is acknowledged that the standby does not have, but for those before there is one.
    with own(POSTGRES, synchronous_standby_names="*") as server:
        with psycopg.connect(server.url, options="-c synchronous_commit=local") as line:
            line.execute("CREATE TABLE done (n integer PRIMARY KEY)")
            line.execute("CREATE SCHEMA hears")
            line.execute("CREATE FUNCTION hears.channel_1() RETURNS text LANGUAGE sql AS $$ SELECT 'all' $$")
        with running(standby_of(server)) as standby:
            hosts = f"127.0.0.1:{server.port},127.0.0.1:{standby.port}"
            url = parse_postgres(f"postgresql://postgres@{hosts}/postgres?{PATIENT}")
            asyncio.run(_fail_over(server, standby, url))
            assert standby.ask("SELECT count(*) FROM done") == [(40,)]


async def _fail_over(server: PostgresServer, standby: PostgresServer, url: PostgresUrl) -> None:
    client, waiters = Client(url, "limpet"), Waiters()
    receiver = WakeupReceiver(client.pool, "hears", waiters)
    await receiver.subscribe("one")
    sleeping = asyncio.create_task(waiters.sleep(b"one", 100))
    insert = "INSERT INTO public.done VALUES (%b::integer) ON CONFLICT DO NOTHING"
    await asyncio.gather(*(client.rows(insert, (number,), verb="test") for number in range(20)))
    waiting = [asyncio.create_task(client.rows(insert, (number,), verb="test")) for number in range(20, 40)]
    await asyncio.sleep(0)
    server.kill()
    standby.ask("SELECT pg_promote()", timeout_s=60)
    await asyncio.gather(*waiting)
    assert WORK in await sleeping, "what was told meanwhile is gone with the other server"
    receiver.drop()
    client.drop()
