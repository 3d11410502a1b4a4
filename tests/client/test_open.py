"""A store URL means one thing, and what cannot work is refused by name."""

from __future__ import annotations

import pytest

from limpet.core.errors import InvalidOption, UsageError
from limpet.stores.open import SqliteUrl, open_store, parse_url, redacted


@pytest.mark.parametrize(
    ("url", "path", "sync"),
    [
        ("sqlite:///jobs.db", "jobs.db", "full"),
        ("sqlite:///dir/jobs.db", "dir/jobs.db", "full"),
        ("sqlite:////var/lib/jobs.db", "/var/lib/jobs.db", "full"),
        ("sqlite:///my%20jobs%23.db", "my jobs#.db", "full"),
        ("sqlite://", None, "full"),
        ("sqlite:///:memory:", None, "full"),
        ("sqlite:///jobs.db?sync=normal", "jobs.db", "normal"),
        ("SQLITE:///jobs.db?sync=full", "jobs.db", "full"),
        ("sqlite://?sync=normal", None, "normal"),
    ],
)
def test_sqlite_urls_name_a_file_or_memory(url: str, path: str | None, sync: str) -> None:
    parsed = parse_url(url)
    assert parsed == SqliteUrl(path, sync)  # type: ignore[arg-type]  # parametrised text


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("sqlite://jobs.db", "sqlite:///jobs.db"),
        ("sqlite:///", "sqlite:///jobs.db"),
        ("sqlite:/jobs.db", "sqlite:///jobs.db for a file in this folder, or sqlite:////jobs.db"),
        ("sqlite:jobs.db", "sqlite:///jobs.db"),
        ("jobs.db", "sqlite:///jobs.db"),
        ("sqlit:///jobs.db", "did you mean sqlite://?"),
        ("postgresqll://h/db", "did you mean postgresql://?"),
        ("sqlite:///a#b.db", "%23"),
        ("", "sqlite:///jobs.db"),
    ],
)
def test_what_is_not_a_store_url_is_refused_with_the_fix(url: str, fix: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_url(url)
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("sqlite:///a.db?snyc=normal", "did you mean sync?"),
        ("sqlite:///a.db?timeout=3", "sync=full|normal"),
        ("sqlite:///a.db?sync=off", "sync=full or sync=normal"),
        ("sqlite:///a.db?sync=", "sync=full or sync=normal"),
        ("sqlite:///a.db?timeout=3", "strict=1|0"),
        ("sqlite:///a.db?strict=maybe", "strict=1 or strict=0"),
        ("sqlite:///a.db?strickt=1", "did you mean strict?"),
    ],
)
def test_unknown_url_options_are_refused(url: str, fix: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_url(url)
    assert fix in caught.value.fix


def test_a_sqlite_url_may_ask_for_a_strict_start() -> None:
    assert parse_url("sqlite:///a.db?strict=1&sync=normal") == SqliteUrl("a.db", "normal", strict=True)
    assert parse_url("sqlite:///a.db?strict=Yes") == SqliteUrl("a.db", strict=True)
    assert parse_url("sqlite:///a.db?strict=0") == SqliteUrl("a.db")


def test_a_postgres_url_opens_the_engine_for_it_without_connecting() -> None:
    assert open_store("postgresql://u:hunter2@h/db").features.name == "postgres"
    assert open_store("postgres://h/db").features.name == "postgres"


def test_a_shown_url_has_no_password() -> None:
    assert redacted("postgresql://ada:s3cret@db:5432/x?schema=q") == "postgresql://ada:***@db:5432/x?schema=q"
    assert redacted("sqlite:///a.db") == "sqlite:///a.db"
