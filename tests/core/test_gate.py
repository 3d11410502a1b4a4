"""Gates answer what the shared vectors say, and their arithmetic keeps its promises for any history."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from limpet.core.gate import (
    FOREVER_MS,
    FULL_PACE,
    UNLIMITED,
    BreakerRule,
    Charge,
    Gate,
    GateChange,
    GateRule,
    Pause,
    admits,
    apply_change,
    charge,
    cut_off,
    falls_short,
    give_back,
    is_blank,
    opens_at_ms,
    opens_sooner,
    push_back,
    returned_us,
    room,
    tokens,
)
from limpet_contract.budget_vectors import BUDGETS
from limpet_contract.gate_vectors import PAUSE, T0, VECTORS, Ask, Change, CutOff, End, PushBack, Vector
from limpet_contract.pace_vectors import PACES


class Story:
    """One gate and the jobs that passed it."""

    def __init__(self, rule: GateRule) -> None:
        self.gate = Gate(rule)
        self.jobs: list[tuple[int, int, Charge | None]] = []  # (token, when, what it was charged)
        self._token = 0

    def ask(self, costs: tuple[int, ...], at_ms: int) -> list[Charge]:
        count = admits(self.gate, list(costs), at_ms)
        self._token = max(self._token + 1, at_ms * 2048)
        self.gate, charges = charge(self.gate, list(costs[:count]), self._token, at_ms)
        self.jobs += [(self._token, at_ms, charges[n] if charges else None) for n in range(count)]
        if count < len(costs):
            self.gate = falls_short(self.gate, costs[count], at_ms)
        return charges

    def end(self, *steps: End) -> None:
        """One settlement."""
        returned = Counter[int]()
        for step in steps:
            token, charged_at_ms, taken = self.jobs[step.job]
            if taken is None:
                continue
            before = self.gate
            self.gate = give_back(
                before,
                taken,
                token=token,
                verdict=step.verdict,
                unstarted=step.unstarted,
                now_ms=step.at_ms,
                charged_at_ms=charged_at_ms,
                actual_cost=step.actual_cost,
                refunded_in_this_batch=returned,
            )
            actual = 0 if step.unstarted else step.actual_cost
            returned[charged_at_ms] += returned_us(before, taken, actual, charged_at_ms)


@pytest.mark.parametrize("vector", [*VECTORS, *BUDGETS, *PACES], ids=lambda vector: vector.name)
def test_the_vectors(vector: Vector) -> None:
    story = Story(vector.rule)
    for number, step in enumerate(vector.steps):
        match step:
            case Ask():
                before = len(story.jobs)
                charges = story.ask(step.costs, step.at_ms)
                assert len(story.jobs) - before == step.admitted, (number, step)
                assert any(taken.probe for taken in charges) == step.probe, (number, step)
                if step.admitted < len(step.costs):
                    assert opens_at_ms(story.gate, step.at_ms) == step.opens_at_ms, (number, step)
            case End():
                story.end(step)
            case PushBack():
                token, _, _ = story.jobs[step.job]
                story.gate = push_back(story.gate, step.until_ms, token, step.at_ms)
                story.end(End(step.at_ms, step.job))
            case CutOff():
                token, _, _ = story.jobs[step.job]
                story.gate = cut_off(story.gate, step.until_ms, token, step.at_ms)
                story.end(End(step.at_ms, step.job))
            case Change():
                story.gate = apply_change(story.gate, step.change, step.at_ms)


def test_vector_names_are_sentences_of_their_own() -> None:
    assert len({vector.name for vector in (*VECTORS, *BUDGETS, *PACES)}) == len(VECTORS) + len(BUDGETS) + len(PACES)


RATES = st.builds(
    lambda interval, burst: GateRule("limit:k", interval_us=interval, burst=burst),
    st.sampled_from([100_000, 1_000_000]) | st.integers(1, 3_000_000),
    st.integers(1, 3) | st.integers(1, 20),
)
ADAPTIVE_RATES = st.builds(
    lambda interval, burst, floor: GateRule("limit:k", interval_us=interval, burst=burst, floor=floor, climb_ms=20_000),
    st.sampled_from([100_000, 1_000_000]) | st.integers(1_000, 2_000_000),
    st.integers(1, 3) | st.integers(1, 12),
    st.integers(1, 1_000),
)


class Visit(NamedTuple):
    """A worker asks for jobs, starts them or not, is refused or not, and hands some back that it has not started."""

    wait_ms: int
    wanted: int
    holds: bool
    refused: bool
    returns: int


VISITS = st.lists(
    st.builds(
        Visit,
        st.sampled_from([0, 1, 500, 1_000]) | st.integers(0, 5_000),
        st.integers(0, 3) | st.integers(0, 20),
        st.booleans(),
        st.sampled_from([False, False, True]),
        st.sampled_from([0, 0, 2, 5]),
    ),
    max_size=40,
)


# Two are handed back when time has brought one of them back already, and somebody has started with it.
RETURNED_LATE = [
    Visit(0, 2, holds=True, refused=False, returns=0),
    Visit(1_000, 1, holds=False, refused=False, returns=0),
    Visit(1, 0, holds=False, refused=False, returns=2),
    Visit(0, 1, holds=False, refused=False, returns=0),
    Visit(500, 1, holds=False, refused=False, returns=0),
]
# Two that were claimed one after the other are handed back when time has brought both back, and others have started.
RETURNED_TOO_LATE = [
    Visit(0, 1, holds=True, refused=False, returns=0),
    Visit(900, 1, holds=True, refused=False, returns=0),
    Visit(1_100, 3, holds=False, refused=False, returns=2),
    Visit(100, 1, holds=False, refused=False, returns=0),
]


@given(RATES | ADAPTIVE_RATES, VISITS)
@example(GateRule("limit:k", interval_us=1_000_000, burst=2), RETURNED_LATE)
@example(GateRule("limit:k", interval_us=1_000_000, burst=3), RETURNED_TOO_LATE)
def test_starts_in_any_time_stay_under_burst_plus_rate(rule: GateRule, visits: list[Visit]) -> None:
    assert rule.interval_us is not None
    story, now_ms, starts = Story(rule), T0, list[int]()
    unstarted: list[int] = []
    for visit in visits:
        now_ms += visit.wait_ms
        free = room(story.gate, now_ms)
        first = len(story.jobs)
        story.ask((1,) * visit.wanted, now_ms)
        asked = range(first, len(story.jobs))
        assert len(asked) == max(0, min(free, visit.wanted)), "room says how many of cost 1 pass"
        if visit.holds:
            unstarted += asked
        else:
            starts += [now_ms] * len(asked)
        if visit.refused and asked:
            story.gate = push_back(story.gate, now_ms + 500, story.jobs[-1][0], now_ms)
        returned = [unstarted.pop(visit.wanted % len(unstarted)) for _ in range(min(visit.returns, len(unstarted)))]
        story.end(*(End(now_ms, job, unstarted=True) for job in returned))
        assert (rule.floor or 0) <= story.gate.pace <= FULL_PACE
    for first, since_ms in enumerate(starts):
        for last in range(first, len(starts)):
            window_us = (starts[last] - since_ms) * 1000
            assert last - first + 1 <= rule.burst + window_us / rule.interval_us


@given(RATES, st.integers(0, 10**8), st.integers(0, 5_000))
def test_a_gate_opens_when_it_says_and_not_a_millisecond_before(rule: GateRule, debt_us: int, wait_ms: int) -> None:
    gate = Gate(rule, full_at_us=T0 * 1000 + debt_us)
    at_ms = opens_at_ms(gate, T0)
    assert at_ms is not None
    assert room(gate, at_ms) >= 1
    if at_ms > T0:
        assert room(gate, at_ms - 1) <= 0
    assert tokens(gate, at_ms + wait_ms) >= tokens(gate, at_ms)


RATED = Gate(GateRule("limit:k", concurrency=2, interval_us=1_000_000), full_at_us=(T0 + 5_000) * 1000)
STOPPED = replace(RATED, paused=Pause("ada", "why", T0))


@pytest.mark.parametrize(
    ("before", "after", "sooner"),
    [
        (RATED, replace(RATED, full_at_us=(T0 + 4_000) * 1000), True),
        (RATED, RATED, False),
        (RATED, replace(RATED, full_at_us=(T0 + 6_000) * 1000), False),
        (RATED, replace(RATED, full_at_us=T0 * 1000), False),  # it is open, which is more than sooner
        (replace(RATED, full_at_us=T0 * 1000), RATED, False),  # it was, and nobody waited
        (replace(RATED, used=2), replace(RATED, used=1), True),
        (STOPPED, RATED, True),
        (RATED, STOPPED, False),
    ],
)
def test_a_gate_opens_sooner_when_its_opening_comes_before_the_one_that_was_told(
    before: Gate, after: Gate, sooner: bool
) -> None:
    assert opens_sooner(before, after, T0) is sooner


@given(
    st.integers(1, 12),
    st.one_of(st.none(), st.integers(1, 1_000)),
    st.integers(1, 100_000),
    st.integers(0, 999),
    st.integers(0, 11),
    st.integers(-20_000, 20_000),
    st.integers(1, 1_000),
)
def test_a_ceiling_that_climbs_opens_when_it_says(
    ceiling: int, floor: int | None, climb_ms: int, slow: int, used: int, since_ms: int, allowed: int
) -> None:
    rule = GateRule("limit:k", concurrency=ceiling, floor=floor, climb_ms=climb_ms)
    gate = Gate(rule, used=used % ceiling, pace=slow, paced_at_ms=T0 - since_ms, ceiling=allowed)
    at_ms = opens_at_ms(gate, T0)
    if at_ms is None:
        assert floor is not None
        assert room(gate, FOREVER_MS) == 0
        return
    assert room(gate, at_ms) >= 1
    if at_ms > T0:
        assert room(gate, at_ms - 1) == 0


@given(st.integers(1, 8), st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=60))
def test_no_more_run_at_once_than_the_ceiling(ceiling: int, moves: list[tuple[bool, int]]) -> None:
    story = Story(GateRule("limit:k", concurrency=ceiling))
    running: list[int] = []
    for starts, number in moves:
        if starts:
            first = len(story.jobs)
            story.ask((1,) * number, T0)
            running += range(first, len(story.jobs))
        elif running:
            story.end(End(T0, running.pop(number % len(running))))
        assert story.gate.used == len(running) <= ceiling
        assert room(story.gate, T0) == ceiling - len(running)


def test_a_gate_without_a_say_has_lots_of_room() -> None:
    assert room(Gate(GateRule("all")), T0) == UNLIMITED
    assert tokens(Gate(GateRule("all")), T0) == UNLIMITED


BLANK = Gate(GateRule("breaker:b", breaker=BreakerRule(within_ms=1_000)))


@pytest.mark.parametrize(
    ("gate", "blank"),
    [
        (Gate(GateRule("limit:k")), True),
        (Gate(GateRule("limit:k"), declared=False), False),
        (Gate(GateRule("limit:k"), paused=PAUSE), False),
        (Gate(GateRule("limit:k"), draining=True), False),
        (Gate(GateRule("limit:k"), used=1), False),
        (Gate(GateRule("limit:k"), held_until_ms=T0 + 1), False),
        (Gate(GateRule("limit:k"), held_until_ms=T0), True),
        (Gate(GateRule("limit:k"), full_at_us=T0 * 1000 + 1), False),
        (Gate(GateRule("breaker:b"), open_until_ms=T0 - 1), False),
        (Gate(BLANK.rule, failed_at_ms=(T0 - 999,)), False),
        (Gate(BLANK.rule, failed_at_ms=(T0 - 1_000,)), True),
        (Gate(GateRule("breaker:b", breaker=BreakerRule(rate=0.5)), calls=(T0 // 30_000, 3, 1, 0)), False),
        (Gate(GateRule("breaker:b", breaker=BreakerRule(rate=0.5)), calls=(T0 // 30_000 - 1, 3, 1, 0)), False),
        (Gate(GateRule("breaker:b", breaker=BreakerRule(rate=0.5)), calls=(T0 // 30_000 - 2, 3, 1, 0)), True),
        (Gate(GateRule("breaker:b", breaker=BreakerRule(rate=0.5)), calls=(T0 // 30_000, 0, 0, 0)), True),
        (Gate(GateRule("limit:k"), full_at_us=T0 * 1000), True),
    ],
)
def test_only_a_gate_that_nobody_would_miss_is_blank(gate: Gate, blank: bool) -> None:
    assert is_blank(gate, T0) is blank


def test_without_the_time_of_the_charge_the_whole_token_returns() -> None:
    gate = Gate(GateRule("limit:k", interval_us=1_000_000, burst=1), full_at_us=(T0 + 1_000) * 1000)
    back = give_back(gate, Charge("limit:k", cost=1), token=1, verdict="neutral", unstarted=True, now_ms=T0)
    assert tokens(back, T0) == 1


def test_a_rate_that_was_slowed_down_meanwhile_gets_back_no_more_than_it_was_charged() -> None:
    story = Story(GateRule("limit:k", interval_us=1_000_000, burst=2, floor=100))
    story.ask((1, 1), T0)
    story.gate = slowed = push_back(story.gate, T0 + 500, story.jobs[0][0], T0)
    story.end(End(T0, 1, unstarted=True))
    assert slowed.full_at_us - story.gate.full_at_us == 1_000_000


def test_a_change_to_an_unknown_gate_makes_one_that_allows_all() -> None:
    gate = apply_change(None, GateChange("queue:q", drain=True), T0)
    assert gate.draining
    assert room(gate, T0) == UNLIMITED
