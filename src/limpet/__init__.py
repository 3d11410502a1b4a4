"""Limpet: a task queue that does not let go of a job, on embedded SQLite, Redis or PostgreSQL."""

from limpet.app import Limpet
from limpet.client.flow import Flow
from limpet.client.flow_handle import FlowHandle, GroupHandle, NodeHandle
from limpet.client.handle import JobHandle
from limpet.client.late import EnqueueTimeout, NotStored
from limpet.client.new_job import NewJob
from limpet.client.task import Inject, Task
from limpet.client.work import Chain, Group, JobSpec, Work, chain, chord, group
from limpet.core.endings.retry import Retry
from limpet.core.endings.signals import Cancel, Dead, RateLimited, RetryLater, Snooze
from limpet.core.errors import (
    AmbiguousId,
    BatchTooLarge,
    BudgetExceeded,
    CycleFound,
    FlowNotFound,
    ImportFailed,
    InvalidArguments,
    InvalidOption,
    InvalidStep,
    InvalidTask,
    JobCancelled,
    JobDead,
    JobError,
    JobNotFound,
    LeaseLost,
    LimpetError,
    NotSerialisable,
    PayloadTooLarge,
    QueueDraining,
    QueueFull,
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
    UnknownAttribute,
    UnknownParent,
    UnknownQueue,
    UsageError,
    WaitTimeout,
    WrongContext,
)
from limpet.core.flows.refs import ParentFailed
from limpet.core.flows.steps import Approval
from limpet.core.jobs.state import State
from limpet.core.limits.budget import Budget
from limpet.core.limits.limit import Breaker, Limit
from limpet.core.records.job import JobRecord, Progress
from limpet.core.schedules.when import Cron, Every, Once
from limpet.core.tasks.queue import Queue
from limpet.core.tasks.secret import Secret
from limpet.core.version import VERSION as __version__
from limpet.ops.codes import http_status
from limpet.runtime.context import JobContext, current_job
from limpet.runtime.log_fields import JobFilter, job_fields
from limpet.runtime.settings import WorkReport
from limpet.runtime.step import RunningStep

__all__ = [
    "AmbiguousId",
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
    "Group",
    "GroupHandle",
    "ImportFailed",
    "Inject",
    "InvalidArguments",
    "InvalidOption",
    "InvalidStep",
    "InvalidTask",
    "JobCancelled",
    "JobContext",
    "JobDead",
    "JobError",
    "JobFilter",
    "JobHandle",
    "JobNotFound",
    "JobRecord",
    "JobSpec",
    "LeaseLost",
    "Limit",
    "Limpet",
    "LimpetError",
    "NewJob",
    "NodeHandle",
    "NotSerialisable",
    "NotStored",
    "Once",
    "ParentFailed",
    "PayloadTooLarge",
    "Progress",
    "Queue",
    "QueueDraining",
    "QueueFull",
    "RateLimited",
    "ResultTimeout",
    "Retry",
    "RetryLater",
    "RunningStep",
    "SchemaOutdated",
    "Secret",
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
    "UnknownAttribute",
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
    "http_status",
    "job_fields",
]
