"""Decides which gate an operator's limit means and what its rule becomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from msgspec import Struct
from msgspec.structs import replace

from limpet.core.errors import InvalidOption
from limpet.core.gate import Gate, GateChange, GateRule, admits, room
from limpet.core.jobs.state import LIVE, State
from limpet.core.jobs.view import Query, Term
from limpet.core.limits.budget import base_of, budget_key, checked_cap
from limpet.core.limits.depth import checked_depth
from limpet.core.limits.limit import slowest_floor, usual_floor
from limpet.core.limits.period import PERIODS, Period
from limpet.core.limits.rate import checked_burst, checked_ceiling, parse_bucket, parse_rate
from limpet.core.limits.unit import UNITS, checked_unit, stored_unit
from limpet.core.records.limit import LimitRecord
from limpet.ops.declared import declared_gates, declared_rule, declared_tasks
from limpet.ops.select import PAGE
from limpet.stores.asking import MOST_GATES, gate_of
from limpet.stores.base import Store

LOOKED_AT: Final = 2_000  # ready jobs that one look at waiters reads: there may be millions


class LimitChange:
    """What an operator asks of a limit: a rate such as "10/m", a burst, a ceiling of jobs at once, whether it adapts.

    Of a queue also how many jobs may wait in it (`depth`), and of each tenant in it (`tenant_depth`).

    Without a burst it is the rate's number, or the code's burst if that is smaller. `adaptive` may be the slowest rate
    that it may fall to; a new rate alone keeps the proportion of the two.
    `buckets` are rates of other units ("tokens": "200000/m"), `budgets` are caps per period ("usd": "50/day").
    """

    def __init__(
        self,
        *,
        rate: str | None = None,
        burst: int | None = None,
        concurrency: int | None = None,
        buckets: Mapping[str, str] | None = None,
        budgets: Mapping[str, str] | None = None,
        adaptive: bool | str | None = None,
        depth: int | None = None,
        tenant_depth: int | None = None,
    ) -> None:
        numbers = (rate, concurrency, adaptive, depth, tenant_depth)
        if all(number is None for number in numbers) and not buckets and not budgets:
            raise InvalidOption(
                "a limit needs a rate or a concurrency, a bucket or a budget; a queue may have a depth",
                fix='such as rate="10/m", concurrency=20, buckets={"tokens": "200000/m"} or budgets={"usd": "50/day"}',
            )
        if burst is not None and rate is None:
            raise InvalidOption("a burst needs a rate", fix='such as rate="10/m"')
        if adaptive is not None and not isinstance(adaptive, bool | str):
            raise InvalidOption(
                f"adaptive={adaptive!r} is neither yes nor no nor a rate",
                fix='use True, False, or the slowest rate that it may fall to: "50/m"',
            )
        if isinstance(adaptive, str):
            parse_rate(adaptive, what="the slowest rate")
        if concurrency is not None:
            checked_ceiling(concurrency, what=f"concurrency={concurrency!r}")
        self.depths = {
            name: checked_depth(number, what=f"{name}={number!r}")
            for name, number in (("depth", depth), ("tenant_depth", tenant_depth))
            if number is not None
        }
        self.rate, self.burst, self.concurrency, self.adaptive = rate, burst, concurrency, adaptive
        self._rated: tuple[int, int] | None = None  # microseconds between two tokens, and how many may go at once
        if rate is not None:
            tokens, interval_us = parse_rate(rate)
            self._rated = interval_us, checked_burst(burst, tokens, interval_us, what=f"rate={rate!r}, burst={burst!r}")
        self.buckets = {
            unit: (rate, *parse_bucket(checked_unit(unit, what="the bucket"), rate))
            for unit, rate in (buckets or {}).items()
        }
        self.budgets = {unit: (text, *parse_budget(unit, text)) for unit, text in (budgets or {}).items()}

    async def rules(self, store: Store, gate_key: str) -> list[tuple[GateRule, dict[str, object]]]:
        """The rules with the operator's numbers in place of their own, each with what the audit log keeps."""
        found: list[tuple[GateRule, dict[str, object]]] = []
        if self.depths and not gate_key.startswith("queue:"):
            raise InvalidOption(f"{gate_key} is not a queue: only queues have a depth", fix="name a queue: queue:NAME")
        if self.depths or any(number is not None for number in (self.rate, self.concurrency, self.adaptive)):
            facts: dict[str, object] = {"rate": self.rate, "burst": self.burst, "concurrency": self.concurrency}
            facts |= {"adaptive": self.adaptive, **self.depths}
            found.append((await self._own(store, gate_key), facts))
        if (self.buckets or self.budgets) and not gate_key.startswith("limit:"):
            raise InvalidOption(f"{gate_key} has no buckets and no budgets", fix="name the key of a limit or a budget")
        key = gate_key.removeprefix("limit:")
        for unit, (text, count, interval_us) in self.buckets.items():
            name = f"limit:{unit}:{_base(key, unit, '')}"
            rule = GateRule(name, interval_us=interval_us, burst=count, unit=stored_unit(unit))
            found.append((rule, {"bucket": f"{unit}={text}"}))
        for unit, (text, cap, period) in self.budgets.items():
            name = budget_key(unit, period, _base(key, unit, period))
            found.append((GateRule(name, unit=stored_unit(unit), cap=cap, period=period), {"budget": f"{unit}={text}"}))
        return found

    async def _own(self, store: Store, gate_key: str) -> GateRule:
        gate = await gate_of(store, gate_key)
        # Before its first job a limit is only published: what is not named here stays as the code declares it.
        rule = gate.rule if gate is not None else await declared_rule(store, gate_key) or GateRule(gate_key)
        if rule.unit or rule.cap is not None:
            what, flag = ("a budget", "--budget") if rule.cap is not None else ("a bucket", "--bucket")
            base = base_of(gate_key.removeprefix("limit:"))[2]
            raise InvalidOption(
                f"{gate_key} is {what}, which has no rate and no concurrency of its own",
                fix=f"set {flag} of {base!r}, or the rate of {base!r} itself",
            )
        if self._rated is not None:
            interval_us, burst = self._rated
            if self.burst is None:
                # Who slows a rate down in trouble does not mean to lift the burst that the code keeps small.
                code = await declared_rule(store, gate_key)
                burst = burst if code is None or code.interval_us is None else min(burst, code.burst)
            rule = replace(rule, interval_us=interval_us, burst=burst)
        if self.concurrency is not None:
            rule = replace(rule, concurrency=self.concurrency)
        rule = replace(rule, **self.depths)
        return rule if self.adaptive is None else _adapting(rule, self.adaptive)


def _adapting(rule: GateRule, adaptive: bool | str) -> GateRule:
    if adaptive is False:
        return replace(rule, floor=None)
    if isinstance(adaptive, str):
        if rule.interval_us is None:
            raise InvalidOption(f"{rule.key} has no rate to adapt", fix='add rate="500/m", the fastest that it may go')
        what = f"{rule.key}: the slowest rate {adaptive!r}"
        return replace(rule, floor=slowest_floor(adaptive, rule.interval_us, what=what))
    if rule.interval_us is None and rule.concurrency is None:
        raise InvalidOption(
            f"{rule.key} has no rate and no concurrency to adapt", fix='add rate="500/m", the fastest that it may go'
        )
    return rule if rule.floor is not None else replace(rule, floor=usual_floor(rule.interval_us, rule.concurrency))


def _base(key: str, unit: str, period: str) -> str:
    """The limit's own key, also if the name of its bucket or budget was given, as it is listed."""
    said = base_of(key)
    return said[2] if said[:2] == (unit, period) else key


def parse_budget(unit: str, text: str) -> tuple[int, Period]:
    """("usd", "50/day") → the cap as it is stored, and its period."""
    checked_unit(unit, what="the budget")
    amount, _, period = str(text).partition("/")
    known = [name for name in PERIODS if name == period.strip()]
    if not known:
        what = f"has the period {period.strip()!r}, which does not exist" if period.strip() else "has no period"
        raise InvalidOption(
            f"the budget {unit}={text!r} {what}", fix=f"write {unit}=50/day; periods are {', '.join(PERIODS)}"
        )
    return checked_cap(unit, amount.strip(), what=f"the budget {unit}"), cast(Period, known[0])


def limit_gate_key(key: str) -> str:
    """The gate that a limit's name means: queues and tasks may have ceilings too, anything else is a limit key."""
    kind, _, name = key.partition(":")
    return key if name and kind in ("queue", "task", "limit") else f"limit:{key}"


def breaker_gate_key(name: str) -> str:
    """The gate that a breaker's name means: limits and tasks open as breakers do when no money is left there."""
    kind, _, rest = name.partition(":")
    return name if rest and kind in ("breaker", "limit", "task", "queue") else f"breaker:{name}"


async def cleared(store: Store, gate_key: str) -> GateChange:
    """The change that gives a gate back to the code's declaration, or to no limit when none is published.

    Where that may just not be published, as no worker runs the code, an operator's numbers stay until the next job
    brings the code's own: no job passes a budget in between.
    """
    found, declared = await gate_of(store, gate_key), await declared_rule(store, gate_key)
    if declared is None and found is not None and not found.declared and await _has_unpublished_jobs(store, gate_key):
        return GateChange(gate_key, clear=True)
    blank = GateRule(gate_key, breaker=found.rule.breaker if found is not None else None)
    return GateChange(gate_key, rule=declared or blank, declared=True, clear=True)


async def kept_numbers(store: Store, gates: Sequence[Gate]) -> list[str]:
    """A note about each gate that was cleared, and keeps its numbers for now."""
    return [
        f"no worker has published what code declares of {gate.key}: these numbers stay until its next job comes"
        for gate in gates
        if gate.rule != GateRule(gate.key, breaker=gate.rule.breaker) and await declared_rule(store, gate.key) is None
    ]


async def _has_unpublished_jobs(store: Store, gate_key: str) -> bool:
    """Whether jobs are under this limit whose task no worker has published; only some jobs are read."""
    if not gate_key.startswith("limit:"):
        return False
    published = {task.name for task in await declared_tasks(store)}
    for task in sorted({task for _, task, _ in (await store.count()).now} - published):
        page = await store.find(Query(LIVE, (Term("task", task),), limit=PAGE))
        if any(gate_key in (*view.lane.class_gates, *view.lane.lane_gates) for view in page.jobs):
            return True
    return False


def keys_of_limit(gate_key: str) -> frozenset[str]:
    """The gates that an operator may mean by a limit's key: its own, and those of buckets and budgets."""
    if not gate_key.startswith("limit:"):
        return frozenset({gate_key})
    key = gate_key.removeprefix("limit:")
    budgets = (budget_key(unit, period, key) for unit in UNITS for period in PERIODS)
    return frozenset({gate_key, *(f"limit:{unit}:{key}" for unit in UNITS), *budgets})


async def gates_of_limit(store: Store, gate_key: str) -> list[Gate]:
    """Those of them that are there."""
    return await store.gates(keys=sorted(keys_of_limit(gate_key)))


async def limits_beginning(store: Store, begins: str) -> list[Gate]:
    """The gates of limits whose keys begin so, their buckets and budgets included, by key."""
    gate_key = begins if begins in ("queue:", "task:", "limit:") else limit_gate_key(begins)
    keys = keys_of_limit(gate_key)
    found = {gate.key: gate for key in keys for gate in await store.gates(key)}
    for gate in await declared_gates(store):
        if gate.key.startswith(tuple(keys)):
            found.setdefault(gate.key, gate)
    return [found[key] for key in sorted(found)]


class Waiters(Struct, frozen=True):
    """How many ready jobs wait behind each gate; without `complete`, at least this number.

    `beyond`: gates that hold back jobs but are not in the list, because there were too many to list them all.
    """

    counts: dict[str, int]
    complete: bool
    beyond: tuple[Gate, ...] = ()


async def waiters(store: Store, gates: Sequence[Gate], now_ms: int) -> Waiters:
    """Count the ready jobs that each of these gates stops now, looking at the oldest few thousand only."""
    seen = {gate.key: gate for gate in gates}
    listed, beyond = frozenset(seen), len(gates) >= MOST_GATES
    counts: Counter[str] = Counter()
    query = Query(frozenset({State.ready}), limit=PAGE, newest_first=False)
    looked_at, complete = 0, False
    # A budget may have room, and not enough for a dear job.
    while beyond or any(room(gate, now_ms) <= 0 or gate.rule.cap is not None for gate in gates):
        page = await store.find(query, now_ms=now_ms)
        if beyond:
            keys = {key for view in page.jobs for key in (*view.lane.class_gates, *view.lane.lane_gates)} - seen.keys()
            seen.update((gate.key, gate) for gate in await store.gates(keys=sorted(keys)))
        for view in page.jobs:
            for key in (*view.lane.class_gates, *view.lane.lane_gates):
                gate = seen.get(key)
                if gate is not None and not admits(gate, [view.cost_in(gate.rule.unit)], now_ms):
                    counts[key] += 1
        looked_at += len(page.jobs)
        complete = page.cursor is None
        if complete or looked_at >= LOOKED_AT:
            break
        query = replace(query, cursor=page.cursor)
    else:
        complete = True
    return Waiters(dict(counts), complete, tuple(seen[key] for key in sorted(counts.keys() - listed)))


def limit_records(gates: Iterable[Gate], behind: Waiters, now_ms: int) -> list[LimitRecord]:
    """What people are told of limits, with the jobs that wait behind each."""
    return [LimitRecord.of(gate, now_ms, behind.counts.get(gate.key, 0), all_counted=behind.complete) for gate in gates]
