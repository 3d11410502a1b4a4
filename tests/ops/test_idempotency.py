"""Requests with an idempotency key on every engine: answered as before, refused, or done again after a kill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from limpet.core.access import request_key
from limpet.core.access.request_key import ANSWER_BYTES, KEPT_MS, MOST_BYTES, kind_at
from limpet.core.errors import InvalidOption
from limpet.ops import idempotency as idempotency_module
from limpet.ops.idempotency import HOLD_MS, Answered, Begun, Idempotency, Refused
from limpet_contract.bench import Bench
from tests.contract.harnesses import HARNESSES, SHARED


@pytest.fixture(params=SHARED)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES[request.param](tmp_path)
    yield await Bench.open(harness)
    await harness.close()


@pytest.fixture
def keys(bench: Bench) -> Idempotency:
    return Idempotency(bench.store, lambda: bench.clock.now_ms)


@pytest.fixture
def one_shelf(monkeypatch: pytest.MonkeyPatch) -> None:
    """All keys lie in one record."""
    monkeypatch.setattr(request_key, "SHELVES", 1)
    monkeypatch.setattr(idempotency_module, "SHELVES", 1)


async def begin(keys: Idempotency, key: str = "k1", body: bytes = b"{}", **other: Any) -> Begun | Answered | Refused:
    asked = {"caller": "ci", "method": "POST", "path": "/api/v1/jobs", **other}
    return await keys.begin(asked.pop("caller"), key, asked.pop("method"), asked.pop("path"), body, **asked)


async def begun(keys: Idempotency, key: str = "k1", **asked: Any) -> Begun:
    found = await begin(keys, key, **asked)
    assert isinstance(found, Begun)
    return found


async def test_the_same_request_is_answered_as_before(keys: Idempotency) -> None:
    first = await begun(keys)
    assert not first.again
    assert await keys.finish(first, 201, b'{"id":"x"}')
    second = await begin(keys)
    assert isinstance(second, Answered)
    assert (second.status, second.answer, second.ids(2)) == (201, b'{"id":"x"}', first.ids(2))


@pytest.mark.parametrize("other", [{"body": b"[]"}, {"path": "/api/v1/claim"}, {"method": "PUT"}])
async def test_another_request_with_the_key_is_refused(keys: Idempotency, other: dict[str, Any]) -> None:
    await begun(keys)
    assert await begin(keys, **other) == Refused("other_request")


async def test_keys_are_each_callers_own(keys: Idempotency) -> None:
    first = await begun(keys)
    other = await begun(keys, caller="dan", body=b"[]")
    assert set(first.ids(3)).isdisjoint(other.ids(3))
    # The end of a caller's name is not the beginning of a key.
    assert isinstance(await begin(keys, "ab", caller="x"), Begun)
    assert isinstance(await begin(keys, "b", caller="xa"), Begun)


async def test_a_request_in_progress_is_refused_until_its_try_is_taken_for_dead(
    bench: Bench, keys: Idempotency
) -> None:
    first = await begun(keys)
    bench.clock.advance(1_000)
    assert await begin(keys) == Refused("in_progress", HOLD_MS - 1_000)
    bench.clock.advance(HOLD_MS - 1_000)
    again = await begun(keys)
    assert (again.again, again.ids(3)) == (True, first.ids(3)), "its jobs have the ids of the first try"
    assert not await keys.finish(first, 500, b"late"), "the first try is not dead, and answers too late"
    assert not await keys.forget(first)
    assert await keys.finish(again, 201, b"{}")
    assert isinstance(await begin(keys), Answered)


async def test_of_requests_at_the_same_time_one_is_done(bench: Bench, keys: Idempotency) -> None:
    others = [Idempotency((await bench.other()).store, lambda: bench.clock.now_ms) for _ in range(3)]
    found = await asyncio.gather(*(begin(each) for each in [keys, *others] for _ in range(4)))
    assert sum(isinstance(each, Begun) for each in found) == 1
    assert sum(isinstance(each, Refused) and each.why == "in_progress" for each in found) == 15


async def test_keys_in_one_record_do_not_lose_each_other(bench: Bench, keys: Idempotency, one_shelf: None) -> None:
    others = [Idempotency((await bench.other()).store, lambda: bench.clock.now_ms) for _ in range(3)]

    async def whole(each: Idempotency, key: str) -> None:
        await each.finish(await begun(each, key), 200, key.encode())

    names = [f"k{number}" for number in range(24)]
    await asyncio.gather(*(whole(others[at % 3], name) for at, name in enumerate(names)))
    answers = [await begin(keys, name) for name in names]
    assert [each.answer for each in answers if isinstance(each, Answered)] == [name.encode() for name in names]


async def test_jobs_of_a_killed_try_are_stored_once(bench: Bench, keys: Idempotency) -> None:
    first = await begun(keys)
    await bench.put(*(replace(bench.job(), id=id) for id in first.ids(3)))  # and here its process is killed
    bench.clock.advance(HOLD_MS)
    again = await begun(keys)
    answers = await bench.put(*(replace(bench.job(), id=id) for id in again.ids(3)))
    assert [(each.id, each.existing) for each in answers] == [(id, True) for id in first.ids(3)]
    assert (await bench.store.count()).enqueued == 3
    assert first.ids(3) == sorted(first.ids(3)), "they queue in order"


async def test_a_key_is_free_again_after_a_day_and_when_its_request_had_no_effect(
    bench: Bench, keys: Idempotency
) -> None:
    first = await begun(keys)
    assert await keys.forget(first)
    second = await begun(keys, body=b"[]")
    await keys.finish(second, 200, b"1")
    bench.clock.advance(KEPT_MS - 1)
    assert isinstance(await begin(keys, body=b"[]"), Answered)
    bench.clock.advance(1)
    third = await begun(keys, body=b"{}")
    assert set(third.ids(1)).isdisjoint(second.ids(1))


async def test_old_requests_are_removed_bit_by_bit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_key, "SHELVES", 8)
    monkeypatch.setattr(idempotency_module, "SHELVES", 8)
    keys = Idempotency(bench.store, lambda: bench.clock.now_ms)
    for number in range(40):
        await keys.finish(await begun(keys, f"k{number}"), 200, b"answer")
    assert await keys.prune(8) == 0
    bench.clock.advance(KEPT_MS)
    assert sum([await keys.prune() for _ in range(8)]) == 40
    assert [control.value for number in range(8) for control in await bench.store.controls(kind_at(number))] == [
        b"[]"
    ] * 8


async def test_what_is_kept_is_bounded(bench: Bench, keys: Idempotency, one_shelf: None, monkeypatch: Any) -> None:
    monkeypatch.setattr(idempotency_module, "MOST_KEYS", 5)
    await keys.finish(await begun(keys, "long"), 200, b"x" * (ANSWER_BYTES + 1))
    long = await begin(keys, "long")
    assert isinstance(long, Answered)
    assert (long.status, long.answer) == (200, None)
    for number in range(4):
        await keys.finish(await begun(keys, f"k{number}"), 200, b"x" * ANSWER_BYTES)
    kept = [each.answer for number in range(4) if isinstance(each := await begin(keys, f"k{number}"), Answered)]
    assert [answer is not None for answer in kept] == [False, False, True, True], "the oldest answers go"
    (control,) = await bench.store.controls(kind_at(0))
    assert len(control.value) < 2 * MOST_BYTES
    full = await begin(keys, "one more")
    assert full == Refused("too_many_keys", KEPT_MS)
    bench.clock.advance(KEPT_MS)
    await begun(keys, "one more")


@pytest.mark.parametrize("key", ["", "x" * 256, "two\nlines", "ключ"])
async def test_what_is_no_key_is_refused(keys: Idempotency, key: str) -> None:
    with pytest.raises(InvalidOption, match="the idempotency key"):
        await begin(keys, key)
