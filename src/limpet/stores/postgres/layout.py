"""What this release ships, what a schema holds, and whether the two fit: tables are migrated, verbs are replaced."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from limpet.core.errors import SchemaOutdated
from limpet.stores.postgres.names import resolve

FOLDER: Final = Path(__file__).with_name("sql")

_MIN_CLIENT: Final = re.compile(r"^-- Min client: (\d+)$", re.MULTILINE)


class Migration(Struct, frozen=True):
    """One numbered change of tables, types and indexes. It never changes once it is released."""

    number: int
    text: str

    @property
    def name(self) -> str:
        return f"{self.number:04}"

    @property
    def checksum(self) -> str:
        return _checksum(self.text)

    @property
    def min_client(self) -> int:
        """The oldest release, by its own last migration, that can work on a schema that has this one."""
        return max((int(number) for number in _MIN_CLIENT.findall(self.text)), default=1)


class Verbs(Struct, frozen=True):
    """Every function, in files that are replayed whole, in the order of their names."""

    files: tuple[tuple[str, str], ...]  # name and text

    @property
    def checksum(self) -> str:
        return _checksum(*(f"{name}\n{text}" for name, text in self.files))


class Step(Struct, frozen=True):
    """What one transaction of an upgrade does: tables, and after the last of them the verbs; or the verbs alone."""

    migration: Migration
    tables: bool
    verbs: bool

    @property
    def name(self) -> str:
        return self.migration.name if self.tables else "verbs"

    @property
    def files(self) -> list[tuple[str, str]]:
        """Names and texts of what is run, in order."""
        files = [(f"tables/{self.migration.name}.sql", self.migration.text)] if self.tables else []
        return [*files, *((f"verbs/{name}", text) for name, text in verbs().files)] if self.verbs else files

    @property
    def note(self) -> str:
        """What the schema is told to remember."""
        migration = self.migration
        has = f"'{verbs().checksum}'" if self.verbs else "NULL"
        if not self.tables:
            return f"UPDATE lp.migration SET verbs = {has}, applied_at = now() WHERE number = {migration.number}"
        return (
            "INSERT INTO lp.migration (number, name, checksum, verbs, min_client) VALUES "
            f"({migration.number}, '{migration.name}', '{migration.checksum}', {has}, {migration.min_client})"
        )


class Applied(Struct, frozen=True):
    """A migration as the schema remembers it."""

    number: int
    name: str
    checksum: str
    verbs: str | None  # the checksum of those that were replayed with it; None: more migrations were to follow
    min_client: int


class Layout(Struct, frozen=True):
    """How far a schema is."""

    exists: bool  # the schema itself: it may have been made by another role, and still be empty
    applied: tuple[Applied, ...] = ()

    @property
    def number(self) -> int:
        """The newest migration whose verbs are there, too; 0: none. An upgrade may have ended between two steps."""
        return max((each.number for each in self.applied if each.verbs is not None), default=0)

    @property
    def min_client(self) -> int:
        return max((each.min_client for each in self.applied), default=0)

    @property
    def later(self) -> bool:
        """Whether a later release has been here. Whatever that left, it is not for this one to change."""
        return bool(self.applied) and self.applied[-1].number > newest()

    @property
    def other_verbs(self) -> bool:
        """Whether the tables are this release's and the verbs are not."""
        here = self.applied[-1] if self.applied else None
        return here is not None and here.number == newest() and here.verbs != verbs().checksum

    @property
    def steps(self) -> tuple[Step, ...]:
        """What this release would do, in order."""
        done = self.applied[-1].number if self.applied else 0
        pending = [each for each in migrations() if each.number > done]
        if pending:
            return tuple(Step(each, tables=True, verbs=each is pending[-1]) for each in pending)
        return (Step(migrations()[-1], tables=False, verbs=True),) if self.other_verbs else ()

    @property
    def edited(self) -> tuple[int, ...]:
        """Migrations that were other than they are in this release when they were applied."""
        ours = {each.number: each.checksum for each in migrations()}
        return tuple(each.number for each in self.applied if ours.get(each.number, each.checksum) != each.checksum)


@cache
def migrations() -> tuple[Migration, ...]:
    """All of this release, in order."""
    return tuple(Migration(int(path.stem), _read(path)) for path in sorted((FOLDER / "tables").glob("*.sql")))


@cache
def verbs() -> Verbs:
    """Those of this release."""
    return Verbs(tuple((path.name, _read(path)) for path in sorted((FOLDER / "verbs").glob("*.sql"))))


def newest() -> int:
    """The layout that this release is written for."""
    return migrations()[-1].number


def fits(layout: Layout, schema: str) -> None:
    """Refuse a schema that this release cannot work on. One of a later release is fine, as long as that says so."""
    if layout.min_client > newest():
        raise SchemaOutdated(
            f"schema {schema} is at migration {layout.number}, and releases that know less than {layout.min_client} "
            f"cannot work on it; this one knows {newest()}",
            verb="open",
            fix="upgrade limpet",
        )
    if layout.number < newest():
        fix = "run `limpet migrate` (--plan shows what it would do)"
        raise SchemaOutdated(
            f"schema {schema} is at migration {layout.number}, and this release needs {newest()}",
            verb="open",
            fix=f"a later release has begun to upgrade it: with that one, {fix}" if layout.later else fix,
        )


def _read(path: Path) -> str:
    """The text of a file with a number for each name."""
    try:
        return resolve(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error


def _checksum(*texts: str) -> str:
    whole = hashlib.sha256()
    for text in texts:
        whole.update(f"{text}\n".encode())
    return whole.hexdigest()[:16]
