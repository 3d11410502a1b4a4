"""A handler that runs out of time in a query of its own: the query ends too, and the connection is of use again."""

from __future__ import annotations

import psycopg
from psycopg.pq import TransactionStatus

from tests.runtime.test_soft_timeouts import timed_out
from tests.servers.installations import POSTGRES
from tests.servers.postgres import shared


async def test_a_query_that_takes_too_long_is_cancelled_and_the_handler_gets_a_timeout_error() -> None:
    connection = await psycopg.AsyncConnection.connect(shared(POSTGRES).url, autocommit=True)

    async def slow() -> int:
        try:
            await connection.execute("SELECT pg_sleep(600)")
        except TimeoutError:
            assert connection.info.transaction_status is TransactionStatus.IDLE
            cursor = await connection.execute("SELECT 42")
            row = await cursor.fetchone()
            return 0 if row is None else int(row[0])
        return 0

    async with connection:
        view, _ = await timed_out(slow, timeout=0.2)
    assert view.result == b"42"
