"""PostgreSQL alone: INSERT and NOTIFY in one commit, LISTEN in the other process, by psycopg's libpq on the loop."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import psycopg
from psycopg.pq import ExecStatus

from bench.floor.mechanism import Told

LAYOUT: Final = (
    "CREATE TABLE IF NOT EXISTS floor (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, stamp text NOT NULL)"
)
PREPARED: Final = (
    "PREPARE store (text) AS INSERT INTO floor (stamp) VALUES ($1)",
    "PREPARE send (text) AS WITH stored AS (INSERT INTO floor (stamp) VALUES ($1)) SELECT pg_notify('floor', $1)",
)


class OnPostgres:
    """A connection whose socket the loop watches."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._answer: asyncio.Future[None] | None = None
        self._refusal: str | None = None
        self._told: Told | None = None

    async def open(self) -> None:
        self._driver = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
        for statement in (LAYOUT, *PREPARED):
            await self._driver.execute(statement)
        self._loop = asyncio.get_running_loop()
        self._libpq = self._driver.pgconn

    async def store(self, stamp: bytes) -> None:
        await self._ask(b"store", stamp)

    async def send(self, stamp: bytes) -> None:
        await self._ask(b"send", stamp)

    async def listen(self, told: Told) -> None:
        await self._driver.execute("LISTEN floor")
        self._told = told
        self._watch()

    def _watch(self) -> None:
        """Not before the driver has done its own: it watches the socket while it waits."""
        self._loop.add_reader(self._libpq.socket, self._readable)

    def _ask(self, statement: bytes, stamp: bytes) -> asyncio.Future[None]:
        if self._answer is None:
            self._watch()
        self._answer = self._loop.create_future()
        self._libpq.send_query_prepared(statement, [stamp])
        assert not self._libpq.flush(), "so few bytes always find room"
        return self._answer

    def _readable(self) -> None:
        libpq = self._libpq
        libpq.consume_input()
        while self._answer is not None and not self._answer.done() and not libpq.is_busy():
            self._result(libpq.get_result())
        while (notice := libpq.notifies()) is not None:
            if self._told is not None:
                self._told(notice.extra)

    def _result(self, result: Any) -> None:
        """One of the results of a statement; None is the end of them."""
        assert self._answer is not None
        if result is None:
            self._answer.set_result(None)
        elif result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            self._answer.set_exception(OSError(result.error_message.decode("utf-8", "replace")))
