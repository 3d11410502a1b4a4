"""Sets up logging in programs of ours: first our own log, then, once the app is imported, what the app left open.

Never called inside a worker in the user's own program (`app.work()`). Why it is so: ADR 47.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from types import TracebackType
from typing import Final, Literal

from msgspec import Struct

from limpet.core.text.storable import spoken
from limpet.runtime.log import worker_log
from limpet.runtime.log_fields import JobFilter
from limpet.runtime.log_writer import LogWriter

Style = Literal["text", "json"]

WARNINGS: Final = "py.warnings"  # where Python logs its warnings
# Each call is a line at INFO, with its URL and the secrets in it; at DEBUG also headers and bodies.
WORDY: Final = ("httpx", "httpcore", "urllib3", "botocore", "boto3", "s3transfer", "openai", "anthropic")


class LogSettings(Struct, frozen=True):
    """How the log looks, from which level on, and whether the app's own logging is set up at all."""

    style: Style = "text"
    level: str = "INFO"
    app: bool = True


def setup_logging(settings: LogSettings, *, name: str = "limpet") -> LogWriter:
    """Send our own log lines to stderr; `name` is the logger whose lines are meant, and those below it."""
    ours = logging.getLogger(name)
    writer = LogWriter(settings.style)
    ours.handlers[:] = [writer]
    ours.propagate, ours.disabled = False, False
    ours.setLevel(settings.level)
    return writer


class AppLogging:
    """The logging of a process of ours that imports the app: begun before the import, completed after it.

    Handlers that the app has set up are left alone, but for a filter that adds the job to their records.
    """

    def __init__(self, settings: LogSettings, *, name: str = "limpet") -> None:
        self._settings = settings
        self._writer = setup_logging(settings, name=name) if settings.app else None
        if self._writer is not None:
            self._begin(self._writer)

    def _begin(self, writer: LogWriter) -> None:
        """Take what would reach stderr without a handler: warnings, lines of the import, uncaught exceptions."""
        logging.lastResort = writer  # also for our own lines, where a configuration takes away their handler
        logging.captureWarnings(True)
        logging.getLogger(WARNINGS).addHandler(writer)
        sys.excepthook = _uncaught
        threading.excepthook = lambda args: _uncaught(args.exc_type, args.exc_value, args.exc_traceback, args.thread)
        sys.unraisablehook = lambda args: _uncaught(args.exc_type, args.exc_value, args.exc_traceback)

    def complete(self) -> None:
        """The app is imported: give the root logger a handler, unless the app has done so."""
        if self._writer is None:
            return
        logging.getLogger(WARNINGS).removeHandler(self._writer)
        root = logging.getLogger()
        if not root.handlers:
            root.addHandler(self._writer)
            if root.level == logging.WARNING:  # as Python made it
                root.setLevel(self._settings.level)
            for name in WORDY:
                if (wordy := logging.getLogger(name)).level == logging.NOTSET:
                    wordy.setLevel(logging.WARNING)
        self.mend()

    def mend(self) -> None:
        """Once more after code of the app has run: `dictConfig` disables every logger that it does not name."""
        if self._writer is None:
            return
        job = JobFilter()
        for name, logger in _loggers():
            if name == "limpet" or name.startswith("limpet."):
                logger.disabled = False
            for handler in logger.handlers:
                if handler is not self._writer and not any(isinstance(each, JobFilter) for each in handler.filters):
                    handler.addFilter(job)


def _loggers() -> list[tuple[str, logging.Logger]]:
    known = list(logging.root.manager.loggerDict.items())  # in one step: other threads may make loggers
    return [("", logging.root), *((name, each) for name, each in known if isinstance(each, logging.Logger))]


def _uncaught(
    kind: type[BaseException],
    error: BaseException | None,
    trace: TracebackType | None,
    thread: threading.Thread | None = None,
) -> None:
    """What no code has caught: a line of the log, with its traceback."""
    if issubclass(kind, SystemExit):
        return  # how a thread may end itself
    where = {} if thread is None else {"thread": thread.name}
    told = "".join(traceback.format_exception(kind, error, trace))
    worker_log(logging.ERROR, "uncaught exception", **where, error=f"{kind.__name__}: {spoken(error)}", traceback=told)
