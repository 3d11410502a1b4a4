"""Decides what of a task is public: what its code declares, where its jobs are, and how they ended lately."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from limpet.core.gate import GateRule
from limpet.core.jobs.job import Policy
from limpet.core.jobs.minute import MINUTE_S, Minute, summed
from limpet.core.jobs.state import STATES, State
from limpet.core.limits.limit import DeclaredLimit
from limpet.core.limits.spending import public_spent
from limpet.core.records.rate import RATED, RateRecord, rates_of
from limpet.core.records.record import Record, seconds
from limpet.core.tasks.declaration import Declaration


class MinuteRecord(RateRecord, frozen=True, kw_only=True):
    """How attempts ended during the last minute, by what live workers say. Times are known to within a fifth."""

    @classmethod
    def of(cls, minutes: Iterable[Minute], names: Iterable[str] | None = None) -> MinuteRecord:
        """Of the tasks of these names, or of all, over several workers."""
        known = None if names is None else frozenset(names)
        parts = [
            (MINUTE_S / max(MINUTE_S, minute.seconds), tally)
            for minute in minutes
            for name, tally in [*minute.tasks.items(), ("", minute.others)]
            if tally is not None and (known is None or name in known)
        ]
        rates = dict.fromkeys(RATED, 0.0)
        for share, tally in parts:
            for outcome in rates:
                rates[outcome] += share * tally.ended.get(outcome, 0)
        return cls(**rates_of(summed(tally for _, tally in parts), rates))


class TaskRecord(Record, frozen=True, kw_only=True):
    """A task: what it is, where its jobs are now, how they ended lately. None: no code has declared it yet."""

    task: str
    aliases: tuple[str, ...]  # its former names, whose jobs are counted with its own
    declared: bool
    queue: str | None
    priority: int | None
    executor: str | None
    attempts: int | None
    timeout_s: float | None
    limits: tuple[str, ...]  # in words
    breaker: str | None  # its name; of one by key the template, such as "webhook:{customer}"
    states: dict[str, int]  # jobs by state
    workers: int  # live ones that know it
    last_minute: MinuteRecord

    @classmethod
    def of(
        cls, name: str, declared: Declaration | None, states: Mapping[State, int], workers: int, minute: MinuteRecord
    ) -> TaskRecord:
        """The public face of a task."""
        return TaskRecord(**_line(name, declared, states, workers, minute))


class TaskDetail(TaskRecord, frozen=True, kw_only=True):
    """A task with all that its code declares."""

    options: dict[str, Any]  # in the words of @app.task; durations in seconds
    arguments: dict[str, Any]  # their JSON schema
    hooks: tuple[str, ...]  # those that hear of its ends

    @classmethod
    def whole(cls, line: TaskRecord, declared: Declaration | None, hooks: tuple[str, ...] = ()) -> TaskDetail:
        """The same task with everything that is known of it."""
        fields = {name: getattr(line, name) for name in TaskRecord.__struct_fields__}
        if declared is None:
            return cls(**fields, options={}, arguments={}, hooks=hooks)
        return cls(**fields, options=_options(declared), arguments=declared.schema, hooks=hooks)


def _line(
    name: str, declared: Declaration | None, states: Mapping[State, int], workers: int, minute: MinuteRecord
) -> dict[str, Any]:
    known = declared or Declaration(name)
    policy, is_known = known.policy, declared is not None
    return {
        "task": name,
        "aliases": known.aliases,
        "declared": is_known,
        "queue": known.queue if is_known else None,
        "priority": known.priority if is_known else None,
        "executor": known.executor if is_known else None,
        "attempts": policy.attempts if is_known else None,
        "timeout_s": seconds(policy.timeout_ms) if is_known else None,
        "limits": tuple(map(limit_text, known.limits)),
        "breaker": None if known.breaker is None else _breaker_key(known, known.breaker),
        "states": {state.value: states.get(state, 0) for state in STATES},
        "workers": workers,
        "last_minute": minute,
    }


def limit_text(limit: DeclaredLimit) -> str:
    """A limit in a few words.

    >>> limit_text(DeclaredLimit("smtp", rate="10/m", concurrency=20))
    'smtp 10/m, 20 at once'
    """
    words = [limit.rate] if limit.rate else []
    words += [f"{limit.concurrency} at once"] if limit.concurrency is not None else []
    words += [f"{unit} {rate}" for unit, rate in limit.buckets.items()]
    return f"{limit.key} {', '.join(words)}".rstrip()


def _options(declared: Declaration) -> dict[str, Any]:
    """Those that code can give; what a function decides is not known here."""
    policy = declared.policy
    return {
        "queue": declared.queue,
        "priority": declared.priority,
        "executor": declared.executor,
        "retry": _retry(policy),
        "timeout": seconds(policy.timeout_ms),
        "hard_timeout": seconds(policy.hard_timeout_ms),
        "max_lost": policy.max_lost,
        "max_held": seconds(policy.max_held_ms),
        "tenant": declared.tenant,
        "limits": list(map(_limit, declared.limits)),
        "budgets": [msgspec.to_builtins(budget) for budget in declared.budgets],
        "breaker": _breaker(declared, declared.breaker),
        "needs": list(declared.needs),
        "tags": list(declared.tags),
        "unique": declared.unique_key if declared.unique_key is not None else declared.unique,
        "unique_for": seconds(declared.unique_for_ms),
        "on_duplicate": declared.on_duplicate,
        "cost": public_spent({"cost": declared.cost, **declared.costs}),
        "max_payload_bytes": declared.max_payload_bytes,
        "max_result_bytes": policy.max_result_bytes,
        "on_lost_lease": declared.on_lost_lease,
        "redact": list(declared.redact),
    }


def _limit(limit: DeclaredLimit) -> dict[str, Any]:
    said: dict[str, Any] = msgspec.to_builtins(limit)
    said.pop("climb_ms", None)
    return {**said, "climb": seconds(limit.climb_ms)} if limit.adaptive else said


def _retry(policy: Policy) -> dict[str, Any]:
    if policy.delays_ms is not None:
        return {"attempts": policy.attempts, "delays": [ms / 1000 for ms in policy.delays_ms]}
    return {
        "attempts": policy.attempts,
        "base": policy.base_ms / 1000,
        "factor": policy.factor,
        "cap": policy.cap_ms / 1000,
        "jitter": policy.jitter,
    }


def _breaker_key(declared: Declaration, rule: GateRule) -> str:
    """The name of its breaker; of one by key the template."""
    return declared.breaker_key or rule.key.removeprefix("breaker:")


def _breaker(declared: Declaration, rule: GateRule | None) -> dict[str, Any] | None:
    if rule is None or rule.breaker is None:
        return None
    breaker = rule.breaker
    return {
        "name": _breaker_key(declared, rule),
        "failures": breaker.failures,
        "within": breaker.within_ms / 1000,
        "cooldown": breaker.cooldown_ms / 1000,
        "probe_after": breaker.probe_after_ms / 1000,
        "rate": breaker.rate,
    }
