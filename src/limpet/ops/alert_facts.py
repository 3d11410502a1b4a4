"""Reads what alert rules look at: counts, workers, breakers; and, less often, budgets, schedules and the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from limpet.core.alerts.book import Sample
from limpet.core.alerts.conditions import Facts, Late, sampled
from limpet.core.alerts.decide import MOST_SUBJECTS
from limpet.core.alerts.rule import AlertRules
from limpet.core.errors import WrongContext
from limpet.core.gate import Gate, WorstFirst
from limpet.core.jobs.view import Counts, Finding
from limpet.ops.calendar import Calendar
from limpet.ops.scope_records import queues_of_schedules
from limpet.ops.tasks import rates
from limpet.ops.witness import changed_stores
from limpet.stores.asking import examined
from limpet.stores.base import Store


async def facts_of(store: Store, rules: AlertRules, samples: tuple[Sample, ...], now_ms: int, *, slow: bool) -> Facts:
    """What there is to see now; with `slow` also what is expensive to look at."""
    counts, sessions = await store.count(queues=True), tuple(await store.sessions())
    worst = await store.gates(worst_first=WorstFirst(MOST_SUBJECTS))
    facts = Facts(
        counts,
        sessions,
        tuple(gate for gate in worst if gate.breaker_open),
        tuple(rates(sessions, _queues(counts))),
        sampled(samples, counts, rules.of("depth_growing"), now_ms),
        any(gate.paused is not None for gate in await store.gates(keys=["all"])),
    )
    if not slow:
        return facts
    return replace(
        facts,
        budgets=await _budgets(store, rules),
        late=tuple(await _late(store, now_ms)),
        findings=(*await _findings(store), *changed_stores(sessions)),
    )


def _queues(counts: Counts) -> Mapping[str, str]:
    """The queue of each task whose jobs are in one queue."""
    found: dict[str, set[str]] = {}
    for queue, task, _ in counts.now:
        found.setdefault(task, set()).add(queue)
    return {task: next(iter(queues)) for task, queues in found.items() if len(queues) == 1}


async def _budgets(store: Store, rules: AlertRules) -> tuple[Gate, ...] | None:
    if rules.of("budget") is None:
        return None
    return tuple(gate for gate in await store.gates("limit:") if gate.rule.cap is not None)


async def _late(store: Store, now_ms: int) -> list[Late]:
    calendar = await Calendar.read(store, now_ms)
    if not calendar.schedules:
        return []
    queues = await queues_of_schedules(store)
    return list(_late_ones(calendar, queues))


def _late_ones(calendar: Calendar, queues: Mapping[str, str]) -> Iterator[Late]:
    for schedule in calendar.schedules:
        late_ms = calendar.late_ms(schedule)
        if late_ms is not None:
            yield Late(schedule.name, late_ms, queues.get(schedule.name))


async def _findings(store: Store) -> list[Finding]:
    try:
        return await examined(store).check()
    except WrongContext:  # an engine of another author may not be able to
        return []
