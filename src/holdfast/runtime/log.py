"""Writes the worker's log lines: one per event, with the job's id, queue, task, attempt and duration as fields."""

from __future__ import annotations

import logging
from typing import Final

from holdfast.core.ids import id_text
from holdfast.core.lease import Claimed

logger: Final = logging.getLogger("holdfast.worker")


def worker_log(level: int, event: str, **fields: object) -> None:
    """One line about the worker itself."""
    if logger.isEnabledFor(level):
        logger.log(level, "%s%s", event, _words(fields), extra={"holdfast": {"event": event, **fields}})


def job_log(level: int, event: str, job: Claimed, **fields: object) -> None:
    """One line about one attempt. Formatters find the same facts as a mapping under `record.holdfast`."""
    if not logger.isEnabledFor(level):
        return
    about = {
        "job_id": id_text(job.id),
        "queue": job.lane.queue,
        "task": job.lane.task,
        "attempt": job.attempt,
        **fields,
    }
    logger.log(level, "%s%s", event, _words(about), extra={"holdfast": {"event": event, **about}})


def _words(fields: dict[str, object]) -> str:
    return "".join(f" {name}={value}" for name, value in fields.items())
