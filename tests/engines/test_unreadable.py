"""A job that no worker could run goes to the dead letters when it is claimed, on every engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from limpet.core.jobs.state import State
from limpet_contract.behaviours.hooks import once, publish, told
from limpet_contract.bench import Bench
from tests.contract.harnesses import HARNESSES, SHARED
from tests.engines.vandal import Vandal


@pytest.fixture(params=SHARED)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES[request.param](tmp_path)
    yield await Bench.open(harness)
    await harness.close()


async def test_a_claimed_job_whose_policy_cannot_be_read_is_dead(bench: Bench) -> None:
    id = await bench.add()
    await bench.add_many(2)
    Vandal(bench.store).forget_policies()
    assert await bench.hand().claim(1) == []
    view = await bench.view(id)
    assert (view.state, view.token) == (State.dead, None)


async def test_hooks_hear_of_it(bench: Bench) -> None:
    await publish(bench, State.dead)
    id = await bench.add()
    Vandal(bench.store).forget_policies()
    assert await bench.hand(queues=("default",)).claim(1) == []
    assert await told(bench) == once([id], State.dead)
