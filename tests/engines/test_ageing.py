"""Ageing from end to end, on every engine: a flood of urgent jobs lets the others through."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from limpet.core.limits.limit import Limit
from tests.contract.harnesses import HARNESSES, SHARED
from tests.runtime.flood import flooded
from tests.runtime.running import Bench


@pytest.fixture(params=SHARED)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES[request.param](tmp_path)
    yield Bench(await harness.open())
    await harness.close()


@pytest.mark.parametrize("limits", [[], [Limit("api", concurrency=1)]], ids=["plain", "limited"])
async def test_one_job_in_so_many_is_less_urgent_than_the_flood(bench: Bench, limits: list[Limit]) -> None:
    settings = {"concurrency": 10 if limits else 1, "ahead_ms": 0, "ageing": 5}
    order = await flooded(bench, settings, limits=limits)
    assert set(order[50:]) == {"h"}, order
    if not limits:
        assert order == ("hhhhhn" + "hhhhl") * 4 + "h" * 24
