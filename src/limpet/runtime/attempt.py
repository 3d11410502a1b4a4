"""Remembers one run of one job: its timers, why it must end early, and how to stop its handler."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, Protocol

from limpet.core.endings.verdict import Classifier
from limpet.core.jobs.lease import Claimed
from limpet.core.limits.spending import Bill
from limpet.core.redaction.secrets import Secrets
from limpet.core.tasks.task import TaskSpec
from limpet.runtime.context import JobChannel, JobContext
from limpet.runtime.step import Calls, StepMiddleware
from limpet.runtime.steps import Steps

# Why an attempt must end early: out of time (told; given up), on request, no longer ours (surely; soon), shutdown, and
# the end of the process without an order.
Cause = Literal["timeout", "hard", "cancel", "lost", "lease", "shutdown", "fall"]


_FENCED: Final = ("lost", "lease")


class Escaped(Exception):
    """The handler raised what would end the loop around it; the cause is what it raised."""


class Host(Protocol):
    """Runs attempts, and is told what the other jobs of the loop need to know."""

    def yielded(self, attempt: Attempt) -> None:
        """The handler waits for something, so others may start."""

    def give_up(self, attempt: Attempt) -> None:
        """The hard timeout has come, and the handler has not ended."""

    def came_back(self, attempt: Attempt) -> None:
        """A handler that was given up has ended after all."""


class Attempt:
    """One run of one job, from start to transition. Everything but `stop` belongs to the worker's loop."""

    __slots__ = (
        "_channel",
        "_context",
        "_overdue",
        "_secrets",
        "_timer",
        "calls",
        "cause",
        "classifiers",
        "completed",
        "cut_short",
        "exhausted",
        "fenced",
        "guarded",
        "host",
        "job",
        "left",
        "loop",
        "noted",
        "over",
        "reason",
        "replaced",
        "returned",
        "speaker",
        "spec",
        "spent",
        "started_at_s",
        "step_middleware",
        "steps",
        "stopper",
        "striker",
        "task",
        "thread",
    )

    calls: Calls  # where plain functions of steps run; given by the pipe
    classifiers: Sequence[Classifier]  # what the task and the app say of errors; given likewise
    step_middleware: Sequence[StepMiddleware]  # around each step; given likewise

    def __init__(
        self,
        job: Claimed,
        spec: TaskSpec,
        channel: JobChannel,
        loop: asyncio.AbstractEventLoop,
        host: Host | None = None,
    ) -> None:
        self.job = job
        self.spec = spec
        self.loop = loop
        self.cause: Cause | None = None
        self.reason = ""
        self.completed = False  # in a transaction of the handler's own, with `noted` as the result
        self.noted: bytes | None = None
        self.over = False  # settled, dropped or abandoned: nothing its handler does can matter any more
        self.cut_short = False  # its handler has not ended by itself: it may have spent, or spend, more than it says
        self.left = False  # it was given up, and its handler runs on
        self.guarded = False  # it is stopped before its lease may be lost
        self.fenced = False  # that has come
        self.exhausted = False  # it failed because its process has no memory, files or threads left
        self.returned = False  # its thread has come back, in time or not
        self.replaced = False  # its runner is stuck in the handler, and another has taken its place
        self.host = host
        self.started_at_s = loop.time()
        self.task: asyncio.Task[Any] | None = None  # set while it waits in the loop
        self.stopper: Callable[[Cause], None] | None = None  # how to stop a handler that is not in this loop
        self.striker: Callable[[], None] | None = None  # how to end its processes, from any thread
        self.thread: int | None = None  # of a handler that is not in this loop
        self.speaker: asyncio.Task[Any] | None = None  # the task for which such a handler waits
        self.steps: Steps | None = None  # its durable calls, if it makes any
        self.spent: dict[str, int] | None = None  # what it says it has cost, by unit; None: nothing was said
        self._channel = channel
        self._context: JobContext | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._secrets: tuple[int, Secrets] | None = None  # after how many steps, and which
        self._overdue = False  # out of time, and its handler has not been told

    @property
    def context(self) -> JobContext:
        """What the handler sees; made when it first asks."""
        if self._context is None:
            self._context = JobContext(self, self._channel, self.loop)
        return self._context

    def hide(self, text: str) -> str:
        """A text of the handler's, an error or a line, without the secrets of its job: it is stored and logged so."""
        hidden = self.spec.hidden
        if not hidden:
            return text
        steps = {} if self.steps is None else self.steps.records
        if self._secrets is None or self._secrets[0] != len(steps):
            notes = [record.note(name) for name, record in steps.items()]
            self._secrets = len(steps), hidden.given(self.job, notes)
        return self._secrets[1].out_of(text)

    @property
    def bill(self) -> Bill | None:
        """What it hands in with its transition; None when it said nothing of costs."""
        return None if self.spent is None else Bill.of(self.job, self.spent, cut_short=self.cut_short)

    def elapsed_ms(self) -> int:
        """How long the attempt has been running."""
        return round((self.loop.time() - self.started_at_s) * 1000)

    def stop(self, cause: Cause, reason: str = "") -> None:
        """Ask the handler to end. The first cause stands, except that a lost lease overrules all others.

        A handler that must stop since its lease may be lost has done so, also when it had to be given up.
        """
        told = self.cause is not None
        if self.over or (told and cause not in ("lost", "hard") and (cause != "lease" or self.cause in _FENCED)):
            return
        if cause != "hard" or self.cause not in _FENCED:
            self.cause, self.reason = cause, reason
        if self.stopper is not None:
            self.stopper(cause)
        elif self.task is not None:
            self._overdue = cause == "timeout"
            self.task.cancel()

    def times_out(self, error: BaseException) -> bool:
        """True for the cancellation by which a handler in this loop is told, once, that it is out of time."""
        told, self._overdue = self._overdue, False
        return told and isinstance(error, asyncio.CancelledError)

    def speaks_here(self) -> bool:
        """True in the task that runs the handler or that a handler in a thread waits for, False in any other."""
        here = asyncio.current_task()
        return self.task is None or here is self.task or here is self.speaker

    def fence(self) -> None:
        """No longer ours, as the handler itself has heard: it is not cancelled, so that it can roll back in peace."""
        self.cause, self.reason = "lost", "the lease was lost"

    def yields(self, task: asyncio.Task[Any] | None) -> None:
        """The handler waits for something: from here on it can run out of time or be cancelled."""
        self.task = task
        soft_ms = self.job.policy.timeout_ms
        if soft_ms is not None:
            self._timer = self.loop.call_at(self.started_at_s + soft_ms / 1000, self._soft)
        else:
            self._arm_hard()
        if self.host is not None:
            self.host.yielded(self)
        if self.cause is not None and task is not None:
            task.cancel()  # it was stopped while it ran its first step

    def watch_hard(self) -> None:
        """Watch only the hard timeout: the soft one is kept where the handler runs."""
        self._arm_hard()

    def end(self) -> None:
        """The handler has ended, or is given up."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.task = None

    def _soft(self) -> None:
        self._arm_hard()
        self.stop("timeout", "soft timeout")

    def _arm_hard(self) -> None:
        hard_ms = self.job.policy.hard_timeout_ms
        self._timer = None if hard_ms is None else self.loop.call_at(self.started_at_s + hard_ms / 1000, self._hard)

    def _hard(self) -> None:
        self._timer = None
        if not self.over and self.host is not None:
            self.host.give_up(self)


def end_of_copy() -> None:
    """End a process that a handler forked and let return: this loop and its connections belong to the other one."""
    os._exit(0)
