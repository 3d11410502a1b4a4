"""The sharing of the PostgreSQL functions is that of core."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.limits.fair import Turn, places, share
from tests.engines.postgres.schemas import Schema, fresh_schema
from tests.servers.installations import POSTGRES

SHARE = "SELECT lp.share(%s, %s::integer[], %s::integer[])"
PLACES = "SELECT * FROM lp.places(%s::bigint[], %s::integer[], %s::integer[], %s::integer[])"


@pytest.fixture(scope="module")
def schema() -> Iterator[Schema]:
    with fresh_schema(POSTGRES, rooms="22") as schema:
        yield schema


RINGS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=12).map(
    lambda pairs: [
        Turn((member * 7) % 13 - 6, min(left, weight), weight) for member, (left, weight) in enumerate(pairs)
    ]
)


@given(RINGS, st.integers(0, 100), st.data())
def test_sharing_is_that_of_core(schema: Schema, ring: list[Turn], count: int, data: st.DataObject) -> None:
    given_to = share(count, ring)
    lefts, weights = [turn.left for turn in ring], [turn.weight for turn in ring]
    assert schema.ask(SHARE, count, lefts, weights) == [(given_to,)]
    served = [data.draw(st.integers(0, n) | st.just(n)) for n in given_to]
    expected = places(ring, served)
    assert schema.ask(PLACES, [turn.member for turn in ring], lefts, weights, served) == [
        ([p.member for p in expected], [p.left for p in expected], [p.moves for p in expected])
    ]
