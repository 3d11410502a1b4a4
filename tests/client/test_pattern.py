"""The pattern for users' own tests: the module's app on a store in memory, worked off until it is empty."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from limpet import Limpet

# What a user's module looks like: the app names a real store, and tests must not touch it.
app = Limpet("sqlite:////var/lib/shop/jobs.db")


@app.task(name="welcome", queue="mail")
async def welcome(name: str) -> str:
    return f"Hello, {name}"


@pytest.fixture
async def memory() -> AsyncIterator[Limpet]:
    app.rebind("sqlite://")
    async with app:
        yield app
    app.rebind()


@pytest.mark.parametrize("name", ["Ada", "Bob"])
async def test_jobs_run_in_memory_and_each_test_begins_empty(memory: Limpet, name: str) -> None:
    job = await welcome.enqueue(name)
    report = await memory.work(until_empty=True)
    assert report.succeeded == 1
    assert await job.result(timeout=60) == f"Hello, {name}"
