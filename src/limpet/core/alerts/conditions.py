"""Decides which conditions hold, by the counts, workers and limits that a look has read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from limpet.core.alerts.book import Condition, Sample
from limpet.core.alerts.delivery import QUEUE as ALERTS
from limpet.core.alerts.rule import AlertRules, Rule, RuleName
from limpet.core.endings.hook import QUEUE as HOOKS
from limpet.core.gate import FOREVER_MS, Gate, budget_left
from limpet.core.jobs.lease import SessionView
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Counts, Finding, QueueView
from limpet.core.limits.budget import base_of
from limpet.core.limits.unit import amount_text, public_unit
from limpet.core.text.duration import iso, text_of_ms

SYSTEM_QUEUES: Final = frozenset({HOOKS, ALERTS})  # of them `doctor` tells, and no webhook
STEPS: Final = 3  # a depth grows when it is larger after each of these parts of the time
MOST_SAMPLED: Final = 200  # queues, the deepest ones


class Rate(Struct, frozen=True):
    """How the attempts of one task ended lately. The one place that says where such numbers come from is `ops`."""

    task: str
    queue: str | None
    attempts: int
    failed_share: float | None
    p95_ms: float | None


class Late(Struct, frozen=True):
    """A schedule with a tick that should have fired."""

    name: str
    late_ms: int
    queue: str | None


class Facts(Struct, frozen=True):
    """What a look has read. None: it was not looked at this time."""

    counts: Counts
    sessions: tuple[SessionView, ...]
    breakers: tuple[Gate, ...]
    rates: tuple[Rate, ...]
    samples: tuple[Sample, ...] = ()
    all_paused: bool = False  # a person has stopped everything
    budgets: tuple[Gate, ...] | None = None
    late: tuple[Late, ...] | None = None
    findings: tuple[Finding, ...] | None = None  # of the engine


def conditions(facts: Facts, rules: AlertRules, now_ms: int) -> dict[str, list[Condition]]:
    """What holds now, by rule; a rule that was not looked at is left out."""
    found: dict[str, list[Condition]] = {}
    for rule in rules.rules:
        look = _LOOKS.get(rule.name)
        each = None if look is None else look(facts, rule, now_ms)
        if each is not None:
            found[rule.name] = list(each)
    return found


def sampled(samples: Sequence[Sample], counts: Counts, rule: Rule | None, now_ms: int) -> tuple[Sample, ...]:
    """The depths that are remembered, with those of now when it is time: one for each part of the rule's time."""
    if rule is None:
        return ()
    part_ms = rule.within_ms // STEPS
    if samples and now_ms - samples[-1].at_ms < part_ms:
        return tuple(samples)
    deepest = sorted(_ready(counts).items(), key=lambda item: -item[1])[:MOST_SAMPLED]
    return (*samples[-STEPS:], Sample(now_ms, dict(deepest)))


def _over(rule: Rule, subject: str, number: float) -> bool:
    least = rule.number_of(subject)
    return least is not None and number >= least


def _dead_letters(facts: Facts, rule: Rule, now_ms: int) -> Iterator[Condition]:
    tasks: dict[str, Counter[str]] = {}
    for (queue, task, state), count in facts.counts.now.items():
        if state is State.dead and count > 0 and queue not in SYSTEM_QUEUES:
            tasks.setdefault(queue, Counter())[task] += count
    for queue, counted in sorted(tasks.items()):
        total = counted.total()
        if _over(rule, queue, total):
            worst = ", ".join(f"{task} ({count:,})" for task, count in counted.most_common(3))
            jobs = "1 dead job waits" if total == 1 else f"{total:,} dead jobs wait"
            yield Condition(rule.name, queue, f"{jobs} for a person in queue {queue}: {worst}", total, queue)


def _breaker_open(facts: Facts, rule: Rule, now_ms: int) -> Iterator[Condition]:
    for gate in facts.breakers:
        name = gate.key.removeprefix("breaker:")
        if gate.breaker_open and rule.number_of(name) is not None:
            yield Condition(rule.name, name, _breaker_text(gate, name, now_ms))


def _breaker_text(gate: Gate, name: str, now_ms: int) -> str:
    what = f"breaker {name}" if gate.key.startswith("breaker:") else f"{name}, as no money or quota is left,"
    if gate.open_until_ms >= FOREVER_MS:
        return f"{what} is open until it is reset"
    return f"{what} is half-open" if gate.open_until_ms <= now_ms else f"{what} is open until {iso(gate.open_until_ms)}"


def _oldest_ready(facts: Facts, rule: Rule, now_ms: int) -> Iterator[Condition]:
    paused = _paused(facts)
    for view in _queues(facts):
        if view.oldest_ready_at_ms is None or view.queue in paused:
            continue
        age_ms = max(0, now_ms - view.oldest_ready_at_ms)
        if _over(rule, view.queue, age_ms):
            text = f"the oldest ready job of queue {view.queue} has waited {text_of_ms(age_ms)}"
            yield Condition(rule.name, view.queue, text, age_ms, view.queue)


def _depth_growing(facts: Facts, rule: Rule, now_ms: int) -> Iterator[Condition] | None:
    """Looked at when a sample has just been taken."""
    samples = facts.samples[-STEPS - 1 :]
    if not samples or samples[-1].at_ms != now_ms:
        return None
    return _growing(samples, rule, _paused(facts)) if len(samples) > STEPS else iter(())


def _growing(samples: Sequence[Sample], rule: Rule, paused: Collection[str]) -> Iterator[Condition]:
    first, last = samples[0], samples[-1]
    for queue, depth in sorted(last.depths.items()):
        if queue in paused:
            continue
        depths = [sample.depths.get(queue, 0) for sample in samples]
        if _over(rule, queue, depth) and all(early < late for early, late in pairwise(depths)):
            ago = text_of_ms(last.at_ms - first.at_ms)
            text = f"queue {queue} has {depth:,} ready jobs, and had {depths[0]:,} {ago} ago"
            yield Condition(rule.name, queue, text, depth, queue)


def _failure_rate(facts: Facts, rule: Rule, now_ms: int) -> Iterator[Condition]:
    for rate in facts.rates:
        share = rate.failed_share
        if share is not None and rate.attempts >= rule.attempts and _over(rule, rate.task, share):
            text = f"{rule.told(share)} of {rate.attempts:,} attempts of {rate.task} failed in the last minute"
            yield Condition(rule.name, rate.task, text, share, rate.queue)


def _duration(facts: Facts, rule: Rule, now_ms: int) -> Iterator[Condition]:
    for rate in facts.rates:
        p95_ms = rate.p95_ms
        if p95_ms is not None and _over(rule, rate.task, p95_ms):
            allowed = rule.told(rule.number_of(rate.task))
            text = f"{rate.task} ran for {rule.told(p95_ms)} (p95 of the last minute), and may take {allowed}"
            yield Condition(rule.name, rate.task, text, p95_ms, rate.queue)


def _no_worker(facts: Facts, rule: Rule, now_ms: int) -> Iterator[Condition]:
    """Ready jobs that no live worker may take. Capabilities belong to single jobs: `explain` names them."""
    waiting: dict[str, Counter[str]] = {}
    for (queue, task, state), count in facts.counts.now.items():
        if state is not State.ready or count < 1 or queue in SYSTEM_QUEUES:
            continue
        if not any(session.serves.can(queue, task, ()) for session in facts.sessions):
            waiting.setdefault(task, Counter())[queue] += count
    for task, queues in sorted(waiting.items()):
        if rule.number_of(task) is not None:
            total, names = queues.total(), sorted(queues)
            jobs = "1 job" if total == 1 else f"{total:,} jobs"
            waits = "waits" if total == 1 else "wait"
            text = f"{jobs} of {task} {waits} in queue {', '.join(names)}, and no live worker runs it there"
            yield Condition(rule.name, task, text, total, names[0] if len(names) == 1 else None)


def _schedule_missed(facts: Facts, rule: Rule, now_ms: int) -> Iterator[Condition] | None:
    if facts.late is None:
        return None
    return (
        Condition(
            rule.name,
            one.name,
            f"schedule {one.name} should have fired {text_of_ms(one.late_ms)} ago, and did not",
            one.late_ms,
            one.queue,
        )
        for one in facts.late
        if _over(rule, one.name, one.late_ms)
    )


def _budget(facts: Facts, rule: Rule, now_ms: int) -> Iterator[Condition] | None:
    return None if facts.budgets is None else _budgets(facts.budgets, rule, now_ms)


def _budgets(budgets: Iterable[Gate], rule: Rule, now_ms: int) -> Iterator[Condition]:
    for gate in budgets:
        cap = gate.rule.cap
        if not cap:
            continue
        name = gate.key.removeprefix("limit:")
        spent = cap - budget_left(gate, now_ms)
        percent = 100 * spent / cap
        if _over(rule, name, percent):
            unit, period, base = base_of(name)
            whole, part = amount_text(public_unit(unit), cap), amount_text(public_unit(unit), spent)
            text = f"the budget {base!r} is at {rule.told(percent)}: {part} of {whole} a {period} is spent or reserved"
            yield Condition(rule.name, name, text, percent)


def _store(facts: Facts, rule: Rule, now_ms: int) -> Iterator[Condition] | None:
    if facts.findings is None:
        return None
    return (
        Condition(rule.name, finding.code, finding.text)
        for finding in facts.findings
        if finding.level != "ok" and rule.number_of(finding.code) is not None
    )


_Look = Callable[[Facts, Rule, int], Iterator[Condition] | None]
_LOOKS: Final[Mapping[RuleName, _Look]] = {
    "dead_letters": _dead_letters,
    "breaker_open": _breaker_open,
    "oldest_ready": _oldest_ready,
    "depth_growing": _depth_growing,
    "failure_rate": _failure_rate,
    "duration": _duration,
    "no_worker": _no_worker,
    "schedule_missed": _schedule_missed,
    "budget": _budget,
    "store": _store,
}


def _ready(counts: Counts) -> dict[str, int]:
    found: Counter[str] = Counter()
    for (queue, _, state), count in counts.now.items():
        if state is State.ready and queue not in SYSTEM_QUEUES:
            found[queue] += count
    return {queue: count for queue, count in found.items() if count > 0}


def _queues(facts: Facts) -> Collection[QueueView]:
    return [view for view in facts.counts.queues if view.queue not in SYSTEM_QUEUES]


def _paused(facts: Facts) -> frozenset[str]:
    """The queues that a person has paused, who knows that they wait and grow."""
    views = facts.counts.queues
    return frozenset(
        view.queue for view in views if facts.all_paused or (view.gate is not None and view.gate.paused is not None)
    )
