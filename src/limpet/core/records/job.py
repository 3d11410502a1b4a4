"""Decides what of a job is public: in one line of a list, and whole with its steps and attempts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET

from limpet.core.endings.transition import ErrorKind
from limpet.core.flows.steps import KIND, StepKind, read_record, waits_of
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import IfParentFails
from limpet.core.jobs.lease import Note
from limpet.core.jobs.meta import asked_meta, rerun_of, schedule_of, tick_of
from limpet.core.jobs.state import State
from limpet.core.jobs.view import AttemptView, Page
from limpet.core.limits.spending import public_spent, spent_of
from limpet.core.records.record import Record, content, instant, moment, seconds
from limpet.core.redaction.redaction import Redaction, Shown


class Progress(Record, frozen=True):
    """How far a running job says it is."""

    done: float
    total: float | None = None
    message: str = ""


class JobRecord(Record, frozen=True, kw_only=True):
    """A job at one instant. `state` is one of the seven words, `attempt` counts from 1 (0 = never started)."""

    id: str
    state: State
    task: str
    queue: str
    priority: int
    tenant: str | None
    attempt: int
    attempts: int  # that it may have
    lost: int  # leases lost
    enqueued_at: datetime
    due_at: datetime | None  # None: not before the event that it waits for
    started_at: datetime | None
    finished_at: datetime | None
    error: str | None  # the type of the last error; None once it has succeeded, as the next two
    reason: str | None  # its message, or why the job was cancelled
    cause: str | None  # what dead jobs of one origin share
    progress: Progress | None
    cancel_requested: bool
    session: str | None  # of the worker that has it
    flow: str | None  # the id of the flow that it is a part of
    waits_for: tuple[str, ...]  # the events that a suspended job waits for
    spent: dict[str, float]  # what it says it has cost, by unit, over all attempts; dollars of "usd"
    tags: tuple[str, ...]
    meta: dict[str, Any]  # what `options(meta=...)` and enqueue middleware gave it
    args: Any

    @property
    def failure(self) -> str | None:
        """What went wrong, in one line: the type and the message of the last error, or why it was cancelled."""
        return ": ".join(text for text in (self.error, self.reason) if text) or None

    @classmethod
    def of(cls, view: Shown) -> JobRecord:
        """The public face of a stored job."""
        return JobRecord(**_line(view))


class JobPage(Record, frozen=True, kw_only=True):
    """One page of jobs. `complete` is False when only a bounded number was looked at: go on at `cursor`."""

    jobs: tuple[JobRecord, ...]
    cursor: str | None
    complete: bool

    @classmethod
    def of(cls, page: Page, redaction: Redaction) -> JobPage:
        """The public face of a page."""
        return cls(
            jobs=tuple(JobRecord.of(redaction.job(view)) for view in page.jobs),
            cursor=page.cursor,
            complete=page.complete,
        )


class EnqueuedRecord(Record, frozen=True, kw_only=True):
    """A job that was asked for; `existing`: one with its id or unique key was there, and `id` names that."""

    id: str
    task: str
    existing: bool


class StepRecord(Record, frozen=True, kw_only=True):
    """A durable step of a job: what it answers, or until when it waits."""

    name: str
    kind: StepKind
    value: Any
    error: str | None
    event: str | None
    until: datetime | None
    over: bool  # the time of a wait was over before its event came
    question: str | None


class NoteRecord(Record, frozen=True, kw_only=True):
    """What is kept with a job: a checkpoint, a step, progress, a line of its log."""

    kind: str
    name: str
    body: Any


class AttemptRecord(Record, frozen=True, kw_only=True):
    """One run of a job that did not simply succeed the first time."""

    number: int
    outcome: str  # succeeded, retried, dead, cancelled, released, snoozed, held, lost
    started_at: datetime
    finished_at: datetime
    session: str
    kind: ErrorKind | None
    error: str | None
    message: str | None
    traceback: str | None
    cause: str | None

    @classmethod
    def of(cls, view: AttemptView) -> AttemptRecord:
        """The public face of a recorded attempt."""
        return cls(
            number=view.number,
            outcome=view.outcome,
            started_at=moment(view.started_at_ms),
            finished_at=moment(view.finished_at_ms),
            session=view.session,
            kind=view.kind,
            error=view.type or None,
            message=view.message or None,
            traceback=view.traceback or None,
            cause=view.cause or None,
        )


class JobDetail(JobRecord, frozen=True, kw_only=True):
    """A job with everything that is stored about it."""

    held: int  # snoozes and 429s so far, or since it last slept or waited for an event
    expires_at: datetime | None
    token: int | None
    result: Any
    needs: tuple[str, ...]
    limits: tuple[str, ...]
    breaker: str | None
    unique: str | None
    after: tuple[str, ...]
    if_parent_fails: IfParentFails
    cost: int
    costs: dict[str, float]
    timeout_s: float | None
    schedule: str | None  # the name of the schedule that asked for it
    tick: datetime | None  # the instant of that schedule that it runs for
    rerun_of: str | None  # the finished job that it was made of
    steps: tuple[StepRecord, ...]
    notes: tuple[NoteRecord, ...]
    history: tuple[AttemptRecord, ...]  # recorded attempts, oldest first

    @classmethod
    def whole(cls, view: Shown, attempts: Iterable[AttemptView] = ()) -> JobDetail:
        """The public face of a stored job and of its recorded attempts, which a veil has hidden the secrets of."""
        return cls(
            **_line(view),
            held=view.held,
            expires_at=instant(view.expires_at_ms),
            token=view.token,
            result=content(view.result),
            needs=view.lane.needs,
            limits=(*view.lane.limits, *view.lane.keys),
            breaker=view.lane.breaker_key or view.lane.breaker,
            unique=view.unique,
            after=tuple(map(id_text, view.after)),
            if_parent_fails=view.if_parent_fails,
            cost=view.cost,
            costs=public_spent(view.costs),
            timeout_s=seconds(view.policy.timeout_ms),
            schedule=schedule_of(view.meta),
            tick=tick_of(view.meta),
            rerun_of=rerun_of(view.meta),
            steps=steps_of(view.notes),
            notes=tuple(map(note_record, view.notes)),
            history=tuple(map(AttemptRecord.of, attempts)),
        )


def note_record(note: Note) -> NoteRecord:
    """The public face of a note."""
    return NoteRecord(kind=note.kind, name=note.name, body=content(note.body))


def _line(view: Shown) -> dict[str, Any]:
    """What is said of a job wherever one is named."""
    failed = view.state is not State.succeeded  # what failed before a job succeeded is kept with its attempts
    waits = waits_of(view.notes, view.due_at_ms) if view.state is State.scheduled else ()
    return {
        "id": id_text(view.id),
        "state": view.state,
        "task": view.lane.task,
        "queue": view.lane.queue,
        "priority": view.lane.priority,
        "tenant": view.lane.tenant,
        "attempt": view.attempt,
        "attempts": view.policy.attempts,
        "lost": view.lost,
        "enqueued_at": moment(view.enqueued_at_ms),
        "due_at": instant(view.due_at_ms),
        "started_at": instant(view.claimed_at_ms),
        "finished_at": instant(view.finished_at_ms),
        "error": (failed and view.error_type) or None,
        "reason": (failed and view.reason) or None,
        "cause": (failed and view.cause) or None,
        "progress": _progress_of(view.notes),
        "cancel_requested": view.cancel_requested,
        "session": view.session,
        "flow": None if view.flow is None else id_text(view.flow),
        "waits_for": tuple(waiting.event for waiting in waits),
        "spent": public_spent(spent_of(view.notes)),
        "tags": view.tags,
        "meta": asked_meta(view.meta),
        "args": content(view.args),
    }


def _progress_of(notes: Iterable[Note]) -> Progress | None:
    found = None
    for note in notes:
        if note.kind == "progress":
            found = msgspec.json.decode(note.body, type=Progress)
    return found


def steps_of(notes: Iterable[Note]) -> tuple[StepRecord, ...]:
    """The durable steps in the order of their places."""
    found = [(note.name, record) for note in notes if note.kind == KIND and (record := read_record(note)) is not None]
    found.sort(key=lambda pair: (pair[1].place, pair[1].beside, pair[0]))
    return tuple(
        StepRecord(
            name=name,
            kind=record.kind,
            value=None if record.value is UNSET else content(bytes(record.value)),
            error=None if record.error is None else f"{record.error.type}: {record.error.message}",
            event=record.event,
            until=instant(record.until_ms),
            over=record.over,
            question=record.question or None,
        )
        for name, record in found
    )
