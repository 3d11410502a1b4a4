"""What is released stays as it is; what may change has one text, and a number if Python calls it (sql/README.md)."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from msgspec import Struct

from limpet.stores.postgres.layout import FOLDER, Migration, migrations, newest, verbs


class Released(Struct, frozen=True):
    """A release's newest migration and the verbs that came with it, by their checksums."""

    release: str
    tables: str
    verbs: str | None = None  # None: the release is still to come, and verbs may change until then


RELEASED = {
    1: Released("0.3.0", "19302b65001d9535"),
}


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [each.number for each in migrations()] == list(range(1, newest() + 1))
    assert all(1 <= each.min_client <= each.number for each in migrations())


def test_what_is_not_released_yet_is_one_migration_at_most() -> None:
    """The next one grows until its release: nobody but developers has applied it."""
    assert newest() <= max(RELEASED) + 1


@pytest.mark.parametrize("number", RELEASED)
def test_a_released_migration_never_changes(number: int) -> None:
    (migration,) = (each for each in migrations() if each.number == number)
    assert migration.checksum == RELEASED[number].tables


def test_verbs_that_changed_since_a_release_come_with_a_new_number() -> None:
    released = RELEASED.get(newest())
    if released is not None and released.verbs is not None:
        assert verbs().checksum == released.verbs, f"add sql/tables/{newest() + 1:04}.sql: see sql/README.md"


@pytest.mark.parametrize("migration", migrations(), ids=lambda each: each.name)
def test_a_migration_defines_no_verb(migration: Migration) -> None:
    assert "FUNCTION" not in re.sub(r"--.*|DROP FUNCTION", "", migration.text).upper()


def test_every_function_has_one_text_that_replaces() -> None:
    made = re.findall(r"^\s*CREATE (.*?)\(", texts(), re.MULTILINE)
    assert [what for what in made if not re.fullmatch(r"OR REPLACE FUNCTION lp\.\w+", what)] == []
    assert [what for what, times in Counter(made).items() if times > 1] == []


def test_what_python_calls_has_a_version_in_its_name_and_nothing_else_has() -> None:
    python = "\n".join(path.read_text() for path in FOLDER.parent.glob("*.py"))
    called = set(re.findall(r"\bFROM lp\.(\w+)\(|\bSELECT lp\.(\w+)\(", python))
    entries = {name for pair in called for name in pair if name}
    assert entries <= functions(), "the functions are there"
    assert {name for name in functions() if re.search(r"_\d+$", name)} == entries


def texts() -> str:
    """The verbs without their comments."""
    return "\n".join(re.sub(r"--.*", "", text) for _, text in verbs().files)


def functions() -> set[str]:
    """Their names."""
    return set(re.findall(r"FUNCTION lp\.(\w+)", texts()))
