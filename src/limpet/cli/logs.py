"""Decides how a command that runs on writes its log, and writes the command's own words as lines of it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from limpet.core.errors import InvalidOption

if TYPE_CHECKING:
    from limpet.core.settings import WorkerTable
    from limpet.runtime.log_setup import LogSettings

F = TypeVar("F", bound=Callable[..., Any])

STYLES: Final = ("text", "json")
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")


def log_options(level: str) -> Callable[[F], F]:
    """--log and --log-level; `level` is the help of the second."""
    levels = click.Choice(LEVELS, case_sensitive=False)

    def add(function: F) -> F:
        function = click.option("--log-level", type=levels, help=level)(function)
        return click.option("--log", type=click.Choice(STYLES), help="Form of the log on stderr (LIMPET_LOG).")(
            function
        )

    return add


def log_settings(log: str | None, level: str | None, file: WorkerTable, *, setup: bool, otherwise: str) -> LogSettings:
    """Flag, then environment, then file, then `otherwise`."""
    from limpet.runtime.log_setup import LogSettings

    style = _chosen("LIMPET_LOG", log, file.log, STYLES, "text")
    level = _chosen("LIMPET_LOG_LEVEL", level, file.log_level, LEVELS, otherwise)
    return LogSettings(style=style, level=level, app=setup)


def _chosen(variable: str, flag: str | None, file: str | None, known: Sequence[str], otherwise: str) -> Any:
    given = flag or os.environ.get(variable) or file or otherwise
    for word in known:
        if word.lower() == given.lower():
            return word
    where = variable if os.environ.get(variable) else f"worker.{variable.removeprefix('LIMPET_').lower()}"
    raise InvalidOption(f"{where} is {given!r}", fix=" or ".join(word.lower() for word in known))


def wants_json_log(words: Sequence[str]) -> bool:
    """True for a command line whose log is JSON, before it is understood: its refusal is a line of that log, too."""
    if not words or words[0] not in ("worker", "outbox", "serve"):
        return False
    given = "--log=json" in words or ("--log", "json") in pairwise(words)
    return given or os.environ.get("LIMPET_LOG") == "json"


def say_line(level: str, event: str, **fields: object) -> None:
    """A message of the command as a line of a JSON log."""
    from limpet.runtime.log_format import encoded, iso

    about = {"at": iso(time.time()), "level": level, "logger": "limpet.cli", "process": os.getpid()}
    print(encoded({**about, "event": event, **fields}), file=sys.stderr)
