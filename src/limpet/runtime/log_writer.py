"""Writes log lines to stderr, those of successes in batches by a thread: a line per job must not slow the jobs down."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Claimed

FLUSH_S: Final = 0.1  # a success is told no later, and a kill -9 loses no more of them
AT_ONCE: Final = 500  # lines in one write, about a millisecond: then other threads get a turn
MOST_WAITING: Final = 100_000  # a log that is not read must not fill the memory
LEFT_OUT: Final = "lines of the log are left out before this one: it is read more slowly than it is written"

SUCCESS: Final = "job succeeded"
TEXT: Final = "%(asctime)s %(levelname)-7s %(process)d %(message)s"
SECOND: Final = "%Y-%m-%d %H:%M:%S"

Success = tuple[float, Claimed, int]  # when, the job, and how many milliseconds it took


class JsonLines(logging.Formatter):
    """One JSON object per line, with the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": _iso(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        fields = getattr(record, "limpet", None)
        line |= fields if isinstance(fields, dict) else {"event": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class LogWriter(logging.Handler):
    """Lines about successes go out together, at most 0.1 s late; any other line at once, with all before it.

    A success is formatted where it is written, and its line is the one that its record would get.
    """

    def __init__(self, style: str) -> None:
        super().__init__()
        as_json = style == "json"
        self.setFormatter(JsonLines() if as_json else logging.Formatter(TEXT))
        self._success: Callable[[Success], str] = success_in_json if as_json else SuccessInText()
        self._begin()
        os.register_at_fork(after_in_child=self._begin)  # what waits is the parent's, and its thread is not here

    def _begin(self) -> None:
        self._waiting: deque[str | Success] = deque(maxlen=MOST_WAITING)
        self._writing = threading.Lock()
        self._news = threading.Event()
        self._told = False
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        try:
            self._waiting.append(self.format(record))
            self.flush()
        except Exception:
            self.handleError(record)

    def succeeded(self, job: Claimed, duration_ms: int) -> None:
        """Take the line about an attempt that succeeded."""
        self._waiting.append((time.time(), job, duration_ms))
        if not self._told:
            self._tell()

    def flush(self) -> None:
        """Write what waits."""
        with self._writing:
            if len(self._waiting) == MOST_WAITING:
                self._waiting[0] = self.format(
                    logging.makeLogRecord({"name": "limpet", "levelname": "WARNING", "msg": LEFT_OUT})
                )
            while self._waiting:
                lines = [self._line(self._waiting.popleft()) for _ in range(min(AT_ONCE, len(self._waiting)))]
                sys.stderr.write("".join(lines))
                sys.stderr.flush()

    def _line(self, line: str | Success) -> str:
        return (line if isinstance(line, str) else self._success(line)) + "\n"

    def _tell(self) -> None:
        self._told = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="limpet-log", daemon=True)
            self._thread.start()
        self._news.set()

    def _run(self) -> None:
        while True:
            self._news.wait()
            time.sleep(FLUSH_S)  # for the lines that come with it
            self._news.clear()
            self._told = False
            try:
                self.flush()
            except (OSError, ValueError):  # stderr is closed, or its reader is gone: nothing can be told
                self._waiting.clear()


class SuccessInText:
    """The line of a success as logging would format its record; a second is formatted once."""

    def __init__(self) -> None:
        self._second, self._stamp, self._process = 0, "", 0

    def __call__(self, success: Success) -> str:
        at_s, job, duration_ms = success
        second, lane = int(at_s), job.lane
        if second != self._second:
            self._second, self._process = second, os.getpid()
            self._stamp = time.strftime(SECOND, time.localtime(second))
        begin = f"{self._stamp},{int((at_s - second) * 1000):03d} INFO    {self._process} {SUCCESS}"
        about = f"queue={lane.queue} task={lane.task} attempt={job.attempt} duration_ms={duration_ms}"
        return f"{begin} job_id={id_text(job.id)} {about}"


def success_in_json(success: Success) -> str:
    """The same as JsonLines would format its record."""
    at_s, job, duration_ms = success
    line = {
        "at": _iso(at_s),
        "level": "info",
        "logger": "limpet.worker",
        "event": SUCCESS,
        "job_id": id_text(job.id),
        "queue": job.lane.queue,
        "task": job.lane.task,
        "attempt": job.attempt,
        "duration_ms": duration_ms,
    }
    return msgspec.json.encode(line).decode()


def _iso(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat()
