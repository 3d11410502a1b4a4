"""The rights that the how-to names are enough for everything that producers and workers do, and for little else."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from limpet import Limpet
from limpet.core.errors import StoreError
from limpet.stores.asking import examined
from limpet.stores.base import Store
from limpet.stores.open import open_store
from limpet.stores.postgres.store import PostgresStore
from limpet_contract.stroll import stroll
from tests.contract.harnesses import EMPTY
from tests.servers.installations import POSTGRES
from tests.servers.postgres import CARELESS, PostgresServer, running

PAGE = Path(__file__).parents[3] / "docs/how-to/postgres.md"


def statements() -> list[list[str]]:
    """What the how-to tells people to run, block by block."""
    return [block.split("\n") for block in re.findall(r"```sql\n(.*?)\n```", PAGE.read_text(), re.DOTALL)]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server where a role works that has been granted what the how-to says."""
    by_admin, by_owner = statements()
    with running(PostgresServer(POSTGRES, settings=CARELESS)) as server:
        for statement in by_admin:
            server.ask(statement)
        store = open_store(url_as(server, "jobs_owner"))
        assert isinstance(store, PostgresStore)
        asyncio.run(migrated(store))
        with psycopg.connect(url_as(server, "jobs_owner"), autocommit=True) as owner:
            for statement in by_owner:
                owner.execute(statement.encode())
        yield server


async def migrated(store: PostgresStore) -> None:
    await store.migrate(lambda _: None)
    await store.close()


def url_as(server: PostgresServer, role: str) -> str:
    return server.url.replace("postgres@", f"{role}@")


class Humble:
    """A harness whose stores are opened by the role that works."""

    name = "postgres"

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._opened: list[Store] = []

    async def open(self) -> Store:
        store = open_store(url_as(self.server, "jobs"))
        self._opened.append(store)
        await store.open()
        return store

    async def reopen(self, store: Store) -> Store:
        return await self.open()

    async def close(self) -> None:
        for store in self._opened:
            await store.close()
        self._opened.clear()
        self.server.ask(EMPTY.replace("SCHEMA", "limpet"))


def test_all_that_is_asked_on_a_long_way_is_permitted(server: PostgresServer) -> None:
    stroll(Humble(server), 1, steps=60)


async def test_producers_and_workers_do_their_work_and_doctor_looks(server: PostgresServer) -> None:
    app = Limpet(url_as(server, "jobs"))

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    async with app:
        first = await double.enqueue(21)
        server.ask("CREATE ROLE shop LOGIN")
        server.ask("GRANT jobs TO shop")
        with psycopg.connect(url_as(server, "shop")) as conn:
            second = await double.options(conn=conn).enqueue(4)
        report = await app.work(until_empty=True)
        assert [await first.result(), await second.result(), report.succeeded] == [42, 8, 2]
        assert "blind" in {each.code for each in await examined(app.store).check()}


async def test_it_can_change_neither_the_schema_nor_what_is_not_its_own(server: PostgresServer) -> None:
    server.ask("CREATE TABLE orders (id integer)")
    with contextlib.closing(psycopg.connect(url_as(server, "jobs"), autocommit=True)) as conn:
        for statement in (
            "CREATE TABLE limpet.mine ()",
            "DROP TABLE limpet.job",
            "ALTER TABLE limpet.job ADD COLUMN mine integer",
            "UPDATE limpet.migration SET number = 9",
            "CREATE OR REPLACE FUNCTION limpet.move_in_1() RETURNS void LANGUAGE sql AS ''",
            "SELECT FROM orders",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(statement.encode())


async def test_without_them_it_is_told_what_is_missing(server: PostgresServer) -> None:
    server.ask("CREATE ROLE nobody LOGIN")
    store = open_store(url_as(server, "nobody"))
    with pytest.raises(StoreError, match="does not permit what the engine needs") as caught:
        await store.count()
    assert "GRANT" in caught.value.fix
    await store.close()
