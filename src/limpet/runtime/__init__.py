"""Makes work happen in time: workers, their parts, and the supervisor of their processes."""

from limpet.core.errors import LeaseLost
from limpet.runtime.context import JobContext, current_job, worker_loop
from limpet.runtime.settings import (
    App,
    Parts,
    WorkerCutOff,
    WorkerEvents,
    WorkerFailed,
    WorkerPlan,
    WorkerSettings,
    WorkReport,
)
from limpet.runtime.worker import Worker

__all__ = [
    "App",
    "JobContext",
    "LeaseLost",
    "Parts",
    "WorkReport",
    "Worker",
    "WorkerCutOff",
    "WorkerEvents",
    "WorkerFailed",
    "WorkerPlan",
    "WorkerSettings",
    "current_job",
    "worker_loop",
]
