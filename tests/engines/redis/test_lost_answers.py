"""Calls whose answer got lost, on Redis: what is asked again happened once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from limpet.core.jobs.view import Control, Entry
from limpet.stores.redis import RedisStore, controls
from limpet_contract.bench import Bench
from tests.contract.harnesses import RedisNamespace


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    harness = RedisNamespace(tmp_path)
    yield await Bench.open(harness)
    await harness.close()


@pytest.fixture
def same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call is a repetition of the first."""
    monkeypatch.setattr(controls, "call_name", lambda: b"the same call")


@pytest.mark.usefixtures("same_name")
async def test_a_repeated_write_of_a_record_is_one_write(bench: Bench) -> None:
    first = await bench.store.put_control(Control("tick", "digest", b"1"), expect=0)
    again = await bench.store.put_control(Control("tick", "digest", b"1"), expect=0)
    assert first is not None
    assert first == again
    assert await bench.store.controls("tick") == [first]


@pytest.mark.usefixtures("same_name")
async def test_a_repeated_line_of_a_log_is_one_line(bench: Bench) -> None:
    for _ in range(2):
        await bench.store.append([Entry("audit", bench.clock.now_ms, "retry"), Entry("event", bench.clock.now_ms, "e")])
    assert len(await bench.store.read("audit")) == len(await bench.store.read("event")) == 1


async def test_two_equal_writes_that_expect_the_same_are_not_both_made(bench: Bench) -> None:
    other = await bench.other()
    assert await bench.store.put_control(Control("tick", "digest", b"1"), expect=0) is not None
    assert await other.store.put_control(Control("tick", "digest", b"1"), expect=0) is None


async def test_a_weight_is_an_integer_of_at_least_one(bench: Bench) -> None:
    assert isinstance(bench.store, RedisStore)
    await bench.store.put_control(Control("weight", "tenant:a", b"0"))
    with pytest.raises(ValueError, match="int"):
        await bench.store.put_control(Control("weight", "tenant:a", b'"many"'))
    assert [control.value for control in await bench.store.controls("weight")] == [b"0"]
