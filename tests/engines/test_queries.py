"""Terms mean the same on every engine: the same jobs, asked the same question, the same answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.jobs.state import STATES, State
from limpet.core.jobs.view import Query, Term
from limpet.stores.match import match_of
from limpet_contract.bench import Bench
from tests.contract.harnesses import HARNESSES, SHARED
from tests.stores.terms import TERMS, shelf

QUERIES = st.tuples(
    st.lists(TERMS, min_size=1, max_size=2).map(tuple),
    st.none() | st.frozensets(st.sampled_from(STATES), min_size=1),
)


@pytest.fixture(params=SHARED)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES[request.param](tmp_path)
    yield await Bench.open(harness)
    await harness.close()


async def test_random_terms_find_what_the_filter_of_whole_jobs_finds(bench: Bench) -> None:
    await shelf(bench)
    jobs = await bench.everything()
    expected: dict[tuple[tuple[Term, ...], frozenset[State] | None], set[bytes]] = {}

    @given(QUERIES)
    def draw(query: tuple[tuple[Term, ...], frozenset[State] | None]) -> None:
        terms, states = query
        fits = match_of(terms, bench.clock.now_ms)
        expected[query] = {job.id for job in jobs if (states is None or job.state in states) and fits(job)}

    draw()
    for (terms, states), ids in expected.items():
        page = await bench.store.find(Query(states, terms), now_ms=bench.clock.now_ms)
        assert page.complete
        assert {job.id for job in page.jobs} == ids, (terms, states)
