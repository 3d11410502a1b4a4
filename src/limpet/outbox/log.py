"""Writes the relay's log lines, in the form of the worker's: one per event, its facts as fields."""

from __future__ import annotations

import logging
from typing import Final

logger: Final = logging.getLogger("limpet.outbox")


def outbox_log(level: int, event: str, **fields: object) -> None:
    """One line; formatters find the same facts as a mapping under `record.limpet`."""
    if logger.isEnabledFor(level):
        words = "".join(f" {name}={value}" for name, value in fields.items())
        logger.log(level, "%s%s", event, words, extra={"limpet": {"event": event, **fields}})
