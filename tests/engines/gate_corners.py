"""Gates and rules at the ends of what can be stored, each beside each other: where engines count differently first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any, Final, Protocol

from limpet.core.gate import FOREVER_MS, FULL_PACE, MOST, BreakerRule, Charge, Gate, GateChange, GateRule
from limpet.core.limits.period import DAY_MS
from limpet_contract.gate_vectors import T0, Change, End, PushBack

KEY: Final = "limit:k"
YEAR_US: Final = 366 * 86_400 * 1_000_000
INTERVALS: Final = (1, 3, 1_000_001, 60_000_000, YEAR_US - 1, YEAR_US)
BURSTS: Final = (1, 7, 999, 100_000, 1_000_000, 1 << 40)
FLOORS: Final = (None, None, 1, 3, 701, 999, FULL_PACE)
CAPS: Final = (None, None, 1, 1 << 50, MOST)
COSTS: Final = ((1,), (1, 1), (0, 7, 1), (100_000,), (100_000, 100_000), (2**31 - 1, 1))
REALS: Final = (None, 0, 1, 99_999, 10**12, MOST)
LEVELS: Final = (0, T0 * 1000, T0 * 1000 + 1, (T0 + 20_000) * 1000, T0 * 1000 + YEAR_US, MOST - 1, MOST)
HOLDS: Final = (0, 0, T0 + 3_000, 1 << 42, FOREVER_MS)
PACES: Final = (0, 1, 500, 701, 998, FULL_PACE)


class Story(Protocol):
    """One gate of core, and what is done with it on a server, too."""

    jobs: list[Any]

    def ask(self, at_ms: int, costs: tuple[int, ...]) -> None: ...
    def end(self, step: End) -> None: ...
    def refuse(self, step: PushBack) -> None: ...
    def change(self, step: Change) -> None: ...


def pairs() -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Interval and burst, before and after a change: each rate before each."""
    rates = tuple(product(INTERVALS, BURSTS))
    return product(rates, rates)


def gate_at(interval_us: int, burst: int, chance: Random) -> Gate:
    """A gate with this rate, and anything else at an end of what it can be."""
    return Gate(
        _rule(interval_us, burst, chance),
        full_at_us=chance.choice(LEVELS),
        held_until_ms=chance.choice(HOLDS),
        pace=chance.choice(PACES),
        paced_at_ms=chance.choice((0, T0 - 5_000, T0)),
        ceiling=chance.choice((1, 700, FULL_PACE, FULL_PACE)),
        spent=chance.choice((0, 1 << 50, MOST - 1, MOST)),
        period_ms=chance.choice((0, T0)),
    )


def live(story: Story, interval_us: int, burst: int, chance: Random) -> None:
    """Claims, ends, pushback, a change to this rate and a reset."""
    story.ask(T0, chance.choice(COSTS))
    story.change(Change(T0 + 1, GateChange(KEY, rule=_rule(interval_us, burst, chance))))
    story.ask(T0 + 2, chance.choice(COSTS))
    for job in range(len(story.jobs)):
        story.end(End(T0 + 2 + job, job, actual_cost=chance.choice(REALS)))
    story.ask(T0 + DAY_MS, chance.choice(COSTS))
    if story.jobs:
        last = len(story.jobs) - 1
        story.refuse(PushBack(T0 + DAY_MS, last, T0 + DAY_MS + chance.choice((0, 5_000, 1 << 42))))
        story.end(End(T0 + DAY_MS + 5, last, actual_cost=chance.choice(REALS)))
    story.ask(T0 + DAY_MS + 5_000, chance.choice(COSTS))
    story.change(Change(T0 + DAY_MS + 5_000, GateChange(KEY, reset=chance.random() < 0.5)))
    story.ask(T0 + DAY_MS + 5_001, (1, 1, 1))


def _rule(interval_us: int, burst: int, chance: Random) -> GateRule:
    cap = chance.choice(CAPS)
    return GateRule(
        KEY,
        concurrency=chance.choice((None, None, 1, 1_000_000, 1 << 40)),
        interval_us=interval_us,
        burst=burst,
        floor=chance.choice(FLOORS),
        climb_ms=chance.choice((1_000, 60_000, DAY_MS)),
        cap=cap,
        period=None if cap is None else "month",
    )


def counted_much() -> Iterator[Gate]:
    """Breakers whose half-window before had more calls and failures than are remembered."""
    rule = GateRule(KEY, breaker=BreakerRule(within_ms=1_000, rate=0.5, min_calls=1))
    for calls, failures in product(
        (1 << 20, 1 << 24, (1 << 32) - 1, 1 << 32, 1 << 40), (7, (1 << 20) - 1, 1 << 20, 1 << 32)
    ):
        yield Gate(rule, calls=(T0 // 500 - 1, calls, failures, 0))


def fail(story: Story) -> None:
    """A job fails in the half-window that follows, and one later."""
    story.jobs.append((1, T0, Charge(KEY)))
    story.end(End(T0, 0, "failed"))
    story.end(End(T0 + 500, 0, "failed"))
