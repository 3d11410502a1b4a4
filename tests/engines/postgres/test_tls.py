"""TLS: whom one talks to is made sure as the URL says, and nothing stays behind in a buffer."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from limpet.core.errors import StoreError
from limpet.stores.postgres.client import Client
from limpet.stores.postgres.url import parse_postgres
from limpet.stores.waiters import WORK, Waiters
from tests.engines.postgres.ways import LoneReceiver
from tests.servers.installations import COMPLETE
from tests.servers.postgres import PostgresServer, own

FILES = ("server.crt", "server.key")


def certificate(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    words += [
        "-addext",
        f"subjectAltName=DNS:{name}",
        "-keyout",
        str(folder / FILES[1]),
        "-out",
        str(folder / FILES[0]),
    ]
    subprocess.run(words, check=True, capture_output=True)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PostgresServer, Path]]:
    """A server that speaks TLS as localhost, and the certificate to know it by."""
    made = tmp_path_factory.mktemp("tls")
    certificate(made, "localhost")
    with own(COMPLETE) as server:
        owner = server.data.stat()
        for name in FILES:
            shutil.copy(made / name, server.data / name)
            shutil.chown(server.data / name, owner.st_uid, owner.st_gid)
            (server.data / name).chmod(0o600)
        server.settings["ssl"] = "on"
        server.restart()
        yield server, made / FILES[0]


def url_of(server: PostgresServer, options: str) -> str:
    return f"postgresql://postgres@localhost:{server.port}/postgres?hostaddr=127.0.0.1&{options}"


async def test_statements_travel_under_tls(secure: tuple[PostgresServer, Path]) -> None:
    server, known = secure
    client = Client(parse_postgres(url_of(server, f"sslmode=verify-full&sslrootcert={known}")), "limpet")
    (safe,) = await client.row("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", verb="test")
    assert safe
    client.drop()


@pytest.mark.parametrize("size", [1, 8_000, 8_192, 16_383, 16_384, 16_385, 24_000, 65_536, 1_000_000, 5_000_001])
async def test_no_rest_of_an_answer_stays_in_a_buffer(secure: tuple[PostgresServer, Path], size: int) -> None:
    """TLS reads whole records of 16 KiB; a rest that the driver did not take makes no socket readable."""
    server, _ = secure
    client = Client(parse_postgres(url_of(server, "sslmode=require&timeout=60")), "limpet")
    for _ in range(3):
        assert await client.row("SELECT %b::bytea", (bytes(size),), verb="test") == (bytes(size),)
        rows = await client.rows(
            "SELECT repeat('x', %b::integer / 100) FROM generate_series(1, 100)", (size,), verb="t"
        )
        assert len(rows) == 100
    client.drop()


async def test_wake_ups_are_heard_under_tls(secure: tuple[PostgresServer, Path]) -> None:
    server, known = secure
    server.ask("CREATE SCHEMA hears")
    server.ask("CREATE FUNCTION hears.channel_1() RETURNS text LANGUAGE sql AS $$ SELECT 'all' $$")
    waiters = Waiters()
    receiver = LoneReceiver(
        parse_postgres(url_of(server, f"sslmode=verify-full&sslrootcert={known}")), "hears", waiters
    )
    address = await receiver.subscribe("one")
    sleeping = [asyncio.create_task(waiters.sleep(b"s%d" % number, 60)) for number in range(300)]
    await asyncio.sleep(0)
    server.ask("SELECT pg_notify(%s, 'ws' || g) FROM generate_series(0, 299) AS g", address)
    assert await asyncio.gather(*sleeping) == [{WORK}] * 300
    receiver.drop()


async def test_a_server_that_is_not_who_it_should_be_is_refused_at_once(
    secure: tuple[PostgresServer, Path], tmp_path: Path
) -> None:
    server, known = secure
    certificate(tmp_path, "localhost")
    for options in (f"sslrootcert={tmp_path / FILES[0]}", "sslrootcert=/nowhere/ca.pem"):
        client = Client(parse_postgres(url_of(server, f"sslmode=verify-full&timeout=60&{options}")), "limpet")
        async with asyncio.timeout(30):
            with pytest.raises(StoreError, match="certificate") as caught:
                await client.row("SELECT 1", verb="test")
        assert not caught.value.retryable
        assert "sslrootcert" in caught.value.fix
        client.drop()
    url = f"postgresql://postgres@127.0.0.1:{server.port}/postgres?sslmode=verify-full&sslrootcert={known}"
    client = Client(parse_postgres(url), "limpet")
    with pytest.raises(StoreError, match="does not match host name"):
        await client.row("SELECT 1", verb="test")
    client.drop()
