"""The way to the server: few connections, shared fairly, found again after every kind of loss."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from holdfast.core.errors import StoreError, StoreTimeout, StoreUnreachable
from holdfast.stores.loops import PerLoop
from holdfast.stores.postgres import pool
from holdfast.stores.postgres.route import Route
from holdfast.stores.postgres.url import parse_postgres
from tests.servers.flavours import ROOT
from tests.servers.installations import PostgresFlavour
from tests.servers.postgres import PostgresServer, own, shared

FLAVOURS: tuple[PostgresFlavour, ...] = ("postgres-15", "postgres-18")

PID = "SELECT pg_backend_pid()"
SLEEP = "SELECT pg_sleep(%b::double precision)"


@pytest.fixture(params=FLAVOURS)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with own(request.param) as server:
        yield server


def route_to(server: PostgresServer, options: str = "") -> Route:
    return Route(parse_postgres(f"{server.url}?{options}"), "holdfast")


@pytest.fixture
async def route(server: PostgresServer) -> AsyncIterator[Route]:
    route = route_to(server)
    yield route
    route.drop()


@pytest.fixture
async def quiet() -> AsyncIterator[Route]:
    """A route to a server that nothing happens to."""
    route = route_to(shared("postgres-15"))
    yield route
    route.drop()


async def pid(route: Route) -> int:
    (number,) = await route.row(PID, verb="test")
    assert isinstance(number, int)
    return number


async def until(true: Callable[[], Any]) -> None:
    """Wait for something that happens within ten seconds, while the loop goes on."""
    for _ in range(1_000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never happened")


# -- connections


async def test_one_after_the_other_needs_one_connection(quiet: Route) -> None:
    assert len({await pid(quiet) for _ in range(20)}) == 1


async def test_at_once_needs_no_more_than_the_pool_and_nobody_is_forgotten() -> None:
    route = route_to(shared("postgres-15"), "pool=3")
    answers = await asyncio.gather(
        *(route.row("SELECT pg_backend_pid(), pg_sleep(0.01)", verb="test") for _ in range(50))
    )
    assert len({number for number, _ in answers}) == 3
    route.drop()


async def test_callers_are_served_in_the_order_in_which_they_came() -> None:
    route = route_to(shared("postgres-15"), "pool=1")
    order: list[int] = []

    async def call(number: int) -> None:
        await route.row("SELECT %b::integer", (number,), verb="test")
        order.append(number)

    await asyncio.gather(*(call(number) for number in range(20)))
    assert order == list(range(20))
    route.drop()


async def test_a_caller_that_goes_away_leaves_its_connection_to_the_next() -> None:
    route = route_to(shared("postgres-15"), "pool=1&timeout=3")
    here = await pid(route)
    for _ in range(5):
        busy = asyncio.create_task(route.row(SLEEP, (0.05,), verb="test"))
        waiting = asyncio.create_task(route.row(SLEEP, (0.05,), verb="test"))
        await asyncio.sleep(0.01)
        busy.cancel()
        waiting.cancel()
        assert await pid(route) == here
    route.drop()


async def test_when_all_connections_are_busy_until_the_time_is_over_the_pool_is_named() -> None:
    route = route_to(shared("postgres-15"), "pool=1&timeout=0.5")
    busy = asyncio.create_task(route.rows(SLEEP, (1,), verb="test", timeout_s=5))
    await asyncio.sleep(0.1)
    with pytest.raises(StoreUnreachable, match="all 1 connections of this loop were in use") as caught:
        await route.row(PID, verb="claim")
    assert "pool=" in caught.value.fix
    await busy
    assert await pid(route)
    route.drop()


async def test_connections_that_are_not_needed_any_more_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    server = shared("postgres-15")
    route = route_to(server, "pool=4&application_name=shrinks")
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'shrinks'"
    await asyncio.gather(*(route.row(SLEEP, (0.05,), verb="test") for _ in range(4)))
    assert server.ask(count) == [(4,)]
    monkeypatch.setattr(pool, "IDLE_S", 0.0)
    for _ in range(4):
        await route.row(PID, verb="test")
    await until(lambda: server.ask(count) == [(1,)])
    route.drop()


async def test_a_statement_is_prepared_once_for_each_connection(quiet: Route) -> None:
    for number in range(5):
        await quiet.row("SELECT %b::bigint", (number,), verb="test")
        await quiet.row("SELECT %b::bigint", (1 << 40,), verb="test")
    prepared = await quiet.rows("SELECT statement FROM pg_prepared_statements", verb="test")
    assert [text for (text,) in prepared].count("SELECT $1::bigint") == 1


@pytest.mark.parametrize("prepare", ["yes", "no", "auto"])
async def test_statements_are_prepared_as_the_url_says(prepare: str) -> None:
    route = route_to(shared("postgres-15"), f"prepare={prepare}")
    await route.row("SELECT %b::bigint", (1,), verb="test")
    ((count,),) = await route.rows("SELECT count(*) FROM pg_prepared_statements", verb="test")
    assert bool(count) == (prepare != "no")
    route.drop()


async def test_prepared_statements_that_are_gone_are_prepared_again(quiet: Route) -> None:
    assert await quiet.row("SELECT %b::bigint", (1,), verb="test") == (1,)
    await quiet.rows("DEALLOCATE ALL", verb="test")
    assert await quiet.row("SELECT %b::bigint", (2,), verb="test") == (2,)


async def test_a_prepared_statement_whose_answer_has_changed_is_prepared_again(quiet: Route) -> None:
    await quiet.rows("CREATE SCHEMA IF NOT EXISTS changing", verb="test")
    await quiet.rows("CREATE TABLE changing.t AS SELECT 1 AS a", verb="test")
    assert await quiet.rows("SELECT * FROM changing.t", verb="test") == [(1,)]
    await quiet.rows("ALTER TABLE changing.t ADD COLUMN b text DEFAULT 'x'", verb="test")
    assert await quiet.rows("SELECT * FROM changing.t", verb="test") == [(1, "x")]
    await quiet.rows("DROP SCHEMA changing CASCADE", verb="test")


async def test_each_loop_has_its_own_connections_and_closing_ends_them() -> None:
    server = shared("postgres-15")
    routes = PerLoop(lambda: route_to(server, "application_name=loops"))
    here = await pid(routes.here())
    assert await asyncio.to_thread(lambda: asyncio.run(_pid_of(routes))) != here
    await routes.close()
    await until(lambda: server.ask("SELECT 1 FROM pg_stat_activity WHERE application_name = 'loops'") == [])
    assert await pid(routes.here()) != here
    await routes.close()
    await routes.close()
    gc.collect()


async def _pid_of(routes: PerLoop[Route]) -> int:
    return await pid(routes.here())


async def test_who_still_waits_when_the_store_is_closed_is_told(quiet: Route) -> None:
    sleeping = asyncio.create_task(quiet.row(SLEEP, (30,), verb="settle"))
    await asyncio.sleep(0.1)
    quiet.drop()
    with pytest.raises(StoreUnreachable, match="the store was closed after it was sent"):
        await sleeping
    with pytest.raises(StoreUnreachable, match="the store was closed before it was sent"):
        await quiet.row(PID, verb="settle")


FORK = """
import asyncio, os, sys
from holdfast.stores.loops import PerLoop
from holdfast.stores.postgres.route import Route
from holdfast.stores.postgres.url import parse_postgres

routes = PerLoop(lambda: Route(parse_postgres(sys.argv[1]), "holdfast"))

async def number():
    return (await routes.here().row("SELECT pg_backend_pid()", verb="test"))[0]

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
loop.run_until_complete(routes.close())
loop.close()
"""


@pytest.mark.parametrize("loop", ["same", "new"])
def test_a_fork_connects_anew_and_leaves_its_parent_alone(loop: str) -> None:
    command = [sys.executable, "-W", "error", "-c", FORK, shared("postgres-15").url, loop]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_every_kind_of_loop_will_do(loop: str) -> None:
    code = (
        "import asyncio, sys, uvloop\n"
        "from holdfast.stores.postgres.route import Route\n"
        "from holdfast.stores.postgres.url import parse_postgres\n"
        "async def main():\n"
        "    route = Route(parse_postgres(sys.argv[1]), 'holdfast')\n"
        "    body = b'x' * 3_000_000\n"
        "    rows = await asyncio.gather(*(route.row('SELECT %b::bytea', (body,), verb='t') for _ in range(9)))\n"
        "    assert rows == [(body,)] * 9\n"
        "    route.drop()\n"
        f"{loop}.run(main())"
    )
    command = [sys.executable, "-W", "error", "-c", code, shared("postgres-15").url]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
    assert (answer.returncode, answer.stderr) == (0, "")


# -- losing the server


async def test_a_killed_server_is_found_again_when_it_is_back(
    server: PostgresServer, route: Route, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="holdfast.stores.postgres")
    await pid(route)
    server.kill()
    waiting = [asyncio.create_task(pid(route)) for _ in range(20)]
    await asyncio.sleep(0.2)
    server.start()
    await asyncio.gather(*waiting)
    messages = [record.getMessage() for record in caplog.records]
    assert [message.split(":")[0] for message in messages] == ["cannot reach postgresql", "connected to postgresql"]
    assert "again" in messages[1]


async def test_a_call_under_way_when_the_server_is_killed_is_asked_again(server: PostgresServer, route: Route) -> None:
    server.ask("CREATE TABLE done (n integer)")
    slow = "INSERT INTO public.done SELECT 1 FROM pg_sleep(%b::double precision) RETURNING n"
    waiting = asyncio.create_task(route.row(slow, (0.5,), verb="test"))
    await asyncio.sleep(0.2)
    server.kill()
    server.start()
    assert await waiting == (1,)
    assert server.ask("SELECT count(*) FROM done") == [(1,)]


async def test_a_call_that_must_not_be_repeated_is_not(server: PostgresServer, route: Route) -> None:
    waiting = asyncio.create_task(route.row(SLEEP, (5,), verb="pay", repeat=False))
    await asyncio.sleep(0.2)
    server.kill()
    with pytest.raises(StoreUnreachable, match="it may have happened") as caught:
        await waiting
    assert caught.value.fix == "look before asking again"


async def test_a_restart_in_good_order_is_survived_by_everybody(server: PostgresServer, route: Route) -> None:
    working = True

    async def work() -> int:
        calls = 0
        while working:
            await route.row("SELECT %b::integer, pg_sleep(0.005)", (1,), verb="test")
            calls += 1
        return calls

    workers = [asyncio.create_task(work()) for _ in range(8)]
    for _ in range(2):
        await asyncio.sleep(0.2)
        server.restart()
    await asyncio.sleep(0.2)
    working = False
    assert all(calls > 0 for calls in await asyncio.gather(*workers))


async def test_a_connection_that_somebody_cut_while_it_was_idle_is_replaced_in_silence(
    server: PostgresServer, route: Route, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        server.ask("SELECT pg_terminate_backend(%s)", await pid(route))
        assert await pid(route)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


async def test_a_connection_that_is_cut_under_a_call_is_replaced(server: PostgresServer, route: Route) -> None:
    number = await pid(route)
    waiting = asyncio.create_task(route.row("SELECT pg_backend_pid(), pg_sleep(1.5)", verb="test"))
    await asyncio.sleep(0.1)
    server.ask("SELECT pg_terminate_backend(%s)", number)
    assert (await waiting)[0] != number


async def test_a_server_that_is_not_there_is_named_with_the_reason_by_the_deadline(server: PostgresServer) -> None:
    server.kill()
    route = Route(parse_postgres(f"postgresql://ada:hunter2@127.0.0.1:{server.port}/x?timeout=0.4"), "holdfast")
    start = time.monotonic()
    with pytest.raises(StoreUnreachable) as caught:
        await route.row(PID, verb="enqueue")
    assert 0.3 < time.monotonic() - start < 1.5
    text = str(caught.value)
    assert f"127.0.0.1:{server.port}" in text
    assert "Connection refused" in text
    assert "nothing was sent" in text
    assert "hunter2" not in text
    assert caught.value.verb == "enqueue"
    route.drop()


async def test_while_the_server_is_away_nobody_hammers_it(server: PostgresServer) -> None:
    """Many callers share one attempt at a time, with pauses that grow."""
    port = server.port
    server.kill()
    knocks = 0

    async def slam(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal knocks
        knocks += 1
        writer.close()

    door = await asyncio.start_server(slam, "127.0.0.1", port)
    route = Route(parse_postgres(f"postgresql://u@127.0.0.1:{port}/x?timeout=1&sslmode=disable"), "holdfast")
    answers = await asyncio.gather(*(pid(route) for _ in range(100)), return_exceptions=True)
    assert all(isinstance(answer, StoreUnreachable) for answer in answers)
    assert 3 <= knocks <= 10
    route.drop()
    door.close()
    await door.wait_closed()


async def test_a_frozen_server_is_given_up_by_the_deadline_and_used_again_when_it_lives(server: PostgresServer) -> None:
    route = route_to(server, "timeout=0.5")
    await pid(route)
    server.freeze()
    start = time.monotonic()
    with pytest.raises(StoreTimeout, match=r"did not answer within 0\.5 s; it may have happened all the same"):
        await pid(route)
    assert 0.4 < time.monotonic() - start < 1.5
    with pytest.raises(StoreUnreachable):
        await pid(route)
    server.thaw()
    await asyncio.sleep(0.6)
    assert await pid(route)
    route.drop()


async def test_a_statement_that_nobody_waits_for_any_more_is_stopped_on_the_server(server: PostgresServer) -> None:
    """It may wait for a lock, and hold others."""
    route = route_to(server, "timeout=0.4")
    with pytest.raises(StoreTimeout):
        await route.row(SLEEP, (60,), verb="test")
    await until(lambda: server.ask("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'") == [])
    assert await pid(route)
    route.drop()


async def test_an_answer_that_got_lost_and_no_server_until_the_deadline_may_have_happened(
    server: PostgresServer,
) -> None:
    route = route_to(server, "timeout=1")
    await pid(route)
    waiting = asyncio.create_task(route.row(SLEEP, (30,), verb="settle"))
    await asyncio.sleep(0.2)
    server.kill()
    with pytest.raises(StoreTimeout, match="it may have happened all the same"):
        await waiting
    route.drop()


async def test_a_deadlock_is_repeated_until_it_is_none(server: PostgresServer) -> None:
    server.ask("CREATE TABLE two (id integer PRIMARY KEY, n integer)")
    server.ask("INSERT INTO two VALUES (1, 0), (2, 0)")
    server.ask("ALTER DATABASE postgres SET deadlock_timeout = '20ms'")
    for name, first, second in (("there", 1, 2), ("back", 2, 1)):
        server.ask(
            f"CREATE FUNCTION {name}() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN "
            f"UPDATE two SET n = n + 1 WHERE id = {first}; PERFORM pg_sleep(0.01); "
            f"UPDATE two SET n = n + 1 WHERE id = {second}; RETURN 1; END $$"
        )
    route = route_to(server, "timeout=20")
    calls = [route.row(f"SELECT public.{name}()", verb="test") for name in ("there", "back") * 10]
    assert await asyncio.gather(*calls) == [(1,)] * 20
    assert server.ask("SELECT n FROM two") == [(20,), (20,)]
    assert "deadlock detected" in server.log(), "or nothing was tested"
    route.drop()


async def test_intercepted_calls_stop_before_or_after(quiet: Route) -> None:
    seen: list[tuple[str, str]] = []
    quiet.intercept = lambda verb, when: seen.append((verb, when))
    await pid(quiet)
    assert seen == [("test", "before"), ("test", "after")]


# -- wake-ups after a commit


@pytest.fixture
async def waking(server: PostgresServer) -> AsyncIterator[Route]:
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
    route = Route(parse_postgres(server.url), "waking")
    yield route
    route.drop()


CHANGE = """SELECT 'answer', pg_current_xact_id()::text, pg_backend_pid(),
  %b::bigint[], NULL::integer[], NULL::bigint[], %b::text[]"""


async def test_a_change_is_followed_by_wake_ups_in_a_transaction_of_their_own(
    server: PostgresServer, waking: Route
) -> None:
    answer, xid, number = await waking.change(CHANGE, ([7, 8], None), verb="enqueue", now_ms=5)
    assert answer == "answer"
    await until(lambda: server.ask("SELECT 1 FROM waking.told"))
    ((lanes, gates, now, later, same),) = server.ask("SELECT lanes, gates, now, xid::text, pid FROM waking.told")
    assert (lanes, gates, now) == ([7, 8], [], 5)
    assert int(later) > int(xid)
    assert same == number, "on the same connection, at once"


async def test_a_change_that_posted_nothing_wakes_nobody(server: PostgresServer, waking: Route) -> None:
    await waking.change(CHANGE, ([], []), verb="enqueue")
    await waking.change(CHANGE, (None, None), verb="enqueue")
    await waking.change(CHANGE, (None, ["g"]), verb="enqueue")
    await until(lambda: server.ask("SELECT 1 FROM waking.told"))
    assert server.ask("SELECT gates FROM waking.told") == [(["g"],)]


async def test_wake_ups_leave_before_the_caller_hears_of_its_commit(server: PostgresServer, waking: Route) -> None:
    """A program that ends right after its enqueue has woken somebody all the same."""
    await waking.change(CHANGE, ([1], None), verb="enqueue")
    waking.drop()
    await until(lambda: server.ask("SELECT 1 FROM waking.told"))


async def test_wake_ups_that_got_lost_are_sent_again(server: PostgresServer, waking: Route) -> None:
    await waking.change(CHANGE, ([666], None), verb="enqueue")
    await asyncio.sleep(0.2)
    calm = route_to(server, "application_name=calm")
    await pid(calm)
    await until(lambda: server.ask("SELECT 1 FROM waking.told"))
    calm.drop()


async def test_wake_ups_that_fail_are_nobodys_trouble(server: PostgresServer, waking: Route) -> None:
    server.ask("DROP FUNCTION waking.wake_1")
    for _ in range(3):
        assert (await waking.change(CHANGE, ([1], None), verb="enqueue"))[0] == "answer"
    await asyncio.sleep(0.1)
    assert await pid(waking)


async def test_a_change_without_a_row_is_an_error_and_no_riddle(waking: Route) -> None:
    with pytest.raises(Exception, match="index out of range"):
        await waking.change("SELECT 1 WHERE false", verb="enqueue")
    assert await pid(waking)


async def test_the_error_of_a_store_that_cannot_be_reached_is_the_same_for_all(server: PostgresServer) -> None:
    server.kill()
    route = route_to(server, "timeout=0.3")
    for call in (route.row(PID, verb="a"), route.rows(PID, verb="a"), route.change(PID, verb="a")):
        with pytest.raises(StoreError) as caught:
            await call
        assert type(caught.value) is StoreUnreachable
    route.drop()
