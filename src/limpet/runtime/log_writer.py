"""Writes log lines to stderr, those of successes in batches by a thread: a line per job must not slow the jobs down."""

from __future__ import annotations

import logging
import os
import select
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Final, TextIO

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Lane
from limpet.core.jobs.lease import Claimed
from limpet.core.text.log_line import quoted
from limpet.core.text.storable import spoken
from limpet.runtime.current import current
from limpet.runtime.log_format import SECOND, JsonLines, TextLines, encoded, iso

FLUSH_S: Final = 0.1  # a success is told no later, and a kill -9 loses no more of them
MOST_WAITING: Final = 10_000  # then a job that ends writes them: a log that is not read must not fill the memory
# What goes out in one write. Several processes write one log, and a pipe keeps no more of a write together.
IN_PIPE_BYTES: Final = select.PIPE_BUF
IN_FILE_BYTES: Final = 1 << 16

WORKER: Final = "limpet.worker"  # the logger of workers and their jobs
SUCCESS: Final = "job succeeded"

# When, id, lane, attempt, milliseconds. Not the job: what waits must not keep its arguments.
Success = tuple[float, bytes, Lane, int, int]


class LogWriter(logging.Handler):
    """Lines about successes go out together, at most 0.1 s late; any other line at once, with all before it.

    A success is formatted where it is written, and its line is the one that its record would get.
    """

    def __init__(self, style: str) -> None:
        super().__init__()
        self._as_json = style == "json"
        self.setFormatter(JsonLines() if self._as_json else TextLines())
        self._stream = sys.stderr  # the one of now: a handler may redirect its own for a while
        self._most_bytes = IN_FILE_BYTES if _is_file(self._stream) else IN_PIPE_BYTES
        self._begin()
        os.register_at_fork(after_in_child=self._begin)  # what waits is the parent's, and its thread is not here

    def _begin(self) -> None:
        self._success: Callable[[Success], str] = success_in_json if self._as_json else SuccessInText()
        self._waiting: deque[str | Success] = deque()
        self._writing = threading.RLock()
        self._news = threading.Event()
        self._told = False
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        try:
            self._waiting.append(self._line(record))
        except Exception:
            self.handleError(record)
        self.flush()

    def _line(self, record: logging.LogRecord) -> str:
        """The line without the secrets of the job that says it."""
        line, attempt = self.format(record), current.get()
        return line if attempt is None else attempt.hide(line)

    def handleError(self, record: logging.LogRecord) -> None:
        """Say which line could not be formatted, as a line: `log.info("%d", "x")` must not cost its handler more."""
        if logging.raiseExceptions:
            told = {
                **{name: getattr(record, name) for name in ("name", "created", "msecs", "process")},
                "levelno": logging.ERROR,
                "levelname": "ERROR",
                "msg": "a log line of %s:%d cannot be formatted: %s (%s)",
                "args": (record.pathname, record.lineno, spoken(record.msg), spoken(sys.exc_info()[1])),
            }
            with suppress(Exception):
                self._waiting.append(self._line(logging.makeLogRecord(told)))

    def succeeded(self, job: Claimed, duration_ms: int) -> None:
        """Take the line about an attempt that succeeded."""
        self._waiting.append((time.time(), job.id, job.lane, job.attempt, duration_ms))
        if not self._told:
            self._tell()
        elif len(self._waiting) > MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        with self._writing:
            try:
                while self._waiting:
                    self._stream.write(self._next_lines())
                    self._stream.flush()
            except Exception:  # it is closed, or its reader is gone: nothing can be told
                self._waiting.clear()

    def _next_lines(self) -> str:
        """As many lines as are kept together, and at least one."""
        lines, size = "", 0
        while self._waiting:
            line = self._waiting[0]
            if not isinstance(line, str):
                line = self._waiting[0] = self._success(line)
            size += len(line.encode(errors="replace")) + 1
            if lines and size > self._most_bytes:
                break
            self._waiting.popleft()
            lines += line + "\n"
        return lines

    def _tell(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="limpet-log", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the container has no room for another thread
                self.flush()
                return
            self._thread = thread
        self._told = True
        self._news.set()

    def _run(self) -> None:
        while True:
            self._news.wait()
            time.sleep(FLUSH_S)  # for the lines that come with it
            self._news.clear()
            self._told = False
            self.flush()


def _is_file(stream: TextIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return False


class SuccessInText:
    """The line of a success as logging would format its record; a second is formatted once."""

    def __init__(self) -> None:
        self._second, self._stamp, self._process = 0, "", os.getpid()

    def __call__(self, success: Success) -> str:
        at_s, id, lane, attempt, duration_ms = success
        second = int(at_s)
        if second != self._second:
            self._second, self._stamp = second, time.strftime(SECOND, time.localtime(second))
        begin = f"{self._stamp},{int((at_s - second) * 1000):03d} INFO    {self._process} {WORKER}: {SUCCESS}"
        about = f"queue={_name(lane.queue)} task={_name(lane.task)} attempt={attempt} duration_ms={duration_ms}"
        return f"{begin} job_id={id_text(id)} {about}"


_name: Final = lru_cache(maxsize=4_096)(quoted)  # of a task or a queue


def success_in_json(success: Success) -> str:
    """The same as JsonLines would format its record."""
    at_s, id, lane, attempt, duration_ms = success
    line = {
        "at": iso(at_s),
        "level": "info",
        "logger": WORKER,
        "process": os.getpid(),
        "event": SUCCESS,
        "job_id": id_text(id),
        "queue": lane.queue,
        "task": lane.task,
        "attempt": attempt,
        "duration_ms": duration_ms,
    }
    return encoded(line)
