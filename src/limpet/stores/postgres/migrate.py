"""Brings a schema up to date: each step is one transaction, and of several who try at once one does it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from limpet.core.errors import StoreError, StoreUnreachable
from limpet.stores.base import Plan
from limpet.stores.postgres import trouble
from limpet.stores.postgres.client import Client
from limpet.stores.postgres.connection import Connection, Refusal, Row, open_connection
from limpet.stores.postgres.layout import Applied, Layout, fits, newest
from limpet.stores.postgres.names import NAMES
from limpet.stores.postgres.url import PostgresUrl
from limpet.stores.postgres.wire import in_schema
from limpet.stores.server.client import pause
from limpet.stores.server.trouble import Lost, Silent, said

LOCK: Final = NAMES["LOCKS"] + NAMES["DOOR"]  # and the schema's name: the schema may not be there yet

STEP_S: Final = 600.0  # how long one statement of a migration may take: an index on many rows takes minutes
PATIENCE_S: Final = 120.0  # how long to try while others migrate or hold what is to be changed
LOCK_MS: Final = 1_000  # a change that waits for a lock makes other calls wait behind it: it gives up, and tries again

Progress = Callable[[str], None]

_RECORD: Final = """
CREATE TABLE IF NOT EXISTS lp.migration (
  number integer NOT NULL PRIMARY KEY,
  name text NOT NULL,
  checksum text NOT NULL,
  verbs text, -- the checksum of the functions as of this migration; NULL: those of a further one were to follow
  min_client integer NOT NULL, -- the oldest release, by its own last migration, that can work on this schema
  applied_at timestamptz NOT NULL DEFAULT now()
);
"""
_BY_HAND: Final = """\
-- To be run by hand: psql -v ON_ERROR_STOP=1 -f FILE. A step that meets a table in use gives up soon, so that no call
-- waits behind it, and changes nothing: then print this again, since the steps before it are done, and run that.
"""
_HAS: Final = "SELECT to_regnamespace('lp') IS NOT NULL, to_regclass('lp.migration') IS NOT NULL"
_DONE: Final = "SELECT number, name, checksum, verbs, min_client FROM lp.migration ORDER BY number"


async def ready(client: Client) -> None:
    """See that the schema fits this release. A fresh one is created; an old one is a person's decision."""
    layout = await look(client)
    if not layout.number:
        await apply(client.url, client.schema)
        layout = await look(client)
    fits(layout, client.schema)


async def look(client: Client) -> Layout:
    """How far the schema is."""
    schema, table = await client.row(_HAS, verb="open")
    if not table:
        return Layout(schema)
    return Layout(schema, tuple(Applied(*row) for row in await client.rows(_DONE, verb="open")))


def plan(layout: Layout, schema: str) -> Plan:
    """What `apply` would do."""
    return Plan(layout.number, newest(), tuple(step.name for step in layout.steps), _script(layout, schema))


def _script(layout: Layout, schema: str) -> str:
    """The SQL that `apply` would run, to be run by hand."""
    parts = [_BY_HAND] if layout.steps else []
    for place, step in enumerate(layout.steps):
        parts += [
            f"-- Migration {step.name}",
            "BEGIN;",
            f"{_lock(schema, 'pg_advisory_xact_lock')};",
            f"{_patience()};",
        ]
        if place == 0 and not layout.applied:
            parts += [] if layout.exists else [f'CREATE SCHEMA IF NOT EXISTS "{schema}";']
            parts += [in_schema(_RECORD, schema)]
        parts += [f"-- {name}\n{in_schema(text, schema)}" for name, text in step.files]
        parts += [f"{in_schema(step.note, schema)};", "COMMIT;", ""]
    return "\n".join(parts)


async def apply(url: PostgresUrl, schema: str, progress: Progress | None = None) -> list[str]:
    """Apply what is missing; which steps that were. None, when another process was faster."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + PATIENCE_S
    done: list[str] = []
    failures = 0
    while True:
        try:
            connection = await open_connection(url)
            try:
                await _apply_all(connection, schema, done, progress or _quiet)
                return done
            finally:
                connection.close()
        except Refusal as refusal:
            if trouble.remedy_of(refusal) == "none":
                raise trouble.refused(refusal, "migrate", url.shown) from refusal
            why: BaseException = refusal
        except (*trouble.TROUBLE, _Busy) as error:
            if (hopeless := trouble.hopeless(error, "migrate", url.shown)) is not None:
                raise hopeless from error
            why = error
        pause_s = pause(failures)
        failures += 1
        if loop.time() + pause_s > give_up_at:
            raise _gave_up(url, why) from why
        await asyncio.sleep(pause_s)


class _Busy(Exception):
    """Another process is migrating this schema."""


async def _apply_all(connection: Connection, schema: str, done: list[str], progress: Progress) -> None:
    while (layout := await _begin(connection, schema)).steps:
        step = layout.steps[0]
        progress(f"migration {step.name} …")
        await _run(connection, _patience())
        if not layout.exists:
            await _run(connection, f'CREATE SCHEMA "{schema}"')
        if not layout.applied:
            await _run(connection, in_schema(_RECORD, schema))
        for name, text in step.files:
            await _run_file(connection, name, in_schema(text, schema))
        await _run(connection, in_schema(step.note, schema))
        await _run(connection, "COMMIT")
        done.append(step.name)
        progress(f"migration {step.name} is done")
    await _run(connection, "COMMIT")


async def _begin(connection: Connection, schema: str) -> Layout:
    """A transaction in which no other process migrates, and how far the schema is."""
    await _run(connection, "BEGIN")
    ((locked,),) = await _run(connection, _lock(schema, "pg_try_advisory_xact_lock"))
    if not locked:
        raise _Busy("another process is migrating this schema")
    ((exists, recorded),) = await _run(connection, in_schema(_HAS, schema))
    rows = await _run(connection, in_schema(_DONE, schema)) if recorded else []
    return Layout(exists, tuple(Applied(*row) for row in rows))


async def _run(connection: Connection, sql: str) -> list[Row]:
    return await connection.script(sql, asyncio.get_running_loop().time() + STEP_S)


async def _run_file(connection: Connection, name: str, text: str) -> None:
    try:
        await _run(connection, text)
    except Refusal as refusal:
        if trouble.remedy_of(refusal) != "none":
            raise
        at = f":{text.count(chr(10), 0, refusal.at - 1) + 1}" if refusal.at else ""
        more = "".join(f"; {part}" for part in (refusal.detail, refusal.hint, refusal.context) if part)
        raise StoreError(
            f"migration {name}{at} failed, and nothing was changed: {refusal}{more}",
            verb="migrate",
            fix="let a role that may do this run what `limpet migrate --sql` prints" if refusal.code == "42501" else "",
        ) from refusal


def _patience() -> str:
    return f"SET LOCAL lock_timeout = {LOCK_MS}"


def _lock(schema: str, function: str) -> str:
    return f"SELECT {function}({LOCK}, hashtext('{schema}'))"


def _gave_up(url: PostgresUrl, why: BaseException) -> StoreError:
    if isinstance(why, _Busy | Refusal):
        return StoreUnreachable(
            f"migrate: {url.shown} was not free for {PATIENCE_S:g} s ({why}); nothing was changed",
            verb="migrate",
            fix="look for long transactions and other migrations in pg_stat_activity, and try again",
        )
    if isinstance(why, Silent | Lost):
        return StoreUnreachable(
            f"migrate: {url.shown}: {why}", verb="migrate", fix="see the server's log, and try again"
        )
    return StoreUnreachable(
        f"migrate: {url.shown} could not be reached within {PATIENCE_S:g} s ({said(why)})",
        verb="migrate",
        fix="see whether the server runs and the URL is right",
    )


def _quiet(_: str) -> None:
    """Without a listener."""
