"""Holdfast: a task queue that does not let go of a job, on embedded SQLite, Redis or PostgreSQL."""

from holdfast.app import Holdfast
from holdfast.client.handle import JobHandle, JobStatus, Progress
from holdfast.client.producer import EnqueueTimeout
from holdfast.client.task import Inject, JobSpec, Task
from holdfast.core.errors import (
    BatchTooLarge,
    CycleFound,
    HoldfastError,
    InvalidArguments,
    InvalidOption,
    InvalidStep,
    InvalidTask,
    JobCancelled,
    JobDead,
    JobError,
    JobNotFound,
    LeaseLost,
    NotSerialisable,
    PayloadTooLarge,
    QueueDraining,
    ResultTimeout,
    SchemaOutdated,
    StepFailed,
    StepsChanged,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreTimeout,
    StoreUnreachable,
    SuspensionCaught,
    UnknownParent,
    UnknownQueue,
    UsageError,
    WaitTimeout,
    WrongContext,
)
from holdfast.core.limit import Breaker, Limit
from holdfast.core.refs import ParentFailed
from holdfast.core.retry import Retry
from holdfast.core.signals import Cancel, Dead, RateLimited, RetryLater, Snooze
from holdfast.core.state import State
from holdfast.core.version import VERSION as __version__
from holdfast.runtime.context import JobContext, current_job
from holdfast.runtime.settings import WorkReport
from holdfast.runtime.steps import Approval

__all__ = [
    "Approval",
    "BatchTooLarge",
    "Breaker",
    "Cancel",
    "CycleFound",
    "Dead",
    "EnqueueTimeout",
    "Holdfast",
    "HoldfastError",
    "Inject",
    "InvalidArguments",
    "InvalidOption",
    "InvalidStep",
    "InvalidTask",
    "JobCancelled",
    "JobContext",
    "JobDead",
    "JobError",
    "JobHandle",
    "JobNotFound",
    "JobSpec",
    "JobStatus",
    "LeaseLost",
    "Limit",
    "NotSerialisable",
    "ParentFailed",
    "PayloadTooLarge",
    "Progress",
    "QueueDraining",
    "RateLimited",
    "ResultTimeout",
    "Retry",
    "RetryLater",
    "SchemaOutdated",
    "Snooze",
    "State",
    "StepFailed",
    "StepsChanged",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreTimeout",
    "StoreUnreachable",
    "SuspensionCaught",
    "Task",
    "UnknownParent",
    "UnknownQueue",
    "UsageError",
    "WaitTimeout",
    "WorkReport",
    "WrongContext",
    "__version__",
    "current_job",
]
