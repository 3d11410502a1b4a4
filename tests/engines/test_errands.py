"""Tasks of a store's own, on a loop that is also a handler's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from limpet.stores.base import Store
from tests.contract.harnesses import HARNESSES, SHARED
from tests.ops.making import job


@pytest.fixture(params=SHARED)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    harness = HARNESSES[request.param](tmp_path)
    yield await harness.open()
    await harness.close()


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("no tasks today")


async def test_a_store_connects_under_a_task_factory_that_raises(store: Store) -> None:
    loop = asyncio.get_running_loop()
    await store.close()
    loop.set_task_factory(refuse)
    try:
        await store.open()
        # Two at once: an engine with a pool opens a second connection.
        calls = [asyncio.Task(store.enqueue([job()]), loop=loop) for _ in range(2)]
        for call in calls:
            await call
        assert (await store.count()).enqueued == 2
    finally:
        loop.set_task_factory(None)
