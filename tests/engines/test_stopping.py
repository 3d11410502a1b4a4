"""Failures and pushback stop their own process at once, on every engine: no start overtakes what it has to say."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from limpet.core.endings.signals import RateLimited
from limpet.core.jobs.state import State
from limpet.core.limits.limit import Breaker
from tests.contract.harnesses import HARNESSES, SHARED
from tests.runtime.running import Bench

HOUR_S = 3_600


@pytest.fixture(params=SHARED)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES[request.param](tmp_path)
    yield Bench(await harness.open())
    await harness.close()


async def test_a_breaker_of_three_lets_three_fail_and_no_more(bench: Bench) -> None:
    ran = 0

    async def calls() -> None:
        nonlocal ran
        ran += 1
        raise ConnectionError("down")

    spec = bench.task(calls, retry=5, breaker=Breaker(failures=3, cooldown=HOUR_S))
    for _ in range(60):
        await bench.put(spec)
    await bench.drain({"concurrency": 1})
    assert ran == 3


@pytest.mark.parametrize("slots", [10, 100])
async def test_of_many_at_once_those_fail_that_were_running(bench: Bench, slots: int) -> None:
    ran = 0

    async def calls() -> None:
        nonlocal ran
        ran += 1
        await asyncio.sleep(0)
        raise ConnectionError("down")

    spec = bench.task(calls, retry=5, breaker=Breaker(failures=5, cooldown=HOUR_S))
    for _ in range(400):
        await bench.put(spec)
    await bench.drain({"concurrency": slots})
    assert 5 <= ran <= slots + 4, "all places at first, and again those of failures that did not open it yet"


@pytest.mark.parametrize("slots", [1, 10])
async def test_a_key_that_fails_stops_and_the_other_keys_go_on(bench: Bench, slots: int) -> None:
    ran = Counter[str]()

    async def hook(customer: str) -> None:
        ran[customer] += 1
        await asyncio.sleep(0)
        if customer == "down":
            raise ConnectionError("down")

    spec = bench.task(hook, retry=5, breaker=Breaker("hook:{customer}", failures=3, cooldown=HOUR_S))
    for number in range(60):
        for customer in ("down", f"c{number % 6}"):
            await bench.put(spec, {"customer": customer})
    await bench.drain({"concurrency": slots})
    assert 3 <= ran.pop("down") <= slots + 2
    assert ran == Counter({f"c{number}": 10 for number in range(6)})


async def test_after_one_pushback_nothing_starts_that_was_held_ahead(bench: Bench) -> None:
    ran: list[int] = []

    async def calls(n: int) -> None:
        ran.append(n)
        if n == 100:
            raise RateLimited(retry_after=HOUR_S)

    spec = bench.task(calls)
    ids = [await bench.put(spec, {"n": n}) for n in range(200)]
    await bench.drain({"concurrency": 1})
    assert ran == list(range(101))
    left = await bench.store.get(ids[100:])
    assert {(view and view.state, view and view.attempt) for view in left} == {(State.ready, 0)}
