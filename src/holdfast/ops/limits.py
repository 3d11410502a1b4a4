"""Decides which gate an operator's limit means and what its rule becomes."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core.errors import InvalidOption
from holdfast.core.gate import Gate, GateChange, GateRule
from holdfast.core.limit import parse_rate
from holdfast.ops.declared import declared_rule
from holdfast.stores.base import Store


class LimitChange:
    """What an operator asks of a limit: a rate such as "10/m", a burst, a ceiling of jobs at once."""

    def __init__(self, *, rate: str | None = None, burst: int | None = None, concurrency: int | None = None) -> None:
        if rate is None and concurrency is None:
            raise InvalidOption("a limit needs a rate or a concurrency", fix='such as rate="10/m" or concurrency=20')
        if burst is not None and rate is None:
            raise InvalidOption("a burst needs a rate", fix='such as rate="10/m"')
        self.rate, self.burst, self.concurrency = rate, burst, concurrency

    def facts(self) -> dict[str, object]:
        """What the audit log keeps."""
        return {"rate": self.rate, "burst": self.burst, "concurrency": self.concurrency}


def limit_gate_key(key: str) -> str:
    """The gate that a limit's name means: queues and tasks may have ceilings too, anything else is a limit key."""
    kind, _, name = key.partition(":")
    return key if name and kind in ("queue", "task", "limit") else f"limit:{key}"


def breaker_gate_key(name: str) -> str:
    """The gate that a breaker's name means: limits and tasks open as breakers do when no money is left there."""
    kind, _, rest = name.partition(":")
    return name if rest and kind in ("breaker", "limit", "task", "queue") else f"breaker:{name}"


async def gate_of(store: Store, key: str) -> Gate | None:
    """The gate with exactly this key."""
    return next((gate for gate in await store.gates(key) if gate.key == key), None)


async def limit_rule(store: Store, gate_key: str, change: LimitChange) -> GateRule:
    """The gate's rule with the operator's numbers in place of its own."""
    found = await gate_of(store, gate_key)
    rule = found.rule if found is not None else GateRule(gate_key)
    if change.rate is not None:
        count, interval_us = parse_rate(change.rate)
        rule = replace(rule, interval_us=interval_us, burst=change.burst or count)
    return rule if change.concurrency is None else replace(rule, concurrency=change.concurrency)


async def cleared(store: Store, gate_key: str) -> GateChange:
    """The change that gives a gate back to the code's declaration, or to no limit when none is published."""
    found = await gate_of(store, gate_key)
    blank = GateRule(gate_key, breaker=found.rule.breaker if found is not None else None)
    return GateChange(gate_key, rule=await declared_rule(store, gate_key) or blank, declared=True, clear=True)
