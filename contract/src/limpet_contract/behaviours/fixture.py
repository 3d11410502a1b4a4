"""The fixture that hands a bench to every behaviour and checks the books when it is over."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from limpet_contract.bench import Bench
from limpet_contract.harness import Harness


@pytest_asyncio.fixture
async def bench(engine: Harness) -> AsyncIterator[Bench]:
    """A fresh store of the engine under test; the tests that run the suite provide the fixture `engine`."""
    try:
        bench = await Bench.open(engine)
        yield bench
        await bench.check_books()
    finally:
        await engine.close()
