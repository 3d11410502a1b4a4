"""Decides in which lane a call of a task queues, and which gates that names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from limpet.core.errors import InvalidArguments, InvalidOption
from limpet.core.gate import GateRule
from limpet.core.jobs.job import Lane
from limpet.core.jobs.options import Options
from limpet.core.limits.budget import Budget, base_of
from limpet.core.limits.limit import Limit
from limpet.core.tasks.template import checked_key

if TYPE_CHECKING:
    from limpet.core.tasks.task import TaskSpec

CACHED: Final = 10_000  # lanes remembered per task; a tenant's key is hashed once, not once per job


def lane_of(spec: TaskSpec, values: Mapping[str, Any], options: Options) -> tuple[Lane, tuple[GateRule, ...]]:
    """The lane of one call, and the gates that it names; those of earlier calls are remembered with the task."""
    queue = options.queue or spec.queue
    priority = spec.priority if options.priority is None else options.priority
    tenant = _tenant(spec, values) if options.tenant is None else options.tenant
    keys: tuple[str, ...] = ()
    breaker_key = None
    ceilings, breaker = spec.ceilings, spec.breaker
    keyed = breaker is not None and breaker.keyed
    if ceilings or keyed:
        places = {"task": spec.scope, "queue": queue, "tenant": tenant}
        seen = {**places, **spec.signature.defaults, **values}
        keys = tuple(ceiling.template.fill(seen) for ceiling in ceilings)
        breaker_key = breaker.filled(spec.scope, seen) if breaker is not None and keyed else None
    known = (queue, priority, tenant, options.needs, keys, breaker_key)
    found = spec.lanes.get(known)
    if found is None:
        if len(spec.lanes) >= CACHED:
            spec.lanes.clear()
        found = spec.lanes[known] = new_lane(spec, queue, priority, tenant, options.needs, keys, breaker_key)
    return found


def new_lane(
    spec: TaskSpec,
    queue: str,
    priority: int,
    tenant: str | None,
    needs: tuple[str, ...],
    keys: tuple[str, ...],
    breaker_key: str | None = None,
) -> tuple[Lane, tuple[GateRule, ...]]:
    """The lane with these keys of the task's limits and budgets, in their order, and of its breaker."""
    rules: list[GateRule] = []
    fixed: list[str] = []
    keyed: list[str] = []
    # Constant keys first: one that is filled like them stops the whole class already.
    for ceiling, key in sorted(zip(spec.ceilings, keys, strict=True), key=lambda each: not each[0].template.constant):
        new = _new_rules(spec, ceiling, key, rules)
        rules += new
        (fixed if ceiling.template.constant else keyed).extend(rule.key.removeprefix("limit:") for rule in new)
    declared = spec.queues.get(queue)
    if declared is not None and declared.rule is not None:
        rules.append(declared.rule)
    breaker = None
    if spec.breaker is not None:
        breaker = spec.breaker.key(spec.scope)
        rules.append(spec.breaker.rule(spec.scope))
    lane = Lane(
        queue=queue,
        task=spec.name,
        priority=priority,
        tenant=tenant,
        needs=tuple(sorted({*spec.needs, *needs})),
        limits=tuple(fixed),
        keys=tuple(keyed),
        breaker=breaker,
        scope=None if spec.scope == spec.name else spec.scope,
        breaker_key=breaker_key,
    )
    return lane, tuple(rules)


def _new_rules(spec: TaskSpec, ceiling: Limit | Budget, key: str, known: Iterable[GateRule]) -> list[GateRule]:
    """The gates of a limit or budget that a lane does not have yet: at keys that are filled alike a job counts once."""
    before = {rule.key: rule for rule in known}
    rules = ceiling.rules(key)
    if base_of(key)[0] and not base_of(ceiling.key)[0]:
        raise InvalidArguments(
            f"the key {ceiling.key!r} of {spec.name!r} becomes {key!r} here, "
            "which is how buckets and budgets are called",
            fix=f'begin the template with a word of its own, such as "k:{ceiling.key}"',
        )
    for rule in rules:
        if before.get(rule.key, rule) != rule:
            raise InvalidArguments(
                f"two limits of {spec.name!r} have the key {key!r} here, and say different things of it",
                fix="let their templates begin with different words",
            )
    return [rule for rule in rules if rule.key not in before]


def _tenant(spec: TaskSpec, values: Mapping[str, Any]) -> str | None:
    chosen = spec.tenant
    if chosen is None:
        return None
    if isinstance(chosen, str):
        value = values.get(chosen, spec.signature.defaults.get(chosen))
        return None if value is None else spec.templates["tenant"].fill({chosen: value})
    said = chosen(values)
    if said is not None and not isinstance(said, str):
        raise InvalidOption(f"tenant= of {spec.name!r} answered {said!r}", fix="let it answer text or None")
    return None if said is None else checked_key(said, what="the tenant")
