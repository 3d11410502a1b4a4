"""Formats log records, ours and those of the app, as lines of text or of JSON."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Final

import msgspec

from limpet.core.text.log_line import indented, words
from limpet.core.text.storable import spoken, storable
from limpet.runtime.log_fields import job_fields

SECOND: Final = "%Y-%m-%d %H:%M:%S"
LONGEST: Final = 100_000  # characters of a value that no JSON can hold as it is
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "limpet"}


class TextLines(logging.Formatter):
    """Time, level, process, logger and message; then the job, as name=value. What follows the line is indented."""

    default_time_format = SECOND

    def format(self, record: logging.LogRecord) -> str:
        said = record.getMessage()
        if not is_own(record):
            fields = job_fields()
            fields.pop("queue", None)  # the task's, as a rule: who wants to know looks up the job
            first, end, rest = said.partition("\n")
            said = first + words(fields) + end + rest
        return (
            f"{self.formatTime(record)} {record.levelname:<7} {record.process} "
            f"{indented(f'{record.name}: {said}{self._behind(record)}')}"
        )

    def _behind(self, record: logging.LogRecord) -> str:
        blocks = (_traceback(self, record), record.stack_info)
        return "".join(f"\n{block}" for block in blocks if block)


class JsonLines(logging.Formatter):
    """One JSON object per line: an event of ours with its fields, a line of the app with its job and its `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": iso(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
        }
        if is_own(record):
            line |= getattr(record, "limpet", {"event": record.getMessage()})
        else:
            line |= {"event": record.getMessage(), **job_fields()}
            for name, value in vars(record).items():
                if name not in _STANDARD:
                    line.setdefault(name, value)
        if (traceback := _traceback(self, record)) is not None:
            line["traceback"] = traceback
        if record.stack_info:
            line["stack"] = record.stack_info
        return encoded(line)


def is_own(record: logging.LogRecord) -> bool:
    """True for a line of ours: it says itself which job it is about."""
    return record.name == "limpet" or record.name.startswith("limpet.")


def encoded(line: dict[str, object]) -> str:
    """A line as JSON, whatever its values are."""
    try:
        return msgspec.json.encode(line, enc_hook=spoken).decode()
    except Exception:  # half a character, a number beyond all size, a value that refers to itself
        plain = {storable(name, LONGEST): storable(value, LONGEST) for name, value in line.items()}
        return msgspec.json.encode(plain).decode()


def iso(at_s: float) -> str:
    """An instant as JSON has it."""
    return datetime.fromtimestamp(at_s, UTC).isoformat()


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
        record.exc_text = formatter.formatException(record.exc_info)
    return record.exc_text
