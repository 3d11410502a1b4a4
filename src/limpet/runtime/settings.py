"""The records of a worker: its inputs (WorkerPlan), how it behaves (WorkerSettings), what it did (WorkReport)."""

from __future__ import annotations

import os
import random
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from msgspec import Struct, field

from limpet.core.endings.hook import QUEUE as HOOKS
from limpet.core.endings.refusal import code_of
from limpet.core.endings.transition import Transition
from limpet.core.endings.verdict import Classifier
from limpet.core.errors import InvalidOption, LimpetError, StoreUnreachable
from limpet.core.jobs.job import URGENT
from limpet.core.jobs.lease import Serves
from limpet.core.jobs.view import Retention
from limpet.core.schedules.schedule import Schedule
from limpet.core.tasks.task import TaskSpec
from limpet.runtime.log_setup import LogSettings
from limpet.runtime.roster import Roster
from limpet.runtime.step import StepMiddleware
from limpet.stores.base import Store

if TYPE_CHECKING:
    from limpet.runtime.context import JobContext
    from limpet.runtime.loop_monitor import LoopMonitor

Middleware = Callable[["JobContext", Callable[[], Awaitable[object]]], Awaitable[object]]
Resource = Callable[[], Any]  # an async generator function, a generator function, or a context manager's factory

Companion = Callable[[Store], Coroutine[Any, Any, None]]  # runs until it is cancelled; it must not fail

Ending = Literal["stopped", "empty", "recycled"]
# Why a process asks to be replaced: a handler was given up and may still run; no memory, files or threads are left; it
# has run as many jobs as it may.
Recycled = Literal["abandoned", "exhausted", "max_jobs"]

PER_CORE: Final = max(1, os.cpu_count() or 1)
RAREST: Final = 1_000_000  # the largest `ageing`: one job in this many


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """How one worker process behaves. Every default is the one of the documentation."""

    queues: tuple[str, ...] | None = None  # None: every queue that its tasks use
    hooks: bool = True  # run the hooks of the app too, whatever `queues` says
    capabilities: tuple[str, ...] = ()
    concurrency: int = 100
    threads: int = 16
    job_processes: int = PER_CORE  # isolated children for process jobs and suspects
    reserve: int | None = None  # places on top for urgent jobs alone; None: a tenth, where a task is urgent (D28)
    ageing: int | None = None  # N: one job in N is claimed past more urgent ones
    grace_ms: int = 25_000
    cleanup_ms: int = 2_000  # after the grace: how long a stopped handler may take to end
    ttl_ms: int = 15_000
    beat_ms: int = 5_000
    sweep_ms: int = 1_000
    prune_ms: int = 10_000
    refer_ms: int = 10_000  # how soon, about, it is noticed that jobs wait for code which has gone
    look_ms: int = 1_000  # how soon, about, a schedule that was changed is noticed
    cut_off_ms: int = 600_000
    ahead_ms: int = 10  # claim ahead no more work than this takes
    linger_ms: int = 0  # with until_empty: how long to wait for what becomes ready later
    max_jobs: int | None = None
    max_memory_bytes: int | None = None
    recycles: bool = False  # a supervisor starts a new process after this one ends
    retention: Retention = Retention()
    code_version: str = ""  # wins over what the code says of itself

    def __post_init__(self) -> None:
        times = ("ttl_ms", "beat_ms", "sweep_ms", "prune_ms", "refer_ms", "look_ms")
        for name in ("concurrency", "threads", "job_processes", *times):
            if getattr(self, name) < 1:
                raise InvalidOption(f"{name} is {getattr(self, name)}", fix="it must be at least 1")
        for name in ("reserve", "ahead_ms"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise InvalidOption(f"{name} is {value}", fix="it must be at least 0")
        if self.ageing is not None and (type(self.ageing) is not int or not 2 <= self.ageing <= RAREST):
            raise InvalidOption(
                f"ageing must be a whole number from 2 to {RAREST:,}, got {self.ageing!r}",
                fix="20 claims one job in 20 past more urgent ones; leave it out for strict priorities",
            )
        if self.beat_ms * 2 > self.ttl_ms:
            raise InvalidOption(
                f"a beat every {self.beat_ms} ms cannot keep a lease of {self.ttl_ms} ms",
                fix="beat at least twice per ttl, so that one lost beat costs nothing",
            )

    def served(self, used: Collection[str]) -> tuple[str, ...]:
        """The queues that a worker serves, by those that its tasks use; that of hooks whatever `queues` says."""
        queues = self.queues or tuple(sorted(used))
        if not self.hooks:
            return tuple(queue for queue in queues if queue != HOOKS)
        return queues if HOOKS not in used or HOOKS in queues else (*queues, HOOKS)


class Reserve(Struct, frozen=True):
    """Slots beyond those that were asked for, which only critical and high jobs take (D28)."""

    slots: int = 0
    threads: int = 0

    @classmethod
    def of(cls, settings: WorkerSettings, urgent: Collection[str]) -> Reserve:
        """What these settings keep; `urgent` are the executors of the tasks that declare an urgent priority."""
        if settings.reserve is not None:
            return cls(settings.reserve, settings.reserve)
        return cls(
            slots=_tenth(settings.concurrency) if urgent else 0,
            threads=_tenth(settings.threads) if "thread" in urgent else 0,
        )


def _tenth(places: int) -> int:
    """Of one place nothing: code that relies on one job at a time is not to meet a second one."""
    return 0 if places == 1 else max(1, places // 10)


def urgent_executors(tasks: Iterable[TaskSpec]) -> frozenset[str]:
    """The executors of the tasks that declare an urgent priority."""
    return frozenset(spec.executor for spec in tasks if spec.priority <= URGENT)


class Parts(Struct, frozen=True, kw_only=True):
    """What an app gives its workers, in every process that runs its jobs."""

    tasks: Mapping[str, TaskSpec]
    resources: Sequence[Resource] = ()
    hooks: Sequence[Resource] = ()  # entered before the first job, left after the last
    middleware: Sequence[Middleware] = ()  # outermost first
    step_middleware: Sequence[StepMiddleware] = ()  # likewise
    classifiers: Sequence[Classifier] = ()
    schedules: Sequence[Schedule] = ()  # those that the code declares
    code_version: str = ""  # of the code, for people; "": made of the signatures
    companions: Sequence[Companion] = ()  # what runs beside the jobs in each process that claims

    def signatures(self) -> dict[str, str]:
        """The signature of each task, by all its names."""
        return {name: spec.signature.fingerprint for name, spec in self.tasks.items()}


class AppRef(Struct, frozen=True):
    """Where another process finds the app (`module:attr` or `file.py:attr`), and which store it is bound to here."""

    ref: str
    url: str | None = None  # None: as the code says
    namespace: str | None = None


def session_name() -> str:
    """A name that no other worker has, and that tells people where it runs."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


async def _nothing() -> None: ...


class WorkerEvents(Struct, frozen=True, kw_only=True):
    """What the owner of a worker does before its first beat, and what it is told."""

    before: Callable[[], Coroutine[Any, Any, None]] = _nothing
    on_ready: Callable[[bytes], None] = lambda info: None  # with what operators see of the worker
    on_beat: Callable[[], None] = lambda: None
    on_leaving: Callable[[], None] = lambda: None
    on_given_up: Callable[[Transition], None] = lambda transition: None  # its handler runs on
    on_unwritten: Callable[[list[Transition], dict[bytes, dict[str, int]]], None] = lambda ends, spent: None
    on_other_store: Callable[[], Awaitable[object]] | None = None  # e.g. publishes what code declares


class WorkerPlan(Struct, frozen=True, kw_only=True):
    """All that one run of a worker is made from."""

    store: Store
    parts: Parts
    settings: WorkerSettings = WorkerSettings()
    app_ref: AppRef | None = None  # None: no other process can load the app, so no job runs in a process of its own
    log: LogSettings = LogSettings(app=False)  # of processes that load it; in someone's own program the app does it
    events: WorkerEvents = WorkerEvents()
    session: str = field(default_factory=session_name)
    roster: Roster | None = None  # None: no supervisor
    metrics: bool = False  # a supervisor exposes what is counted
    monitor: LoopMonitor | None = None  # of the loop, in a process of ours; None: it is made
    rng: random.Random = field(default_factory=random.Random)
    clock_s: Callable[[], float] = time.monotonic

    @property
    def serves(self) -> Serves:
        """What its session claims."""
        tasks = self.parts.tasks
        queues = self.settings.served({spec.queue for spec in tasks.values()})
        capabilities = (*self.settings.capabilities, code_of(self.parts.signatures()))
        return Serves(queues, tuple(sorted(tasks)), tuple(sorted(capabilities)))


class App(Protocol):
    """What a child process needs of the app that `module:attr` names."""

    @property
    def url(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def store(self) -> Store: ...

    def parts(self) -> Parts: ...

    async def publish(self) -> int:
        """Write what the tasks declare into the store, for programs without this code."""

    def rebind(self, url: str | None = None, *, namespace: str | None = None) -> None:
        """Use another store than the one named in code: a flag of the command line wins."""


class WorkReport(Struct):
    """What a worker did until it ended, counted by settled transitions."""

    ending: Ending = "stopped"
    claimed: int = 0
    succeeded: int = 0
    retried: int = 0
    dead: int = 0
    cancelled: int = 0
    released: int = 0
    snoozed: int = 0
    suspended: int = 0
    held: int = 0
    lost: int = 0
    refused: int = 0  # handed on, since their arguments fit other code
    stale: int = 0  # settlements refused: the lease had gone to someone else

    @property
    def run(self) -> int:
        """Attempts that came to an end of their own."""
        ended = self.succeeded + self.retried + self.dead + self.cancelled
        return ended + self.snoozed + self.suspended + self.held


class WorkerFailed(LimpetError):
    """A part of the worker died, so the worker stopped; the cause is chained."""

    code = "worker_failed"


class WorkerCutOff(StoreUnreachable):
    """The worker could not reach its engine for longer than it may stay deaf."""

    code = "worker_cut_off"
