"""Decides what of a type is public: what agents do, what it takes and must answer, and who said so."""

from __future__ import annotations

from typing import Any, Literal

from limpet.core.records.record import Record, seconds
from limpet.core.tasks.agent_type import AgentType, TypeSource


class TypeRecord(Record, frozen=True, kw_only=True):
    """A task without code, whose jobs agents do."""

    type: str
    description: str
    queue: str
    priority: int
    capabilities: tuple[str, ...]  # that an agent must have
    lease_s: float
    timeout_s: float | None
    retry: dict[str, Any]
    breaker: dict[str, Any] | None
    limits: tuple[dict[str, Any], ...]
    budgets: tuple[dict[str, Any], ...]
    arguments: dict[str, Any] | bool  # the contract of the arguments, as JSON Schema
    result: dict[str, Any] | bool  # and that of the result
    set_by: dict[str, Literal["file", "operator"]]  # by key; what is left out is as it is for all types

    @classmethod
    def of(cls, found: AgentType, source: TypeSource) -> TypeRecord:
        """The public face of a type."""
        spec, known = found.spec, found.known
        policy = spec.policy
        rule = None if spec.breaker is None else spec.breaker.rule(spec.scope).breaker
        return cls(
            type=found.name,
            description=found.table.description,
            queue=spec.queue,
            priority=spec.priority,
            capabilities=spec.needs,
            lease_s=found.lease_ms / 1000,
            timeout_s=seconds(policy.timeout_ms),
            retry={
                "attempts": policy.attempts,
                "base": policy.base_ms / 1000,
                "factor": policy.factor,
                "cap": policy.cap_ms / 1000,
                "jitter": policy.jitter,
            },
            breaker=None
            if rule is None
            else {
                "failures": rule.failures,
                "within": rule.within_ms / 1000,
                "cooldown": rule.cooldown_ms / 1000,
                "probe_after": rule.probe_after_ms / 1000,
            },
            limits=tuple(known.get("limits", ())),
            budgets=tuple(known.get("budgets", ())),
            arguments=found.table.arguments,
            result=found.table.result,
            set_by={key: "operator" if key in source.set else "file" for key in source.table()},
        )


class TypeChange(TypeRecord, frozen=True, kw_only=True):
    """A type after a change."""

    changed: tuple[str, ...]  # keys; none: it was so already
