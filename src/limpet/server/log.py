"""Writes the server's own log lines, under the logger `limpet.server`."""

from __future__ import annotations

import logging
from typing import Final

from limpet.runtime.log import write_line

SERVER: Final = "limpet.server"
logger: Final = logging.getLogger(SERVER)


def server_log(level: int, event: str, **fields: object) -> None:
    """One line about the server or one request."""
    if logger.isEnabledFor(level):
        write_line(logger, level, event, fields)
