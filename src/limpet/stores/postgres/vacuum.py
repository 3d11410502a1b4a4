"""Removes the dead rows of tables that are written all the time, sooner than autovacuum would.

Autovacuum looks once a minute at best; with thousands of jobs per second the indexes are by then full of rows that
every claim must step over. The pruning worker does it, at most once a minute over all processes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from limpet.core.errors import LimpetError
from limpet.stores.postgres.client import Client

EVERY_S: Final = 60
LONGEST_S: Final = 30.0  # for one table: what takes longer is left to autovacuum
ENOUGH: Final = 2_000  # dead rows of one table; fewer cost nothing that could be measured

# Short tables whose rows come and go. The finished jobs are left to autovacuum.
HOT: Final = (
    "wait",
    "running",
    "post",
    "tally",
    "lane_now",
    "seat",
    "turn",
    "lease",
    "receipt",
    "sleeper",
    "session",
    "gate",
    "floor",
)

_DUE: Final = """
SELECT relname::text FROM pg_stat_user_tables
WHERE schemaname = %b::text AND relname = ANY (%b::text[]) AND n_dead_tup >= %b::bigint
  AND greatest(last_vacuum, last_autovacuum, '-infinity') < clock_timestamp() - make_interval(secs => %b::bigint)
ORDER BY relname
"""
_VACUUM: Final = "VACUUM (SKIP_LOCKED, TRUNCATE false, INDEX_CLEANUP on) lp.{}"

logger = logging.getLogger("limpet.stores.postgres")


async def vacuum(client: Client) -> int:
    """Vacuum what is due; how many tables that was. Never the caller's trouble.

    When it was last done is known to the server, per table, so no process does it twice; one that is at it is not
    waited for (SKIP_LOCKED). Not truncating avoids the lock that this would take.
    """
    now = asyncio.get_running_loop().time()
    if now < client.vacuumed_at + EVERY_S:
        return 0
    client.vacuumed_at = now
    done = 0
    try:
        for (table,) in await client.rows(_DUE, (client.schema, list(HOT), ENOUGH, EVERY_S), verb="vacuum"):
            await client.rows(_VACUUM.format(table), verb="vacuum", timeout_s=LONGEST_S)
            done += 1
    except LimpetError as error:
        logger.info("the hot tables could not be vacuumed: %s", error)
    return done
