"""Says whether the durability that was asked for is the one the server has, and what will slow the engine down."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, Final

from limpet.core.errors import StoreError
from limpet.core.jobs.view import Finding
from limpet.stores.postgres import migrate
from limpet.stores.postgres.client import Client
from limpet.stores.postgres.layout import Layout
from limpet.stores.postgres.vacuum import HOT

OLDEST: Final = 150_000  # the oldest that every test runs on
SKEW_MS: Final = 1_000
OLD_S: Final = 600  # a transaction that is open for so long makes every other table of the database grow
OLD_XIDS: Final = 500_000  # nothing says since when a slot holds its snapshot: these are ten minutes of a busy queue
BLOATED: Final = 200_000  # dead rows of a table that should be short
NEARLY_FULL: Final = 0.9

_FACTS: Final = """
SELECT jsonb_build_object(
  'number', current_setting('server_version_num')::integer,
  'version', current_setting('server_version'),
  'fsync', current_setting('fsync')::boolean,
  'synchronous_commit', current_setting('synchronous_commit'),
  'full_page_writes', current_setting('full_page_writes')::boolean,
  'autovacuum', current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean,
  'encoding', (SELECT pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database()),
  'now_ms', (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
  'connections', (SELECT sum(numbackends) FROM pg_stat_database),
  'max_connections', current_setting('max_connections')::integer,
  'standbys', (SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'),
  'synchronous_standbys', current_setting('synchronous_standby_names'),
  'role', quote_ident(current_user),
  'sees_others', pg_has_role('pg_read_all_stats', 'USAGE')
)
"""
# What keeps dead rows from being removed: a transaction of this database that is open or prepared; an unread
# slot, or a standby's own readers.
_HOLDERS: Final = """
SELECT what, name, age_s, fix FROM (
  SELECT 'transaction' AS what, coalesce(nullif(application_name, ''), usename, '?') || ' (pid ' || pid || ')' AS name,
    extract(epoch FROM clock_timestamp() - xact_start)::bigint AS age_s,
    format('SELECT pg_terminate_backend(%%s)', pid) AS fix
  FROM pg_stat_activity
  WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND datname = current_database()
  UNION ALL
  SELECT 'prepared transaction', gid, extract(epoch FROM clock_timestamp() - prepared)::bigint,
    format('ROLLBACK PREPARED %%L, or COMMIT PREPARED', gid)
  FROM pg_prepared_xacts WHERE database = current_database()
) AS holder WHERE age_s > %b::bigint ORDER BY age_s DESC LIMIT 1
"""
_SNAPSHOTS: Final = """
SELECT what, name, behind, fix FROM (
  SELECT 'replication slot' AS what, slot_name::text AS name, greatest(age(xmin), age(catalog_xmin)) AS behind,
    format('let its reader go on, or SELECT pg_drop_replication_slot(%%L)', slot_name) AS fix
  FROM pg_replication_slots
  UNION ALL
  SELECT 'standby', coalesce(nullif(application_name, ''), '?') || ' (pid ' || pid || ')', age(backend_xmin),
    'end the long query there, or set hot_standby_feedback = off'
  FROM pg_stat_replication
) AS holder WHERE behind > %b::bigint ORDER BY behind DESC LIMIT 1
"""
_BLOAT: Final = """
SELECT relname::text, n_dead_tup FROM pg_stat_user_tables
WHERE schemaname = %b::text AND relname = ANY (%b::text[]) AND n_dead_tup > %b::bigint AND n_dead_tup > 10 * n_live_tup
ORDER BY n_dead_tup DESC LIMIT 1
"""

logger = logging.getLogger("limpet.stores.postgres")


async def findings(client: Client) -> list[Finding]:
    """Version, durability, clocks, the way to the server, the layout, and what keeps tables from being cleaned."""
    facts, here_ms = await _facts(client)
    return [
        *_promises(facts),
        *_settings(facts),
        *_clock(facts, here_ms),
        *_way(client),
        *_layout(await migrate.look(client)),
        *_sight(facts),
        *_holder(await client.rows(_HOLDERS, (OLD_S,), verb="check")),
        *_snapshot(await client.rows(_SNAPSHOTS, (OLD_XIDS,), verb="check")),
        *_bloat(await client.rows(_BLOAT, (client.schema, list(HOT), BLOATED), verb="check")),
    ]


async def startup(client: Client) -> None:
    """Warn of what may lose acknowledged jobs, or is not as it should be; with strict=1, the former is refused."""
    facts, here_ms = await _facts(client)
    risky = [finding for finding in _promises(facts) if finding.level != "ok"]
    if risky and client.url.strict:
        raise StoreError(f"refused, because strict=1 and {risky[0].text}", verb="open", fix=risky[0].fix)
    for finding in [*risky, *_settings(facts), *_clock(facts, here_ms)]:
        logger.log(logging.ERROR if finding.level == "error" else logging.WARNING, "%s (%s)", finding.text, finding.fix)


async def _facts(client: Client) -> tuple[dict[str, Any], float]:
    """What the server says of itself, and this machine's time at that moment."""
    before_ms = time.time() * 1000
    (facts,) = await client.row(_FACTS, verb="check")
    return facts, (before_ms + time.time() * 1000) / 2


def _promises(facts: dict[str, Any]) -> list[Finding]:
    """All that decides whether an acknowledged job can be lost."""
    return [_version(facts), *_durability(facts), *_standbys(facts)]


def _version(facts: dict[str, Any]) -> Finding:
    text = f"PostgreSQL {facts['version']}"
    if facts["number"] < OLDEST:
        text = f"{text} is older than {OLDEST // 10_000}, the oldest that the engine is tested on"
        return Finding("warning", "version", text, "upgrade the server")
    return Finding("ok", "version", text)


def _durability(facts: dict[str, Any]) -> list[Finding]:
    if not facts["fsync"]:
        text = "fsync is off: a power cut may lose acknowledged jobs, or the whole database"
        return [Finding("error", "sync", text, "set fsync = on")]
    found = []
    if facts["synchronous_commit"] == "off":
        text = "synchronous_commit is off: a crash of the server loses the jobs of its last moments"
        found.append(Finding("error", "sync", text, "set synchronous_commit = on, for this role at least"))
    else:
        text = "every commit reaches the disk before it is acknowledged"
        found.append(Finding("ok", "sync", text))
    if not facts["full_page_writes"]:
        text = "full_page_writes is off: a power cut may damage the database"
        found.append(Finding("warning", "pages", text, "set full_page_writes = on, unless the file system sees to it"))
    return found


def _standbys(facts: dict[str, Any]) -> list[Finding]:
    local = facts["synchronous_commit"] in ("off", "local")
    if not facts["standbys"] or (facts["synchronous_standbys"] and not local):
        return []
    text = "a failover may lose the last acknowledged jobs, because commits do not wait for a standby"
    return [Finding("warning", "standbys", text, "set synchronous_standby_names on the server")]


def _settings(facts: dict[str, Any]) -> list[Finding]:
    found = []
    if not facts["autovacuum"]:
        text = "autovacuum or track_counts is off: tables grow without end"
        found.append(Finding("error", "autovacuum", text, "set autovacuum = on and track_counts = on"))
    if facts["encoding"] != "UTF8":
        text = f"the database's encoding is {facts['encoding']}: what it cannot say cannot be stored"
        found.append(Finding("warning", "encoding", text, "use a database with ENCODING 'UTF8'"))
    used, most = facts["connections"], facts["max_connections"]
    if used > most * NEARLY_FULL:
        text = f"{used} of the server's {most} connections are in use"
        found.append(Finding("warning", "connections", text, "raise max_connections, lower pool=, or use PgBouncer"))
    return found


def _clock(facts: dict[str, Any], here_ms: float) -> list[Finding]:
    skew_ms = facts["now_ms"] - here_ms
    if abs(skew_ms) < SKEW_MS:
        return []
    side = "ahead of" if skew_ms > 0 else "behind"
    text = f"the server's clock, which is the one that counts, is {abs(skew_ms) / 1000:.1f} s {side} this machine's"
    return [Finding("warning", "clock", text, "let both keep time with NTP")]


def _way(client: Client) -> list[Finding]:
    if not client.pooled:
        return []
    if client.url.listen is not None:
        return [Finding("ok", "pooler", "statements go through a pooler, wake-ups past it (listen_url)")]
    text = "the URL leads over a pooler, so workers look for jobs every second instead of being woken"
    return [Finding("warning", "pooler", text, "name the server itself as well: ?listen_url=host:port")]


def _layout(layout: Layout) -> list[Finding]:
    found = [Finding("ok", "layout", f"the schema is at migration {layout.number}")]
    for number in layout.edited:
        text = f"migration {number} is not the one that was applied: files of the release were changed since"
        found.append(Finding("warning", "layout", text, "reinstall the release, and see what differs"))
    if layout.other_verbs:
        text = f"the schema's functions are not those of this release, though both are at migration {layout.number}"
        found.append(Finding("warning", "layout", text, "run `limpet migrate`, which replaces them"))
    return found


def _sight(facts: dict[str, Any]) -> list[Finding]:
    if facts["sees_others"]:
        return []
    text = f"role {facts['role']} sees neither standbys nor other roles' transactions, so their effect is not known"
    return [Finding("warning", "blind", text, f"GRANT pg_read_all_stats TO {facts['role']}")]


def _holder(rows: Sequence[tuple[Any, ...]]) -> list[Finding]:
    return [
        Finding(
            "warning",
            "old-transaction",
            f"{what} {name} is open for {age_s // 60} minutes: dead rows cannot be removed, and claims slow down",
            fix,
        )
        for what, name, age_s, fix in rows
    ]


def _snapshot(rows: Sequence[tuple[Any, ...]]) -> list[Finding]:
    return [
        Finding(
            "warning",
            "old-snapshot",
            f"{what} {name} holds a snapshot that is {behind:,} transactions old: dead rows cannot be removed",
            fix,
        )
        for what, name, behind, fix in rows
    ]


def _bloat(rows: Sequence[tuple[Any, ...]]) -> list[Finding]:
    fix = "see what keeps VACUUM from them: old transactions, unused replication slots, or autovacuum's settings"
    return [
        Finding("warning", "bloat", f"{table} holds {dead:,} dead rows, and claims slow down", fix)
        for table, dead in rows
    ]
