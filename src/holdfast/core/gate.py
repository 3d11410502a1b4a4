"""Decides whether a gate lets jobs through: pauses, holds, concurrency, rates, budgets and breakers as integers.

Every engine keeps these numbers and does this arithmetic inside its atomic claim; the vectors in
`holdfast.testing.gate_vectors` can be run against each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.period import Period, began_ms, ends_ms

LOTS: Final = 1 << 30  # the room of a gate that stops nobody
FOREVER_MS: Final = 1 << 52  # an instant that never comes, still exact as a JSON integer
FULL: Final = 1_000  # the pace of a gate that nobody has slowed down; paces are thousandths of it
RAMP_MS: Final = 10_000  # how long a ceiling takes to come back after somebody pushed back
RAMP_JOBS: Final = 20  # so many at once a gate without numbers has climbed to, before it counts nobody again

Verdict = Literal["ok", "failed", "neutral"]
NOTHING: Final[Mapping[int, int]] = MappingProxyType({})


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
    learns: bool = False  # a 429 without a key holds this limit
    unit: str = ""  # which of a job's costs counts here; "" is the plain one
    floor: int | None = None  # adapts to pushback: the slowest pace, of which FULL is what is declared
    climb_ms: int = 60_000  # how long an adaptive gate would take from a standstill to its full pace
    cap: int | None = None  # a budget: so much of the unit in each period
    period: Period | None = None  # of the cap


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
    pace: int = FULL  # how fast it went when it was last slowed down
    paced_at_ms: int = 0  # since when it has been climbing from there
    ceiling: int = FULL  # how fast an adaptive gate goes at most: what the other side has said that it allows
    cut_token: int = 0  # jobs claimed up to this token have had their say about the pace
    period_ms: int = 0  # when the period began that `spent` belongs to
    spent: int = 0  # of the cap: what running jobs reserved, and ended ones cost
    wants: int = 0  # what the first job that did not fit needs: till then nobody passes it
    ruled_at_ms: int = 0  # when its rule was changed, or its rate reset: what was charged till then never returns
    told: int = 0  # what people have heard of the budget in this period; see core.news

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


def room(gate: Gate, now_ms: int) -> int:
    """How many jobs of cost 1 the gate admits now; LOTS when it has no say."""
    if gate.paused is not None or gate.held_until_ms > now_ms:
        return 0
    free = LOTS
    rule = gate.rule
    if most_at_once(gate, now_ms) is not None:
        free = max(0, slots(gate, now_ms) - gate.used)
    if rule.interval_us is not None:
        free = min(free, _starts(gate, now_ms))
    if rule.cap is not None:
        free = min(free, _room_in_budget(gate, now_ms))
    if gate.open_until_ms:
        free = min(free, 0 if gate.open_until_ms > now_ms or gate.probe_token else 1)
    return free


def tokens(gate: Gate, now_ms: int) -> int:
    """Whole tokens in the rate bucket now; below zero while a costly job is being paid off."""
    interval = gate.rule.interval_us
    if interval is None:
        return LOTS
    debt_us = max(0, gate.full_at_us - now_ms * 1000)
    return gate.rule.burst - -(-debt_us // interval)


def pace(gate: Gate, now_ms: int) -> int:
    """How fast the gate goes now, in thousandths: it climbs evenly from where it was when somebody pushed back."""
    if gate.rule.floor is None:
        return min(FULL, gate.pace + max(0, now_ms - gate.paced_at_ms) * FULL // RAMP_MS)
    climbed = gate.pace + max(0, now_ms - gate.paced_at_ms) * FULL // gate.rule.climb_ms
    return min(FULL, max(gate.rule.floor, min(gate.ceiling, climbed)))


def most_at_once(gate: Gate, now_ms: int) -> int | None:
    """How many jobs may run at once when the gate goes at its full pace; None when it counts nobody.

    A gate without numbers that somebody pushed back counts those who start while it climbs.
    """
    rule = gate.rule
    if rule.concurrency is not None or rule.interval_us is not None or rule.cap is not None:
        return rule.concurrency
    return RAMP_JOBS if gate.pace < FULL and pace(gate, now_ms) < FULL else None


def is_counting(gate: Gate, now_ms: int) -> bool:
    """Whether the gate counts those who pass: they are never held ahead of time."""
    rule = gate.rule
    return rule.interval_us is not None or rule.cap is not None or most_at_once(gate, now_ms) is not None


def slots(gate: Gate, now_ms: int) -> int:
    """How many jobs may run at once, at the pace that the gate goes now: one, unless none ever may."""
    most = most_at_once(gate, now_ms) or 0
    return max(min(1, most), most * pace(gate, now_ms) // FULL)


def _starts(gate: Gate, now_ms: int) -> int:
    """How many jobs of cost 1 the rate admits now: each of an adaptive gate that goes slower takes more of a token."""
    whole = tokens(gate, now_ms)
    return whole if whole < 1 else (whole - 1) * _thousandths(gate, now_ms) // FULL + 1


def _thousandths(gate: Gate, now_ms: int) -> int:
    """What a token is worth at a rate: less while an adaptive gate goes slower."""
    return FULL if gate.rule.floor is None else max(1, pace(gate, now_ms))


def _token_us(gate: Gate, interval_us: int, now_ms: int) -> int:
    """How long what a job of cost 1 takes of the rate needs to come back."""
    return -(-interval_us * FULL // _thousandths(gate, now_ms))


def left(gate: Gate, now_ms: int) -> int:
    """What is left of the budget in the current period; below zero when jobs cost more than they had reserved."""
    if gate.rule.cap is None:
        return LOTS
    return gate.rule.cap - (gate.spent if _is_current(gate, now_ms) else 0)


def _room_in_budget(gate: Gate, now_ms: int) -> int:
    """What is left, unless somebody waits for more than that: a large job is not starved by smaller ones."""
    free = left(gate, now_ms)
    wanted = gate.wants if _is_current(gate, now_ms) else 0
    return free if free >= wanted else 0


def _is_current(gate: Gate, now_ms: int) -> bool:
    """Whether the period that is counted is the one that it is now, or a later one: no clock that goes back refills."""
    period = gate.rule.period
    return period is not None and gate.period_ms >= began_ms(period, now_ms)


def opens_at_ms(gate: Gate, now_ms: int) -> int | None:
    """When a shut gate may admit again by the passing of time alone; None when only an event can open it."""
    if gate.paused is not None:
        return None
    at = max(now_ms, gate.held_until_ms)
    rule = gate.rule
    most = most_at_once(gate, now_ms)
    if most is not None and gate.used >= slots(gate, now_ms):
        wanted = -(-(gate.used + 1) * FULL // max(1, most))
        if rule.concurrency is None:
            wanted = min(FULL, wanted)  # then it counts nobody
        if not most or wanted > FULL or (rule.floor is not None and wanted > max(rule.floor, gate.ceiling)):
            return None
        at = max(at, _climbed_at_ms(gate, wanted))
    if gate.open_until_ms:
        if gate.probe_token or gate.open_until_ms >= FOREVER_MS:
            return None
        at = max(at, gate.open_until_ms)
    if rule.interval_us is not None:
        one_token_us = gate.full_at_us - (rule.burst - 1) * rule.interval_us
        at = max(at, -(-one_token_us // 1000))
    if rule.period is not None and _room_in_budget(gate, now_ms) <= 0:
        at = max(at, ends_ms(rule.period, max(now_ms, gate.period_ms)))
    return at


def opens_sooner(before: Gate, after: Gate, now_ms: int) -> bool:
    """Whether a gate that was shut, and still is, now opens sooner than whoever waits for it has been told."""
    if room(before, now_ms) > 0 or room(after, now_ms) > 0:
        return False
    was_ms, is_ms = opens_at_ms(before, now_ms), opens_at_ms(after, now_ms)
    return is_ms is not None and (was_ms is None or is_ms < was_ms)


def fastest_at_ms(gate: Gate) -> int:
    """When the gate goes as fast as it may, if nobody pushes back again."""
    return _climbed_at_ms(gate, FULL if gate.rule.floor is None else max(gate.rule.floor, gate.ceiling))


def _climbed_at_ms(gate: Gate, to: int) -> int:
    """When the gate goes that fast, if nobody pushes back again."""
    climb_ms = RAMP_MS if gate.rule.floor is None else gate.rule.climb_ms
    return gate.paced_at_ms + -(-(to - gate.pace) * climb_ms // FULL)


def admits(gate: Gate, costs: list[int], now_ms: int) -> int:
    """How many jobs from the front of `costs` pass.

    Each needs one whole token of a rate, where the last may leave a debt, and all that it costs of a budget.
    """
    limit = min(room(gate, now_ms), len(costs))
    rule = gate.rule
    if limit <= 0 or (rule.interval_us is None and rule.cap is None):
        return max(0, limit)
    token, money = _thousandths(gate, now_ms), left(gate, now_ms)
    rated = tokens(gate, now_ms) * token
    for count, cost in enumerate(costs[:limit]):
        if rule.interval_us is not None and rated < token:
            return count
        if rule.cap is not None and money < max(1, cost):
            return count
        rated, money = rated - cost * FULL, money - cost
    return limit


def charge(gate: Gate, costs: list[int], token: int, now_ms: int) -> tuple[Gate, list[Charge]]:
    """Take what `costs` need from the gate; the answer has one Charge per job, empty when nothing is counted."""
    rule = gate.rule
    slot, probe = most_at_once(gate, now_ms) is not None, bool(gate.open_until_ms)
    counted = rule.interval_us is not None or rule.cap is not None
    if not costs or not (slot or probe or counted or rule.breaker is not None):
        return gate, []
    full_at_us, used = gate.full_at_us, gate.used
    if rule.interval_us is not None:
        full_at_us = max(full_at_us, now_ms * 1000) + sum(costs) * _token_us(gate, rule.interval_us, now_ms)
    if slot:
        used += len(costs)
    charged = [Charge(rule.key, slot, cost if counted else 0, probe) for cost in costs]
    gate = replace(gate, used=used, full_at_us=full_at_us, probe_token=token if probe else gate.probe_token)
    return _reserve(gate, sum(costs), 0, now_ms), charged


def falls_short(gate: Gate, cost: int, now_ms: int) -> Gate:
    """The gate after a job of this cost, which nothing else stops, did not fit its budget: nobody passes that job."""
    return gate if left(gate, now_ms) >= max(1, cost) else _reserve(gate, 0, max(1, cost), now_ms)


def give_up(gate: Gate, cost: int) -> Gate:
    """The gate after a job of this cost has left those who wait: a budget that was shut for it looks at the next."""
    return replace(gate, wants=0) if gate.wants and gate.wants == max(1, cost) else gate


def _reserve(gate: Gate, cost: int, wants: int, now_ms: int) -> Gate:
    rule = gate.rule
    if rule.cap is None or rule.period is None:
        return gate
    spent = gate.spent if _is_current(gate, now_ms) else 0
    period_ms = max(gate.period_ms, began_ms(rule.period, now_ms))
    return replace(gate, period_ms=period_ms, spent=spent + cost, wants=wants)


def give_back(
    gate: Gate,
    taken: Charge,
    *,
    token: int,
    verdict: Verdict,
    unstarted: bool,
    now_ms: int,
    charged_at_ms: int | None = None,
    real: int | None = None,
    beside: Mapping[int, int] = NOTHING,
) -> Gate:
    """What the gate looks like after a job that was charged `taken` has ended.

    Slots always return; what was counted stays, unless the job never started or its `real` cost is known.
    Only ok and failed teach a breaker. `beside`: what others of the settlement returned to the rate (`returned_us`).
    """
    if taken.slot:
        gate = replace(gate, used=max(0, gate.used - 1))
    if unstarted:
        real = 0
    if real is not None:
        charged_at_ms = now_ms if charged_at_ms is None else charged_at_ms
        gate = _correct(gate, taken.cost, real, now_ms, charged_at_ms, beside)
    if taken.probe and gate.probe_token == token:
        gate = replace(gate, probe_token=0)
        if verdict == "ok":
            return replace(gate, open_until_ms=0, failed_at_ms=(), calls=(0, 0, 0, 0))
        if verdict == "failed":
            return trip(gate, now_ms + (gate.rule.breaker or BreakerRule()).cooldown_ms)
        return gate
    return learn(gate, verdict, now_ms)


def returned_us(gate: Gate, taken: Charge, real: int | None, charged_at_ms: int) -> int:
    """For how long the rate would have stood for what the job was charged and did not cost."""
    if gate.rule.interval_us is None or real is None or real >= taken.cost:
        return 0
    return (taken.cost - real) * _charged_token_us(gate, gate.rule.interval_us, charged_at_ms)


def _set_off_us(returned: Mapping[int, int], now_ms: int) -> int:
    """What a rate gets back of all that was returned in one settlement: {when it was charged: for how long}.

    Since it was charged, time has brought back some of it, once for all of them: together they leave the rate as if it
    had stood still since the first. Those for which time has brought back more than they were charged stay out of it.
    """
    most = total = 0
    for charged_at_ms in sorted(returned, reverse=True):
        total += returned[charged_at_ms]
        most = max(most, total - max(0, now_ms - charged_at_ms) * 1000)
    return most


def _correct(gate: Gate, cost: int, real: int, now_ms: int, charged_at_ms: int, beside: Mapping[int, int]) -> Gate:
    """The gate after a job that reserved `cost` turned out to cost `real`.

    A rate gets back only what time has not given back already: the bucket would overflow into others' starts.
    A budget is corrected in the period that was charged, as long as it lasts.
    """
    rule, more = gate.rule, real - cost
    if rule.interval_us is not None and more > 0:
        gate = replace(gate, full_at_us=max(gate.full_at_us, now_ms * 1000) + more * rule.interval_us)
    elif rule.interval_us is not None:
        own_us = -more * _charged_token_us(gate, rule.interval_us, charged_at_ms)
        with_it = {**beside, charged_at_ms: beside.get(charged_at_ms, 0) + own_us}
        back_us = _set_off_us(with_it, now_ms) - _set_off_us(beside, now_ms)
        gate = replace(gate, full_at_us=gate.full_at_us - back_us)
    if rule.period is not None and gate.period_ms == began_ms(rule.period, charged_at_ms):
        gate = replace(gate, spent=max(0, gate.spent + more))
    return gate


def _charged_token_us(gate: Gate, interval_us: int, charged_at_ms: int) -> int:
    """What a job of cost 1 was charged then, or less: the pace before a cut, or under a ceiling, is not known.

    Nothing when the rule was changed since: this bucket was not charged, and others would start on what came back.
    """
    if charged_at_ms <= gate.ruled_at_ms:
        return 0
    if charged_at_ms <= gate.paced_at_ms:
        return interval_us
    return _token_us(replace(gate, ceiling=FULL), interval_us, charged_at_ms)


def real_cost(rule: GateRule, spent: Mapping[str, int], *, unfinished: bool) -> int | None:
    """What a job cost at a gate by its own account; None: what it had reserved stands.

    Of one that was put off or dropped (`unfinished`) a budget gets back what it does not own up to.
    """
    said = spent.get(rule.unit)
    return 0 if said is None and unfinished and rule.cap is not None else said


def learn(gate: Gate, verdict: Verdict, now_ms: int) -> Gate:
    """Count one outcome; open the breaker when its rule says so. Costs no write while all goes well."""
    rule = gate.rule.breaker
    if rule is None or verdict == "neutral" or gate.open_until_ms:
        return gate
    if rule.rate is not None:
        return _learn_rate(gate, rule, rule.rate, failed=verdict == "failed", now_ms=now_ms)
    if verdict == "ok":
        return replace(gate, failed_at_ms=()) if gate.failed_at_ms else gate
    recent = (
        tuple(at for at in gate.failed_at_ms if at > now_ms - rule.within_ms)[-(rule.failures - 1) :]
        if rule.failures > 1
        else ()
    )
    recent = (*recent, now_ms)
    if len(recent) >= rule.failures:
        return trip(gate, now_ms + rule.probe_after_ms)
    return replace(gate, failed_at_ms=recent)


def _learn_rate(gate: Gate, rule: BreakerRule, rate: float, *, failed: bool, now_ms: int) -> Gate:
    # Two half-windows: bounded memory, and a failure is forgotten after at most one whole window.
    half = max(1, rule.within_ms // 2)
    number = now_ms // half
    window, calls, failures, before = gate.calls
    if number > window + 1:
        calls = failures = before = 0
    elif number == window + 1:
        before = (calls << 20) | failures
        calls = failures = 0
    calls, failures = calls + 1, failures + failed
    all_calls, all_failures = calls + (before >> 20), failures + (before & 0xFFFFF)
    if failed and all_calls >= rule.min_calls and all_failures >= rate * all_calls:
        return trip(gate, now_ms + rule.probe_after_ms)
    return replace(gate, calls=(number, calls, failures, before))


def counted(gate: Gate, now_ms: int) -> tuple[int, int | None]:
    """What a breaker has counted in its window: failures, and calls if it goes by their share."""
    rule = gate.rule.breaker
    if rule is None:
        return 0, None
    if rule.rate is None:
        return sum(at > now_ms - rule.within_ms for at in gate.failed_at_ms), None
    window, calls, failures, before = gate.calls
    later = now_ms // max(1, rule.within_ms // 2) - window
    if later > 1:
        return 0, 0
    if later == 1:
        return failures, calls
    return failures + (before & 0xFFFFF), calls + (before >> 20)


def trip(gate: Gate, until_ms: int) -> Gate:
    """Open the breaker until `until_ms`, when one probe is let through."""
    return replace(
        gate, open_until_ms=until_ms, probe_token=0, failed_at_ms=(), calls=(0, 0, 0, 0), opened=gate.opened + 1
    )


def cut_off(gate: Gate, until_ms: int, token: int, now_ms: int) -> Gate:
    """The gate after the job under `token` was told that there is no money left: open, until one job probes it.

    Jobs that were under way with it say nothing new, and prolong nothing.
    """
    if token == gate.probe_token or not (gate.probe_token or gate.open_until_ms > now_ms):
        return trip(gate, until_ms)
    return gate


def reset(gate: Gate) -> Gate:
    """Close the breaker and forget its failures."""
    return replace(gate, open_until_ms=0, probe_token=0, failed_at_ms=(), calls=(0, 0, 0, 0))


def hold(gate: Gate, until_ms: int) -> Gate:
    """Admit nobody before `until_ms`; a longer hold stays."""
    return replace(gate, held_until_ms=max(gate.held_until_ms, until_ms))


def push_back(gate: Gate, until_ms: int, token: int, now_ms: int) -> Gate:
    """The gate after somebody told the job under `token` to come back later: it is held, and goes slower after that.

    A rate begins again with one token, a ceiling with one job, and so does a gate without numbers; all climb. An
    adaptive gate goes half as fast as it did, once for all the jobs that were claimed before.
    """
    rule = gate.rule
    gate = hold(gate, until_ms)
    if rule.interval_us is not None:
        one_token_us = gate.held_until_ms * 1000 + (rule.burst - 1) * rule.interval_us
        gate = replace(gate, full_at_us=max(gate.full_at_us, one_token_us))
    if token <= gate.cut_token:
        return replace(gate, paced_at_ms=max(gate.paced_at_ms, gate.held_until_ms)) if gate.pace < FULL else gate
    slower = 0 if rule.floor is None else max(rule.floor, pace(gate, now_ms) // 2)
    return replace(gate, pace=slower, paced_at_ms=gate.held_until_ms, cut_token=(now_ms + 1) * 2048 - 1)


def is_blank(gate: Gate, now_ms: int) -> bool:
    """True when forgetting the gate changes nothing, so a janitor may delete it."""
    return (
        gate.paused is None
        and not gate.draining
        and gate.declared
        and gate.used == 0
        and gate.open_until_ms == 0
        and gate.held_until_ms <= now_ms
        and gate.full_at_us <= now_ms * 1000
        and not ((gate.spent or gate.told) and _is_current(gate, now_ms))
        and pace(gate, now_ms) == gate.ceiling == FULL
        and not _remembers(gate, now_ms)
    )


def _remembers(gate: Gate, now_ms: int) -> bool:
    """True while what a breaker has counted can still open it."""
    rule = gate.rule.breaker
    if rule is None:
        return False
    if rule.rate is not None:
        return gate.calls[1] > 0 and now_ms // max(1, rule.within_ms // 2) <= gate.calls[0] + 1
    return any(at > now_ms - rule.within_ms for at in gate.failed_at_ms)


def _full_at_us(gate: Gate, rule: GateRule, now_ms: int) -> int:
    """When the bucket is full under another rate: tokens that were taken stay taken, and come back at the new rate.

    A smaller bucket is as full as the larger one was, in thousandths; or it would be in debt for what it never held.
    """
    old = gate.rule
    if old.interval_us is None or rule.interval_us is None:
        return 0
    begins_us = max(now_ms, gate.held_until_ms) * 1000
    if gate.full_at_us <= begins_us or (old.interval_us, old.burst) == (rule.interval_us, rule.burst):
        return gate.full_at_us
    missing = -(-(gate.full_at_us - begins_us) // old.interval_us)
    if missing > old.burst > rule.burst:
        missing -= old.burst - rule.burst
    elif old.burst > rule.burst:
        thousandths = -(-missing * FULL // old.burst)
        missing = min(missing, -(-thousandths * rule.burst // FULL))
    return begins_us + missing * rule.interval_us


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
    ceiling: int | None = None  # how fast the other side says an adaptive gate may go, in thousandths
    trip_ms: int | None = None  # open for so long; FOREVER_MS = until reset by hand
    reset: bool = False


def apply_change(gate: Gate | None, change: GateChange, now_ms: int) -> Gate:
    """The gate after an operator's change; a gate that was not there starts with a rule that allows all."""
    gate = gate if gate is not None else Gate(GateRule(change.key))
    if change.clear:
        gate = replace(gate, declared=True)
    if change.rule is not None and (gate.declared or not change.declared):
        if gate.rule.interval_us is not None or gate.rule.cap is not None:  # or else nobody was charged
            gate = replace(gate, ruled_at_ms=now_ms)
        full_at_us = _full_at_us(gate, change.rule, now_ms)
        gate = replace(gate, rule=change.rule, declared=change.declared, full_at_us=full_at_us, wants=0)
    if change.pause is not None:
        gate = replace(gate, paused=change.pause)
    if change.resume:
        gate = replace(gate, paused=None, draining=False)
    if change.drain is not None:
        gate = replace(gate, draining=change.drain)
    if change.hold_ms is not None:
        gate = hold(gate, now_ms + change.hold_ms)
    if change.ceiling is not None:
        gate = replace(gate, ceiling=max(1, min(FULL, change.ceiling)))
    if change.trip_ms is not None:
        gate = trip(gate, min(FOREVER_MS, now_ms + change.trip_ms))
    if change.reset:
        if gate.rule.interval_us is not None:  # one may go at once, however far somebody had pushed it back
            one_token_us = now_ms * 1000 + (gate.rule.burst - 1) * gate.rule.interval_us
            gate = replace(gate, full_at_us=min(gate.full_at_us, one_token_us), ruled_at_ms=now_ms)
        gate = replace(reset(gate), held_until_ms=0, wants=0, pace=FULL, ceiling=FULL, paced_at_ms=0, cut_token=0)
    return gate
