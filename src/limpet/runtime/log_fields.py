"""Says which job a log line is about, for our own log and for any other."""

from __future__ import annotations

import logging
from typing import Final

from limpet.core.jobs.ids import id_text
from limpet.runtime.current import current

NAMES: Final = ("job_id", "task", "queue", "attempt")


def job_fields() -> dict[str, object]:
    """`job_id`, `task`, `queue` and `attempt` of the job that runs here; empty outside of one.

    >>> job_fields()
    {}
    """
    attempt = current.get()
    if attempt is None:
        return {}
    job = attempt.job
    return {"job_id": id_text(job.id), "task": job.lane.task, "queue": job.lane.queue, "attempt": job.attempt}


class JobFilter(logging.Filter):
    """A filter for a handler: its records have the attributes `job_id`, `task`, `queue` and `attempt`.

    Outside of a job they are `outside`. What a line says itself with `extra=` stays.

    >>> handler = logging.StreamHandler()
    >>> handler.addFilter(JobFilter(outside="-"))
    >>> handler.setFormatter(logging.Formatter("%(levelname)s %(job_id)s %(message)s"))
    """

    def __init__(self, outside: object = None) -> None:
        super().__init__()
        self._outside = dict.fromkeys(NAMES, outside)

    def filter(self, record: logging.LogRecord) -> bool:
        """Let it pass, with the attributes."""
        for name, value in (job_fields() or self._outside).items():
            record.__dict__.setdefault(name, value)
        return True
