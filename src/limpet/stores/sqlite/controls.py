"""Keeps named records, each written over the version that the caller saw, and the two logs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from limpet.core.jobs.view import Control, Entry
from limpet.stores.sqlite.tx import Tx


def put_control(tx: Tx, control: Control, expect: int | None) -> Control | None:
    """Write a named record, over the version that the caller saw."""
    row = tx.row("control_version", (control.kind, control.name))
    version = 0 if row is None else int(row[0])
    if expect is not None and expect != version:
        return None
    tx.run("control_put", (control.kind, control.name, control.value, version + 1))
    if control.kind == "weight":
        weight = max(1, msgspec.json.decode(control.value, type=int))
        tx.run("turn_weight", (weight, weight, control.name))
    return Control(control.kind, control.name, control.value, version + 1)


def append(tx: Tx, entries: Sequence[Entry]) -> None:
    """Add lines to a log."""
    tx.many("log_add", [(e.log, e.at_ms, e.kind, e.actor, e.job, e.reason, e.data) for e in entries])


def log_lines(tx: Tx, log: str, after: int, limit: int, *, newest: bool) -> list[Entry]:
    """Lines of a log that come after one, oldest first: the first of them, or the newest."""
    if newest:
        return [Entry(*row) for row in reversed(tx.rows("log_read_newest", (log, after, limit)))]
    return [Entry(*row) for row in tx.rows("log_read", (log, after, limit))]
