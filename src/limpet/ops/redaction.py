"""Reads what is hidden in a namespace, and keeps the rules that people add."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from limpet.core.records.redaction import RuleRecord
from limpet.core.redaction.published import KIND, PublishedRule, read_rules, redaction_from
from limpet.core.redaction.redaction import Redaction
from limpet.core.redaction.rule import parse_rule
from limpet.core.tasks.naming import checked_name, did_you_mean
from limpet.ops.bulk import Decision
from limpet.ops.names import UnknownName
from limpet.ops.scope import foreign_tasks
from limpet.stores.base import Store


async def redaction_of(store: Store) -> Redaction:
    """What no face may show in this namespace."""
    return redaction_from(await store.controls(KIND))


class Redactions:
    """The rules of a namespace, in the name of `actor`; every change leaves a line in the audit log."""

    def __init__(self, store: Store, actor: str, clock: Callable[[], int] | None = None) -> None:
        self._store = store
        self._actor = actor
        self._clock = clock

    async def list(self) -> tuple[RuleRecord, ...]:
        """Every rule, those for all tasks first; of tasks of other queues none, to a caller for some queues."""
        found, others = read_rules(await self._store.controls(KIND)).values(), await foreign_tasks(self._store)
        return tuple(RuleRecord.of(one) for one in found if not one.removed and one.task not in others)

    async def add(self, rule: str, *, task: str = "", reason: str = "") -> RuleRecord:
        """Hide what fits the rule, of the jobs of one task or of all: stored jobs, too, from the next look on."""
        parse_rule(rule)
        task = checked_name(task, what="task") if task else ""
        one = PublishedRule(rule, task, by=self._actor, at_ms=await self._now_ms())
        known = read_rules(await self._store.controls(KIND)).get(one.name)
        if known is None or known.removed:
            await self._store.put_control(one.control())
            await self._log("add", one, reason)
        return RuleRecord.of(one if known is None or known.removed else known)

    async def remove(self, rule: str, *, task: str = "", reason: str = "") -> RuleRecord:
        """Show again what the rule hid. A program whose code declares it adds it again when it starts."""
        known = {name: one for name, one in read_rules(await self._store.controls(KIND)).items() if not one.removed}
        one = known.get(PublishedRule(rule, task).name)
        if one is None:
            here = {each.rule for each in known.values() if each.task == task}
            where = f" of task {task!r}" if task else ""
            raise UnknownName(f"there is no rule {rule!r:.80}{where}", fix=did_you_mean(rule, here))
        await self._store.put_control(replace(one, removed=True).control())
        await self._log("remove", one, reason)
        return RuleRecord.of(one)

    async def _log(self, verb: str, one: PublishedRule, reason: str) -> None:
        facts: dict[str, object] = {"rule": one.rule, **({"task": one.task} if one.task else {})}
        decision = Decision(f"redaction.{verb}", self._actor, reason, facts)
        await self._store.append([decision.entry(None if self._clock is None else self._clock())])

    async def _now_ms(self) -> int:
        return await self._store.now() if self._clock is None else self._clock()
