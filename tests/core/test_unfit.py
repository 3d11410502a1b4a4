"""Errors that no retry cures, raised by the libraries themselves: what cannot be read, may not be done, or is there."""

from __future__ import annotations

import json
import types
import urllib.request
from collections.abc import Callable
from typing import Any

import asyncpg
import msgspec
import psycopg
import pydantic
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from limpet.core.endings.classify import classify, judge_error
from limpet.core.endings.overrides import classifiers_of
from tests.core.test_classify import fake


class Order(pydantic.BaseModel):
    amount: int


def raised(call: Callable[[], object]) -> Exception:
    """What a call raises, with its traceback."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 -- the tests say which
        call()
    return caught.value


def sqlite(statement: str) -> Exception:
    """What SQLAlchemy raises for a statement that a constraint refuses."""
    engine = sa.create_engine("sqlite://")

    def run() -> None:
        with engine.begin() as connection:
            connection.exec_driver_sql("PRAGMA foreign_keys = ON")
            connection.exec_driver_sql("CREATE TABLE one (id INTEGER PRIMARY KEY, mail TEXT UNIQUE)")
            connection.exec_driver_sql("CREATE TABLE many (one INTEGER REFERENCES one)")
            connection.exec_driver_sql("INSERT INTO one VALUES (1, 'a')")
            connection.exec_driver_sql(statement)

    try:
        return raised(run)
    finally:
        engine.dispose()


def no_row() -> object:
    with Session(sa.create_engine("sqlite://")) as session:
        return session.execute(sa.text("SELECT 1 WHERE false")).one()


def over(orig: Exception) -> Exception:
    return sa.exc.IntegrityError("INSERT", {}, orig)


def missing(name: str) -> Exception:
    error: Exception = fake(name, fake("django.core.exceptions.ObjectDoesNotExist"))("no")
    return error


def django(name: str) -> Exception:
    error: Exception = fake(f"django.core.exceptions.{name}")("no")
    return error


PERMANENT: list[tuple[str, Callable[[], Exception]]] = [
    ("pydantic", lambda: raised(lambda: Order.model_validate({"amount": "much"}))),
    ("pydantic 1", lambda: fake("pydantic.error_wrappers.ValidationError", ValueError)("no")),
    ("msgspec", lambda: raised(lambda: msgspec.json.decode(b'"x"', type=int))),
    ("JSON", lambda: raised(lambda: json.loads("{"))),
    ("text", lambda: raised(b"\xff".decode)),
    ("rights", lambda: PermissionError(13, "denied")),
    ("Django: values", lambda: django("ValidationError")),
    ("Django: rights", lambda: django("PermissionDenied")),
    ("SQLite: a unique key", lambda: sqlite("INSERT INTO one VALUES (2, 'a')")),
    ("SQLite: a primary key", lambda: sqlite("INSERT INTO one VALUES (1, 'b')")),
    ("psycopg", lambda: psycopg.errors.UniqueViolation("there")),
    ("asyncpg", lambda: asyncpg.UniqueViolationError("there")),
    ("SQLAlchemy over psycopg", lambda: over(psycopg.errors.UniqueViolation("there"))),
    ("SQLAlchemy over psycopg2", lambda: over(fake("psycopg2.errors.UniqueViolation", pgcode="23505")("there"))),
]


@pytest.mark.parametrize("make", [make for _, make in PERMANENT], ids=[name for name, _ in PERMANENT])
def test_what_cannot_pass_is_permanent(make: Callable[[], Exception]) -> None:
    assert classify(make()).kind == "permanent"


TRANSIENT: list[tuple[str, Callable[[], Exception]]] = [
    ("anything unknown", lambda: ValueError("no")),
    ("SQLite: a foreign key", lambda: sqlite("INSERT INTO many VALUES (9)")),
    ("psycopg: a foreign key", lambda: psycopg.errors.ForeignKeyViolation("no row yet")),
    ("asyncpg: a foreign key", lambda: asyncpg.ForeignKeyViolationError("no row yet")),
    ("SQLAlchemy: a foreign key", lambda: over(psycopg.errors.ForeignKeyViolation("no row yet"))),
    ("SQLAlchemy: no row", lambda: raised(no_row)),
    ("Django: no row", lambda: missing("shop.models.DoesNotExist")),
]


@pytest.mark.parametrize("make", [make for _, make in TRANSIENT], ids=[name for name, _ in TRANSIENT])
def test_what_may_pass_stays_transient(make: Callable[[], Exception]) -> None:
    assert classify(make()).kind == "transient"


def client(name: str) -> Callable[[bytes], Any]:
    """The part of an HTTP client that reads an answer as JSON, in a module of its name."""
    module = types.ModuleType(name)
    exec("import json\ndef read(body): return json.loads(body)\n", module.__dict__)
    read: Callable[[bytes], Any] = module.__dict__["read"]
    return read


ANSWERS: list[tuple[str, Callable[[], object]]] = [
    ("httpx", lambda: client("httpx._models")(b"<html>")),
    ("aiohttp", lambda: client("aiohttp.client_reqrep")(b"<html>")),
    ("httpx, no text", lambda: client("httpx._models")(b"\xff\xfe\xff")),
    ("urllib", lambda: json.load(urllib.request.urlopen("data:text/html,<html>"))),
]


@pytest.mark.parametrize("read", [read for _, read in ANSWERS], ids=[name for name, _ in ANSWERS])
def test_the_answer_of_a_server_may_be_whole_next_time(read: Callable[[], object]) -> None:
    assert classify(raised(read)).kind == "transient"


def test_requests_has_a_class_of_its_own_for_that() -> None:
    broken = fake("requests.exceptions.JSONDecodeError", fake("requests.exceptions.RequestException"), ValueError)
    assert classify(broken("no JSON")).kind == "transient"


def test_an_own_error_raised_from_one_is_the_users_word() -> None:
    error = RuntimeError("the partner sent nonsense")
    error.__cause__ = raised(lambda: json.loads("{"))
    assert classify(error).kind == "transient"


def test_a_key_that_is_there_already_counts_also_behind_an_own_error() -> None:
    error = RuntimeError("not saved")
    error.__cause__ = psycopg.errors.UniqueViolation("there")
    assert classify(error).kind == "permanent"


@pytest.mark.parametrize(
    ("named", "make"),
    [
        (pydantic.ValidationError, PERMANENT[0][1]),
        ("pydantic_core.ValidationError", PERMANENT[0][1]),
        ("json.JSONDecodeError", PERMANENT[3][1]),
        (PermissionError, PERMANENT[5][1]),
        ("psycopg.errors.UniqueViolation", PERMANENT[10][1]),
    ],
)
def test_the_app_has_the_first_word(named: Any, make: Callable[[], Exception]) -> None:
    judged = judge_error(make(), classifiers_of({named: "transient"}))
    assert (judged.verdict.kind, judged.rule.by) == ("transient", "override")
