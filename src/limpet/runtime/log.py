"""Writes the worker's log lines: one per event, with the job's id, queue, task, attempt and duration as fields."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Claimed
from limpet.core.text.log_line import BLOCKS, Said, last_lines
from limpet.core.text.storable import spoken
from limpet.runtime.log_writer import SUCCESS, WORKER, LogWriter

logger: Final = logging.getLogger(WORKER)


def worker_log(level: int, event: str, **fields: object) -> None:
    """One line about the worker itself."""
    if logger.isEnabledFor(level):
        write_line(logger, level, event, fields)


def job_log(level: int, event: str, job: Claimed, **fields: object) -> None:
    """One line about one attempt. Formatters find the same facts as a mapping under `record.limpet`."""
    if not logger.isEnabledFor(level):
        return
    about = {
        "job_id": id_text(job.id),
        "queue": job.lane.queue,
        "task": job.lane.task,
        "attempt": job.attempt,
        **fields,
    }
    write_line(logger, level, event, about)


def job_succeeded(job: Claimed, duration_ms: int) -> None:
    """The line about a success, as most lines are: where all goes to our own writer it gets no record."""
    writer = _only_writer()
    if writer is None:
        job_log(logging.INFO, SUCCESS, job, duration_ms=duration_ms)
    else:
        writer.succeeded(job, duration_ms)


def _only_writer() -> LogWriter | None:
    above = logger.parent
    if above is None or above.propagate or len(above.handlers) != 1 or logger.handlers or logger.filters:
        return None
    handler = above.handlers[0]
    return handler if type(handler) is LogWriter and not handler.filters and handler.level <= logging.INFO else None


def write_line(logger: logging.Logger, level: int, event: str, fields: dict[str, object]) -> None:
    """One line; formatters find its facts as a mapping under `record.limpet`."""
    for name in BLOCKS:
        if name in fields:
            fields[name] = last_lines(spoken(fields[name]))
    # A log handler of the app's own may raise, or its stream may be closed: no reason to end what is logged about.
    with suppress(Exception):
        logger.log(level, "%s%s", event, Said(fields), extra={"limpet": {"event": event, **fields}})
