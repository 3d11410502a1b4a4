"""Decides how to say why a job is not running (or what became of it), from the facts a store gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from limpet.core.endings.refusal import is_code
from limpet.core.flows.steps import ANSWER, APPROVAL, SLEEP, Waiting, waits_of
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import SessionView
from limpet.core.jobs.state import State
from limpet.core.jobs.view import AttemptView, Inspection, JobView, Page
from limpet.core.records.explanation import Explanation, Reason
from limpet.core.records.record import instant
from limpet.core.text.duration import iso, text_of_ms
from limpet.ops.blocked_loop import blocked_before, blocked_under
from limpet.ops.gate_reasons import gate_reasons
from limpet.ops.position import position
from limpet.ops.reason import ago, when_words

MOST_PARENTS: Final = 10  # that are named one by one; a join may wait for thousands


def explain(
    standing: Inspection,
    *,
    now_ms: int,
    attempts: Sequence[AttemptView] = (),
    sessions: Sequence[SessionView] = (),
    urgent: Page | None = None,
    executor: str = "async",
) -> Explanation:
    """Say in words where the job stands at `now_ms`.

    `urgent` are the ready jobs that are more urgent, `executor` is where its task runs.
    """
    view = standing.view
    reasons: Iterator[Reason]
    if view.state in (State.succeeded, State.cancelled, State.dead):
        reasons = _finished(view, attempts)
    elif view.state is State.running:
        reasons = _running(view, sessions, now_ms)
    else:
        reasons = _waiting(standing, attempts, sessions, urgent, executor, now_ms)
    return Explanation.of(view, reasons)


def _finished(view: JobView, attempts: Sequence[AttemptView]) -> Iterator[Reason]:
    at_ms = view.finished_at_ms or view.due_at_ms
    data: dict[str, object] = {"finished_at": iso(at_ms)}
    if view.state is State.succeeded:
        yield Reason("succeeded", f"it finished at {iso(at_ms)}, on attempt {view.attempt}", None, data)
    elif view.state is State.cancelled:
        why = f": {view.reason}" if view.reason else ""
        yield Reason("cancelled", f"it was cancelled at {iso(at_ms)}{why}", None, {**data, "reason": view.reason})
    else:
        last = attempts[-1] if attempts else None
        kind = last.kind if last is not None else None
        words = "permanent error, not worth another attempt" if kind == "permanent" else f"after attempt {view.attempt}"
        if kind == "lost":
            words = f"its worker died under it {view.lost} times"
        error = f": {view.error_type}: {view.reason}" if view.error_type else f": {view.reason}" if view.reason else ""
        yield Reason(
            "dead",
            f"it is in the dead-letter queue since {iso(at_ms)} ({words}){error}; retry or discard it",
            None,
            {**data, "cause": view.cause, "error_type": view.error_type, "reason": view.reason, "kind": kind},
        )


def _running(view: JobView, sessions: Sequence[SessionView], now_ms: int) -> Iterator[Reason]:
    since_ms, worker = view.claimed_at_ms or now_ms, view.session or "an unknown worker"
    data: dict[str, object] = {"session": view.session, "since": iso(since_ms), "attempt": view.attempt}
    attempt = f"attempt {view.attempt} of {view.policy.attempts}"
    session = next((each for each in sessions if each.session == view.session), None)
    if session is not None:
        text = f"it runs on {worker} since {iso(since_ms)} ({text_of_ms(now_ms - since_ms)}), {attempt}"
        yield Reason("running", text, None, data)
        yield from blocked_under(view, session, now_ms)
        yield from _given_up(view, since_ms, now_ms)
    else:
        text = f"its worker {worker}, which started it {ago(since_ms, now_ms)} ({attempt}), has gone silent"
        again = "a live worker takes it back within seconds" if sessions else "it runs again once a worker is alive"
        yield Reason("worker_lost", f"{text}; {again}", None, {**data, "workers": len(sessions)})
    if view.cancel_requested:
        yield Reason("cancelling", "it was asked to stop and has not ended yet", None, {"reason": view.reason})


def _given_up(view: JobView, since_ms: int, now_ms: int) -> Iterator[Reason]:
    hard_ms = view.policy.hard_timeout_ms
    if hard_ms is not None and now_ms > since_ms + hard_ms:
        yield Reason(
            "given_up",
            f"its hard timeout of {text_of_ms(hard_ms)} is over and it has not ended: it keeps its slots until its "
            "handler ends or its process is gone, for 30 s at most",
            None,
            {"hard_timeout_ms": hard_ms},
        )


def _waiting(
    standing: Inspection,
    attempts: Sequence[AttemptView],
    sessions: Sequence[SessionView],
    urgent: Page | None,
    executor: str,
    now_ms: int,
) -> Iterator[Reason]:
    view = standing.view
    yield from _parents(standing)
    if view.due_at_ms > now_ms:
        waits = waits_of(view.notes, view.due_at_ms) if view.state is State.scheduled else []
        yield from [_suspended(waiting, now_ms) for waiting in waits] or [_due(view, attempts, now_ms)]
    shut = [reason for gate in standing.gates for reason in gate_reasons(gate, view, now_ms)]
    if view.state is State.ready:
        yield from shut
    else:
        # Levels change before the job is due; what is known to last longer stays, and so does a missing worker.
        yield from (reason for reason in shut if _outlasts(reason, view.due_at_ms))
    yield from _no_worker(standing, sessions)
    yield from blocked_before(standing, sessions, now_ms)
    if view.lost:
        yield Reason(
            "suspect",
            f"{view.lost} workers were lost while they ran it, so it starts only in a free slot of its own",
            None,
            {"lost": view.lost},
        )
    if view.state is State.ready:
        yield position(standing, sessions, urgent, executor, free=not shut)
    if view.expires_at_ms is not None:
        yield Reason(
            "expires",
            f"it is cancelled if it has not started {when_words(view.expires_at_ms, now_ms)}",
            instant(view.expires_at_ms),
        )


def _outlasts(reason: Reason, due_at_ms: int) -> bool:
    """True for a pause, a breaker that someone must reset, and whatever ends by itself after the job is due."""
    due = instant(due_at_ms)
    if reason.until is not None:
        return due is None or reason.until > due
    return reason.code.endswith("paused") or reason.code in ("breaker_open", "never_fits")


def _parents(standing: Inspection) -> Iterator[Reason]:
    # Failed parents first: a person has to look at them.
    found = sorted(standing.parents, key=lambda each: each[1] not in (State.dead, State.cancelled))
    if len(found) > MOST_PARENTS:
        counts = Counter(state.value for _, state in found)
        words = ", ".join(f"{count:,} {state}" for state, count in counts.items())
        yield Reason("parents", f"it waits for {len(found):,} parents ({words})", None, {"parents": dict(counts)})
    for parent, state in found[:MOST_PARENTS]:
        name = id_text(parent)
        data: dict[str, object] = {"parent": name, "state": state.value}
        if state in (State.dead, State.cancelled):
            text = f"its parent {name} is {state.value}; it waits until someone retries the parent or cancels this job"
            yield Reason("parent_failed", text, None, data)
        else:
            yield Reason("parent", f"it waits for parent {name} ({state.value})", None, data)


def _suspended(waiting: Waiting, now_ms: int) -> Reason:
    """What a suspended job waits for: the end of a sleep, an event, or a person."""
    until, event, question = instant(waiting.until_ms), waiting.event, waiting.question
    when = when_words(waiting.until_ms, now_ms)
    if event.startswith(SLEEP):
        name = event.removeprefix(SLEEP)
        return Reason("sleeping", f"it sleeps ({name}) and continues {when}", until, {"name": name})
    end = "" if until is None else f"; its time is over {when}"
    if event.startswith(APPROVAL):
        name = event.removeprefix(APPROVAL)
        text = f"it waits for a person to approve or reject{f': {question}' if question else f' {name!r}'}{end}"
        return Reason("approval", text, until, {"name": name, "question": question})
    if event.startswith(ANSWER):
        text = f"it waits for an answer{f' to: {question}' if question else ''}{end}"
        return Reason("question", text, until, {"name": event, "question": question})
    return Reason("event", f"it waits for the event {event!r}{end}", until, {"event": event})


def _due(view: JobView, attempts: Sequence[AttemptView], now_ms: int) -> Reason:
    when, until = when_words(view.due_at_ms, now_ms), instant(view.due_at_ms)
    last = attempts[-1] if attempts else None
    if last is not None and last.outcome == "snoozed":
        why = f": {last.message}" if last.message else ""
        return Reason("snoozed", f"it asked to run again {when}{why}", until, {"times": view.held})
    if view.attempt and (view.error_type or view.reason):
        error = f"{view.error_type}: {view.reason}" if view.error_type else view.reason
        text = f"attempt {view.attempt} of {view.policy.attempts} failed ({error}); the next one is due {when}"
        data: dict[str, object] = {"attempt": view.attempt, "error_type": view.error_type, "reason": view.reason}
        return Reason("retry", text, until, data)
    return Reason("scheduled", f"it is scheduled to start {when}", until)


def _no_worker(standing: Inspection, sessions: Sequence[SessionView]) -> Iterator[Reason]:
    lane = standing.view.lane
    if standing.able:
        return
    if not sessions and not standing.knows_task:
        yield Reason("no_workers", f"no worker is alive (task {lane.task})", None, {"task": lane.task, "workers": 0})
    elif not standing.knows_task:
        data: dict[str, object] = {"task": lane.task, "workers": len(sessions)}
        yield Reason("unknown_task", f"no live worker knows task {lane.task}", None, data)
    elif standing.able_without_needs:
        missing = _missing(lane.needs, sessions)
        if any(map(is_code, missing)):
            text = "a worker refused its arguments, and no live worker has the code that it waits for"
            then = "within a minute it is handed on to other code, or dead"
            yield Reason("code", f"{text}; {then}", None, {"reason": standing.view.reason})
            return
        text = f"no live worker has {'capability' if len(missing) == 1 else 'all capabilities'} {', '.join(missing)}"
        yield Reason("capability", text, None, {"needs": list(lane.needs), "missing": missing})
    else:
        text = f"no live worker that knows task {lane.task} serves queue {lane.queue}"
        yield Reason("unserved_queue", text, None, {"queue": lane.queue, "task": lane.task})


def _missing(needs: Sequence[str], sessions: Sequence[SessionView]) -> list[str]:
    """The needs that no live session has; all of them when they only never come together."""
    offered = {capability for session in sessions for capability in session.serves.capabilities}
    return [need for need in needs if need not in offered] or list(needs)
