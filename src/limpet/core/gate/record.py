"""What a gate allows, and how full it is: integers that every engine keeps and changes inside its atomic steps."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from limpet.core.limits.period import Period

FOREVER_MS: Final = 1 << 52  # an instant that never comes, still exact as a JSON integer
# The largest number of a gate: Redis counts in doubles, which tell no larger ones apart. Levels stop here, and
# one that has come so far gets nothing back; as an instant in microseconds it lies in the year 2255.
MOST: Final = (1 << 53) - 1
UNLIMITED: Final = 1 << 30  # the room of a gate that stops nothing
MOST_BREAKERS: Final = 100_000  # that a store keeps, before further keys count at their tasks' own breakers
FULL_PACE: Final = 1_000  # the pace of a gate that was not slowed down; paces are thousandths of it

Verdict = Literal["ok", "failed", "neutral"]


class BreakerRule(Struct, frozen=True):
    """When a breaker opens and how it closes again. `rate` replaces the count when it is set."""

    failures: int = 5
    within_ms: int = 60_000
    cooldown_ms: int = 60_000  # how long a failed probe keeps it open
    probe_after_ms: int = 60_000  # how long after the first opening one job is let through
    rate: float | None = None
    min_calls: int = 20


class Pause(Struct, frozen=True):
    """Someone stopped this gate by hand."""

    by: str
    reason: str
    at_ms: int


class GateRule(Struct, frozen=True):
    """What a gate allows. Declared by code, or set by an operator, whose word wins."""

    key: str  # all · queue:Q · task:T · limit:KEY · breaker:NAME
    concurrency: int | None = None
    interval_us: int | None = None  # one rate token per interval
    burst: int = 1
    breaker: BreakerRule | None = None
    default_for_429: bool = False  # a 429 without a key holds this limit
    unit: str = ""  # which of a job's costs counts here; "" is the plain one
    floor: int | None = None  # adapts to pushback: the slowest pace, of which FULL_PACE is what is declared
    climb_ms: int = 60_000  # how long an adaptive gate would take from a standstill to its full pace
    cap: int | None = None  # a budget: so much of the unit in each period
    period: Period | None = None  # of the cap
    depth: int | None = None  # of a queue: how many jobs may wait in it before new ones are refused
    tenant_depth: int | None = None  # of a queue: the same for each tenant of its jobs


class Gate(Struct, frozen=True):
    """A gate's rule and its level: one record, changed only inside an engine's atomic step."""

    rule: GateRule
    declared: bool = True  # False: an operator's rule, which declarations do not overwrite
    paused: Pause | None = None
    draining: bool = False
    used: int = 0  # slots taken by running jobs
    full_at_us: int = 0  # when the token bucket will be full again
    held_until_ms: int = 0
    failed_at_ms: tuple[int, ...] = ()  # newest failures, at most as many as the rule counts
    calls: tuple[int, int, int, int] = (0, 0, 0, 0)  # rate breakers: window number, calls, failures, failures before
    open_until_ms: int = 0  # 0 = closed; in the past = half-open
    probe_token: int = 0  # the job a half-open breaker let through
    opened: int = 0  # times it opened, ever
    pace: int = FULL_PACE  # how fast it went when it was last slowed down
    paced_at_ms: int = 0  # since when it has been climbing from there
    ceiling: int = FULL_PACE  # the fastest pace of an adaptive gate, as the provider reported it
    last_cut_token: int = 0  # jobs claimed up to this token have had their say about the pace
    period_ms: int = 0  # when the period began that `spent` belongs to
    spent: int = 0  # of the cap: what running jobs reserved, and ended ones cost
    reserved_for: int = 0  # the cost of the first job that did not fit: till it fits, no job passes it
    # When its rule was changed, or its rate reset: what was charged till then never returns.
    rule_changed_at_ms: int = 0
    announced_marks: int = 0  # what was logged of the budget in this period; see core/text/gate_events.py
    by_hand: bool = False  # an operator opened it; the result of its probe ends that

    @property
    def key(self) -> str:
        return self.rule.key

    @property
    def breaker_open(self) -> bool:
        return self.open_until_ms > 0


class Charge(Struct, frozen=True, array_like=True):
    """What a running job took from a gate; only this is given back."""

    gate: str
    slot: bool = False
    cost: int = 0
    probe: bool = False
    own: str = ""  # of a breaker by key: the task's own, whose numbers it has


class GateChange(Struct, frozen=True):
    """What an operator asks of a gate; fields left out stay as they are."""

    key: str
    rule: GateRule | None = None  # an operator's rule from now on
    declared: bool = False  # with rule: True = a declaration, applied only while no operator has spoken
    clear: bool = False  # forget that an operator has spoken, so that declarations count again
    pause: Pause | None = None
    resume: bool = False
    drain: bool | None = None
    hold_ms: int | None = None
    ceiling: int | None = None  # the pace that the provider allows an adaptive gate, in thousandths
    trip_ms: int | None = None  # open for this long; FOREVER_MS = until reset by hand
    reset: bool = False
