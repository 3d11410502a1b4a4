"""What a running job knows and may say about itself: identity, cancellation, progress, steps, its own success."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import Awaitable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, Unpack

import msgspec

from limpet.core.endings.answer import headers_of
from limpet.core.endings.decide import is_last, pushed_gate
from limpet.core.errors import LeaseLost, WrongContext
from limpet.core.flows.refs import Given, filled
from limpet.core.flows.steps import Approval
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import priority_name
from limpet.core.jobs.lease import Claimed, Note
from limpet.core.jobs.meta import asked_meta, schedule_of, tick_of
from limpet.core.limits.pushback import Lesson, lesson_of
from limpet.core.limits.spending import added, spending_from
from limpet.core.limits.unit import Amounts
from limpet.core.tasks.codec import decode_json, encode_checkpoint
from limpet.core.text.duration import Duration, to_ms
from limpet.core.text.foreign_words import CONTEXT, answers
from limpet.core.text.storable import spoken, storable
from limpet.runtime.current import current
from limpet.runtime.log import job_log
from limpet.runtime.step import Step, StepCall, step_key
from limpet.runtime.steps import Steps
from limpet.stores.callers import run_here

if TYPE_CHECKING:
    from limpet.runtime.attempt import Attempt

T = TypeVar("T")

MAX_LINES: Final = 1_000  # log lines kept per attempt: a chatty loop must not fill the store
MAX_LINE_CHARS: Final = 2_000
MAX_MESSAGE_CHARS: Final = 500


class JobChannel(Protocol):
    """Where a running job's notes go: the store, or the pipe to the process that holds the lease."""

    def note(self, job: Claimed, note: Note) -> None:
        """Keep a note for the next beat; a later one of the same name replaces it. Any thread."""

    def spent(self, job: Claimed, spent: Mapping[str, int]) -> None:
        """Keep what this attempt has cost so far, for the next beat and for its end. Any thread."""

    def learn(self, gate: str, lesson: Lesson) -> None:
        """Tell a gate the limits that a provider reported; soon, and without an answer. Any thread."""

    async def save(self, job: Claimed, note: Note) -> bool:
        """Write a note now; False when the lease is lost."""

    async def complete(self, conn: object, job: Claimed, result: bytes | None) -> bool:
        """Note the job's success in the transaction that `conn` is in; False when the lease is lost."""


class JobContext:
    """The running job, as `current_job()` gives it. Works in async, thread and process tasks.

    >>> @app.task()
    ... async def export(customer: str) -> None:
    ...     job = current_job()
    ...     job.progress(1, 10, "reading")
    """

    __slots__ = ("_adding", "_attempt", "_channel", "_lines", "_loop", "_saved")

    def __init__(self, attempt: Attempt, channel: JobChannel, loop: asyncio.AbstractEventLoop) -> None:
        self._attempt = attempt
        self._channel = channel
        self._loop = loop
        self._adding = threading.Lock()  # steps beside each other may say what they cost at the same time
        self._lines = 0
        self._saved: list[object] = []

    if not TYPE_CHECKING:
        __getattr__ = answers("a running job", CONTEXT)

    @property
    def id(self) -> str:
        """The job's id, the same for every attempt."""
        return id_text(self._attempt.job.id)

    @property
    def attempt(self) -> int:
        """Which attempt this is, counted from 1."""
        return self._attempt.job.attempt

    @property
    def max_attempts(self) -> int:
        """How many attempts it has in all. Where a function decides on retries, that may give up before."""
        return self._attempt.job.policy.attempts

    @property
    def is_last_attempt(self) -> bool:
        """True when a failure of this attempt is final, because no attempt is left.

        Where a function decides on retries, this is about the number only: the function may give up before. What
        puts the job off without a failure (`Snooze`, `RateLimited`, a durable sleep) costs no attempt and is never
        final by this.
        """
        return is_last(self._attempt.job)

    @property
    def enqueued_at(self) -> datetime:
        """When it was enqueued, by the clock of the store."""
        return datetime.fromtimestamp(self._attempt.job.enqueued_at_ms / 1000, UTC)

    @property
    def args(self) -> Mapping[str, Any]:
        """Its stored arguments, by parameter name, as plain JSON values; results of other jobs are in their places.

        Defaults are not among them, and injected resources neither. A copy: changing it changes nothing.
        """
        job = self._attempt.job
        values: dict[str, Any] = decode_json(job.args)
        if (given := Given.to(job)) is not None:
            values = decode_json(msgspec.json.encode(filled(values, given)))
        return values

    @property
    def token(self) -> int:
        """The fencing token: larger for every later claim of this job."""
        return self._attempt.job.token

    @property
    def task(self) -> str:
        return self._attempt.job.lane.task

    @property
    def queue(self) -> str:
        return self._attempt.job.lane.queue

    @property
    def priority(self) -> int:
        """0 (most urgent) to 9."""
        return self._attempt.job.lane.priority

    @property
    def priority_name(self) -> str | None:
        """ "critical", "high", "normal" or "low"; None for a number between them."""
        return priority_name(self.priority)

    @property
    def tenant(self) -> str | None:
        return self._attempt.job.lane.tenant

    @property
    def flow(self) -> str | None:
        """The id of the flow that it is a part of; None outside of one."""
        flow = self._attempt.job.flow
        return None if flow is None else id_text(flow)

    @property
    def tags(self) -> tuple[str, ...]:
        return self._attempt.job.tags

    @property
    def meta(self) -> Mapping[str, Any]:
        """What `options(meta=...)` or the producer's middleware gave it: a request id, a trace context. A copy."""
        return asked_meta(self._attempt.job.meta)

    @property
    def schedule(self) -> str | None:
        """The name of the schedule that asked for it; None when none did."""
        return schedule_of(self._attempt.job.meta)

    @property
    def tick(self) -> datetime | None:
        """The instant of its schedule that this job runs for, however late it is; None when no schedule asked for it.

        Of a backfilled run it is the instant in the past, of `run_now` the moment it was asked for.
        """
        return tick_of(self._attempt.job.meta)

    @property
    def cancelled(self) -> bool:
        """True once the job should stop: cancelled on request, out of time, or no longer ours, now or soon.

        `stop_reason` says which. Raise to end early: what a handler returns counts as its success.
        """
        stopped = self._attempt.cause not in (None, "shutdown")  # a stopping worker hands the job back by itself
        if stopped:
            self._durable().heard()
        return stopped

    @property
    def stop_reason(self) -> str | None:
        """Why the job should stop; None while it need not.

        "cancel", "timeout" (soft), "hard", "shutdown", "lost", or "lease": the worker is cut off from the store, and
        another may get the job soon.
        """
        return self._attempt.cause

    @property
    def checkpoint(self) -> Any:
        """What the last `save` of this or an earlier attempt wrote; None when there is none."""
        if self._saved:
            return self._saved[-1]
        for note in self._attempt.job.notes:
            if note.kind == "checkpoint":
                return msgspec.json.decode(note.body)
        return None

    async def save(self, value: object) -> None:
        """Write a checkpoint for the next attempt. Raises LeaseLost when this attempt no longer counts."""
        body = encode_checkpoint(value)
        if not await self._channel.save(self._attempt.job, Note("checkpoint", "", body)):
            self._attempt.stop("lost", "the lease was lost")
            raise self._lost("stop: another worker may run it")
        self._saved[:] = [msgspec.json.decode(body)]

    # -- durable steps

    @property
    def step(self) -> StepCall:
        """`await job.step("charge", charge, order)`: runs once, and is remembered by every later attempt.

        Names are unique in a job. `job.step.options(on_error="keep", retry=3)("charge", charge, order)` chooses what
        becomes of errors.
        """
        return StepCall(self._step)

    @property
    def step_key(self) -> str:
        """Inside a step's function: a key that is the same whenever this step of this job runs.

        Pass it to the service that performs the effect. A crash between the effect and its record is possible; then
        the step runs again, under the same key.
        """
        return step_key(self._attempt.job.id)

    async def sleep(self, delay: Duration, *, name: str | None = None) -> None:
        """Sleep for that long without a worker; then the function runs again from the top, with its steps remembered.

        Raises an exception that is no Exception; let it pass.
        """
        await self._durable().sleep(to_ms(delay, what="sleep"), name)

    async def wait_for(self, event: str, timeout: Duration | None = None, *, name: str | None = None) -> Any:
        """The value that `app.signal(job, event, value)` gave; the job waits for it without a worker, as in `sleep`.

        A signal that came before is kept. Raises WaitTimeout when it has not come in time, in later attempts too.
        """
        timeout_ms = None if timeout is None else to_ms(timeout, what="timeout")
        return await self._durable().wait_for(event, timeout_ms, name)

    async def approval(self, question: str, timeout: Duration | None = None, *, name: str = "approval") -> Approval:
        """What a person decided (`limpet approve ID`, `limpet reject ID`); the job waits as in `wait_for`."""
        timeout_ms = None if timeout is None else to_ms(timeout, what="timeout")
        return await self._durable().approval(question, timeout_ms, name)

    async def _step(self, step: Step) -> Any:
        return await self._durable().step(step)

    def _durable(self) -> Steps:
        """The steps of this attempt; made when the first is called."""
        attempt = self._attempt
        if attempt.steps is None:
            attempt.steps = Steps(attempt, self._channel, attempt.calls)
        return attempt.steps

    # -- ending, and telling

    async def complete(self, conn: Any, result: object = None) -> None:
        """Succeed with `result` inside your own transaction: when it commits the job has succeeded, and not otherwise.

        So what the handler writes in that transaction happens exactly once, whatever dies when. `conn` is what
        `options(conn=...)` takes, and you commit it yourself; until then nothing has happened. Raises LeaseLost
        when this attempt no longer counts: let it roll your transaction back.
        """
        attempt = self._attempt
        body = None
        if result is not None:
            body = attempt.spec.signature.encode_result(result, attempt.job.policy.max_result_bytes)
        if not await self._channel.complete(conn, attempt.job, body):
            attempt.fence()
            raise self._lost("roll back: another worker may run it")
        attempt.completed, attempt.noted = True, body

    def complete_sync(self, conn: Any, result: object = None) -> None:
        """`complete` for a plain function; the connection is used in the function's own thread."""
        run_here(self.complete(conn, result), conn, instead="await .complete()")

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Say how far the job is. Cheap: call it as often as you like; the newest is stored within a second.

        It is stored before the attempt ends, too. `await handle.status()` and `handle.watch()` show it.
        """
        body = msgspec.json.encode({"done": done, "total": total, "message": self._kept(message, MAX_MESSAGE_CHARS)})
        self._channel.note(self._attempt.job, Note("progress", "", body))

    def spent(self, **amounts: Unpack[Amounts]) -> None:
        """Say what this attempt has really cost: `job.spent(tokens=1834, usd=0.02)`. Adds up over calls.

        When the attempt ends, rates and budgets are corrected from what the job's `cost=` reserved to what was said;
        of units that are not named the reservation stands. The sum over all attempts is kept with the job, written
        with the next heartbeat. Inside a step, say it in the step's function: then it is said once.
        """
        found, attempt = spending_from(amounts), self._attempt
        if not found:
            return
        with self._adding:
            attempt.spent = added(attempt.spent or {}, found)
            self._channel.spent(attempt.job, attempt.spent)

    def learn(self, response: object) -> None:
        """Teach this job's limit what an answer says of the provider's: `job.learn(response)`.

        Takes a response, its headers, or an error that has one. When the headers say that a bucket is empty, the key
        that a 429 would hold is held for all workers until the reset, an hour at most. When they allow fewer requests
        a minute than an adaptive limit declares, it goes no faster than that. What cannot be read is ignored.
        """
        attempt = self._attempt
        if not headers_of(response):
            job_log(logging.WARNING, "there is nothing to learn: no headers", attempt.job, of=type(response).__name__)
            return
        lesson = lesson_of(response, time.time_ns() // 1_000_000)
        if lesson != Lesson():
            self._channel.learn(pushed_gate(attempt.job.lane, attempt.spec.learns(attempt.job.lane)), lesson)

    def log(self, line: str) -> None:
        """Keep a line with the job, for people. Buffered as progress is; at most 1,000 lines per attempt."""
        if self._lines >= MAX_LINES:
            return
        self._lines += 1
        body = msgspec.json.encode(self._kept(line, MAX_LINE_CHARS))
        self._channel.note(self._attempt.job, Note("log", f"{self.attempt:05d}.{self._lines:05d}", body))

    def hide(self, text: str) -> str:
        """A text without the secrets of this job, for middleware that tells someone else: what it logs, traces, sends.

        What `redact=` and `Secret[str]` name is replaced wherever it stands in the text.
        """
        return self._attempt.hide(text)

    def _kept(self, text: object, most: int) -> str:
        """What people will read, without the job's secrets; those first, since a part of one is harder to find."""
        return storable(self._attempt.hide(spoken(text)), most)

    def _lost(self, fix: str) -> LeaseLost:
        return LeaseLost(f"job {self.id} is no longer leased to this worker", fix=fix)

    def run(self, awaitable: Awaitable[T]) -> T:
        """Wait for an awaitable from a sync task: `current_job().run(current_job().save(state))`."""
        if _inside_a_loop():
            raise WrongContext("a blocking wait inside the event loop would stop it", fix="await it instead")
        speaks = threading.get_ident() == self._attempt.thread
        waiting = asyncio.run_coroutine_threadsafe(self._awaited(awaitable, speaks), self._loop)
        try:
            return waiting.result()
        except concurrent.futures.CancelledError as error:
            raise asyncio.CancelledError from error  # as an async handler would see it
        except BaseException:
            waiting.cancel()  # interrupted at a soft timeout: what was asked should not go on unseen
            raise

    async def _awaited(self, awaitable: Awaitable[T], speaks: bool) -> T:
        if speaks:
            self._attempt.speaker = asyncio.current_task()
        return await awaitable


def current_job() -> JobContext:
    """The job that is running here; raises WrongContext outside of one."""
    attempt = current.get()
    if attempt is None:
        raise WrongContext("no job is running here", fix="call current_job() inside a task that a worker runs")
    return attempt.context


def worker_loop() -> asyncio.AbstractEventLoop | None:
    """The loop of the worker whose job runs here; None outside of one."""
    attempt = current.get()
    return None if attempt is None else attempt.loop


def _inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
