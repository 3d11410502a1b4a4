"""Remembers the durable calls of one attempt: each is recorded once, and those of earlier attempts are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from limpet.core.errors import InvalidStep, LeaseLost, WaitTimeout, WrongContext
from limpet.core.flows.steps import (
    APPROVAL,
    EVENT,
    SLEEP,
    Approval,
    Call,
    History,
    KeptError,
    Record,
    StepKind,
    check_event,
    check_name,
    forgetting,
)
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Note
from limpet.core.text.storable import storable
from limpet.runtime.background import background
from limpet.runtime.step import Calls, Step, StepRun, inside
from limpet.runtime.suspension import Suspension, Wait

if TYPE_CHECKING:
    from limpet.runtime.attempt import Attempt
    from limpet.runtime.context import JobChannel

LAST_S: Final = 1.0  # how long a cancelled call may take to write down what its function has done


class Steps:
    """The durable calls of one attempt. Everything here belongs to the loop in which they are awaited."""

    patience_s = 10.0  # how long a new call waits for recorded ones that were made beside it before
    lull_s = 1.0  # how long what may go on beside a wait can do without a durable call before the job is suspended

    def __init__(self, attempt: Attempt, channel: JobChannel, calls: Calls) -> None:
        job = attempt.job
        self._attempt = attempt
        self._channel = channel
        self._where = StepRun(
            attempt.context, calls, attempt.classifiers, attempt.step_middleware, lambda: attempt.cause is not None
        )
        self._history = History(job.notes, job=id_text(job.id), in_order=attempt.spec.steps == "in-order")
        self._events = {note.name: note.body for note in job.notes if note.kind == EVENT}
        self._sleeps = 0
        self._under_way: list[asyncio.Task[Any]] = []  # the tasks of calls that are not recorded yet
        self._strands: dict[asyncio.Task[Any], str] = {}  # tasks beside the handler, by their first call
        self._news = asyncio.Event()  # a call was made, or one has ended
        self._heard = 0  # how often there were news
        self._behind: set[asyncio.Task[Any]] = set()  # tasks that let others go first
        self._waits: dict[asyncio.Task[Any], Wait] = {}  # of tasks that cannot go on in this attempt
        self._told = False  # a plain function has heard that it should stop
        self._closed = False
        self.suspension: Suspension | None = None

    # -- what handlers call

    async def step(self, step: Step) -> Any:
        """What a step answers: it runs unless it is recorded."""
        call = self._begin("step", step.name)
        record = call.record
        if record is None:
            await self._caught_up(call)
            with self._under_way_now():
                came = await step.run(self._where)
                kept: dict[str, object] = {"value": came}
                if isinstance(came, KeptError):
                    kept = {"error": KeptError(came.type, self._attempt.hide(came.message))}
                record = await self._keep(call, call.recorded(**kept))
        return step.answer(record, id_text(self._attempt.job.id))

    async def sleep(self, delay_ms: int, name: str | None) -> None:
        """Return when the time is over; until then the job is suspended."""
        name = self._numbered() if name is None else check_name(name, "the name of a sleep")
        call = self._begin("sleep", name)
        event = f"{SLEEP}{name}"
        planned = call.record or await self._plan(call, event, delay_ms)
        if event not in self._events and not self._is_over(call.record):
            await self._suspend(Wait(event, planned.until_ms, f"sleep {name!r}"))

    async def wait_for(self, event: str, timeout_ms: int | None, name: str | None) -> Any:
        """The value that was signalled; until it is, the job is suspended."""
        check_event(event)
        call = self._begin("wait", event if name is None else name)
        return msgspec.json.decode(await self._signalled(call, event, timeout_ms))

    async def approval(self, question: str, timeout_ms: int | None, name: str) -> Approval:
        """What a person decided; until then the job is suspended."""
        check_name(name, "the name of an approval")
        call = self._begin("approval", name)
        raw = await self._signalled(call, f"{APPROVAL}{name}", timeout_ms, storable(question))
        return msgspec.json.decode(raw, type=Approval)

    # -- what the attempt asks

    @property
    def records(self) -> Mapping[str, Record]:
        """What is remembered of its durable calls, those of this attempt too."""
        return self._history.records

    def heard(self) -> None:
        """The handler has seen that it should stop: what it calls from now on is its cleaning up."""
        self._told = True

    async def finish(self) -> None:
        """The handler has ended: wait for the functions that still run beside it, so that what they do is recorded."""
        self._closed = True
        self._tell()
        try:
            while self._under_way:
                await self._heard_news()
        except asyncio.CancelledError:
            for task in self._under_way:
                task.cancel()

    def left_out(self) -> list[str]:
        """Recorded calls that a handler which has returned did not make."""
        return self._history.left_out()

    # -- one call

    def _begin(self, kind: StepKind, name: str) -> Call:
        attempt = self._attempt
        outer = inside.get()
        if outer is not None:
            raise InvalidStep(
                f"{kind} {name!r} is called inside step {outer!r}, which is recorded as a whole",
                fix="call it from the task's own function, before or after that step",
            )
        if attempt.over or attempt.cause == "lost":
            raise LeaseLost(f"job {id_text(attempt.job.id)} is no longer leased to this worker", fix="stop here")
        self._refuse_late(name)
        if attempt.cause is not None and attempt.thread is not None and not self._told:
            self._told = True  # an async handler gets it by itself, a plain one here, once
            raise TimeoutError("soft timeout") if attempt.cause == "timeout" else asyncio.CancelledError
        call = self._history.call(kind, name, beside=self._beside(name))
        self._tell()
        return call

    def _beside(self, name: str) -> str:
        """Nothing in the handler itself; elsewhere the first call that this task or thread makes."""
        if self._attempt.speaks_here():
            return ""
        task = _here()
        if task not in self._strands:
            self._strands[task] = name
            task.add_done_callback(self._tell)
        return self._strands[task]

    def _refuse_late(self, name: str) -> None:
        if self.suspension is not None:
            raise self.suspension.again()
        if self._closed:
            raise WrongContext(
                f"{name!r} is called after the task's function has ended", fix="await the tasks that you start"
            )

    @contextmanager
    def _under_way_now(self) -> Iterator[None]:
        """The attempt neither suspends nor ends before this call does."""
        task = _here()
        self._under_way.append(task)
        try:
            yield
        finally:
            self._under_way.remove(task)
            self._tell()

    async def _caught_up(self, call: Call) -> None:
        """Let recorded calls of other tasks be made first, as they were before; one that is not made is missing."""
        loop = asyncio.get_running_loop()
        while missing := self._history.unreached(call):
            made, deadline_s = self._history.calls, loop.time() + self.patience_s
            self._behind.add(_here())
            try:
                while self._history.calls == made:
                    async with asyncio.timeout_at(deadline_s):
                        await self._heard_news()
                    self._refuse_late(call.name)
            except TimeoutError:
                raise self._history.missed(missing[0], call) from None
            finally:
                self._behind.remove(_here())

    def _tell(self, _: object = None) -> None:
        self._heard += 1
        self._news.set()

    async def _heard_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    async def _keep(self, call: Call, record: Record) -> Record:
        """Remember a call. Once its function has run, being cancelled is no reason not to."""
        saving = background(self._save(self._history.keep(call, record)), "limpet-step")
        try:
            await asyncio.shield(saving)
        except asyncio.CancelledError:
            await asyncio.wait({saving}, timeout=LAST_S)
            if saving.done() and not saving.cancelled():
                saving.exception()  # its caller is gone
            raise
        return record

    async def _save(self, note: Note) -> None:
        attempt = self._attempt
        if not await self._channel.save(attempt.job, note):
            attempt.fence()
            raise LeaseLost(
                f"job {id_text(attempt.job.id)} is no longer leased to this worker, so {note.name!r} is not recorded",
                fix="stop: another worker may run it, with the same step_key",
            )

    # -- waiting

    def _numbered(self) -> str:
        if not self._attempt.speaks_here():
            raise InvalidStep(
                "a sleep outside the task's own function needs a name",
                fix='name it: sleep(60, name="cooldown")',
            )
        self._sleeps += 1
        return f"sleep-{self._sleeps}"

    def _now_ms(self) -> int:
        """The engine's time, as far as it can be known here."""
        return self._attempt.job.claimed_at_ms + self._attempt.elapsed_ms()

    def _is_over(self, earlier: Record | None) -> bool:
        """True when the time was over at this claim; what began in this attempt is looked at after the next one."""
        claimed_at_ms = self._attempt.job.claimed_at_ms
        return earlier is not None and earlier.until_ms is not None and claimed_at_ms >= earlier.until_ms

    async def _plan(self, call: Call, event: str, delay_ms: int | None, question: str = "") -> Record:
        """Decide when a wait that is reached for the first time ends by itself."""
        await self._caught_up(call)
        with self._under_way_now():
            until_ms = None if delay_ms is None else self._now_ms() + delay_ms
            if delay_ms == 0:
                until_ms = self._attempt.job.claimed_at_ms  # over at the next claim, whatever the clocks do
            return await self._keep(call, call.recorded(event=event, until_ms=until_ms, question=question))

    async def _signalled(self, call: Call, event: str, timeout_ms: int | None, question: str = "") -> bytes:
        record = call.record or await self._plan(call, event, timeout_ms, question)
        if not record.over:
            if event in self._events:
                return self._events[event]
            if not self._is_over(call.record):
                await self._suspend(Wait(event, record.until_ms, f"wait for {event!r}"))
            with self._under_way_now():
                await self._keep(call, msgspec.structs.replace(record, over=True))
        late = f"{event!r} was not signalled" if call.kind == "wait" else f"no decision on {call.name!r} was made"
        again = forgetting(id_text(self._attempt.job.id), call.name)
        raise WaitTimeout(f"{late} in time", fix=f"{again} waits for it once more")

    async def _suspend(self, wait: Wait) -> None:
        """End the handler when nothing else of it runs: no step, and every task of it waits or has ended.

        A task that is cancelled meanwhile, since another one came first, waits for nothing any more.
        """
        task = _here()
        self._waits[task] = wait
        self._tell()
        try:
            await self._rest()
            if self.suspension is None:
                self.suspension = Suspension.of(list(self._waits.values()), self._now_ms())
                self._tell()
        finally:
            del self._waits[task]
        raise self.suspension.again()

    async def _rest(self) -> None:
        """Return when nothing but its waits keeps this job, or when that was found out elsewhere."""
        while self.suspension is None:
            if self._closed:
                raise asyncio.CancelledError  # the handler has ended without this task
            heard = self._heard
            if self._under_way:
                await self._heard_news()
            elif self._may_go_on():
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._lull_s()):
                        await self._heard_news()
            if self._heard == heard and not self._under_way:
                return

    def _lull_s(self) -> float:
        """How long to wait for others; not until the attempt is out of time."""
        timeout_ms = self._attempt.job.policy.timeout_ms
        if timeout_ms is None:
            return self.lull_s
        return min(self.lull_s, max(0, timeout_ms - self._attempt.elapsed_ms()) / 2_000)

    def _may_go_on(self) -> bool:
        """False when the handler itself waits, and so does every task that has called, or it has ended.

        Nothing is seen of a task before its first call, nor of a thread between two of them.
        """
        if self._attempt.thread is not None and self._strands:
            return True
        resting = self._waits.keys() | self._behind
        if self._history.is_awaited() or any(not task.done() and task not in resting for task in self._strands):
            return True
        return self._waits.keys() <= self._strands.keys()


def _here() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task
