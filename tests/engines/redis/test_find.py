"""Where a search on Redis ends: with its candidates, or with its time, and the page says which."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from limpet.core.jobs.view import Query, Term
from limpet.stores.redis import find
from limpet_contract.bench import Bench
from tests.contract.harnesses import HARNESSES


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES["redis"](tmp_path)
    yield await Bench.open(harness)
    await harness.close()


async def test_a_slow_search_ends_a_page_and_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "LOOK_S", 0.0)
    monkeypatch.setattr(find, "LEAST", 100)
    monkeypatch.setattr(find, "AT_ONCE", 64)
    rare = await bench.add(task="rare")
    await bench.add_many(300)
    query, pages = Query(terms=(Term("task", "rare"),)), []
    while True:
        pages.append(await bench.store.find(query, now_ms=bench.clock.now_ms))
        if pages[-1].cursor is None:
            break
        assert not pages[-1].complete
        query = Query(terms=query.terms, cursor=pages[-1].cursor)
    assert [job.id for page in pages for job in page.jobs] == [rare]
    assert len(pages) >= 3


async def test_what_a_key_names_is_found_however_long_it_takes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "LOOK_S", 0.0)
    monkeypatch.setattr(find, "LEAST", 1)
    monkeypatch.setattr(find, "AT_ONCE", 8)
    flow = bench.id()
    await bench.add_many(40, flow=flow)
    page = await bench.store.find(Query(terms=(Term("flow", flow.hex()),)), now_ms=bench.clock.now_ms)
    assert (len(page.jobs), page.complete, page.cursor) == (40, True, None)
