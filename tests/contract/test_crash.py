"""Every crash point of the story, on every engine: never sent and unheard, with a caller that repeats or dies."""

from __future__ import annotations

from pathlib import Path

import pytest

from limpet_contract.crash import CALLERS, MODES, VERBS, Caller, Mode, calls_of_the_story, survives
from limpet_contract.harness import Harness
from tests.contract.harnesses import HARNESSES, SHARED
from tests.size import FULL, in_matrix

# PostgreSQL takes a tenth of a second for each point. On an ordinary day every way of failing visits one point in four
# there, and the four ways together visit every point.
WAYS = [(mode, caller) for mode in MODES for caller in CALLERS]
EVERY = {} if FULL else {"postgres": len(WAYS)}


@pytest.fixture(params=[*SHARED, *in_matrix("a file can be opened again, which is the harder case", "sqlite-memory")])
def engine(request: pytest.FixtureRequest, folder: Path) -> Harness:
    """One engine under test, on fresh ground."""
    return HARNESSES[request.param](folder)


async def test_the_story_calls_every_verb(engine: Harness) -> None:
    assert set(await calls_of_the_story(engine)) == VERBS


@pytest.mark.parametrize(("mode", "caller"), WAYS)
async def test_nothing_is_lost_or_doubled_when_any_call_fails(engine: Harness, mode: Mode, caller: Caller) -> None:
    calls = await calls_of_the_story(engine)
    every = EVERY.get(engine.name, 1)
    for number in range(1 + WAYS.index((mode, caller)) % every, len(calls) + 1, every):
        try:
            await survives(engine, number, mode, caller)
        except AssertionError as error:
            raise AssertionError(f"call {number}, {calls[number - 1]}: {error}") from error
