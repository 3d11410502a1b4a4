"""Runs held jobs in long-lived runner tasks: no task is made per job."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from limpet.core.endings.decide import awaits_commit
from limpet.core.endings.transition import (
    Bury,
    Drop,
    Failure,
    Hold,
    Lose,
    Refuse,
    Release,
    Succeed,
    Suspend,
    Transition,
)
from limpet.core.jobs.lease import Claimed
from limpet.core.limits.spending import Bill
from limpet.core.text.log_line import LINE_CHARS
from limpet.core.text.storable import storable
from limpet.runtime.attempt import Attempt
from limpet.runtime.background import background
from limpet.runtime.barred_gates import BarredGates
from limpet.runtime.context import JobChannel
from limpet.runtime.fence import Fence
from limpet.runtime.isolation import Isolation, IsolationFailed, NoProcess
from limpet.runtime.local_queue import LocalQueue, Pace
from limpet.runtime.log import job_log, job_succeeded, logger
from limpet.runtime.minute_counter import AttemptCounter
from limpet.runtime.part import OnFailure
from limpet.runtime.pipe import Pipe
from limpet.runtime.referral import Referral
from limpet.runtime.settings import Recycled, WorkerPlan
from limpet.runtime.settler import SettleQueue

STOP_S: Final = 0.5  # for runners to end, once their handlers have ended or were given up
BROKEN_S: Final = 1.0  # between two tries to start a process for a job
TAKEN_BACK_S: Final = 60.0  # the store takes back what is given up long before: 30 s after its hard timeout
LATE_S: Final = 1.0  # between two jobs that come too late to begin
UNORDERED: Final = "its worker process ended without being told to"
JOBS_PER_TURN: Final = 32  # then the loop turns once: settling, claiming and other jobs get their share


class Executor:
    """Takes jobs from the local queue as slots allow, and puts transitions into the settle queue.

    `recycle` asks for a new process, and says why; `on_given_up` hears what becomes of a job whose handler was given up
    and runs on in a slot.
    """

    name = "executor"

    def __init__(
        self,
        plan: WorkerPlan,
        local_queue: LocalQueue,
        settle_queue: SettleQueue,
        barred_gates: BarredGates,
        pace: Pace,
        channel: JobChannel,
        fence: Fence,
        isolation: Isolation,
        referral: Referral,
        recycle: Callable[[Recycled], None],
    ) -> None:
        self._tasks = plan.parts.tasks
        self._cleanup_s = plan.settings.cleanup_ms / 1000  # how long a stopped handler may take to clean up
        self._max_jobs = plan.settings.max_jobs
        self._roster = plan.roster
        self._on_given_up = plan.events.on_given_up
        self._local_queue = local_queue
        self._settle_queue = settle_queue
        self._barred_gates = barred_gates
        self._demand = local_queue.demand
        self._pace = pace
        self._channel = channel
        self._fence = fence
        self._isolation = isolation
        self._referral = referral
        self._recycle = recycle
        self._pipe: Pipe | None = None
        self._loop = asyncio.get_running_loop()
        self._runners: set[asyncio.Task[None]] = set()
        self._stuck: set[asyncio.Task[None]] = set()
        self._idle: list[asyncio.Future[None]] = []
        self._on_failure: OnFailure | None = None
        self._quiet = asyncio.Event()
        # Those that wait for something, and so can be stopped. A job may run twice here, under two tokens,
        # when its lease was lost and this worker claimed it again before it noticed.
        self.running: dict[tuple[bytes, int], Attempt] = {}
        # What becomes of jobs that were given up and whose handlers run on, in a slot of a limit.
        self.given_up: dict[tuple[bytes, int], tuple[Claimed, Transition, Bill | None]] = {}
        self.counter = AttemptCounter(exemplars=plan.metrics)
        self.left = 0  # handlers that were given up and run on
        self.ended = 0
        self.refill_at = 0

    async def start(self, on_failure: OnFailure, pipe: Pipe) -> None:
        """Begin to take jobs; runners are made as they are needed."""
        self._on_failure, self._pipe = on_failure, pipe

    def wake(self) -> None:
        """Start what may start. One runner is woken; whenever a job has to wait, it wakes the next."""
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
                return
        if len(self._runners) < self._local_queue.slots.size and self._on_failure is not None:
            self._add_runner()

    def stop_job(self, id: bytes, token: int, reason: str) -> None:
        """Someone asked to cancel a job that this worker runs or holds."""
        attempt = self.running.get((id, token))
        if attempt is not None:
            attempt.stop("cancel", reason)
        elif self._local_queue.remove(id, token):
            self._settle_queue.put(Drop(id, token, reason))

    def drop(self, newest_token: int) -> None:
        """What was claimed up to that token is no longer ours: stop it, and say nothing to the store about it."""
        self._local_queue.drop(newest_token)
        for key in [key for key in self.given_up if key[1] <= newest_token]:
            del self.given_up[key]
        for attempt in list(self.running.values()):
            if attempt.job.token <= newest_token:
                attempt.stop("lost", "the session was lost")

    async def drain(self, grace_s: float, forced: asyncio.Event, ordered: Callable[[], bool]) -> None:
        """Let running jobs end within the grace, then stop those that did not.

        They are handed back. But an end without an order may be the fault of any of them, so it is a loss to all.
        """
        await self._ended_within(grace_s, forced)
        for attempt in list(self.running.values()):
            if ordered():
                attempt.stop("shutdown", "the worker is stopping")
            else:
                attempt.stop("fall", UNORDERED)
        await self._ended_within(self._cleanup_s, None)
        for attempt in list(self.running.values()):
            if not attempt.over:
                job = attempt.job
                attempt.cut_short = attempt.left = True
                self.left += 1
                handed_back = Release(job.id, job.token, started=True)
                self._settle(attempt, handed_back if ordered() else Lose(job.id, job.token, reason=UNORDERED))
                attempt.over = True
                job_log(logging.WARNING, "job did not end in time", job, elapsed_ms=attempt.elapsed_ms())

    async def stop(self) -> None:
        """End the runners. A handler that ignores this is left behind, fenced by its token."""
        self._on_failure = None
        runners = self._runners | self._stuck
        for runner in runners:
            runner.cancel()
        if runners:
            # Handlers had their time to end in `drain`.
            await asyncio.wait(runners, timeout=min(self._cleanup_s, STOP_S))

    # -- one runner

    def _add_runner(self) -> None:
        task = background(self._run(), "limpet-runner", self._loop)
        self._runners.add(task)
        task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._runners.discard(task)
        self._stuck.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and self._on_failure is not None:
            self._on_failure(self.name, error)

    async def _run(self) -> None:
        local_queue, roster, loop, tasks = self._local_queue, self._roster, self._loop, self._tasks
        fence, channel = self._fence, self._channel
        assert self._pipe is not None
        run = self._pipe.run
        turn = 0
        while True:
            taken = local_queue.pop()
            if taken is None:
                turn = 0
                idle = loop.create_future()
                self._idle.append(idle)
                await idle
                continue
            job, executor = taken
            spec = tasks[job.lane.task]
            attempt = Attempt(job, spec, channel, loop, self)
            if spec.must_stop(job.together) and not fence.guard(attempt):
                local_queue.done(job, executor)
                # It waited here until its lease may be lost. A store that can be asked for jobs and not kept is asked
                # seldom.
                loop.call_later(LATE_S, self._settle_queue.put, Release(job.id, job.token))
                continue
            if roster is not None:
                roster.start(job.id, job.token, "isolated" if executor == "process" else "inside")
            try:
                transition = await (self._isolated(attempt) if executor == "process" else run(attempt))
                if type(transition) is Refuse:
                    transition = await self._refer(attempt, transition)
            except BaseException as error:
                if self._on_failure is None or not isinstance(error, asyncio.CancelledError):
                    fence.release(attempt)
                    self._forget(attempt)  # this runner ends: no other part may wait for its job
                    if self._on_failure is not None and not attempt.over:
                        # And the worker with it: its job is a loss, not a hand-back, or it could do so for ever.
                        self._settle_queue.put(Lose(job.id, job.token, reason=f"the worker failed under it: {error!r}"))
                    raise
                # Neither the executor nor the handler was cancelled, but a task between them: some handler found it.
                transition = Lose(job.id, job.token, reason=UNORDERED)
            if attempt.guarded:
                fence.release(attempt)
            if attempt.replaced:
                self.came_back(attempt)
                return  # it came back after its hard timeout: another runner has its place
            local_queue.done(job, executor)
            self._end(attempt, transition)
            turn += 1
            if self._on_failure is None:
                return  # the executor was stopped by a cancellation, which this attempt took for its own
            if turn == JOBS_PER_TURN:
                turn = 0
                await asyncio.sleep(0)

    async def _isolated(self, attempt: Attempt) -> Transition | None:
        self.yielded(attempt)
        try:
            return await self._isolation.run(attempt)
        except IsolationFailed as error:
            if attempt.spec.executor == "process" or self._pipe is None:
                job_log(logging.ERROR, "could not start a process for the job", attempt.job, reason=error.message)
                attempt.exhausted = isinstance(error, NoProcess)
                await asyncio.sleep(BROKEN_S)
                return Lose(attempt.job.id, attempt.job.token, reason=error.message)
            # A suspect that cannot be isolated runs here after all: then only the count of its losses can stop it.
            job_log(logging.ERROR, "could not isolate a job that was lost before", attempt.job, reason=error.message)
            if self._roster is not None:
                self._roster.runs_in(attempt.job.id, attempt.job.token, 0)
            return await self._pipe.run(attempt)

    async def _refer(self, attempt: Attempt, refuse: Refuse) -> Transition:
        """Where a job goes that does not fit this worker's code; it keeps its slot until that is known."""
        self.yielded(attempt)
        return await self._referral.refer(attempt.job, refuse)

    def yielded(self, attempt: Attempt) -> None:
        self.running[attempt.job.id, attempt.job.token] = attempt
        if self._local_queue.held:
            self.wake()

    def give_up(self, attempt: Attempt) -> None:
        if attempt.returned:
            return  # its thread is back, and the loop hears of it in a moment
        attempt.cut_short = True
        if attempt.striker is None:
            attempt.left = True
            self.left += 1
            self._recycle("abandoned")
        if attempt.stopper is not None:
            attempt.stop("hard", "hard timeout")  # its thread is left, its process killed, and the runner continues
            self._loop.call_soon(self._look_back, attempt)
            return
        runner = attempt.task
        if runner is None or self._pipe is None:
            return
        transition = self._pipe.hard_timeout(attempt)
        attempt.replaced = True
        self._runners.discard(runner)
        self._stuck.add(runner)
        self._local_queue.done(attempt.job, self._local_queue.executor_of(attempt.job))
        self._end(attempt, transition)
        self.wake()

    def _look_back(self, attempt: Attempt) -> None:
        """Its thread may have come back in the very moment in which it was given up, and seen nothing of it."""
        if attempt.returned:
            self.came_back(attempt)

    def came_back(self, attempt: Attempt) -> None:
        """Its slot is free now. May be told twice."""
        if not attempt.left:
            return
        attempt.left = False
        self.left -= 1
        kept = self.given_up.pop((attempt.job.id, attempt.job.token), None)
        if kept is not None:
            self._put(*kept)

    def settle_given_up(self) -> None:
        """Settle for handlers that run on: this process does not learn when they end."""
        given_up, self.given_up = self.given_up, {}
        for kept in given_up.values():
            self._put(*kept)

    def _end(self, attempt: Attempt, transition: Transition | None) -> None:
        if self.running:
            self._forget(attempt)
        run_s = self._loop.time() - attempt.started_at_s
        if transition is not None and not attempt.over:
            self._settle(attempt, transition)
            plain = type(transition) is Succeed
            counted = transition.counted if plain or not awaits_commit(transition) else "succeeded"
            self.counter.ended(attempt.job, counted, run_s)
            if not plain:
                log_end(attempt, transition)
            elif logger.isEnabledFor(logging.INFO):
                job_succeeded(attempt.job, attempt.elapsed_ms())
        elif transition is None and self._roster is not None:
            self._roster.end(attempt.job.id, attempt.job.token)  # not ours any more: nothing will be settled
        attempt.over = True
        if attempt.exhausted:
            self._recycle("exhausted")
        pace = self._pace
        pace.ended += 1
        pace.busy_s += run_s
        self.ended += 1
        if self._local_queue.held <= self.refill_at:
            self._demand.slot_free()
            if self._max_jobs is not None and self.ended >= self._max_jobs:
                self._recycle("max_jobs")

    def _settle(self, attempt: Attempt, transition: Transition) -> None:
        """Now; but a handler that runs on in a slot keeps it, or must not run beside itself: when it has ended."""
        if attempt.left and (attempt.job.together or attempt.guarded):
            key = attempt.job.id, attempt.job.token
            self.given_up[key] = attempt.job, transition, attempt.bill
            self._on_given_up(transition)
            self._loop.call_later(TAKEN_BACK_S, self.given_up.pop, key, None)
        else:
            self._put(attempt.job, transition, attempt.bill)

    def _put(self, job: Claimed, transition: Transition, bill: Bill | None) -> None:
        if type(transition) is not Succeed or job.lane.breaker is not None:
            # A gate may learn from it: nothing has started since, and the store is not told.
            self._barred_gates.ended(job, transition, fits=self._settle_queue.fits(transition.token))
        self._settle_queue.put(transition, bill)

    def _forget(self, attempt: Attempt) -> None:
        self.running.pop((attempt.job.id, attempt.job.token), None)
        if not self.running:
            self._quiet.set()

    async def _ended_within(self, timeout_s: float, forced: asyncio.Event | None) -> None:
        """Return when nothing runs, or the time is over, or it is cut short."""
        deadline_s = self._loop.time() + timeout_s
        cut = None if forced is None else background(_waited(forced), "limpet-forced")
        try:
            while self.running and self._loop.time() < deadline_s and not (cut and cut.done()):
                self._quiet.clear()
                quiet = background(_waited(self._quiet), "limpet-quiet")
                waits = {quiet} if cut is None else {quiet, cut}
                await asyncio.wait(waits, timeout=deadline_s - self._loop.time(), return_when=asyncio.FIRST_COMPLETED)
                quiet.cancel()
        finally:
            if cut is not None:
                cut.cancel()


async def _waited(event: asyncio.Event) -> None:
    await event.wait()


def log_end(attempt: Attempt, transition: Transition) -> None:
    """One line per attempt that did not succeed: how it ended, how long it took and why."""
    about: dict[str, object] = {"duration_ms": attempt.elapsed_ms()}
    if awaits_commit(transition):
        job_log(logging.INFO, "job completed, if its transaction was committed", attempt.job, **about)
        return
    failure: Failure | None = getattr(transition, "failure", None)
    if failure is not None:
        about["error"] = storable(f"{failure.type}: {failure.message}".splitlines()[0], LINE_CHARS)
    elif reason := getattr(transition, "reason", ""):
        about["reason"] = reason.splitlines()[0]
    if (delay_ms := getattr(transition, "delay_ms", None)) is not None:
        about["again_in_ms"] = delay_ms
    if isinstance(transition, Suspend):
        about["waits_for"] = list(transition.events)
    if (
        failure is not None
        and failure.traceback
        and (isinstance(transition, Bury) or logger.isEnabledFor(logging.DEBUG))
    ):
        about["traceback"] = failure.traceback
    level = logging.INFO if isinstance(transition, Release | Suspend) else logging.WARNING
    event = transition.event
    if isinstance(transition, Hold) and transition.trips:
        about["key"] = transition.gate
        level, event = logging.ERROR, "closed the key of a job: the provider has no money or quota left"
    job_log(logging.ERROR if isinstance(transition, Bury) else level, event, attempt.job, **about)
