"""Asks about one job: its state, its result, why it waits; and asks for it to be cancelled."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast

from limpet.client.bridge import Bridge
from limpet.client.watching import changes
from limpet.core.errors import JobCancelled, JobDead, JobNotFound
from limpet.core.flows.refs import Refers
from limpet.core.flows.steps import check_event, encode_value, too_many_events
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Signal
from limpet.core.jobs.state import State
from limpet.core.jobs.view import JobView
from limpet.core.records.explanation import Explanation
from limpet.core.records.job import JobRecord
from limpet.core.redaction.redaction import Shown
from limpet.core.text.duration import to_ms
from limpet.core.text.foreign_words import JOB, answers
from limpet.core.text.storable import checked_text
from limpet.stores.asking import attempts_of
from limpet.stores.base import Store

R_co = TypeVar("R_co", covariant=True)


class Desk(Protocol):
    """What a handle needs of the app it came from."""

    @property
    def store(self) -> Store:
        """The store of this process."""

    async def explain(self, id: bytes) -> Explanation:
        """Why the job is where it is."""

    @property
    def bridge(self) -> Bridge:
        """How code without an event loop waits."""

    async def shown(self, view: JobView) -> Shown:
        """A job as it may be shown."""

    def decode_result(self, task: str, raw: bytes | None) -> Any:
        """A stored result as the value it stands for."""


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

    async def status(self) -> JobRecord:
        """The job as it is now; JobNotFound when it is not stored (never was, or pruned)."""
        (view,) = await self._desk.store.get([self._raw])
        if view is None:
            raise self._not_found()
        return JobRecord.of(await self._desk.shown(view))

    async def result(self, timeout: float | None = None) -> R_co:
        """Wait for the job to finish and answer its value, rebuilt from the task's return annotation.

        Raises JobDead, JobCancelled, JobNotFound, or ResultTimeout after `timeout` seconds (the job continues).
        """
        timeout_ms = None if timeout is None else to_ms(timeout, what="timeout")
        view = await self._desk.store.watch(self._raw, timeout_ms)
        if view is None:
            raise self._not_found()
        return cast(R_co, await value_of(self._desk, view))

    async def watch(self, timeout: float | None = None) -> AsyncGenerator[JobRecord, None]:
        """The job at once, and again after each change of its state, attempt or progress; ends after its end.

        The store is asked for the job every 0.3 s, and changes between two looks come as one;
        the end comes at once. Raises JobNotFound, or ResultTimeout after `timeout` seconds (the job continues).

        >>> async def follow(job: JobHandle[int]) -> None:
        ...     async for status in job.watch():
        ...         print(status.state, status.progress)
        """
        timeout_ms = None if timeout is None else to_ms(timeout, what="timeout")
        async with aclosing(changes(self._desk.store, self._raw, timeout_ms, self._desk.shown)) as found:
            async for status in found:
                if status is None:
                    raise self._not_found()
                yield status

    async def cancel(self, reason: str = "", *, force: bool = False) -> Literal["cancelled", "cancelling", "finished"]:
        """Cancel the job and its dependents. A running one is asked to stop ("cancelling"): success may still win.

        `force` takes a running job away from its worker, whose late result is then refused.
        """
        (answer,) = await self._desk.store.cancel([self._raw], checked_text(reason, what="reason"), force=force)
        if answer == "gone":
            raise self._not_found()
        return answer

    def status_sync(self) -> JobRecord:
        """`status` for code without an event loop; inside one it raises WrongContext, as the next three do."""
        return self._desk.bridge.run(self.status(), instead="await .status()")

    def result_sync(self, timeout: float | None = None) -> R_co:
        """`result` for code without an event loop."""
        return self._desk.bridge.run(self.result(timeout), instead="await .result()")

    def cancel_sync(self, reason: str = "", *, force: bool = False) -> Literal["cancelled", "cancelling", "finished"]:
        """`cancel` for code without an event loop."""
        return self._desk.bridge.run(self.cancel(reason, force=force), instead="await .cancel()")

    def explain_sync(self) -> Explanation:
        """`explain` for code without an event loop."""
        return self._desk.bridge.run(self.explain(), instead="await .explain()")

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

    async def explain(self) -> Explanation:
        """Why the job is not running, in words (`str()`) and as data (`.reasons`)."""
        return await self._desk.explain(self._raw)

    def spread(self) -> bytes:
        return self._raw

    if not TYPE_CHECKING:
        __getattr__ = answers("a job's handle", JOB)

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
    if view.state is not State.succeeded:
        raise await failure_of(desk.store, view)
    return desk.decode_result(view.lane.task, view.result)


async def failure_of(store: Store, view: JobView) -> JobDead | JobCancelled:
    """What asking for the result of a job raises that has ended without one."""
    id = id_text(view.id)
    if view.state is State.cancelled:
        return JobCancelled(f"job {id} was cancelled: {view.reason or 'no reason given'}", reason=view.reason)
    attempts = await attempts_of(store, view.id)
    last = next((attempt for attempt in reversed(attempts) if attempt.type), None)
    error = f"{view.error_type}: {view.reason}" if view.error_type else view.reason
    return JobDead(
        f"job {id} is dead after attempt {view.attempt}: {error}",
        error=error,
        traceback=last.traceback if last else "",
        fix=f"see it with: limpet dead show {id}",
    )


class Explain(Protocol):
    """How the app answers `explain`: the client asks, another room knows."""

    def __call__(self, store: Store, id: bytes) -> Awaitable[Explanation]:
        """Why the job is where it is."""
