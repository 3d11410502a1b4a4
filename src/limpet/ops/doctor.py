"""Decides what deserves a person's attention: the engine, who serves the queues, what is stuck, what code declares."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from limpet.core.alerts.book import read_book
from limpet.core.alerts.conditions import SYSTEM_QUEUES
from limpet.core.alerts.rule import KIND as ALERT
from limpet.core.alerts.rule import read_rules
from limpet.core.endings.hook import QUEUE as HOOKS
from limpet.core.gate import FOREVER_MS, Gate
from limpet.core.jobs.lease import SessionView
from limpet.core.jobs.state import WAITING, State
from limpet.core.jobs.view import Counts, Finding, JobView, Query, QueueView
from limpet.core.limits.account import Account
from limpet.core.limits.budget import base_of, raising
from limpet.core.limits.unit import amount_text, amount_typed, public_unit
from limpet.core.records.worker import WorkerRecord
from limpet.core.settings import ServerTable
from limpet.core.tasks.declaration import Declaration
from limpet.core.text.duration import iso, text_of_ms
from limpet.ops import hooks
from limpet.ops.alert_findings import alert_findings
from limpet.ops.blocked_loop import blocked_findings
from limpet.ops.calendar import Calendar
from limpet.ops.checklist import review, reviewed
from limpet.ops.code import code_findings
from limpet.ops.declared import declared_tasks
from limpet.ops.gate_reasons import gate_name, gate_words, is_blocked, unblocking
from limpet.ops.repair import FIX, books
from limpet.ops.witness import changed_stores
from limpet.stores.asking import MOST_GATES, all_gates, examined
from limpet.stores.base import Features, Store

OLD_READY_MS: Final = 3_600_000  # an hour in ready means that something is missing or too small
SLOW_ENGINE_MS: Final = 250  # a claim and a settlement per job: at this pace nothing moves
MANY_BREAKERS: Final = 10  # then they are one finding
LOOKED_AT: Final = 1_000  # running jobs examined; enough to see a pattern, cheap on a full store


async def doctor(store: Store, *, now_ms: int, server: ServerTable | None = None) -> list[Finding]:
    """Every finding, worst first; what is in order is said too. `server` is what the settings here say of it."""
    started = time.perf_counter()
    counts = await store.count()
    took_ms = (time.perf_counter() - started) * 1000
    sessions = await store.sessions()
    accounts, gates = await examined(store).accounts(), list(await all_gates(store))
    published = await declared_tasks(store)
    tasks = [task for task in published if task.alias_of is None and task.queue != HOOKS]
    alerts, queued = await store.controls(ALERT), await store.count(queues=True)
    calendar = await Calendar.read(store, now_ms)
    running = await store.find(Query(states=frozenset({State.running}), limit=LOOKED_AT))
    findings = [
        *await examined(store).check(),
        *_engine(store.features, took_ms),
        *changed_stores(sessions),
        *_service(counts, sessions),
        *hooks.findings(await hooks.hooks(store), _known(published, sessions, counts)),
        *_leases(running.jobs, sessions, now_ms),
        *_places(sessions),
        *blocked_findings(sessions, now_ms),
        *code_findings(sessions),
        *_waits(queued.queues, now_ms),
        *_gates(gates, tasks, now_ms),
        *_dead(counts),
        *_conservation(counts),
        *await books(store, counts),
        *_accounts(accounts),
        *alert_findings(read_book(alerts).book, read_rules(alerts), queued, tuple(sessions), now_ms),
        *calendar.findings(),
        *review(await reviewed(store, tasks, gates, calendar, sessions, server)),
    ]
    order = {"error": 0, "warning": 1, "ok": 2}
    return sorted(findings, key=lambda finding: order[finding.level])


def _known(published: Iterable[Declaration], sessions: Iterable[SessionView], counts: Counts) -> set[str]:
    """The tasks that code has published, that live workers know, or that have jobs."""
    served = {task for session in sessions for task in session.serves.tasks or ()}
    return {task.name for task in published} | served | {task for _, task, _ in counts.now}


def _engine(features: Features, took_ms: float) -> Iterator[Finding]:
    for note in features.notes:
        yield Finding("ok", "engine_note", note)
    text = f"the {features.name} engine answers in {took_ms:.1f} ms"
    if took_ms > SLOW_ENGINE_MS:
        yield Finding("warning", "engine_slow", text, "look for load, a slow disk or a slow network")
    else:
        yield Finding("ok", "engine_speed", text)


def _service(counts: Counts, sessions: Sequence[SessionView]) -> Iterator[Finding]:
    """Who runs what waits."""
    waiting: Counter[tuple[str, str]] = Counter()
    for (queue, task, state), count in counts.now.items():
        if state in WAITING and count > 0:
            waiting[queue, task] += count
    if not sessions:
        total = sum(waiting.values())
        if total:
            fix = "start one: limpet worker MODULE:APP"
            yield Finding("error", "no_workers", f"no worker is alive, and jobs that wait: {total}", fix)
        else:
            yield Finding("ok", "no_workers", "no worker is alive, and no job waits")
        return
    yield Finding("ok", "workers", f"live workers and agents: {len(sessions)}")
    for session in sessions:
        if session.silent_ms is not None:
            text = f"the loop of worker {session.session} has not turned for {text_of_ms(session.silent_ms)}"
            fix = (
                "its log says where it stands, or that its process is stopped; a handler that blocks belongs into a "
                "thread: def instead of async def"
            )
            yield Finding("warning", "silent_worker", text, fix)
    for (queue, task), count in sorted(waiting.items()):
        if queue in SYSTEM_QUEUES or any(_may_run(session, queue, task) for session in sessions):
            continue
        jobs = f"{count} job{'s' if count > 1 else ''} of task {task} wait{'' if count > 1 else 's'} in queue {queue}"
        if any(session.serves.tasks is None or task in session.serves.tasks for session in sessions):
            text, fix = (
                f"{jobs}, and no live worker that knows it serves that queue",
                f"start one with --queues {queue}",
            )
            yield Finding("warning", "unserved_queue", text, fix)
        else:
            text, fix = f"{jobs}, and no live worker knows it", "deploy the code that has it, or cancel the jobs"
            yield Finding("warning", "unknown_task", text, fix)


def _may_run(session: SessionView, queue: str, task: str) -> bool:
    # Capabilities belong to single jobs; `explain` names the one that is missing.
    return session.serves.can(queue, task, ())


def _leases(running: Iterable[JobView], sessions: Sequence[SessionView], now_ms: int) -> Iterator[Finding]:
    live = {session.session for session in sessions}
    orphans: list[JobView] = []
    overdue: list[JobView] = []
    for view in running:
        if view.session not in live:
            orphans.append(view)
        hard_ms = view.policy.hard_timeout_ms
        if hard_ms is not None and view.claimed_at_ms is not None and now_ms - view.claimed_at_ms > hard_ms + 60_000:
            overdue.append(view)
    if orphans:
        fix = "they return by themselves once a worker runs: it sweeps every second"
        text = f"{len(orphans)} running jobs belong to workers that are gone"
        yield Finding("warning", "orphaned_leases", text, fix)
    if overdue:
        text = f"{len(overdue)} jobs run past their hard timeout"
        yield Finding("error", "stuck_leases", text, "cancel them with --force, and look at their workers")
    if not orphans and not overdue:
        yield Finding("ok", "leases", "every running job belongs to a live worker")


def _places(sessions: Sequence[SessionView]) -> Iterator[Finding]:
    for session in sessions:
        if stuck := WorkerRecord.of(session).stuck:
            text = f"{stuck} slots of worker {session.session} are taken by handlers or processes that do not end"
            fix = "a supervised worker restarts by itself; restart any other one, and give the hanging calls a timeout"
            yield Finding("warning", "lost_places", text, fix)


def _waits(queues: Iterable[QueueView], now_ms: int) -> Iterator[Finding]:
    for view in queues:
        if view.gate is not None and view.gate.paused is not None:
            continue  # said by its pause
        oldest = view.oldest_ready_at_ms
        if oldest is not None and now_ms - oldest > OLD_READY_MS:
            text = f"the oldest ready job of queue {view.queue} has waited {text_of_ms(now_ms - oldest)}"
            yield Finding("warning", "old_jobs", text, "explain one of them; add workers or raise a limit")


def _gates(gates: Sequence[Gate], tasks: Sequence[Declaration], now_ms: int) -> Iterator[Finding]:
    cut_off = [gate for gate in gates if gate.breaker_open and gate.key.startswith("breaker:")]
    if len(cut_off) > MANY_BREAKERS:
        some = ", ".join(gate.key.removeprefix("breaker:") for gate in cut_off[:3])
        count = f"{len(cut_off):,}" + (" or more" if len(cut_off) >= MOST_GATES else "")
        text = f"{count} breakers are open or half-open: {some} and others"
        yield Finding("warning", "breakers_open", text, "limpet breakers --open; " + _errors_behind(cut_off[0], tasks))
    else:
        yield from (_cut_off(gate, tasks, now_ms) for gate in cut_off)
    for gate in gates:
        what = gate_words(gate.key)
        if gate.paused is not None:
            why = f": {gate.paused.reason}" if gate.paused.reason else ""
            text = f"{what} is paused by {gate.paused.by or 'someone'} since {iso(gate.paused.at_ms)}{why}"
            yield Finding("warning", "paused", text, "limpet resume when the reason is gone")
        elif gate.draining:
            yield Finding("warning", "draining", f"{what} is draining and refuses new jobs", "limpet resume reopens it")
        if gate.open_until_ms and not gate.key.startswith("breaker:"):
            until = "until a job has probed it" if gate.open_until_ms <= now_ms else _until(gate)
            fix = f"pay or raise the quota, then: limpet breakers reset {gate.key}"
            yield Finding("error", "spent", f"no money or quota is left: {what} is shut {until}", fix)
        if is_blocked(gate, now_ms):
            yield _never_fits(gate)
        if gate.held_until_ms > now_ms:
            text = f"{what} is held until {iso(gate.held_until_ms)} (429 or Retry-After)"
            yield Finding("warning", "held", text, "the provider asked for it; lower the rate if it happens often")


def _until(gate: Gate) -> str:
    return "until it is reset" if gate.open_until_ms >= FOREVER_MS else f"until {iso(gate.open_until_ms)}"


def _cut_off(gate: Gate, tasks: Sequence[Declaration], now_ms: int) -> Finding:
    state = "half-open" if gate.open_until_ms <= now_ms else f"open {_until(gate)}"
    return Finding("warning", "breaker_open", f"{gate_words(gate.key)} is {state}", _errors_behind(gate, tasks))


def _errors_behind(gate: Gate, tasks: Sequence[Declaration]) -> str:
    """Where the failures that opened a breaker can be read: most of them will be retried and are not dead."""
    mine = [task.name for task in tasks if task.breaker_rule(gate.key) is not None]
    queries = [f"limpet jobs 'task:{name} error:*'" for name in mine or [gate.key.removeprefix("breaker:")]]
    return f"read the errors: {' or '.join(queries[:3])}; dead jobs: limpet dead causes"


def _never_fits(gate: Gate) -> Finding:
    rule, unit = gate.rule, public_unit(gate.rule.unit)
    whole = f"{amount_text(unit, rule.cap or 0)} a {rule.period}"
    needs = f"the first job in line needs {amount_text(unit, gate.reserved_for)}: it never fits"
    fix = f"raise it: {raising(rule, gate.reserved_for)}; or cancel the job, then: {unblocking(gate)}"
    return Finding("error", "never_fits", f"{gate_name(gate)} is {whole}, and {needs}", fix)


def _dead(counts: Counts) -> Iterator[Finding]:
    total = counts.total(State.dead)
    if not total:
        yield Finding("ok", "dead_letters", "the dead-letter queue is empty")
        return
    tasks = Counter[str]()
    for (_, task, state), count in counts.now.items():
        if state is State.dead:
            tasks[task] += count
    worst = ", ".join(f"{task} ({count})" for task, count in tasks.most_common(3))
    words = "1 dead job waits" if total == 1 else f"{total} dead jobs wait"
    yield Finding("warning", "dead_letters", f"{words} for a person: {worst}", "limpet dead causes")


def _conservation(counts: Counts) -> Iterator[Finding]:
    live = sum(count for (_, _, state), count in counts.now.items() if state in WAITING or state is State.running)
    known = live + counts.total(State.dead) + counts.succeeded + counts.cancelled + counts.discarded
    if known == counts.enqueued:
        yield Finding("ok", "conservation", f"all {counts.enqueued} jobs ever enqueued are accounted for")
    else:
        text = f"{counts.enqueued} jobs were enqueued and {known} are accounted for"
        yield Finding(
            "error", "conservation", text, f"a job may be lost or counted twice; {FIX} says which, and mends it"
        )


def _accounts(accounts: Sequence[Account]) -> Iterator[Finding]:
    faults = [finding for account in accounts for finding in _faults(account)]
    yield from faults
    if accounts and not faults:
        yield Finding("ok", "accounts", "every limit counts what running jobs hold of it")


def _faults(account: Account) -> Iterator[Finding]:
    """Where the count of a gate differs from what running jobs hold."""
    gate, rule, what = account.gate, account.gate.rule, gate_name(account.gate)
    key = gate.key.removeprefix("limit:")
    if account.leaked:
        text = f"{what} counts {gate.used} slots as taken, and running jobs hold {account.slots}"
        yield Finding("error", "slots", text, FIX)
    if account.uncounted and rule.cap is not None:
        unit = public_unit(rule.unit)
        counted, reserved = amount_text(unit, gate.spent), amount_text(unit, account.reserved)
        text = f"{what} counts {counted} as spent, and running jobs have reserved {reserved}"
        lower = amount_typed(unit, max(1, rule.cap - account.uncounted))
        fix = f"report this; until then: limpet limits set {base_of(key)[2]} --budget {unit}={lower}/{rule.period}"
        yield Finding("error", "reservations", text, fix)
    if account.stuck:
        text = f"{what} waits for a probe that does not run, and admits no job"
        yield Finding("error", "probe", text, FIX)
