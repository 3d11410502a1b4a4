"""A long line costs a relay no more than a short one: statements walk an index and stop."""

from __future__ import annotations

import contextlib

import psycopg
import pytest

from limpet.outbox.table import BATCH_BYTES, statements
from tests.outbox.ground import Ground

pytestmark = pytest.mark.postgres

LINE = 20_000


@pytest.mark.parametrize("analyzed", [True, False])
@pytest.mark.parametrize("skip", [[], ["old", "older"]])
async def test_on_postgresql_the_next_batch_is_not_looked_for_in_the_whole_line(
    postgres_ground: Ground, analyzed: bool, skip: list[str]
) -> None:
    postgres_ground.ask(
        "INSERT INTO limpet_outbox (namespace, id, queue, task, job) "
        f"SELECT 'default', n::text, 'mail', 'send', 'x' FROM generate_series(1, {LINE}) n"
    )
    if analyzed:
        postgres_ground.ask("ANALYZE limpet_outbox")
    with contextlib.closing(psycopg.connect(postgres_ground.url)) as conn:
        cursor = psycopg.RawCursor(conn)
        sql = f"EXPLAIN {statements('postgresql')['fresh']}".encode()
        cursor.execute(sql, ("default", 500, BATCH_BYTES, skip, skip))
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "Index Scan using limpet_outbox" in plan
    assert "Seq Scan" not in plan
    assert "Sort" not in plan


async def test_on_sqlite_the_next_batch_is_not_looked_for_in_the_whole_line(sqlite_ground: Ground) -> None:
    with sqlite_ground.transaction() as conn:
        sql = f"EXPLAIN QUERY PLAN {statements('sqlite')['fresh']}"
        plan = conn.execute(sql, ("default", 500, BATCH_BYTES, "[]", "[]")).fetchall()
    assert "SEARCH o USING INDEX limpet_outbox_line (namespace=?)" in [row[3] for row in plan]
    # The batch itself may be sorted at the end, and nothing before it was cut to size.
    assert [row for row in plan if "TEMP B-TREE" in row[3] and row[1] != 0] == []
