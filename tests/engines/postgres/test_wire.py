"""Every value arrives as it was meant, whatever it holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limpet.stores.postgres.client import Client
from limpet.stores.postgres.url import parse_postgres
from limpet.stores.postgres.wire import clean, in_schema, statement
from tests.servers.installations import POSTGRES
from tests.servers.postgres import shared


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client(parse_postgres(shared(POSTGRES).url), "limpet")
    yield client
    client.drop()


def between(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bigint": between(64),
    "integer": between(32),
    "smallint": between(16),
    "boolean": st.booleans(),
    "text": TEXT,
    "bytea": st.binary(),
    "double precision": st.floats(allow_nan=False),
}


@pytest.mark.parametrize("kind", VALUES)
async def test_a_value_comes_back_as_it_went(client: Client, kind: str) -> None:
    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(one=st.none() | VALUES[kind], many=st.none() | st.lists(st.none() | VALUES[kind], max_size=6))
    def same(one: Any, many: Any) -> None:
        pairs.append((one, many))

    pairs: list[tuple[Any, Any]] = []
    same()
    sql = f"SELECT %b::{kind}, %b::{kind}[]"
    for pair in pairs:
        assert await client.row(sql, pair, verb="test") == pair


async def test_json_may_be_text_or_a_value(client: Client) -> None:
    sql = "SELECT %b::jsonb, %b::json, %b::jsonb[]"
    answer = await client.row(sql, ('{"a": [1, null]}', {"b": "ü"}, [{"c": 1}, b"[2]", None]), verb="test")
    assert answer == ({"a": [1, None]}, {"b": "ü"}, [{"c": 1}, [2], None])


async def test_what_text_cannot_hold_is_marked(client: Client) -> None:
    assert clean("a\x00b\udc00c") == "a\ufffdb\ufffd\ufffd\ufffdc"
    assert clean("plain") == "plain"
    assert await client.row("SELECT %b::text, %b::text[]", ("a\x00", ["\x00"]), verb="test") == ("a\ufffd", ["\ufffd"])


async def test_an_array_of_twenty_thousand_is_no_trouble(client: Client) -> None:
    ids = [number.to_bytes(16, "big") for number in range(20_000)]
    numbers = list(range(20_000))
    assert await client.row("SELECT %b::bytea[], %b::bigint[]", (ids, numbers), verb="test") == (ids, numbers)


async def test_many_megabytes_pass_both_ways(client: Client) -> None:
    body = bytes(range(256)) * 65_536  # 16 MiB
    assert await client.row("SELECT %b::bytea", (body,), verb="test") == (body,)


async def test_a_value_of_the_wrong_kind_is_an_error_of_the_caller_and_costs_no_connection(client: Client) -> None:
    for _ in range(10):
        with pytest.raises(Exception, match=r"(?i)required argument is not an integer|int too large|format requires"):
            await client.row("SELECT %b::bigint", ("five",), verb="test")
        with pytest.raises(ValueError, match="zip"):
            await client.row("SELECT %b::bigint", (1, 2), verb="test")
    assert await client.row("SELECT %b::bigint", (5,), verb="test") == (5,)


def test_a_placeholder_names_its_type() -> None:
    assert statement("SELECT %b::text[], '%%', %s::double precision", "s", b"x").text == (
        b"SELECT $1::text[], '%', $2::double precision"
    )
    for bad in ("SELECT %b", "SELECT %b::uuid", "SELECT %b :: text"):
        with pytest.raises(ValueError, match="a placeholder needs a cast"):
            statement(bad, "s", b"x")


def test_the_schema_stands_wherever_lp_does() -> None:
    sql = "SELECT lp.f_1(1), 'lp.floor'::regclass, 'lp'::regnamespace, help.x, slp.y FROM lp.t"
    assert in_schema(sql, "a.B-c") == (
        """SELECT "a.B-c".f_1(1), '"a.B-c".floor'::regclass, '"a.B-c"'::regnamespace, help.x, slp.y FROM "a.B-c".t"""
    )
