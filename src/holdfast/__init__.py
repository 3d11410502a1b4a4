"""Holdfast: a task queue that does not let go of a job, on embedded SQLite, Redis or PostgreSQL."""

from holdfast.app import Holdfast
from holdfast.client.flow import Flow
from holdfast.client.flow_handle import FlowHandle, FlowStatus, GroupHandle, NodeHandle, NodeStatus
from holdfast.client.handle import JobHandle, JobStatus, Progress
from holdfast.client.producer import EnqueueTimeout
from holdfast.client.task import Inject, Task
from holdfast.client.work import Chain, Group, JobSpec, Work, chain, chord, group
from holdfast.core.budget import Budget
from holdfast.core.errors import (
    BatchTooLarge,
    BudgetExceeded,
    CycleFound,
    FlowNotFound,
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
from holdfast.core.queue import Queue
from holdfast.core.refs import ParentFailed
from holdfast.core.retry import Retry
from holdfast.core.schedules.when import Cron, Every, Once
from holdfast.core.signals import Cancel, Dead, RateLimited, RetryLater, Snooze
from holdfast.core.state import State
from holdfast.core.steps import Approval
from holdfast.core.version import VERSION as __version__
from holdfast.ops import NextRun, ScheduleView, TickView
from holdfast.runtime.context import JobContext, current_job
from holdfast.runtime.settings import WorkReport

__all__ = [
    "Approval",
    "BatchTooLarge",
    "Breaker",
    "Budget",
    "BudgetExceeded",
    "Cancel",
    "Chain",
    "Cron",
    "CycleFound",
    "Dead",
    "EnqueueTimeout",
    "Every",
    "Flow",
    "FlowHandle",
    "FlowNotFound",
    "FlowStatus",
    "Group",
    "GroupHandle",
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
    "NextRun",
    "NodeHandle",
    "NodeStatus",
    "NotSerialisable",
    "Once",
    "ParentFailed",
    "PayloadTooLarge",
    "Progress",
    "Queue",
    "QueueDraining",
    "RateLimited",
    "ResultTimeout",
    "Retry",
    "RetryLater",
    "ScheduleView",
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
    "TickView",
    "UnknownParent",
    "UnknownQueue",
    "UsageError",
    "WaitTimeout",
    "Work",
    "WorkReport",
    "WrongContext",
    "__version__",
    "chain",
    "chord",
    "current_job",
    "group",
]
