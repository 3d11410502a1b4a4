"""Writes the worker's log lines: one per event, with the job's id, queue, task, attempt and duration as fields."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import msgspec

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Claimed

logger: Final = logging.getLogger("limpet.worker")


def worker_log(level: int, event: str, **fields: object) -> None:
    """One line about the worker itself."""
    if logger.isEnabledFor(level):
        _write(level, event, fields)


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
    _write(level, event, about)


def _write(level: int, event: str, fields: dict[str, object]) -> None:
    # A log handler of the app's own may raise, or its stream may be closed: no reason to end what is logged about.
    with suppress(Exception):
        logger.log(level, "%s%s", event, _words(fields), extra={"limpet": {"event": event, **fields}})


def _words(fields: dict[str, object]) -> str:
    return "".join(f" {name}={value}" for name, value in fields.items())


class JsonLines(logging.Formatter):
    """One JSON object per line, with the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        fields = getattr(record, "limpet", None)
        line |= fields if isinstance(fields, dict) else {"event": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def setup_logging(style: str = "text", level: str = "INFO", *, name: str = "limpet") -> None:
    """Send the project's log lines to stderr: for programs of ours, never for a worker inside someone's own.

    `name` is the logger whose lines are meant, and those below it.
    """
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(process)d %(message)s")
    handler.setFormatter(JsonLines() if style == "json" else text)
    root = logging.getLogger(name)
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(level)
