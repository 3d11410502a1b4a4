"""Reads what a store knows, as metrics: depths, ages, dead letters, schedules, breakers, limits, budgets, alerts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from limpet.core.gate import Gate
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Counts, QueueView
from limpet.core.metrics.family import MOST, OTHER, Value, sample
from limpet.core.records.alert import AlertRecord
from limpet.core.records.limit import BreakerRecord, LimitRecord
from limpet.core.schedules.schedule import Schedule
from limpet.ops.alerts import Alerts
from limpet.ops.calendar import Calendar
from limpet.ops.gates import Gates
from limpet.stores.base import Store

STATES: Final = (State.blocked, State.scheduled, State.ready, State.running, State.dead)
_OPEN: Final = {"closed": 0.0, "half-open": 0.5, "open": 1.0}


async def store_metrics(store: Store, *, now_ms: int | None = None) -> list[Value]:
    """Everything that is known now, of 200 queues, tasks, schedules, breakers and limits each; a few looks at it."""
    now_ms = await store.now() if now_ms is None else now_ms
    gates = Gates(store, "metrics", None)
    counts = await store.count(queues=True)
    return [
        *_of_queues(counts.queues, now_ms),
        *_of_counters(counts),
        sample("limpet_workers", len(await store.sessions())),
        *_of_schedules(await Calendar.read(store, now_ms)),
        *_of_breakers((await gates.breakers(limit=MOST)).breakers, now_ms),
        *_of_limits(await gates.limits(), now_ms),
        *_of_alerts(await Alerts(store, "metrics").list(resolved=False)),
    ]


def _of_queues(views: Iterable[QueueView], now_ms: int) -> Iterator[Value]:
    """The busiest stand alone; of the others jobs are summed, and the oldest of all is told."""
    busiest = sorted(views, key=lambda view: (-sum(view.counts.get(state, 0) for state in STATES), view.queue))
    jobs: Counter[tuple[str, str]] = Counter()
    oldest_ms: dict[str, int] = {}
    for position, view in enumerate(busiest):
        name = view.queue if position < MOST else OTHER
        for state in STATES:
            jobs[name, state.value] += view.counts.get(state, 0)
        age_ms = 0 if view.oldest_ready_at_ms is None else max(0, now_ms - view.oldest_ready_at_ms)
        oldest_ms[name] = max(age_ms, oldest_ms.get(name, 0))
        if position < MOST:
            yield sample("limpet_queue_paused", view.gate is not None and view.gate.paused is not None, name)
    for (queue, state_name), count in jobs.items():
        yield sample("limpet_queue_jobs", count, queue, state_name)
    for queue, age_ms in oldest_ms.items():
        yield sample("limpet_queue_oldest_ready_seconds", age_ms / 1000, queue)


def _of_counters(counts: Counts) -> Iterator[Value]:
    dead = {key[:2]: count for key, count in counts.now.items() if key[2] is State.dead and count}
    rest = 0
    for position, (key, count) in enumerate(sorted(dead.items(), key=lambda each: (-each[1], each[0]))):
        if position < MOST:
            yield sample("limpet_dead_jobs", count, *key)
        else:
            rest += count
    if rest:
        yield sample("limpet_dead_jobs", rest, OTHER, OTHER)
    if not counts.whole:
        return  # asked for some queues: what has left the store is not known
    yield sample("limpet_store_enqueued", counts.enqueued)
    for state in ("succeeded", "cancelled", "discarded"):
        yield sample("limpet_store_finished", getattr(counts, state), state)
    yield sample("limpet_store_leases_lost", counts.lost)
    yield sample("limpet_store_ends_refused", counts.stale)


def _of_schedules(calendar: Calendar) -> Iterator[Value]:
    late = [(calendar.late_ms(each) or 0, each.name) for each in calendar.found.values() if isinstance(each, Schedule)]
    for late_ms, name in sorted(late, key=lambda each: (-each[0], each[1]))[:MOST]:
        yield sample("limpet_schedule_lag_seconds", late_ms / 1000, name)


def _of_breakers(gates: Iterable[Gate], now_ms: int) -> Iterator[Value]:
    for record in [BreakerRecord.of(gate, now_ms) for gate in gates][:MOST]:
        yield sample("limpet_breaker_open", _OPEN[record.state], record.breaker)


def _of_limits(gates: Iterable[Gate], now_ms: int) -> Iterator[Value]:
    """Of many keys those with the least room."""
    records = [LimitRecord.of(gate, now_ms) for gate in gates]
    limits = [record for record in records if record.budget is None and record.free is not None]
    for record in sorted(limits, key=lambda each: (each.free or 0, each.key))[:MOST]:
        yield sample("limpet_limit_free", record.free or 0, record.key)
        yield sample("limpet_limit_used", record.used, record.key)
    spent = [(record.budget.spent / (record.budget.cap or 1), record) for record in records if record.budget]
    for ratio, record in sorted(spent, key=lambda each: (-each[0], each[1].key))[:MOST]:
        yield sample("limpet_budget_spent_ratio", round(ratio, 6), record.key, record.unit)


def _of_alerts(alerts: Iterable[AlertRecord]) -> Iterator[Value]:
    firing = Counter(alert.rule for alert in alerts if alert.state == "firing")
    for rule, count in sorted(firing.items()):
        yield sample("limpet_alerts_firing", count, rule)
