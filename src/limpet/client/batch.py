"""Decides what one bulk call may hold: builds its jobs, names a bad one by its index, keeps the bounds."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from limpet.client.budget_precheck import BudgetPrecheck
from limpet.client.work import JobSpec
from limpet.core.errors import BatchTooLarge, InvalidArguments, InvalidOption, UsageError
from limpet.core.gate import GateRule
from limpet.core.jobs.job import Job
from limpet.core.jobs.options import longer_wait
from limpet.core.tasks.task import Options, TaskSpec, build_job
from limpet.stores.base import MAX_BATCH_BYTES, MAX_BATCH_JOBS

# Parents of all jobs in one step: an engine notes each, and other calls wait meanwhile.
MAX_DEPENDENCIES: Final = 100_000

# One chunk of a bulk that need not be atomic: large enough to be fast, small enough to stay far from the bounds.
_CHUNK_JOBS: Final = 5_000
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_CHUNK_DEPENDENCIES: Final = 25_000

# The options of a job after the app's middleware has seen it.
Shaped = Callable[[TaskSpec, Mapping[str, Any], Options], Options]


class Batch:
    """Jobs that go to the store in one call, with the gates they name."""

    def __init__(self, shaped: Shaped) -> None:
        self._shaped = shaped
        self.jobs: list[Job] = []
        self.rules: dict[str, GateRule] = {}
        self.precheck = BudgetPrecheck()
        self.wait_ms: int | None = None  # for room in a full queue: the longest that one of its jobs asks for
        self._bytes = 0
        self._dependencies = 0

    def add(self, index: int, item: object, id: bytes) -> None:
        """Build one job; `index` is its place in what the caller passed."""
        try:
            spec, job, rules = _build(item, id, self._shaped)
        except UsageError as error:
            raise type(error)(f"jobs[{index}]: {error.message}", fix=error.fix) from error
        assert isinstance(item, JobSpec)
        self.wait_ms = longer_wait(self.wait_ms, item.options.wait_ms)
        if spec.budgets:
            self.precheck.add(spec, job, f"jobs[{index}]: ")
        self.jobs.append(job)
        self._bytes += len(job.args) + len(job.meta)
        self._dependencies += len(job.after)
        for rule in rules:
            self.rules[rule.key] = rule

    @property
    def is_chunk(self) -> bool:
        """True when it holds enough for a call of its own."""
        return len(self.jobs) >= _CHUNK_JOBS or self._bytes >= _CHUNK_BYTES or self._dependencies >= _CHUNK_DEPENDENCIES

    def place(self, first: int) -> str:
        """Where this chunk lies in what the caller passed."""
        return f"in jobs[{first}:{first + len(self.jobs)}], counted from {first}: "

    def refuse_if_too_large(self) -> None:
        """All or nothing has a bound, the same on every engine."""
        if self._dependencies > MAX_DEPENDENCIES:
            raise BatchTooLarge(
                f"the jobs of the batch wait for more than {MAX_DEPENDENCIES:,} others in all",
                fix="pass atomic=False to store it in chunks",
            )
        if len(self.jobs) <= MAX_BATCH_JOBS and self._bytes <= MAX_BATCH_BYTES:
            return
        raise BatchTooLarge(
            f"the batch has more than {MAX_BATCH_JOBS:,} jobs or {MAX_BATCH_BYTES:,} bytes of arguments",
            fix="pass atomic=False to store it in chunks",
        )


def _build(item: object, id: bytes, shaped: Shaped) -> tuple[TaskSpec, Job, tuple[GateRule, ...]]:
    if not isinstance(item, JobSpec):
        if isinstance(item, Coroutine):
            item.close()  # task.enqueue(...) where task.job(...) was meant: it will never run
        raise InvalidArguments(f"a {type(item).__qualname__} is not a job", fix="make it with task.job(...)")
    if item.options.conn is not None:
        # Ignoring it would store the job whether or not the caller's transaction commits.
        raise InvalidOption(
            "conn= of one job: all jobs of a call share one transaction or none", fix="enqueue_many(jobs, conn=...)"
        )
    signature = item.spec.signature
    if not signature.required.issubset(item.values):
        signature.bind_named(item.values)  # raises, naming what is missing
    options = shaped(item.spec, item.values, item.options)
    return item.spec, *build_job(item.spec, item.values, options, id=options.id or id)
