"""Decides which items of a reviewer's checklist are not kept, by what code, schedules, workers and settings declare.

The items, with the defaults that keep them, are in docs/explanation/checklist.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from limpet.core.access.loopback import is_loopback
from limpet.core.alerts.rule import KIND as ALERT
from limpet.core.alerts.rule import AlertRules, read_rules
from limpet.core.endings.hook import KIND as HOOK
from limpet.core.endings.hook import Hook, read_hook
from limpet.core.gate import Gate
from limpet.core.jobs.job import Policy
from limpet.core.jobs.lease import SessionView
from limpet.core.jobs.retention import DECLARED, SET, merged, said_in
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Finding
from limpet.core.schedules.policy import Overlap
from limpet.core.schedules.schedule import Schedule
from limpet.core.settings import ServerTable
from limpet.core.tasks.agreement import disagreements
from limpet.core.tasks.codec import MAX_BYTES
from limpet.core.tasks.declaration import Declaration
from limpet.core.text.duration import text_of_ms
from limpet.ops.calendar import Calendar
from limpet.stores.base import Store

MANY_ATTEMPTS: Final = 50  # with the default backoff more than four hours of trying
SOON_MS: Final = 7 * 86_400_000  # dead jobs that go before this may have been seen by no one
USUAL: Final = Policy()


class Reviewed(Struct, frozen=True):
    """What a reviewer looks at."""

    tasks: Sequence[Declaration]
    gates: Iterable[Gate]
    schedules: Sequence[Schedule]
    sessions: Sequence[SessionView]
    rules: AlertRules
    hooks: Sequence[Hook]
    kept: Mapping[str, Mapping[State, int | None]]  # by queue: how long finished jobs stay
    server: ServerTable | None = None  # of the settings here; None: not known


async def reviewed(
    store: Store,
    tasks: Sequence[Declaration],
    gates: Sequence[Gate],
    calendar: Calendar,
    sessions: Sequence[SessionView],
    server: ServerTable | None,
) -> Reviewed:
    """What a reviewer looks at."""
    published = [read_hook(control.value) for control in await store.controls(HOOK)]
    kept = merged(*[said_in(await store.controls(kind)) for kind in (DECLARED, SET)])
    return Reviewed(
        tasks=tasks,
        gates=gates,
        schedules=calendar.schedules,
        sessions=sessions,
        rules=read_rules(await store.controls(ALERT)),
        hooks=[hook for hook in published if hook is not None],
        kept=kept,
        server=server,
    )


def review(seen: Reviewed) -> Iterator[Finding]:
    """One finding for each item that is not kept; where all are, that is said."""
    broken = [finding for check in _CHECKS for finding in check(seen)]
    yield from broken
    yield from _notes(seen.tasks)
    if seen.tasks and not any(finding.level == "warning" for finding in broken):
        yield Finding("ok", "review", "all published tasks keep the checklist")


def _tasks(seen: Reviewed) -> Iterator[Finding]:
    """What the tasks' code declares."""
    tasks = seen.tasks
    checks = (
        (
            "review_timeout",
            "tasks without a timeout, whose hung calls hold a slot for ever",
            "set timeout=",
            [task for task in tasks if task.policy.timeout_ms is None],
        ),
        (
            "review_retries",
            f"tasks with more than {MANY_ATTEMPTS} attempts before a person is told",
            "lower Retry(attempts=)",
            [task for task in tasks if task.policy.attempts > MANY_ATTEMPTS],
        ),
        (
            "review_jitter",
            "tasks that retry without jitter, so that failed jobs come back at the same time",
            'use Retry(jitter="full")',
            [task for task in tasks if _lockstep(task)],
        ),
        (
            "review_payload",
            f"tasks whose arguments or results may be larger than {MAX_BYTES // 1024} KiB, each read with every claim",
            "store large content elsewhere and pass where it is",
            [
                task
                for task in tasks
                if task.max_payload_bytes > MAX_BYTES or task.policy.max_result_bytes > USUAL.max_result_bytes
            ],
        ),
        (
            "review_lost",
            "tasks with max_lost=1 that retry failures: a killed worker alone makes their jobs dead",
            "leave max_lost out; or say attempts=1 too, for at most once",
            [task for task in tasks if task.policy.max_lost == 1 and task.policy.attempts > 1],
        ),
    )
    for code, words, fix, found in checks:
        if found:
            yield Finding("warning", code, f"{words}: {_names(found)}", fix)
    for disagreement in disagreements(task.spec() for task in tasks):
        fix = "declare the same limit in all tasks: now the newest enqueue decides, again and again"
        yield Finding("warning", "review_limits", str(disagreement), fix)


def _threads(seen: Reviewed) -> Iterator[Finding]:
    """A thread cannot be stopped from outside, so its handler continues while its worker is cut off."""
    ones = {gate.key for gate in seen.gates if gate.rule.concurrency == 1}
    found = [task for task in seen.tasks if task.executor == "thread" and task.stops_alone(ones)]
    if found:
        text = f"thread tasks that must not run twice at the same time, and cannot be stopped: {_names(found)}"
        fix = 'make them async or executor="process"; or let them compare the token, and say on_lost_lease="go_on"'
        yield Finding("warning", "review_threads", text, fix)


def _overlap(seen: Reviewed) -> Iterator[Finding]:
    found = [schedule.name for schedule in seen.schedules if schedule.policy.overlap is Overlap.allow]
    if found:
        text = f'schedules with overlap="allow", whose runs pile up when one takes too long: {_some(found)}'
        yield Finding("warning", "review_overlap", text, 'use overlap="skip" or "queue_one"')


def _grace(seen: Reviewed) -> Iterator[Finding]:
    """Timeouts that code has set: one that was left at its default says nothing of how long a job runs."""
    graces = [(grace_ms, session) for session in seen.sessions if (grace_ms := _grace_of(session)) is not None]
    cut: dict[str, int] = {}
    for grace_ms, session in graces:
        for task in seen.tasks:
            timeout_ms = task.policy.timeout_ms
            if timeout_ms in (None, USUAL.timeout_ms) or not session.serves.can(task.queue, task.name, task.needs):
                continue
            if timeout_ms > grace_ms:
                cut[task.name] = min(grace_ms, cut.get(task.name, grace_ms))
    if cut:
        least = text_of_ms(min(cut.values()))
        text = (
            f"tasks whose timeout is longer than the grace of their workers ({least}), so that a deployment "
            f"interrupts their longest jobs and they begin again: {_some(sorted(cut))}"
        )
        fix = "limpet worker --grace TIME, and as long in what stops it; or durable steps"
        yield Finding("warning", "review_grace", text, fix)


class _Said(Struct, frozen=True):
    """What is read here of what a worker says about itself."""

    grace_ms: int | None = None


def _grace_of(session: SessionView) -> int | None:
    try:
        return msgspec.json.decode(session.info, type=_Said).grace_ms
    except msgspec.MsgspecError:
        return None  # an agent says what it likes


def _alerts(seen: Reviewed) -> Iterator[Finding]:
    rule = seen.rules.of("dead_letters")
    if rule is None or rule.number_of("") is None:
        text = "no alert rule watches the dead letters"
        yield Finding("warning", "review_alerts", text, "switch it on: [alerts.rules] dead_letters = true")
    elif seen.tasks and not _is_heard(seen):
        text = "dead letters are told to no one: there is neither a webhook for alerts nor a hook for deaths"
        yield Finding(
            "warning", "review_alerts", text, "name one in limpet.toml: [alerts.webhooks.NAME]; or @app.on_dead"
        )


def _is_heard(seen: Reviewed) -> bool:
    heard = any(ref.hears("dead_letters") for ref in seen.rules.webhooks)
    return heard or any(State.dead in hook.states and not (hook.tasks or hook.queues) for hook in seen.hooks)


def _kept(seen: Reviewed) -> Iterator[Finding]:
    found = {
        queue: dead_ms
        for queue, states in seen.kept.items()
        if (dead_ms := states.get(State.dead)) is not None and dead_ms < SOON_MS
    }
    if found:
        said = _some([f"{queue} ({text_of_ms(ms)})" for queue, ms in sorted(found.items())])
        text = f"queues whose dead jobs are removed within a week, seen by a person or not: {said}"
        yield Finding("warning", "review_dead_kept", text, "limpet retention set QUEUE --dead 90d, or forever")


def _bind(seen: Reviewed) -> Iterator[Finding]:
    server = seen.server
    if server is not None and not is_loopback(server.bind):
        text = f"limpet serve listens on {server.bind} by its settings, where other machines reach it: unencrypted"
        fix = 'put a proxy with TLS before it, or bind = "127.0.0.1"; give tokens a small role, queues, an expiry'
        yield Finding("warning", "public_bind", text, fix)


_CHECKS: Final = (_tasks, _threads, _overlap, _grace, _alerts, _kept, _bind)


def _notes(tasks: Sequence[Declaration]) -> Iterator[Finding]:
    """What is right in some applications and wrong in others: only their people know."""
    plain = [task for task in tasks if not task.unique]
    if plain:
        text = f"tasks without a unique key (fine where a repeat does no harm): {_names(plain)}"
        yield Finding("ok", "review_idempotency", text, "unique=True, or recorded steps, where a repeat costs")
    learning = [task for task in tasks if any(limit.learns for limit in task.limits)]
    if learning:
        text = f"tasks whose calls are held by a limit that learns: {_names(learning)}"
        fix = "set their SDK's own retries to zero (max_retries=0), so that one attempt is one call"
        yield Finding("ok", "review_sdk_retries", text, fix)
    once = [task for task in tasks if task.policy.max_lost == 1 and task.policy.attempts == 1]
    if once:
        text = f"tasks that run at most once, whose jobs are dead when their worker is killed: {_names(once)}"
        yield Finding("ok", "review_at_most_once", text, "leave max_lost and retry out where a repeat does no harm")


def _lockstep(task: Declaration) -> bool:
    policy = task.policy
    return policy.attempts > 1 and policy.jitter == "none" and policy.delays_ms is None


def _names(tasks: Sequence[Declaration]) -> str:
    return _some([task.name for task in tasks])


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
