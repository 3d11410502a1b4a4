"""Asks about one job: its state, its result, why it waits; and asks for it to be cancelled."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, Literal, Protocol, TypeVar, cast

import msgspec
from msgspec import Struct

from limpet.core.errors import JobCancelled, JobDead, JobNotFound
from limpet.core.flows.refs import Refers
from limpet.core.flows.steps import check_event, encode_value, too_many_events, waits_of
from limpet.core.gate import FOREVER_MS
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Note, Signal
from limpet.core.jobs.state import State
from limpet.core.jobs.view import JobView
from limpet.core.limits.spending import public_spent, spent_of
from limpet.core.text.duration import to_ms
from limpet.core.text.storable import checked_text
from limpet.stores.asking import attempts_of
from limpet.stores.base import Store

R_co = TypeVar("R_co", covariant=True)


class Explained(Protocol):
    """Why a job is where it is: reasons as data, `str()` in words."""

    @property
    def reasons(self) -> Sequence[Any]:
        """The reasons, most important first."""


class Desk(Protocol):
    """What a handle needs of the app it came from."""

    @property
    def store(self) -> Store:
        """The store of this process."""

    async def explain(self, id: bytes) -> Explained:
        """Why the job is where it is."""

    def decode_result(self, task: str, raw: bytes | None) -> Any:
        """A stored result as the value it stands for."""


class Progress(Struct, frozen=True):
    """How far a running job says it is."""

    done: float
    total: float | None = None
    message: str = ""


class JobStatus(Struct, frozen=True):
    """A job at one instant. `state` is one of the seven words, `attempt` counts from 1 (0 = never started)."""

    id: str
    task: str
    queue: str
    state: State
    attempt: int
    lost: int
    progress: Progress | None
    error: str | None  # what the last failure or cancellation said; None once it has succeeded
    cancel_requested: bool
    tags: tuple[str, ...]
    enqueued_at: datetime
    due_at: datetime | None  # None: not before the event that it waits for
    started_at: datetime | None
    finished_at: datetime | None
    flow: str | None = None  # the id of the flow that it is a part of
    waits_for: tuple[str, ...] = ()  # the events that a suspended job waits for
    spent: dict[str, float] = {}  # what it says it has cost, by unit, over all attempts; dollars of "usd"

    @classmethod
    def of(cls, view: JobView) -> JobStatus:
        """The public face of a stored job."""
        return cls(
            id=id_text(view.id),
            task=view.lane.task,
            queue=view.lane.queue,
            state=view.state,
            attempt=view.attempt,
            lost=view.lost,
            progress=_progress_of(view.notes),
            error=_error_of(view),
            cancel_requested=view.cancel_requested,
            tags=view.tags,
            enqueued_at=instant(view.enqueued_at_ms),
            due_at=None if view.due_at_ms >= FOREVER_MS else instant(view.due_at_ms),
            started_at=None if view.claimed_at_ms is None else instant(view.claimed_at_ms),
            finished_at=None if view.finished_at_ms is None else instant(view.finished_at_ms),
            flow=None if view.flow is None else id_text(view.flow),
            waits_for=_events_of(view),
            spent=public_spent(spent_of(view.notes)),
        )


class JobHandle(Refers, Generic[R_co]):
    """One stored job, by its id. Costs nothing to keep; every question asks the store.

    As an argument of another job it stands for its result: that job waits for it, and gets the value.

    >>> import asyncio
    >>> from limpet import Limpet
    >>> app = Limpet("sqlite://")
    >>> @app.task
    ... def double(n: int) -> int:
    ...     return 2 * n
    >>> async def main() -> int:
    ...     async with app:
    ...         job = await double.enqueue(21)
    ...         await app.work(until_empty=True)
    ...         return await job.result(timeout=5)
    >>> asyncio.run(main())
    42
    """

    __slots__ = ("_desk", "_raw", "existing", "task")

    def __init__(self, desk: Desk, raw: bytes, *, task: str, existing: bool) -> None:
        self._desk = desk
        self._raw = raw
        self.task = task  # its name; "" when the handle was made from an id alone
        self.existing = existing  # True: an earlier enqueue had stored this job

    @property
    def id(self) -> str:
        """The job's id: uuid7 text."""
        return id_text(self._raw)

    async def status(self) -> JobStatus:
        """The job as it is now; JobNotFound when it is not stored (never was, or pruned)."""
        (view,) = await self._desk.store.get([self._raw])
        if view is None:
            raise self._not_found()
        return JobStatus.of(view)

    async def result(self, timeout: float | None = None) -> R_co:
        """Wait for the job to finish and answer its value, rebuilt from the task's return annotation.

        Raises JobDead, JobCancelled, JobNotFound, or ResultTimeout after `timeout` seconds (the job continues).
        """
        timeout_ms = None if timeout is None else to_ms(timeout, what="timeout")
        view = await self._desk.store.watch(self._raw, timeout_ms)
        if view is None:
            raise self._not_found()
        return cast(R_co, await value_of(self._desk, view))

    async def cancel(self, reason: str = "", *, force: bool = False) -> Literal["cancelled", "cancelling", "finished"]:
        """Cancel the job and its dependents. A running one is asked to stop ("cancelling"): success may still win.

        `force` takes a running job away from its worker, whose late result is then refused.
        """
        (answer,) = await self._desk.store.cancel([self._raw], checked_text(reason, what="reason"), force=force)
        if answer == "gone":
            raise self._not_found()
        return answer

    async def signal(self, event: str, value: object = None) -> Literal["woken", "kept", "already", "finished"]:
        """Give the job an event that it waits for, or will wait for (`current_job().wait_for(event)`).

        "woken": it waited and continues; "kept": for when it waits; "already": it was given this event before, and the
        first value stays; "finished": it has ended.
        """
        signal = Signal(self._raw, check_event(event), encode_value(value))
        (answer,) = await self._desk.store.signal([signal])
        if answer == "gone":
            raise self._not_found()
        if answer == "full":
            raise too_many_events(self.id)
        return answer

    async def explain(self) -> Explained:
        """Why the job is not running, in words (`str()`) and as data (`.reasons`)."""
        return await self._desk.explain(self._raw)

    def spread(self) -> bytes:
        return self._raw

    def __repr__(self) -> str:
        return f"JobHandle({self.task or 'job'} {self.id}{' existing' if self.existing else ''})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and other._raw == self._raw

    def __hash__(self) -> int:
        return hash(self._raw)

    def _not_found(self) -> JobNotFound:
        return JobNotFound(
            f"job {self.id} is not stored: it never was, or its retention is over",
            fix="ask sooner, or keep finished jobs longer",
        )


async def value_of(desk: Desk, view: JobView) -> Any:
    """The value of a job that has ended like this; raises what asking for its result raises."""
    if view.state is State.succeeded:
        return desk.decode_result(view.lane.task, view.result)
    id = id_text(view.id)
    if view.state is State.cancelled:
        raise JobCancelled(f"job {id} was cancelled: {view.reason or 'no reason given'}", reason=view.reason)
    attempts = await attempts_of(desk.store, view.id)
    last = next((attempt for attempt in reversed(attempts) if attempt.type), None)
    error = f"{view.error_type}: {view.reason}" if view.error_type else view.reason
    raise JobDead(
        f"job {id} is dead after attempt {view.attempt}: {error}",
        error=error,
        traceback=last.traceback if last else "",
        fix=f"see it with: limpet dead show {id}",
    )


class Explain(Protocol):
    """How the app answers `explain`: the client asks, another room knows."""

    def __call__(self, store: Store, id: bytes) -> Awaitable[Explained]:
        """Why the job is where it is."""


def _error_of(view: JobView) -> str | None:
    if view.state is State.succeeded:
        return None  # what failed on the way is kept with its attempts
    if view.error_type:
        return f"{view.error_type}: {view.reason}"
    return view.reason or None


def _events_of(view: JobView) -> tuple[str, ...]:
    if view.state is not State.scheduled:
        return ()
    return tuple(waiting.event for waiting in waits_of(view.notes, view.due_at_ms))


def _progress_of(notes: Sequence[Note]) -> Progress | None:
    for note in reversed(notes):
        if note.kind == "progress":
            return msgspec.json.decode(note.body, type=Progress)
    return None


def instant(at_ms: int) -> datetime:
    """The public form of an instant."""
    return datetime.fromtimestamp(at_ms / 1000, UTC)
