"""The way to the server: few connections, shared fairly, found again after every kind of loss."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest

from limpet.core.errors import StoreUnreachable
from limpet.stores.postgres import pool
from limpet.stores.postgres.client import Client
from limpet.stores.server.client import PerLoop
from tests.engines.postgres.ways import (
    PATIENT,
    PID,
    SLEEP,
    WAIT,
    held,
    pid,
    route_to,
    until,
    until_waiting,
)
from tests.servers.flavours import ROOT
from tests.servers.installations import POSTGRES
from tests.servers.postgres import PostgresServer, own, shared


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with own(POSTGRES) as server:
        yield server


@pytest.fixture
async def client(server: PostgresServer) -> AsyncIterator[Client]:
    client = route_to(server, PATIENT)
    yield client
    client.drop()


@pytest.fixture
async def quiet() -> AsyncIterator[Client]:
    """A client to a server that nothing happens to."""
    client = route_to(shared(POSTGRES), PATIENT)
    yield client
    client.drop()


# -- connections


async def test_one_after_the_other_needs_one_connection(quiet: Client) -> None:
    assert len({await pid(quiet) for _ in range(20)}) == 1


async def test_at_once_needs_no_more_than_the_pool_and_nobody_is_forgotten() -> None:
    server = shared(POSTGRES)
    client = route_to(server, f"{PATIENT}&pool=3&application_name=three")
    with held(server):
        calls = [asyncio.create_task(client.row(WAIT, verb="test")) for _ in range(50)]
        await until_waiting(server, 3)
        assert server.ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'three'") == [(3,)]
    answers = await asyncio.gather(*calls)
    assert len({number for number, _ in answers}) == 3
    client.drop()


async def test_callers_are_served_in_the_order_in_which_they_came() -> None:
    client = route_to(shared(POSTGRES), f"{PATIENT}&pool=1")
    order: list[int] = []

    async def call(number: int) -> None:
        await client.row("SELECT %b::integer", (number,), verb="test")
        order.append(number)

    await asyncio.gather(*(call(number) for number in range(20)))
    assert order == list(range(20))
    client.drop()


async def test_a_caller_that_goes_away_leaves_its_connection_to_the_next() -> None:
    client = route_to(shared(POSTGRES), f"{PATIENT}&pool=1")
    here = await pid(client)
    for _ in range(5):
        busy = asyncio.create_task(client.row(SLEEP, (0.05,), verb="test"))
        waiting = asyncio.create_task(client.row(SLEEP, (0.05,), verb="test"))
        await asyncio.sleep(0.01)
        busy.cancel()
        waiting.cancel()
        assert await pid(client) == here
    client.drop()


async def test_when_all_connections_are_busy_until_the_time_is_over_the_pool_is_named() -> None:
    server = shared(POSTGRES)
    client = route_to(server, f"{PATIENT}&pool=1")
    with held(server):
        busy = asyncio.create_task(client.row(WAIT, verb="test"))
        await until_waiting(server, 1)
        with pytest.raises(StoreUnreachable, match="all 1 connections of this loop were in use") as caught:
            await client.rows(PID, verb="claim", timeout_s=0.3)
    assert "pool=" in caught.value.fix
    await busy
    assert await pid(client)
    client.drop()


async def test_connections_that_are_not_needed_any_more_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    server = shared(POSTGRES)
    client = route_to(server, f"{PATIENT}&pool=4&application_name=shrinks")
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'shrinks'"
    with held(server):
        calls = [asyncio.create_task(client.row(WAIT, verb="test")) for _ in range(4)]
        await until_waiting(server, 4)
    await asyncio.gather(*calls)
    assert server.ask(count) == [(4,)]
    monkeypatch.setattr(pool, "IDLE_S", 0.0)
    for _ in range(4):
        await client.row(PID, verb="test")
    await until(lambda: server.ask(count) == [(1,)])
    assert client.pool.reach.reconnects == 0, "what was let go of was not lost"
    client.drop()


async def test_a_statement_is_prepared_once_for_each_connection(quiet: Client) -> None:
    for number in range(5):
        await quiet.row("SELECT %b::bigint", (number,), verb="test")
        await quiet.row("SELECT %b::bigint", (1 << 40,), verb="test")
    prepared = await quiet.rows("SELECT statement FROM pg_prepared_statements", verb="test")
    assert [text for (text,) in prepared].count("SELECT $1::bigint") == 1


@pytest.mark.parametrize("prepare", ["yes", "no", "auto"])
async def test_statements_are_prepared_as_the_url_says(prepare: str) -> None:
    client = route_to(shared(POSTGRES), f"prepare={prepare}")
    await client.row("SELECT %b::bigint", (1,), verb="test")
    ((count,),) = await client.rows("SELECT count(*) FROM pg_prepared_statements", verb="test")
    assert bool(count) == (prepare != "no")
    client.drop()


async def test_prepared_statements_that_are_gone_are_prepared_again(quiet: Client) -> None:
    assert await quiet.row("SELECT %b::bigint", (1,), verb="test") == (1,)
    await quiet.rows("DEALLOCATE ALL", verb="test")
    assert await quiet.row("SELECT %b::bigint", (2,), verb="test") == (2,)


async def test_a_prepared_statement_whose_answer_has_changed_is_prepared_again(quiet: Client) -> None:
    await quiet.rows("CREATE SCHEMA IF NOT EXISTS changing", verb="test")
    await quiet.rows("CREATE TABLE changing.t AS SELECT 1 AS a", verb="test")
    assert await quiet.rows("SELECT * FROM changing.t", verb="test") == [(1,)]
    await quiet.rows("ALTER TABLE changing.t ADD COLUMN b text DEFAULT 'x'", verb="test")
    assert await quiet.rows("SELECT * FROM changing.t", verb="test") == [(1, "x")]
    await quiet.rows("DROP SCHEMA changing CASCADE", verb="test")


async def test_each_loop_has_its_own_connections_and_closing_ends_them() -> None:
    server = shared(POSTGRES)
    clients = PerLoop(lambda: route_to(server, "application_name=loops"))
    here = await pid(clients.here())
    assert await asyncio.to_thread(lambda: asyncio.run(_pid_of(clients))) != here
    await clients.close()
    await until(lambda: server.ask("SELECT 1 FROM pg_stat_activity WHERE application_name = 'loops'") == [])
    assert await pid(clients.here()) != here
    await clients.close()
    await clients.close()
    gc.collect()


async def _pid_of(clients: PerLoop[Client]) -> int:
    return await pid(clients.here())


async def test_who_still_waits_when_the_store_is_closed_is_told(quiet: Client) -> None:
    server = shared(POSTGRES)
    with held(server):
        sleeping = asyncio.create_task(quiet.row(WAIT, verb="settle"))
        await until_waiting(server, 1)
        quiet.drop()
    with pytest.raises(StoreUnreachable, match="the store was closed after the call was sent"):
        await sleeping
    with pytest.raises(StoreUnreachable, match="the store was closed before the call was sent"):
        await quiet.row(PID, verb="settle")


FORK = """
import asyncio, os, sys
from limpet.stores.server.client import PerLoop
from limpet.stores.postgres.client import Client
from limpet.stores.postgres.url import parse_postgres

clients = PerLoop(lambda: Client(parse_postgres(sys.argv[1]), "limpet"))

async def number():
    return (await clients.here().row("SELECT pg_backend_pid()", verb="test"))[0]

def child(loop):
    if sys.argv[2] == "same":
        return loop.run_until_complete(number())
    return asyncio.run(number())

loop = asyncio.new_event_loop()
mine = loop.run_until_complete(number())
pid = os.fork()
if pid == 0:
    os._exit(child(loop) == mine)
_, status = os.waitpid(pid, 0)
assert status == 0, "the child used its parent's connection"
assert loop.run_until_complete(number()) == mine, "the parent lost its connection"
loop.run_until_complete(clients.close())
loop.close()
"""


@pytest.mark.parametrize("loop", ["same", "new"])
def test_a_fork_connects_anew_and_leaves_its_parent_alone(loop: str) -> None:
    command = [sys.executable, "-W", "error", "-c", FORK, shared(POSTGRES).url, loop]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_every_kind_of_loop_will_do(loop: str) -> None:
    code = (
        "import asyncio, sys, uvloop\n"
        "from limpet.stores.postgres.client import Client\n"
        "from limpet.stores.postgres.url import parse_postgres\n"
        "async def main():\n"
        "    client = Client(parse_postgres(sys.argv[1]), 'limpet')\n"
        "    body = b'x' * 3_000_000\n"
        "    rows = await asyncio.gather(*(client.row('SELECT %b::bytea', (body,), verb='t') for _ in range(9)))\n"
        "    assert rows == [(body,)] * 9\n"
        "    client.drop()\n"
        f"{loop}.run(main())"
    )
    command = [sys.executable, "-W", "error", "-c", code, shared(POSTGRES).url]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
    assert (answer.returncode, answer.stderr) == (0, "")


async def test_intercepted_calls_stop_before_or_after(quiet: Client) -> None:
    seen: list[tuple[str, str]] = []
    quiet.intercept = lambda verb, when: seen.append((verb, when))
    await pid(quiet)
    assert seen == [("test", "before"), ("test", "after")]


# -- wake-ups after a commit


@pytest.fixture
async def waking(server: PostgresServer) -> AsyncIterator[Client]:
    """A schema whose wake_1 notes what it was told, and by whom."""
    server.ask("CREATE SCHEMA waking")
    server.ask("CREATE TABLE waking.told (lanes bigint[], gates text[], now bigint, xid xid8, pid integer)")
    server.ask(
        "CREATE FUNCTION waking.wake_1(l bigint[], n integer[], d bigint[], g text[], now bigint) RETURNS void "
        "LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO waking.told VALUES (l, g, now, pg_current_xact_id(), pg_backend_pid()); "
        "IF 666 = ANY (l) AND (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'calm') = 0 THEN "
        "PERFORM pg_terminate_backend(pg_backend_pid()); END IF; END $$"
    )
    client = route_to(server, PATIENT, "waking")
    yield client
    client.drop()


CHANGE = """SELECT 'answer', pg_current_xact_id()::text, pg_backend_pid(),
  %b::bigint[], NULL::integer[], NULL::bigint[], %b::text[]"""


async def test_a_change_is_followed_by_wake_ups_in_a_transaction_of_their_own(
    server: PostgresServer, waking: Client
) -> None:
    answer, xid, number = await waking.change(CHANGE, ([7, 8], None), verb="enqueue", now_ms=5)
    assert answer == "answer"
    await until(lambda: server.ask("SELECT 1 FROM waking.told"))
    ((lanes, gates, now, later, same),) = server.ask("SELECT lanes, gates, now, xid::text, pid FROM waking.told")
    assert (lanes, gates, now) == ([7, 8], [], 5)
    assert int(later) > int(xid)
    assert same == number, "on the same connection, at once"


async def test_a_change_that_posted_nothing_wakes_nobody(server: PostgresServer, waking: Client) -> None:
    await waking.change(CHANGE, ([], []), verb="enqueue")
    await waking.change(CHANGE, (None, None), verb="enqueue")
    await waking.change(CHANGE, (None, ["g"]), verb="enqueue")
    await until(lambda: server.ask("SELECT 1 FROM waking.told"))
    assert server.ask("SELECT gates FROM waking.told") == [(["g"],)]


async def test_wake_ups_leave_before_the_caller_hears_of_its_commit(server: PostgresServer, waking: Client) -> None:
    """A program that ends right after its enqueue has woken somebody all the same."""
    await waking.change(CHANGE, ([1], None), verb="enqueue")
    waking.drop()
    await until(lambda: server.ask("SELECT 1 FROM waking.told"))


async def test_wake_ups_that_got_lost_are_sent_again(server: PostgresServer, waking: Client) -> None:
    await waking.change(CHANGE, ([666], None), verb="enqueue")
    await asyncio.sleep(0.2)
    calm = route_to(server, "application_name=calm")
    await pid(calm)
    await until(lambda: server.ask("SELECT 1 FROM waking.told"))
    calm.drop()


async def test_wake_ups_that_fail_are_nobodys_trouble(server: PostgresServer, waking: Client) -> None:
    server.ask("DROP FUNCTION waking.wake_1")
    for _ in range(3):
        assert (await waking.change(CHANGE, ([1], None), verb="enqueue"))[0] == "answer"
    await asyncio.sleep(0.1)
    assert await pid(waking)


async def test_a_change_without_a_row_is_an_error_and_no_riddle(waking: Client) -> None:
    with pytest.raises(Exception, match="index out of range"):
        await waking.change("SELECT 1 WHERE false", verb="enqueue")
    assert await pid(waking)
