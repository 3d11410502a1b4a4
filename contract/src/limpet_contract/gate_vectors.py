"""Remembers what gates must answer, step by step: plain data that core and every engine's own arithmetic must meet.

Each vector begins with a fresh gate under one rule. `Ask` offers jobs with these costs and says how many are
admitted, counted from the front, and the first of the others falls short; `End` settles the n-th job admitted so far;
`Change` is an operator's word.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from limpet.core.gate import FOREVER_MS, MOST, BreakerRule, GateChange, GateRule, Pause, Verdict


class Ask(Struct, frozen=True):
    """At this instant jobs with these costs want through."""

    at_ms: int
    costs: tuple[int, ...]
    admitted: int
    opens_at_ms: int | None = None  # checked when not all were admitted: when time alone opens it; None = never
    probe: bool = False  # the admitted job is a probe


class End(Struct, frozen=True):
    """The n-th admitted job (from 0) ends."""

    at_ms: int
    job: int
    verdict: Verdict = "neutral"
    unstarted: bool = False
    actual_cost: int | None = None  # when it is known


class PushBack(Struct, frozen=True):
    """The n-th admitted job (from 0) was told to come back later; it ends, too."""

    at_ms: int
    job: int
    until_ms: int


class CutOff(Struct, frozen=True):
    """The n-th admitted job (from 0) was told that no money is left; it ends, too."""

    at_ms: int
    job: int
    until_ms: int


class Change(Struct, frozen=True):
    """An operator changes the gate."""

    at_ms: int
    change: GateChange


class Vector(Struct, frozen=True):
    """One story of a gate."""

    name: str
    rule: GateRule
    steps: tuple[Ask | End | PushBack | CutOff | Change, ...]


KEY: Final = "limit:k"
BREAKER: Final = "breaker:b"
T0: Final = 1_700_000_000_000
PAUSE: Final = Pause("ann", "maintenance", T0)
_DAY_US: Final = 86_400 * 1_000_000
_YEAR_US: Final = 366 * _DAY_US
_LATEST_MS: Final = -(-MOST // 1000)


def _one(count: int) -> tuple[int, ...]:
    return (1,) * count


_TEN_A_SECOND: Final = GateRule(KEY, interval_us=100_000, burst=2)
_THREE_FAILURES: Final = GateRule(
    BREAKER, breaker=BreakerRule(failures=3, within_ms=1_000, cooldown_ms=5_000, probe_after_ms=2_000)
)
_HALF_OF_FOUR: Final = GateRule(
    BREAKER, breaker=BreakerRule(within_ms=1_000, cooldown_ms=5_000, probe_after_ms=2_000, rate=0.5, min_calls=4)
)

VECTORS: Final[tuple[Vector, ...]] = (
    Vector("a gate without a rule stops no job", GateRule(KEY), (Ask(T0, _one(50), 50),)),
    Vector(
        "concurrency admits up to its ceiling and again when a job ends",
        GateRule(KEY, concurrency=2),
        (
            Ask(T0, _one(3), 2, None),
            Ask(T0 + 60_000, _one(1), 0, None),
            End(T0 + 60_000, 0),
            Ask(T0 + 60_000, _one(2), 1, None),
        ),
    ),
    Vector(
        "a slot returns however the job ends",
        GateRule(KEY, concurrency=1),
        (
            Ask(T0, _one(1), 1),
            End(T0, 0, unstarted=True),
            Ask(T0, _one(1), 1),
            End(T0, 1, "failed"),
            Ask(T0, _one(1), 1),
        ),
    ),
    Vector(
        "who took a slot under another rule returns it, and who took none returns none",
        GateRule(KEY, concurrency=2),
        (
            Ask(T0, _one(2), 2),
            Change(T0, GateChange(KEY, rule=_TEN_A_SECOND)),
            Ask(T0, _one(1), 1),
            End(T0, 0),
            Change(T0, GateChange(KEY, rule=GateRule(KEY, concurrency=2))),
            End(T0, 2),
            Ask(T0, _one(2), 1, None),
        ),
    ),
    Vector(
        "a rate bucket starts full and refills one token per interval",
        _TEN_A_SECOND,
        (
            Ask(T0, _one(5), 2, T0 + 100),
            Ask(T0 + 99, _one(1), 0, T0 + 100),
            Ask(T0 + 100, _one(2), 1, T0 + 200),
            Ask(T0 + 10_000, _one(5), 2, T0 + 10_100),
        ),
    ),
    Vector(
        "a job that costs more than is there still runs and leaves a debt",
        _TEN_A_SECOND,
        (
            Ask(T0, (7, 1), 1, T0 + 600),
            Ask(T0 + 599, _one(1), 0, T0 + 600),
            Ask(T0 + 600, _one(1), 1),
        ),
    ),
    Vector(
        "costs are counted in order until less than one token is left",
        GateRule(KEY, interval_us=1_000_000, burst=5),
        (Ask(T0, (2, 2, 2, 1), 3, T0 + 2_000),),
    ),
    Vector(
        "a token returns when the job never started",
        _TEN_A_SECOND,
        (Ask(T0, _one(2), 2), End(T0, 0, unstarted=True), Ask(T0, _one(2), 1, T0 + 100)),
    ),
    Vector(
        "a token stays spent when the job started",
        _TEN_A_SECOND,
        (Ask(T0, _one(2), 2), End(T0, 0, "failed"), Ask(T0, _one(1), 0, T0 + 100)),
    ),
    Vector(
        "a late return does not add to a bucket that time has filled",
        GateRule(KEY, interval_us=100_000, burst=1),
        (
            Ask(T0, _one(1), 1),
            Ask(T0 + 1_000, _one(1), 1),
            End(T0 + 1_000, 0, unstarted=True),
            Ask(T0 + 1_000, _one(1), 0, T0 + 1_100),
        ),
    ),
    Vector(
        "an interval of less than a millisecond is kept exactly",
        GateRule(KEY, interval_us=200, burst=50),
        (
            Ask(T0, _one(60), 50, T0 + 1),
            Ask(T0 + 1, _one(60), 5, T0 + 2),
            Ask(T0 + 3, _one(60), 10, T0 + 4),
        ),
    ),
    Vector(
        "rate and concurrency hold together",
        GateRule(KEY, concurrency=1, interval_us=100_000, burst=2),
        (
            Ask(T0, _one(2), 1, None),
            End(T0 + 1, 0),
            Ask(T0 + 1, _one(2), 1, None),
            End(T0 + 2, 1),
            Ask(T0 + 2, _one(1), 0, T0 + 100),
            Ask(T0 + 100, _one(1), 1),
        ),
    ),
    Vector(
        "a hold admits no job until it is over, and a shorter one does not cut it",
        GateRule(KEY, concurrency=5),
        (
            Change(T0, GateChange(KEY, hold_ms=1_000)),
            Change(T0, GateChange(KEY, hold_ms=10)),
            Ask(T0 + 999, _one(1), 0, T0 + 1_000),
            Ask(T0 + 1_000, _one(1), 1),
        ),
    ),
    Vector(
        "a pause has no end but resume",
        GateRule(KEY),
        (
            Change(T0, GateChange(KEY, pause=PAUSE)),
            Ask(T0 + 86_400_000, _one(1), 0, None),
            Change(T0 + 86_400_000, GateChange(KEY, resume=True)),
            Ask(T0 + 86_400_000, _one(1), 1),
        ),
    ),
    Vector(
        "an operator's rule wins over later declarations, and charges under the old rule are not given back",
        GateRule(KEY),
        (
            Ask(T0, _one(3), 3),
            Change(T0, GateChange(KEY, rule=GateRule(KEY, concurrency=1))),
            Change(T0, GateChange(KEY, rule=GateRule(KEY, concurrency=9), declared=True)),
            Ask(T0, _one(2), 1, None),
            End(T0, 0),
            End(T0, 1),
            Ask(T0, _one(2), 0, None),
            End(T0, 3),
            Ask(T0, _one(2), 1, None),
        ),
    ),
    Vector(
        "a breaker opens at its count and lets one probe through",
        _THREE_FAILURES,
        (
            Ask(T0, _one(5), 5),
            End(T0, 0, "failed"),
            End(T0 + 10, 1, "failed"),
            Ask(T0 + 15, _one(1), 1),
            End(T0 + 20, 2, "failed"),
            Ask(T0 + 20, _one(1), 0, T0 + 2_020),
            End(T0 + 30, 3, "ok"),  # started before it opened: proves nothing now
            Ask(T0 + 2_019, _one(1), 0, T0 + 2_020),
            Ask(T0 + 2_020, _one(3), 1, None, probe=True),
            Ask(T0 + 9_000, _one(1), 0, None),
            End(T0 + 9_000, 6, "ok"),
            Ask(T0 + 9_000, _one(4), 4),
        ),
    ),
    Vector(
        "a failed probe opens it again for the cooldown",
        _THREE_FAILURES,
        (
            Ask(T0, _one(3), 3),
            End(T0, 0, "failed"),
            End(T0, 1, "failed"),
            End(T0, 2, "failed"),
            Ask(T0 + 2_000, _one(1), 1, probe=True),
            End(T0 + 2_100, 3, "failed"),
            Ask(T0 + 7_099, _one(1), 0, T0 + 7_100),
            Ask(T0 + 7_100, _one(1), 1, probe=True),
        ),
    ),
    Vector(
        "a probe that proves nothing is given back",
        _THREE_FAILURES,
        (
            Ask(T0, _one(3), 3),
            End(T0, 0, "failed"),
            End(T0, 1, "failed"),
            End(T0, 2, "failed"),
            Ask(T0 + 2_000, _one(1), 1, probe=True),
            End(T0 + 2_001, 3, "neutral"),
            Ask(T0 + 2_001, _one(1), 1, probe=True),
        ),
    ),
    Vector(
        "a success forgets the failures before it",
        _THREE_FAILURES,
        (
            Ask(T0, _one(9), 9),
            End(T0, 0, "failed"),
            End(T0, 1, "failed"),
            End(T0, 2, "ok"),
            End(T0, 3, "failed"),
            End(T0, 4, "failed"),
            Ask(T0, _one(1), 1),
            End(T0, 5, "failed"),
            Ask(T0, _one(1), 0, T0 + 2_000),
        ),
    ),
    Vector(
        "failures that lie apart do not open it",
        _THREE_FAILURES,
        (
            Ask(T0, _one(3), 3),
            End(T0, 0, "failed"),
            End(T0 + 999, 1, "failed"),
            End(T0 + 1_000, 2, "failed"),
            Ask(T0 + 1_000, _one(1), 1),
        ),
    ),
    Vector(
        "what is neither success nor failure teaches a breaker nothing",
        _THREE_FAILURES,
        (
            Ask(T0, _one(5), 5),
            End(T0, 0, "failed"),
            End(T0, 1, "failed"),
            End(T0, 2, "neutral"),
            Ask(T0, _one(1), 1),
            End(T0, 3, "failed"),
            Ask(T0, _one(1), 0, T0 + 2_000),
        ),
    ),
    Vector(
        "a rate breaker opens at its share, not before enough calls",
        _HALF_OF_FOUR,
        (
            Ask(T0, _one(8), 8),
            End(T0, 0, "failed"),
            End(T0, 1, "failed"),
            End(T0, 2, "ok"),
            Ask(T0, _one(1), 1),
            End(T0, 3, "failed"),
            Ask(T0, _one(1), 0, T0 + 2_000),
        ),
    ),
    Vector(
        "a rate breaker opens at exactly its share",
        _HALF_OF_FOUR,
        (
            Ask(T0, _one(8), 8),
            End(T0, 0, "ok"),
            End(T0, 1, "ok"),
            End(T0, 2, "failed"),
            Ask(T0, _one(1), 1),
            End(T0, 3, "failed"),
            Ask(T0, _one(1), 0, T0 + 2_000),
        ),
    ),
    Vector(
        "a rate breaker stays closed below its share",
        _HALF_OF_FOUR,
        (
            Ask(T0, _one(8), 8),
            End(T0, 0, "ok"),
            End(T0, 1, "ok"),
            End(T0, 2, "ok"),
            End(T0, 3, "failed"),
            End(T0, 4, "failed"),
            Ask(T0, _one(1), 1),
        ),
    ),
    Vector(
        "a success never opens a rate breaker",
        _HALF_OF_FOUR,
        (
            Ask(T0, _one(8), 8),
            End(T0, 0, "failed"),
            End(T0, 1, "failed"),
            End(T0, 2, "failed"),
            End(T0, 3, "ok"),
            Ask(T0, _one(1), 1),
        ),
    ),
    Vector(
        "a rate breaker remembers the half window before",
        _HALF_OF_FOUR,
        (
            Ask(T0, _one(8), 8),
            End(T0, 0, "failed"),
            End(T0, 1, "failed"),
            End(T0, 2, "failed"),
            Ask(T0 + 600, _one(1), 1),
            End(T0 + 600, 3, "failed"),
            Ask(T0 + 600, _one(1), 0, T0 + 2_600),
        ),
    ),
    Vector(
        "failures of jobs that started before it opened do not keep it open longer",
        _THREE_FAILURES,
        (
            Ask(T0, _one(6), 6),
            End(T0, 0, "failed"),
            End(T0, 1, "failed"),
            End(T0, 2, "failed"),
            End(T0 + 500, 3, "failed"),
            End(T0 + 500, 4, "failed"),
            End(T0 + 500, 5, "failed"),
            Ask(T0 + 500, _one(1), 0, T0 + 2_000),
        ),
    ),
    Vector(
        "a breaker of one failure opens at the first",
        GateRule(BREAKER, breaker=BreakerRule(failures=1, probe_after_ms=2_000)),
        (Ask(T0, _one(2), 2), End(T0, 0, "failed"), Ask(T0, _one(1), 0, T0 + 2_000)),
    ),
    Vector(
        "a newer declaration replaces an older one, and an operator's newer word replaces the older",
        GateRule(KEY, concurrency=1),
        (
            Change(T0, GateChange(KEY, rule=GateRule(KEY, concurrency=2), declared=True)),
            Ask(T0, _one(9), 2, None),
            Change(T0, GateChange(KEY, rule=GateRule(KEY, concurrency=3))),
            Ask(T0, _one(9), 1, None),
            Change(T0, GateChange(KEY, rule=GateRule(KEY, concurrency=5))),
            Ask(T0, _one(9), 2, None),
        ),
    ),
    Vector(
        "when an operator's word is cleared, declarations count again",
        GateRule(KEY, concurrency=1),
        (
            Change(T0, GateChange(KEY, rule=GateRule(KEY, concurrency=3))),
            Change(T0, GateChange(KEY, clear=True)),
            Change(T0, GateChange(KEY, rule=GateRule(KEY, concurrency=2), declared=True)),
            Ask(T0, _one(9), 2, None),
        ),
    ),
    Vector(
        "a faster rate brings the tokens that were taken back from now on, whenever they were due",
        GateRule(KEY, interval_us=8_640_000_000, burst=10),
        (
            Ask(T0, _one(12), 10, T0 + 8_640_000),
            Change(T0 + 1_000, GateChange(KEY, rule=GateRule(KEY, interval_us=1_000, burst=1_000))),
            Ask(T0 + 1_000, _one(1_000), 990, T0 + 1_001),
        ),
    ),
    Vector(
        "a debt is paid at the new rate",
        _TEN_A_SECOND,
        (
            Ask(T0, (50, 1), 1, T0 + 4_900),
            Change(T0, GateChange(KEY, rule=GateRule(KEY, interval_us=10_000, burst=2), declared=True)),
            Ask(T0, _one(1), 0, T0 + 490),
            Change(T0, GateChange(KEY, rule=GateRule(KEY, interval_us=1_000_000, burst=1))),
            Ask(T0, _one(1), 0, T0 + 49_000),
        ),
    ),
    Vector(
        "a smaller bucket is as full as the larger one was",
        GateRule(KEY, interval_us=100_000, burst=10),
        (
            Ask(T0, _one(4), 4),
            Change(T0, GateChange(KEY, rule=GateRule(KEY, interval_us=200_000, burst=5))),
            Ask(T0, _one(5), 3, T0 + 200),
            Change(T0, GateChange(KEY, rule=GateRule(KEY, interval_us=200_000, burst=3))),
            Ask(T0, _one(1), 0, T0 + 200),
        ),
    ),
    Vector(
        "a full bucket stays full under any rate, and one that is held is not filled by it",
        GateRule(KEY, interval_us=100_000, burst=2),
        (
            Change(T0, GateChange(KEY, hold_ms=1_000)),
            Change(T0, GateChange(KEY, rule=GateRule(KEY, interval_us=900_000, burst=4))),
            Ask(T0 + 999, _one(5), 0, T0 + 1_000),
            Ask(T0 + 1_000, _one(5), 4, T0 + 1_900),
            PushBack(T0 + 1_000, 0, T0 + 5_000),
            Change(T0 + 1_000, GateChange(KEY, rule=GateRule(KEY, interval_us=100_000, burst=4))),
            Ask(T0 + 5_000, _one(2), 1, T0 + 5_100),
        ),
    ),
    Vector(
        "what was charged before a rate was changed comes back no more",
        _TEN_A_SECOND,
        (
            Ask(T0, (1, 1), 2),
            Change(T0 + 1, GateChange(KEY, rule=GateRule(KEY, interval_us=1_000_000, burst=2))),
            End(T0 + 2, 0, unstarted=True),
            Ask(T0 + 2, (1,), 0, T0 + 1_001),
            Ask(T0 + 1_001, (1,), 1),
            End(T0 + 1_002, 2, unstarted=True),
            Ask(T0 + 1_003, (1,), 1),
            Change(T0 + 1_004, GateChange(KEY, reset=True)),
            Ask(T0 + 1_004, (1,), 1),
            End(T0 + 1_005, 1, actual_cost=0),
            Ask(T0 + 1_005, (1,), 0, T0 + 2_004),
        ),
    ),
    Vector(
        "nor does it when time had filled the bucket again before",
        _TEN_A_SECOND,
        (
            Ask(T0, (1, 1), 2),
            Change(T0 + 300, GateChange(KEY, rule=GateRule(KEY, interval_us=1_000_000, burst=2))),
            Ask(T0 + 300, (1, 1), 2),
            End(T0 + 301, 0, unstarted=True),
            Ask(T0 + 301, (1,), 0, T0 + 1_300),
        ),
    ),
    Vector(
        "what a budget was charged does not come back to the rate that took its place",
        GateRule(KEY, cap=10, period="minute"),
        (
            Ask(T0, (5,), 1),
            Change(T0 + 1, GateChange(KEY, rule=GateRule(KEY))),
            Change(T0 + 1, GateChange(KEY, rule=GateRule(KEY, interval_us=1_000_000, burst=2))),
            Ask(T0 + 2, (1, 1), 2),
            End(T0 + 3, 0, actual_cost=1),
            Ask(T0 + 3, (1,), 0, T0 + 1_002),
        ),
    ),
    Vector(
        "a rate that was lifted owes nothing",
        GateRule(KEY, interval_us=60_000_000, burst=2),
        (
            Ask(T0, _one(2), 2),
            Change(T0, GateChange(KEY, rule=GateRule(KEY))),
            Change(T0, GateChange(KEY, rule=GateRule(KEY, interval_us=60_000_000, burst=2))),
            Ask(T0, _one(3), 2, T0 + 60_000),
        ),
    ),
    Vector(
        "a probe that fails behind a breaker without a rule opens it again for a minute",
        GateRule(BREAKER),
        (
            Change(T0, GateChange(BREAKER, trip_ms=1_000)),
            Ask(T0 + 1_000, _one(1), 1, probe=True),
            End(T0 + 1_000, 0, "failed"),
            Ask(T0 + 60_999, _one(1), 0, T0 + 61_000),
            Ask(T0 + 61_000, _one(1), 1, probe=True),
        ),
    ),
    Vector(
        "a rate breaker forgets after a window",
        _HALF_OF_FOUR,
        (
            Ask(T0, _one(8), 8),
            End(T0, 0, "failed"),
            End(T0, 1, "failed"),
            End(T0, 2, "failed"),
            End(T0 + 1_500, 3, "failed"),
            Ask(T0 + 1_500, _one(1), 1),
        ),
    ),
    Vector(
        "a breaker tripped by hand stays open until it is reset by hand",
        _THREE_FAILURES,
        (
            Change(T0, GateChange(BREAKER, trip_ms=FOREVER_MS)),
            Ask(T0 + 86_400_000, _one(1), 0, None),
            Change(T0 + 86_400_000, GateChange(BREAKER, reset=True)),
            Ask(T0 + 86_400_000, _one(2), 2),
        ),
    ),
    Vector(
        "a probe from before a reset decides nothing",
        _THREE_FAILURES,
        (
            Change(T0, GateChange(BREAKER, trip_ms=1_000)),
            Ask(T0 + 1_000, _one(1), 1, probe=True),
            Change(T0 + 1_000, GateChange(BREAKER, reset=True)),
            End(T0 + 1_001, 0, "failed"),
            Ask(T0 + 1_001, _one(1), 1),
        ),
    ),
    Vector(
        "a rate that becomes one a year owes no more than can be counted",
        GateRule(KEY, interval_us=1, burst=100_000),
        (
            Ask(T0, (100_000,), 1),
            Change(T0, GateChange(KEY, rule=GateRule(KEY, interval_us=_YEAR_US, burst=100_000))),
            Ask(T0, _one(1), 1),
            Change(T0, GateChange(KEY, rule=GateRule(KEY, interval_us=_YEAR_US, burst=7))),
            Ask(T0, _one(2), 2),
            Change(T0, GateChange(KEY, rule=GateRule(KEY, interval_us=_YEAR_US, burst=1))),
            Ask(T0, _one(1), 0, T0 + _YEAR_US // 1000),
        ),
    ),
    Vector(
        "a debt of a hundred thousand years ends where counting ends",
        GateRule(KEY, interval_us=_YEAR_US, burst=2),
        (
            Ask(T0, (100_000,), 1),
            Ask(T0, _one(1), 0, (MOST - _YEAR_US) // 1000 + 1),
            End(T0 + 1, 0, actual_cost=0),
            Ask(T0 + 1, _one(1), 0, (MOST - _YEAR_US) // 1000 + 1),
            Change(T0 + 1, GateChange(KEY, reset=True)),
            Ask(T0 + 1, _one(2), 1, T0 + 1 + _YEAR_US // 1000),
        ),
    ),
    Vector(
        "what is handed back where counting ends forgives nothing that others took",
        GateRule(KEY, interval_us=_DAY_US, burst=10),
        (
            Ask(T0, (*_one(9), 100_000), 10),
            End(T0, 9, unstarted=True),
            Ask(T0, _one(20), 0, (MOST - 9 * _DAY_US) // 1000 + 1),
        ),
    ),
    Vector(
        "what is handed back where counting ends forgives nothing that others cost more",
        GateRule(KEY, interval_us=_DAY_US, burst=2),
        (
            Ask(T0, (1, 100_000), 2),
            End(T0, 0, actual_cost=100_000),
            End(T0, 1, unstarted=True),
            Ask(T0, _one(1), 0, (MOST - _DAY_US) // 1000 + 1),
        ),
    ),
    Vector(
        "a debt just short of where counting ends is paid back in full",
        GateRule(KEY, interval_us=_DAY_US, burst=10),
        (
            Ask(T0, (*_one(9), (MOST - T0 * 1000) // _DAY_US - 9), 10),
            End(T0, 9, unstarted=True),
            Ask(T0, _one(20), 1, T0 + _DAY_US // 1000),
        ),
    ),
    Vector(
        "a job that cost a hundred thousand years more leaves a debt that can be counted",
        GateRule(KEY, interval_us=_YEAR_US, burst=1),
        (
            Ask(T0, _one(1), 1),
            End(T0, 0, actual_cost=100_000),
            Ask(T0, _one(1), 0, _LATEST_MS),
            Change(T0, GateChange(KEY, reset=True)),
            Ask(T0, _one(2), 1, T0 + _YEAR_US // 1000),
        ),
    ),
    Vector(
        "a bucket of a century is emptied to its last token",
        GateRule(KEY, interval_us=_YEAR_US, burst=142),
        (Ask(T0, _one(143), 142, T0 + _YEAR_US // 1000),),
    ),
    Vector(
        "a rate that is pushed back for ever begins where counting ends",
        GateRule(KEY, interval_us=_YEAR_US, burst=7),
        (
            Ask(T0, _one(1), 1),
            PushBack(T0, 0, FOREVER_MS),
            Ask(T0, _one(1), 0, FOREVER_MS),
            Change(T0, GateChange(KEY, rule=GateRule(KEY, interval_us=1_000, burst=7))),
            Change(T0, GateChange(KEY, reset=True)),
            Ask(T0, _one(2), 1, T0 + 1),
        ),
    ),
)
