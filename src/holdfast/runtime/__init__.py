"""Makes work happen in time: workers, their parts, and the supervisor of their processes."""

from holdfast.core.errors import LeaseLost
from holdfast.runtime.context import JobContext, current_job, worker_loop
from holdfast.runtime.settings import App, Parts, WorkerCutOff, WorkerFailed, WorkerSettings, WorkReport
from holdfast.runtime.worker import Worker

__all__ = [
    "App",
    "JobContext",
    "LeaseLost",
    "Parts",
    "WorkReport",
    "Worker",
    "WorkerCutOff",
    "WorkerFailed",
    "WorkerSettings",
    "current_job",
    "worker_loop",
]
