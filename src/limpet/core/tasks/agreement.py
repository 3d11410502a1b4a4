"""Decides whether tasks agree about the limits, budgets and breakers that they share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from typing import NamedTuple

from msgspec.structs import replace

from limpet.core.errors import InvalidTask
from limpet.core.gate import GateRule
from limpet.core.limits.budget import Budget
from limpet.core.limits.limit import Breaker, Limit
from limpet.core.tasks.task import TaskSpec


class Said(NamedTuple):
    """What a task says of a gate, or of all gates that one template may fill."""

    task: str
    rule: GateRule
    by: Limit | Budget | Breaker


class Disagreement(NamedTuple):
    """Two tasks (or one, twice) declare one gate differently: the newest enqueue would decide."""

    first: Said
    other: Said

    def __str__(self) -> str:
        kind, _, key = self.other.rule.key.partition(":")
        who = f"tasks {self.first.task!r} and {self.other.task!r} share"
        if self.first.task == self.other.task:
            who = f"jobs of {self.other.task!r} may share"
        first, other = _words(self.first.by, self.other.by), _words(self.other.by, self.first.by)
        return f"{who} the {kind} {key!r} and declare it differently: {first}, and {other}"


def disagreements(specs: Iterable[TaskSpec]) -> Iterator[Disagreement]:
    """Every gate that is declared in two ways, with the first of them and each other one."""
    known: dict[str, Said] = {}
    for spec in specs:
        for said in _said_by(spec):
            first = known.setdefault(said.rule.key, said)
            if first.rule != said.rule:
                yield Disagreement(first, said)


def check_agreement(spec: TaskSpec, others: Iterable[TaskSpec]) -> None:
    """Refuse a task that says something else of a gate than another task does."""
    for found in disagreements((*others, spec)):
        kind = type(found.other.by).__name__
        name = "names" if isinstance(found.other.by, Breaker) else "keys"
        raise InvalidTask(str(found), fix=f"make one {kind}(...) and pass it to both, or give them different {name}")


def _said_by(spec: TaskSpec) -> Iterator[Said]:
    for ceiling in spec.ceilings:
        for rule in ceiling.rules(ceiling.template.shape(spec.scope)):
            yield Said(spec.name, rule, ceiling)
    if spec.breaker is not None:
        rule, template = spec.breaker.rule(spec.scope), spec.breaker.template
        yield Said(spec.name, rule, spec.breaker)
        if spec.breaker.keyed and template is not None:
            yield Said(spec.name, replace(rule, key=f"breaker:{template.shape(spec.scope)}"), spec.breaker)


def _words(one: Limit | Budget | Breaker, beside: object) -> str:
    """As it may be written: what is as usual is left out, unless the other one says something else."""
    words = []
    for field in fields(one):
        value = getattr(one, field.name)
        usual = field.default if field.default_factory is MISSING else field.default_factory()
        if field.init and (value != usual or value != getattr(beside, field.name, value)):
            words.append(f"{value!r}" if field.name in ("key", "name") else f"{field.name}={value!r}")
    return f"{type(one).__name__}({', '.join(words)})"
