"""Every crash point of the story, on every engine: never sent and unheard, with a caller that repeats or dies."""

from __future__ import annotations

import pytest

from limpet.testing.crash import CALLERS, MODES, VERBS, Caller, Mode, calls_of_the_story, survives
from limpet.testing.harness import Harness


async def test_the_story_calls_every_verb(engine: Harness) -> None:
    assert set(await calls_of_the_story(engine)) == VERBS


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("mode", MODES)
async def test_nothing_is_lost_or_doubled_when_any_call_fails(engine: Harness, mode: Mode, caller: Caller) -> None:
    calls = await calls_of_the_story(engine)
    for number, verb in enumerate(calls, 1):
        try:
            await survives(engine, number, mode, caller)
        except AssertionError as error:
            raise AssertionError(f"call {number}, {verb}: {error}") from error
