"""What callers hear when the server refuses, and what they never hear because it passes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import psycopg
import pytest

from limpet.core.errors import (
    LimpetError,
    QueueDraining,
    SchemaOutdated,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreTimeout,
    StoreUnreachable,
    UnknownParent,
    UsageError,
)
from limpet.stores.postgres import connection as connection_module
from limpet.stores.postgres import trouble
from limpet.stores.postgres.client import Client
from limpet.stores.postgres.connection import Refusal, open_connection
from limpet.stores.postgres.trouble import REMEDIES, refused, remedy_of
from limpet.stores.postgres.url import parse_postgres
from tests.engines.postgres.ways import PATIENT, until
from tests.servers.door import door
from tests.servers.installations import POSTGRES
from tests.servers.postgres import PostgresServer, own, shared

ONE = "SELECT 1"
SOON_S = 30.0  # half of the time that a client has here to try again and again


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with own(POSTGRES) as server:
        yield server


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client(parse_postgres(f"{shared(POSTGRES).url}?{PATIENT}"), "limpet")
    yield client
    client.drop()


def route_as(server: PostgresServer, login: str, database: str = "postgres", options: str = PATIENT) -> Client:
    return Client(parse_postgres(f"postgresql://{login}@127.0.0.1:{server.port}/{database}?{options}"), "limpet")


def rule(server: PostgresServer, *lines: str) -> None:
    """Who may come in, as pg_hba.conf says it."""
    (server.data / "pg_hba.conf").write_text("".join(f"{line}\n" for line in lines))
    before = server.ask("SELECT pg_conf_load_time()")
    server.ask("SELECT pg_reload_conf()")
    deadline = time.monotonic() + 60
    while server.ask("SELECT pg_conf_load_time()") == before:
        assert time.monotonic() < deadline


async def refusal(client: Client, error: type[LimpetError], sql: str = ONE) -> LimpetError:
    """What a call ends in, and soon."""
    start = time.monotonic()
    with pytest.raises(LimpetError) as caught:
        await client.row(sql, verb="enqueue")
    client.drop()
    assert time.monotonic() - start < SOON_S
    assert type(caught.value) is error
    assert caught.value.fix
    assert "hunter2" not in str(caught.value)
    return caught.value


# -- connections that are refused


async def test_a_wrong_password_is_said_at_once(server: PostgresServer) -> None:
    server.ask("CREATE ROLE ada LOGIN PASSWORD 'right'")
    rule(server, "host all ada 127.0.0.1/32 scram-sha-256", "host all all 127.0.0.1/32 trust")
    error = await refusal(route_as(server, "ada:hunter2"), StoreError)
    assert "does not accept this user and password" in error.message
    error = await refusal(route_as(server, "ada"), StoreError)
    assert "no password supplied" in error.message
    client = route_as(server, "ada:right")
    assert await client.row(ONE, verb="enqueue") == (1,)
    client.drop()


async def test_a_user_who_is_not_let_in_is_said_at_once(server: PostgresServer) -> None:
    rule(server, "host all postgres,ghost 127.0.0.1/32 trust")
    for login in ("ghost", "eve:hunter2"):
        error = await refusal(route_as(server, login), StoreError)
        assert "does not let this user in" in error.message


async def test_a_missing_database_is_said_at_once() -> None:
    error = await refusal(route_as(shared(POSTGRES), "postgres", "nowhere"), StoreError)
    assert "has no such database" in error.message
    assert "createdb" in error.fix


async def test_a_server_without_tls_is_said_at_once() -> None:
    client = route_as(shared(POSTGRES), "postgres", options=f"{PATIENT}&sslmode=require")
    assert "sslmode" in (await refusal(client, StoreError)).fix


async def test_an_option_that_libpq_does_not_take_is_said_at_once() -> None:
    for options in ("sslmode=requir", "keepalives_idle=soon", "target_session_attrs=any-thing"):
        error = await refusal(route_as(shared(POSTGRES), "postgres", options=f"{PATIENT}&{options}"), StoreError)
        assert options.split("=")[0] in error.message


async def test_a_host_that_has_no_address_is_waited_for_and_then_named() -> None:
    client = Client(parse_postgres("postgresql://u:hunter2@no.such.host.invalid/x?timeout=0.5"), "limpet")
    error = await refusal(client, StoreUnreachable)
    assert "no.such.host.invalid" in error.message


async def test_too_many_connections_are_waited_for_and_then_named() -> None:
    with own(POSTGRES, max_connections=5, superuser_reserved_connections=0) as server:
        others = [psycopg.connect(server.url) for _ in range(5)]
        error = await refusal(route_as(server, "postgres", options="timeout=4"), StoreUnreachable)
        assert "has no connection left for us" in error.message
        assert "max_connections" in error.fix
        client = route_as(server, "postgres")
        waiting = asyncio.create_task(client.row(ONE, verb="enqueue"))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        for other in others:
            other.close()
        assert await waiting == (1,)
        client.drop()


async def test_where_few_connections_are_left_fewer_do() -> None:
    """The first is all that is needed; that there are no more is nobody's trouble."""
    with own(POSTGRES, max_connections=5, superuser_reserved_connections=0) as server:
        others = [psycopg.connect(server.url) for _ in range(4)]
        client = route_as(server, "postgres", options=f"{PATIENT}&pool=4")
        answers = await asyncio.gather(*(client.row(ONE, verb="enqueue") for _ in range(30)))
        assert answers == [(1,)] * 30
        client.drop()
        for other in others:
            other.close()


# -- servers that are no good


async def test_a_standby_is_waited_for_until_it_is_none_and_then_named(server: PostgresServer) -> None:
    server.stop()
    (server.data / "standby.signal").touch()
    server.settings["hot_standby"] = "on"
    server.start()
    error = await refusal(route_as(server, "postgres", options="timeout=4"), StoreUnreachable)
    assert "it is a standby" in error.message
    assert "name the primary" in error.fix
    client = route_as(server, "postgres")
    waiting = asyncio.create_task(client.row(ONE, verb="enqueue"))
    await asyncio.sleep(0.2)
    server.ask("SELECT pg_promote()", timeout_s=60)
    assert await waiting == (1,)
    client.drop()


async def test_of_several_servers_the_one_that_takes_jobs_is_found(server: PostgresServer) -> None:
    with own(POSTGRES) as standby:
        standby.stop()
        (standby.data / "standby.signal").touch()
        standby.start()
        hosts = f"127.0.0.1:1,127.0.0.1:{standby.port},127.0.0.1:{server.port}"
        client = Client(parse_postgres(f"postgresql://postgres@{hosts}/postgres?{PATIENT}"), "limpet")
        assert await client.row("SELECT pg_is_in_recovery()", verb="enqueue") == (False,)
        client.drop()


async def test_a_server_that_becomes_read_only_is_left_and_tried_again(server: PostgresServer) -> None:
    server.ask("CREATE TABLE t (n integer)")
    client = route_as(server, "postgres")
    insert = "INSERT INTO public.t VALUES (1) RETURNING n"
    assert await client.row(insert, verb="enqueue") == (1,)
    server.ask("ALTER SYSTEM SET default_transaction_read_only = on")
    server.ask("SELECT pg_reload_conf()")
    await until(lambda: server.ask("SHOW default_transaction_read_only") == [("on",)])
    waiting = asyncio.create_task(client.row(insert, verb="enqueue"))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    server.ask("ALTER SYSTEM RESET default_transaction_read_only")  # itself no change of data
    server.ask("SELECT pg_reload_conf()")
    assert await waiting == (1,)
    client.drop()


async def test_another_isolation_than_read_committed_is_refused_with_the_way_to_change_it(
    server: PostgresServer,
) -> None:
    server.ask("CREATE ROLE ada LOGIN")
    server.ask("ALTER ROLE ada SET default_transaction_isolation = 'serializable'")
    error = await refusal(route_as(server, "ada"), StoreError)
    assert "default_transaction_isolation is 'serializable'" in error.message
    assert "ALTER ROLE" in error.fix


async def test_a_server_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "OLDEST", 990_000)
    error = await refusal(route_as(shared(POSTGRES), "postgres"), StoreError)
    assert f"it is PostgreSQL {POSTGRES.removeprefix('postgres-')}" in error.message
    assert "upgrade" in error.fix


# -- statements that are refused


async def test_what_is_missing_in_the_schema_names_the_command_that_makes_it(client: Client) -> None:
    for sql in ("SELECT lp.missing_1(1)", "SELECT * FROM lp.missing", "SELECT missing.f(1)"):
        with pytest.raises(SchemaOutdated) as caught:
            await client.row(sql, verb="claim")
        assert "limpet migrate" in caught.value.fix


async def test_a_role_without_rights_is_told_what_it_lacks(server: PostgresServer) -> None:
    server.ask("CREATE TABLE secret (n integer)")
    server.ask("CREATE ROLE ada LOGIN")
    error = await refusal(route_as(server, "ada"), StoreError, "SELECT * FROM public.secret")
    assert "does not permit what the engine needs" in error.message
    assert "permission denied for table secret" in error.message
    assert "GRANT" in error.fix


RAISE = "DO $$ BEGIN RAISE EXCEPTION 'job 3: {0} is unknown' USING ERRCODE = '{0}', HINT = 'name another'; END $$"


@pytest.mark.parametrize(("code", "error"), [("LP001", UnknownParent), ("LP002", QueueDraining), ("LP003", UsageError)])
async def test_what_the_functions_say_of_the_caller_is_said_to_the_caller(
    client: Client, code: str, error: type[UsageError]
) -> None:
    with pytest.raises(UsageError) as caught:
        await client.row(RAISE.format(code), verb="enqueue")
    assert type(caught.value) is error
    assert (caught.value.message, caught.value.fix) == (f"job 3: {code} is unknown", "name another")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("53100", StoreFull),
        ("53200", StoreFull),
        ("53400", StoreFull),
        ("XX001", StoreCorrupt),
        ("XX002", StoreCorrupt),
        ("XX000", StoreError),
        ("22012", StoreError),
        ("57014", StoreTimeout),
        ("22P05", StoreError),
    ],
)
async def test_what_asking_again_does_not_change_is_said_at_once(
    client: Client, code: str, error: type[StoreError]
) -> None:
    start = time.monotonic()
    with pytest.raises(StoreError) as caught:
        await client.row(RAISE.format(code), verb="settle")
    assert time.monotonic() - start < SOON_S
    assert type(caught.value) is error
    assert caught.value.verb == "settle"
    assert caught.value.message.startswith("postgresql://"), "a word of the inside is not for people"
    assert f"{code} is unknown" in caught.value.message
    assert caught.value.fix
    assert isinstance(caught.value.__cause__, Refusal)
    assert await client.row(ONE, verb="test") == (1,)


@pytest.mark.parametrize("code", sorted(set(REMEDIES) - {"0A000", "26000", "42P05"}))
async def test_what_passes_is_asked_again_until_the_time_is_over(code: str) -> None:
    client = route_as(shared(POSTGRES), "postgres")
    await client.row(ONE, verb="test")
    start = time.monotonic()
    with pytest.raises(StoreUnreachable) as caught:
        await client.rows(RAISE.format(code), verb="claim", timeout_s=1.5)
    assert 0.2 < time.monotonic() - start < SOON_S
    assert caught.value.fix
    client.drop()


async def test_what_passes_is_never_heard_of(server: PostgresServer) -> None:
    server.ask("CREATE SEQUENCE tries")
    for code in ("40001", "40P01", "57P03", "55P03", "53300"):
        server.ask("ALTER SEQUENCE tries RESTART")
        server.ask(
            "CREATE OR REPLACE FUNCTION third() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN "
            f"IF nextval('tries') < 3 THEN RAISE EXCEPTION 'not yet' USING ERRCODE = '{code}'; END IF; "
            "RETURN 3; END $$"
        )
        client = route_as(server, "postgres")
        assert await client.row("SELECT public.third()", verb="claim") == (3,)
        client.drop()


async def test_a_full_disk_is_a_full_store(server: PostgresServer) -> None:
    """The quota of a role's temporary files stands in for a disk."""
    server.ask("ALTER ROLE postgres SET temp_file_limit = '1MB'")
    sql = "SELECT count(*) FROM (SELECT g FROM generate_series(1, 2000000) AS g ORDER BY g % 7, g) AS s"
    error = await refusal(route_as(server, "postgres"), StoreFull, sql)
    assert "at a limit of its configuration" in error.message


async def test_a_statement_timeout_of_the_role_is_named(server: PostgresServer) -> None:
    server.ask("ALTER ROLE postgres SET statement_timeout = '300ms'")
    error = await refusal(route_as(server, "postgres"), StoreTimeout, "SELECT pg_sleep(60)")
    assert "statement_timeout" in error.fix


def test_every_reason_has_a_fix_and_no_remedy_is_unknown() -> None:
    for code, (kind, reason, fix) in trouble._REASONS.items():
        assert issubclass(kind, StoreError)
        assert reason
        assert fix, code
    assert remedy_of(Refusal("08P01", "a pooler lost its server")) == "wait"
    assert remedy_of(Refusal("12345", "?")) == "none"
    text = str(refused(Refusal("12345", "odd", context="PL/pgSQL function f"), "claim", "here"))
    assert "odd (12345)" in text
    assert "PL/pgSQL function f" in text


# -- one connection


async def test_a_connection_says_where_an_error_is() -> None:
    line = await open_connection(parse_postgres(shared(POSTGRES).url))
    with pytest.raises(Refusal) as caught:
        await line.script("SELECT 1;\nSELECT wrong", asyncio.get_running_loop().time() + 60)
    assert caught.value.at == 18
    assert caught.value.code == "42703"
    line.close()
    line.close()


async def test_a_server_of_another_kind_is_given_up_in_time() -> None:
    async def shrug(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async with door(shrug) as port:
        client = Client(parse_postgres(f"postgresql://u@127.0.0.1:{port}/x?timeout=0.5"), "limpet")
        await refusal(client, StoreUnreachable)


async def test_notices_of_the_server_are_no_answers(client: Client) -> None:
    sql = "DO $$ BEGIN RAISE WARNING 'careful'; END $$"
    assert await client.row(sql, verb="test") == ()
    assert await client.row(ONE, verb="test") == (1,)


async def test_another_encoding_of_the_database_keeps_what_it_can(server: PostgresServer) -> None:
    server.ask("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    client = route_as(server, "postgres", "latin")
    assert await client.row("SELECT %b::text", ("ü",), verb="enqueue") == ("ü",)
    with pytest.raises(StoreError) as caught:
        await client.row("SELECT %b::text", ("λ",), verb="enqueue")
    assert "UTF8" in caught.value.fix
    client.drop()
    with closing(psycopg.connect(server.url)):
        pass
