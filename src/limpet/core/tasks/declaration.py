"""Decides what a task says about itself to programs that do not have its code, and what they make of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace as replace_record

from limpet.core.errors import InvalidOption
from limpet.core.gate import GateRule
from limpet.core.jobs.job import PRIORITIES, OnDuplicate, Policy
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Control
from limpet.core.limits.budget import Budget, Over
from limpet.core.limits.limit import Breaker, DeclaredLimit
from limpet.core.limits.period import Period
from limpet.core.limits.unit import ONE, Cost
from limpet.core.redaction.rule import parse_rules
from limpet.core.tasks.agent_type import AgentType, TypeSource
from limpet.core.tasks.codec import MAX_BYTES
from limpet.core.tasks.declare import OnLostLease
from limpet.core.tasks.queue import Queue
from limpet.core.tasks.task import TaskSpec
from limpet.core.tasks.template import Template

KIND: Final = "task"


class DeclaredBudget(Struct, frozen=True, omit_defaults=True):
    """A budget as it was written; amounts as text, exact."""

    key: str
    caps: dict[str, str]
    per: Period = "day"
    over: Over = "wait"

    @classmethod
    def of(cls, budget: Budget) -> DeclaredBudget:
        caps = {unit: str(getattr(budget, unit)) for unit, _ in budget.caps}
        return cls(budget.key, caps, budget.per, budget.over)

    def budget(self) -> Budget:
        caps: dict[str, Any] = {unit: Decimal(cap) for unit, cap in self.caps.items()}
        return Budget(self.key, **caps, per=self.per, over=self.over)


class Declaration(Struct, frozen=True, omit_defaults=True):
    """One task as its code declares it. Unknown fields are ignored: a newer release may say more."""

    name: str
    aliases: tuple[str, ...] = ()
    alias_of: str | None = None  # it stands for a task of another name today
    queue: str = "default"
    priority: int = PRIORITIES["normal"]
    executor: str = "async"
    policy: Policy = Policy()
    tenant: str | None = None  # the parameter that names it; None also when a function does
    limits: tuple[DeclaredLimit, ...] = ()
    budgets: tuple[DeclaredBudget, ...] = ()
    breaker: GateRule | None = None
    breaker_key: str | None = None  # its template, where the name differs from job to job
    ceiling: GateRule | None = None  # of its queue as a whole
    needs: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    unique: bool = False
    unique_key: str | bool | None = None  # a template, or True for the content; None when a function makes it
    unique_for_ms: int | None = None
    unique_states: tuple[str, ...] | None = None
    on_duplicate: OnDuplicate = "existing"
    cost: int = 1
    costs: dict[str, int] = {}  # of other units, as they are stored
    cost_in_code: bool = False  # a function says it, and something counts it
    max_payload_bytes: int = MAX_BYTES
    on_lost_lease: OnLostLease | None = None
    redact: tuple[str, ...] = ()  # what no face may show of its jobs; read where a job is shown: see core/redaction
    schema: dict[str, Any] = {}
    type: TypeSource | None = None  # there is no code: agents do its jobs

    @classmethod
    def of(cls, spec: TaskSpec) -> Declaration:
        """What `spec` can say in JSON; functions (of a tenant, a key, a cost) stay with the code."""
        cost = spec.cost if isinstance(spec.cost, Cost) else ONE
        states = None if spec.unique_states is None else tuple(sorted(state.value for state in spec.unique_states))
        return cls(
            name=spec.name,
            aliases=spec.aliases,
            alias_of=spec.alias_of,
            queue=spec.queue,
            priority=spec.priority,
            executor=spec.executor,
            policy=spec.policy,
            tenant=spec.tenant if isinstance(spec.tenant, str) else None,
            limits=tuple(map(DeclaredLimit.of, spec.limits)),
            budgets=tuple(map(DeclaredBudget.of, spec.budgets)),
            breaker=None if spec.breaker is None else spec.breaker.rule(spec.scope),
            breaker_key=spec.breaker.name if spec.breaker is not None and spec.breaker.keyed else None,
            ceiling=None if (queue := spec.queues.get(spec.queue)) is None else queue.rule,
            needs=spec.needs,
            tags=spec.tags,
            unique=spec.unique is not None,
            unique_key=spec.unique if isinstance(spec.unique, str | bool) else None,
            unique_for_ms=spec.unique_for_ms,
            unique_states=states,
            on_duplicate=spec.on_duplicate,
            cost=cost.plain,
            costs=cost.units,
            cost_in_code=bool(spec.ceilings) and not isinstance(spec.cost, Cost),
            max_payload_bytes=spec.max_payload_bytes,
            on_lost_lease=spec.on_lost_lease,
            redact=tuple(dict.fromkeys(rule.text for rule in spec.own_rules)),
            schema=spec.signature.schema(),
        )

    @classmethod
    def of_type(cls, name: str, source: TypeSource, where: str = "") -> Declaration:
        """What a type says; a table that makes no sense is refused by name."""
        found = AgentType(name, source.table(), where)
        found.check()
        return replace_record(cls.of(found.spec), type=source)

    def agent_type(self) -> AgentType | None:
        """The type that this is; None for a task with code."""
        return None if self.type is None else AgentType(self.name, self.type.table())

    def control(self) -> Control:
        """The record that a store keeps."""
        return Control(KIND, self.name, msgspec.json.encode(self, order="deterministic"))

    def spec(self) -> TaskSpec:
        """The task as far as it is known here: any JSON object fits, and jobs queue and fail as declared.

        A type is known as a whole.
        """
        if (found := self.agent_type()) is not None:
            return found.spec
        return replace(
            TaskSpec.named(self.name, queue=self.queue),
            aliases=self.aliases,
            alias_of=self.alias_of,
            priority=self.priority,
            policy=self.policy,
            tenant=self.tenant,
            limits=tuple(one.limit() for one in self.limits),
            budgets=tuple(one.budget() for one in self.budgets),
            breaker=_breaker(self.breaker, self.breaker_key),
            queues={} if self.ceiling is None else {self.queue: Queue.published(self.ceiling)},
            needs=self.needs,
            tags=self.tags,
            unique=self.unique_key,
            unique_for_ms=self.unique_for_ms,
            unique_states=None if self.unique_states is None else frozenset(map(State, self.unique_states)),
            on_duplicate=self.on_duplicate,
            cost=None if self.cost_in_code else Cost(self.cost, self.costs),
            max_payload_bytes=self.max_payload_bytes,
            redact=parse_rules(self.redact),
        )

    @property
    def scope(self) -> str:
        """The name by which the gates of all its names go."""
        return self.aliases[0] if self.aliases else self.name

    def stops_alone(self, ones: Collection[str]) -> bool:
        """Whether its handlers must not run beside another, where these gates let one job through at a time."""
        if self.on_lost_lease is not None:
            return self.on_lost_lease == "stop"
        keys = [f"queue:{self.queue}", f"task:{self.scope}", "all", *(rule.key for rule in self.constant_rules())]
        return any(limit.concurrency == 1 for limit in self.limits) or not {*ones}.isdisjoint(keys)

    def breaker_rule(self, gate: str) -> GateRule | None:
        """What it says of this breaker: its own, or one by a key that its template may make."""
        if self.breaker is None or gate == self.breaker.key:
            return self.breaker
        kind, _, key = gate.partition(":")
        if self.breaker_key is None or kind != "breaker" or not Template(self.breaker_key).made(key):
            return None
        return replace_record(self.breaker, key=gate)

    def constant_rules(self) -> Iterator[GateRule]:
        """The gates whose keys are the same for every job of the task."""
        for ceiling in self.spec().ceilings:
            if ceiling.template.constant:
                yield from ceiling.rules(ceiling.template.fill({"task": self.scope}))
        yield from (rule for rule in (self.breaker, self.ceiling) if rule is not None)


def read_declaration(control: Control) -> Declaration | None:
    """The declaration in a stored record; None when another release wrote one that cannot be read here."""
    try:
        found = msgspec.json.decode(control.value, type=Declaration)
        found.agent_type()
        return found
    except (msgspec.MsgspecError, InvalidOption):
        return None


def _breaker(gate: GateRule | None, template: str | None) -> Breaker | None:
    if gate is None or gate.breaker is None:
        return None
    constant = gate.key.removeprefix("breaker:").replace("{", "{{").replace("}", "}}")
    return Breaker.published(template or constant, gate.breaker)
