"""Brings a schema up to date: each migration is one transaction, and of several who try at once one does it."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from holdfast.core.errors import SchemaOutdated, StoreError, StoreUnreachable
from holdfast.stores.base import Plan
from holdfast.stores.postgres import trouble
from holdfast.stores.postgres.line import Line, Lost, Refusal, Row, Silent, open_line
from holdfast.stores.postgres.pool import pause
from holdfast.stores.postgres.route import Route
from holdfast.stores.postgres.url import PostgresUrl
from holdfast.stores.postgres.wire import in_schema

FOLDER: Final = Path(__file__).with_name("sql")
LOCK: Final = 1751543808 + 6  # as hf.lock_1(6), with the schema's name for a schema that may not be there yet

STEP_S: Final = 600.0  # how long one statement of a migration may take: an index on many rows takes minutes
PATIENCE_S: Final = 120.0  # how long to try while others migrate or hold what is to be changed
LOCK_MS: Final = 1_000  # a change that waits for a lock makes everybody wait behind it: it gives up, and tries again

Progress = Callable[[str], None]

_RECORD: Final = """
CREATE TABLE IF NOT EXISTS hf.migration (
  number integer NOT NULL PRIMARY KEY,
  name text NOT NULL,
  checksum text NOT NULL,
  min_client integer NOT NULL, -- the oldest release, by its own last migration, that can work on this schema
  applied_at timestamptz NOT NULL DEFAULT now()
);
"""
_HAS: Final = "SELECT to_regnamespace('hf') IS NOT NULL, to_regclass('hf.migration') IS NOT NULL"
_DONE: Final = "SELECT number, name, checksum, min_client FROM hf.migration ORDER BY number"
_MIN_CLIENT: Final = re.compile(r"^-- Min client: (\d+)$", re.MULTILINE)


class Migration(Struct, frozen=True):
    """One step of the layout: the files of a folder, in the order of their names."""

    number: int
    files: tuple[tuple[str, str], ...]  # name and text
    min_client: int

    @property
    def name(self) -> str:
        return f"{self.number:04}"

    @property
    def checksum(self) -> str:
        whole = hashlib.sha256()
        for name, text in self.files:
            whole.update(f"{name}\n{text}\n".encode())
        return whole.hexdigest()[:16]


class Applied(Struct, frozen=True):
    """A migration as the schema remembers it."""

    number: int
    name: str
    checksum: str
    min_client: int


class Layout(Struct, frozen=True):
    """How far a schema is."""

    exists: bool  # the schema itself: it may have been made by somebody who may, and still be empty
    applied: tuple[Applied, ...] = ()

    @property
    def number(self) -> int:
        return self.applied[-1].number if self.applied else 0

    @property
    def min_client(self) -> int:
        return max((each.min_client for each in self.applied), default=0)

    @property
    def pending(self) -> tuple[Migration, ...]:
        return tuple(each for each in migrations() if each.number > self.number)

    @property
    def edited(self) -> tuple[int, ...]:
        """Migrations that were other than they are in this release when they were applied."""
        ours = {each.number: each.checksum for each in migrations()}
        return tuple(each.number for each in self.applied if ours.get(each.number, each.checksum) != each.checksum)


@cache
def migrations() -> tuple[Migration, ...]:
    """All of this release, in order."""
    found = []
    for folder in sorted(path for path in FOLDER.iterdir() if path.name.isdigit()):
        files = tuple((path.name, path.read_text()) for path in sorted(folder.glob("*.sql")))
        says = [int(number) for _, text in files for number in _MIN_CLIENT.findall(text)]
        found.append(Migration(int(folder.name), files, max(says, default=1)))
    return tuple(found)


def newest() -> int:
    """The layout that this release is written for."""
    return migrations()[-1].number


async def ready(route: Route) -> None:
    """See that the schema fits this release. A fresh one is created; an old one is a person's decision."""
    layout = await look(route)
    if not layout.applied:
        await apply(route.url, route.schema)
    else:
        fits(layout, route.schema)


def fits(layout: Layout, schema: str) -> None:
    """Refuse a schema that this release cannot work on. One of a later release is fine, as long as that says so."""
    if layout.number < newest():
        raise SchemaOutdated(
            f"schema {schema} is at migration {layout.number}, and this release needs {newest()}",
            verb="open",
            fix="run `holdfast migrate` (--plan shows what it would do)",
        )
    if layout.min_client > newest():
        raise SchemaOutdated(
            f"schema {schema} is at migration {layout.number}, and releases that know less than {layout.min_client} "
            f"cannot work on it; this one knows {newest()}",
            verb="open",
            fix="upgrade holdfast",
        )


async def look(route: Route) -> Layout:
    """How far the schema is."""
    schema, table = await route.row(_HAS, verb="open")
    if not table:
        return Layout(schema)
    return Layout(schema, tuple(Applied(*row) for row in await route.rows(_DONE, verb="open")))


def plan(layout: Layout, schema: str) -> Plan:
    """What `apply` would do."""
    steps = [each.name for each in layout.pending]
    return Plan(layout.number, newest(), tuple(steps), _script(layout, schema))


def _script(layout: Layout, schema: str) -> str:
    """The SQL that `apply` would run, to be run by hand: psql -v ON_ERROR_STOP=1 -f FILE."""
    parts = []
    for each in layout.pending:
        parts += [f"-- Migration {each.name}", "BEGIN;", f"{_lock(schema, 'pg_advisory_xact_lock')};"]
        if not layout.applied and each is layout.pending[0]:
            parts += [] if layout.exists else [f'CREATE SCHEMA IF NOT EXISTS "{schema}";']
            parts += [in_schema(_RECORD, schema)]
        parts += [f"-- {each.name}/{name}\n{in_schema(text, schema)}" for name, text in each.files]
        parts += [f"{_note(each, schema)};", "COMMIT;", ""]
    return "\n".join(parts)


async def apply(url: PostgresUrl, schema: str, progress: Progress | None = None) -> list[str]:
    """Apply what is missing; which migrations that were. None, when somebody else was faster."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + PATIENCE_S
    done: list[str] = []
    failures = 0
    while True:
        try:
            line = await open_line(url)
            try:
                await _apply_all(line, schema, done, progress or _quiet)
                return done
            finally:
                line.close()
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
    """Somebody else is migrating this schema."""


async def _apply_all(line: Line, schema: str, done: list[str], progress: Progress) -> None:
    for each in migrations():
        await _run(line, "BEGIN")
        ((locked,),) = await _run(line, _lock(schema, "pg_try_advisory_xact_lock"))
        if not locked:
            raise _Busy("somebody else is migrating this schema")
        ((exists, recorded),) = await _run(line, in_schema(_HAS, schema))
        known = {row[0] for row in await _run(line, in_schema(_DONE, schema))} if recorded else set()
        if each.number in known:
            await _run(line, "COMMIT")
            continue
        progress(f"migration {each.name} …")
        await _run(line, f"SET LOCAL lock_timeout = {LOCK_MS}")
        if not exists:
            await _run(line, f'CREATE SCHEMA "{schema}"')
        if not recorded:
            await _run(line, in_schema(_RECORD, schema))
        for name, text in each.files:
            await _run_file(line, f"{each.name}/{name}", in_schema(text, schema))
        await _run(line, _note(each, schema))
        await _run(line, "COMMIT")
        done.append(each.name)
        progress(f"migration {each.name} is done")


async def _run(line: Line, sql: str) -> list[Row]:
    return await line.script(sql, asyncio.get_running_loop().time() + STEP_S)


async def _run_file(line: Line, name: str, text: str) -> None:
    try:
        await _run(line, text)
    except Refusal as refusal:
        if trouble.remedy_of(refusal) != "none":
            raise
        at = f":{text.count(chr(10), 0, refusal.at - 1) + 1}" if refusal.at else ""
        more = "".join(f"; {part}" for part in (refusal.detail, refusal.hint, refusal.context) if part)
        raise StoreError(
            f"migration {name}{at} failed, and nothing was changed: {refusal}{more}",
            verb="migrate",
            fix="let a role that may do this run what `holdfast migrate --sql` prints"
            if refusal.code == "42501"
            else "",
        ) from refusal


def _lock(schema: str, function: str) -> str:
    return f"SELECT {function}({LOCK}, hashtext('{schema}'))"


def _note(each: Migration, schema: str) -> str:
    return in_schema(
        "INSERT INTO hf.migration (number, name, checksum, min_client) "
        f"VALUES ({each.number}, '{each.name}', '{each.checksum}', {each.min_client})",
        schema,
    )


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
        f"migrate: {url.shown} could not be reached within {PATIENCE_S:g} s ({trouble.said(why)})",
        verb="migrate",
        fix="see whether the server runs and the URL is right",
    )


def _quiet(_: str) -> None:
    """Nobody listens."""
