"""Keeps the walk's own books of limits: what each of them must have counted, and which jobs it may admit.

Nothing here is asked of `limpet.core.gate` but the shape of a rule: sums over jobs take the place of levels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from limpet.core.endings.transition import (
    Bury,
    Drop,
    Hold,
    Refuse,
    Release,
    RetryAfter,
    Snooze,
    Succeed,
    Suspend,
    Transition,
)
from limpet.core.gate import Gate, GateChange, GateRule
from limpet_contract.model_job import ModelJob
from limpet_contract.starts import Starts

PERIOD_MS: Final = 60_000  # every budget of the walk is one of a minute
FULL_PACE: Final = 1_000  # thousandths: a pace
RAMP_MS: Final = 10_000  # from one job to all of them, where a limit does not adapt
RAMP_JOBS: Final = 20  # all of them, where it has no numbers
COOLDOWN_MS: Final = 60_000  # for which a probe that fails shuts what is no breaker

Lease = tuple[bytes, int]  # a job and its token


@dataclass
class Taken:
    """What a running job holds of one gate."""

    gate: str
    slot: bool
    cost: int
    minute: int | None  # in which that was; None: it holds nothing, and will not be asked what it cost


@dataclass
class Shutter:
    """How long a gate is shut, by pushback, by an empty account or by an operator."""

    held_until_ms: int = 0
    pace: int = FULL_PACE
    climbs_from_ms: int = 0
    cut_at_ms: int = -1  # what was claimed up to then has had its say about the pace
    ceiling: int = FULL_PACE
    open_until_ms: int = 0  # as a breaker is; 0: closed
    probe: Lease | None = None

    def speed(self, rule: GateRule, now_ms: int) -> int:
        """How fast it goes, in thousandths."""
        climbed = self.pace + max(0, now_ms - self.climbs_from_ms) * FULL_PACE // self._climb_ms(rule)
        return min(FULL_PACE, climbed if rule.floor is None else max(rule.floor, min(self.ceiling, climbed)))

    def _climb_ms(self, rule: GateRule) -> int:
        return RAMP_MS if rule.floor is None else rule.climb_ms

    def push_back(self, rule: GateRule, until_ms: int, claimed_at_ms: int, now_ms: int) -> None:
        """A provider pushed back; only jobs that were claimed since then change the pace."""
        self.held_until_ms = max(self.held_until_ms, until_ms)
        if claimed_at_ms > self.cut_at_ms:
            self.pace = 0 if rule.floor is None else max(rule.floor, self.speed(rule, now_ms) // 2)
            self.climbs_from_ms, self.cut_at_ms = self.held_until_ms, now_ms
        elif self.pace < FULL_PACE:
            self.climbs_from_ms = max(self.climbs_from_ms, self.held_until_ms)

    def cut_off(self, until_ms: int, token: int, now_ms: int) -> None:
        """No money is left, a provider said: while the gate is shut, that counts only from its probe's claim."""
        if (self.probe and self.probe[1] == token) or not (self.probe or self.open_until_ms > now_ms):
            self.open_until_ms, self.probe = until_ms, None

    def check(self, gate: Gate) -> None:
        """The stored gate is shut as far as this, and waits for the same probe."""
        shut, token = (gate.held_until_ms, gate.open_until_ms, gate.probe_token), self.probe[1] if self.probe else 0
        assert shut == (self.held_until_ms, self.open_until_ms, token), f"{gate} is not shut as {self}"
        paced = (gate.pace, gate.paced_at_ms, gate.ceiling)
        assert paced == (self.pace, self.climbs_from_ms, self.ceiling), f"{gate} does not go as fast as {self}"

    def is_shut(self, now_ms: int) -> bool:
        """True when it admits no job except its probe."""
        return self.held_until_ms > now_ms or self.open_until_ms > now_ms or self.probe is not None


class Ledger:
    """Which rules are in force, what running jobs hold, what was spent in this minute, and who has shut what."""

    def __init__(self) -> None:
        self.rules: dict[str, GateRule] = {}  # by gate
        self.operated: set[str] = set()  # gates whose rule is an operator's
        self.shutters: dict[str, Shutter] = {}
        self.starts = Starts()
        self._taken: dict[Lease, list[Taken]] = {}
        self._spent: dict[str, tuple[int, int]] = {}  # by gate: in which minute, how much

    # -- rules

    def declare(self, rules: Iterable[GateRule]) -> None:
        """What code says; an operator's word stays."""
        for rule in rules:
            if rule.key not in self.operated and self.rules.get(rule.key) != rule:
                self._rule(rule)

    def _rule(self, rule: GateRule) -> None:
        self.rules[rule.key] = rule
        self.starts.forget(rule.key)

    def change(self, change: GateChange, now_ms: int) -> None:
        """What an operator says."""
        key, shutter = change.key, self.shutter(change.key)
        self.rules.setdefault(key, GateRule(key))
        if change.clear:
            self.operated.discard(key)
        if change.rule is not None and (not change.declared or key not in self.operated):
            self._rule(change.rule)
            if not change.declared:
                self.operated.add(key)
        if change.hold_ms is not None:
            shutter.held_until_ms = max(shutter.held_until_ms, now_ms + change.hold_ms)
        if change.ceiling is not None:
            shutter.ceiling = change.ceiling
        if change.trip_ms is not None:
            shutter.open_until_ms, shutter.probe = now_ms + change.trip_ms, None
        if change.reset:
            self.shutters[key] = Shutter()
            self.starts.forget(key)

    def forget(self, stored: Collection[str]) -> None:
        """A janitor has removed the others: no job was under them, and they had nothing to remember."""
        for key in self.rules.keys() - stored:
            del self.rules[key]
            self.shutters.pop(key, None)

    def shutter(self, key: str) -> Shutter:
        return self.shutters.setdefault(key, Shutter())

    def is_budgeted(self, job: ModelJob) -> bool:
        """True when a budget rules it: a job that costs too much may have shut it."""
        return any(self.rules[key].cap is not None for key in job.gates if key in self.rules)

    def is_rated(self, job: ModelJob) -> bool:
        """True when a rate has a say: how full a bucket is these books do not know."""
        rules = (self.rules.get(key) for key in job.gates)
        return any(rule is not None and rule.interval_us is not None for rule in rules)

    # -- jobs

    def admits(self, job: ModelJob, now_ms: int) -> bool:
        """May the job start now, as far as slots, shutters and budgets go?"""
        return self.has_room(job, now_ms) and not self.too_dear_for(job, now_ms)

    def has_room(self, job: ModelJob, now_ms: int) -> bool:
        """The same, whatever it costs."""
        return all(
            self.used(key) < self.slots(key, now_ms) and not self.shutter(key).is_shut(now_ms) for key in job.gates
        )

    def too_dear_for(self, job: ModelJob, now_ms: int) -> list[str]:
        """The budgets that it does not fit into; one that is used up has no room for anything."""
        budgets = [self.rules[key] for key in job.gates if key in self.rules and self.rules[key].cap is not None]
        return [rule.key for rule in budgets if self.left(rule.key, now_ms) < max(1, job.cost_in(rule.unit))]

    def awaited(self, wants: Mapping[str, int], now_ms: int) -> set[str]:
        """The budgets with a waiting job that needs more than is left: no job passes."""
        return {key for key, wanted in wants.items() if self.left(key, now_ms) < wanted}

    def start(self, job: ModelJob, *, probe: bool, now_ms: int) -> None:
        """A job was let through: it holds a slot of each ceiling, and reserves what it costs of each budget."""
        lease = (job.id, job.token)
        entries = self._taken.setdefault(lease, [])
        for rule in [self.rules[key] for key in job.gates if key in self.rules]:
            cost, shutter = job.cost_in(rule.unit), self.shutter(rule.key)
            if shutter.open_until_ms:
                assert probe, f"{rule.key} let a job through that is not its probe"
                shutter.probe = lease
            if rule.interval_us is not None:
                self.starts.add(rule, cost, lease, now_ms)
            minute, slot = now_ms // PERIOD_MS, self._most_at_once(rule, now_ms) is not None
            if rule.cap is not None:
                self._spent[rule.key] = minute, self.spent(rule.key, now_ms) + cost
            # A gate that becomes a budget while the job runs hears all that it cost.
            counted = rule.cap is not None or rule.interval_us is not None
            known = counted or slot or shutter.open_until_ms
            entries.append(Taken(rule.key, slot, cost if counted else 0, minute if known else None))

    def end(
        self, job: ModelJob, transition: Transition, said: Mapping[str, int], now_ms: int, *, forced: bool = False
    ) -> None:
        """A lease is over, and the job has `said` what it cost: slots return, and what was reserved is corrected."""
        lease = (job.id, job.token)
        for taken in self._taken.pop(lease, ()):
            rule, shutter = self.rules.get(taken.gate, GateRule(taken.gate)), self.shutter(taken.gate)
            real = _real(rule, transition, said, forced=forced)
            if real is not None and rule.interval_us is not None:
                self.starts.correct(taken.gate, lease, real, now_ms)
            minute, spent = self._spent.get(taken.gate, (-1, 0))
            if real is not None and rule.cap is not None and taken.minute == minute:
                self._spent[taken.gate] = minute, spent + real - taken.cost
            if shutter.probe == lease:
                shutter.probe = None
                if isinstance(transition, Succeed):
                    shutter.open_until_ms = 0
                elif isinstance(transition, RetryAfter | Bury) and transition.failure.kind in ("transient", "timeout"):
                    shutter.open_until_ms = now_ms + COOLDOWN_MS

    def shut(self, job: ModelJob, hold: Hold, now_ms: int) -> None:
        """A provider has pushed the job back, or reported that no money is left."""
        rule, shutter = self.rules.setdefault(hold.gate, GateRule(hold.gate)), self.shutter(hold.gate)
        if hold.trips:
            shutter.cut_off(now_ms + hold.delay_ms, job.token, now_ms)
        else:
            shutter.push_back(rule, now_ms + hold.delay_ms, job.claimed_at_ms, now_ms)

    # -- what they sum up to

    def used(self, key: str) -> int:
        """Slots that running jobs hold, whatever rule they were taken under."""
        return sum(taken.slot for entries in self._taken.values() for taken in entries if taken.gate == key)

    def slots(self, key: str, now_ms: int) -> int:
        """How many jobs may hold one now."""
        rule = self.rules.get(key, GateRule(key))
        most = self._most_at_once(rule, now_ms)
        return 1 << 30 if most is None else max(1, most * self.shutter(key).speed(rule, now_ms) // FULL_PACE)

    def _most_at_once(self, rule: GateRule, now_ms: int) -> int | None:
        """How many may hold one at full speed. A gate without numbers counts jobs only while it climbs."""
        climbs = self.shutter(rule.key).speed(rule, now_ms) < FULL_PACE
        numbers = rule.concurrency, rule.interval_us, rule.cap
        return RAMP_JOBS if climbs and numbers == (None, None, None) else rule.concurrency

    def spent(self, key: str, now_ms: int) -> int:
        """What was spent or reserved in this minute."""
        minute, spent = self._spent.get(key, (-1, 0))
        return spent if minute == now_ms // PERIOD_MS else 0

    def left(self, key: str, now_ms: int) -> int:
        """What is left of a budget in this minute."""
        return (self.rules[key].cap or 0) - self.spent(key, now_ms)

    def check(self, gates: Iterable[Gate], now_ms: int) -> None:
        """Every stored limit has counted the same."""
        for gate in gates:
            key, rule = gate.key, self.rules.get(gate.key, GateRule(gate.key))
            assert (gate.rule, gate.declared) == (rule, key not in self.operated), f"{gate} is not {rule}"
            used, spent = self.used(key), self.spent(key, now_ms)
            assert gate.used == used, f"{key} counts {gate.used} slots, and running jobs hold {used}"
            counted = gate.spent if gate.period_ms == now_ms // PERIOD_MS * PERIOD_MS else 0
            assert rule.cap is None or counted == spent, f"{key} counts {counted} as spent, and {spent} were"
            empty_us = self.starts.full_at_us(rule)
            assert gate.full_at_us >= empty_us or empty_us <= now_ms * 1_000, f"{gate} has more than it may"
            self.shutter(key).check(gate)


def _real(rule: GateRule, transition: Transition, said: Mapping[str, int], *, forced: bool) -> int | None:
    """What a job actually cost; None: as it was reserved."""
    if isinstance(transition, Refuse) or (isinstance(transition, Release) and not transition.started):
        return 0
    if rule.unit in said:
        return said[rule.unit]
    put_off = isinstance(transition, Hold | Snooze | Suspend | Drop) and not forced
    return 0 if put_off and rule.cap is not None else None
