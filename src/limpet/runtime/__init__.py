"""Makes work happen in time: workers, their parts, and the supervisor of their processes."""

from limpet.core.errors import LeaseLost
from limpet.runtime.context import JobContext, current_job, worker_loop
from limpet.runtime.settings import App, Parts, WorkerCutOff, WorkerFailed, WorkerSettings, WorkReport
from limpet.runtime.worker import Worker

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
