"""Keeps named records and the two logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from limpet.core.endings.hook import KIND, read_hook
from limpet.core.jobs.view import Control, Entry
from limpet.stores.postgres.enqueue import lane_body
from limpet.stores.postgres.operate import call_name
from limpet.stores.postgres.wire import clean, clean_json

if TYPE_CHECKING:
    from limpet.stores.postgres.client import Client

PUT: Final = "SELECT lp.put_control_1(%b::text, %b::text, %b::text, %b::bytea, %b::bigint, %b::integer, %b::jsonb)"
CONTROLS: Final = "SELECT * FROM lp.controls_1(%b::text)"
APPEND: Final = """SELECT lp.append_1(
  %b::text, %b::text[], %b::bigint[], %b::text[], %b::text[], %b::bytea[], %b::text[], %b::bytea[])"""
READ: Final = "SELECT * FROM lp.read_1(%b::text, %b::bigint, %b::integer, %b::boolean)"

LINES: Final = 1_000  # lines that one step adds to a log
MOST: Final = 1 << 30


# -- named records


async def put_control(client: Client, control: Control, expect: int | None) -> Control | None:
    """Write a named record, over the version that the caller saw; None when another is there."""
    weight = None
    if control.kind == "weight":
        weight = min(MOST, max(1, msgspec.json.decode(control.value, type=int)))
    hook = _hook(control) if control.kind == KIND else None
    values = (call_name(), clean(control.kind), clean(control.name), control.value, expect, weight, hook)
    (version,) = await client.row(PUT, values, verb="put_control")
    return None if version is None else Control(control.kind, control.name, control.value, version)


def _hook(control: Control) -> bytes | None:
    """What verbs must know of a hook to make its jobs (the columns of `hook`); None of one that is for no state."""
    hook = read_hook(control.value)
    if hook is None or not hook.states:
        return None
    lane = hook.lane
    return clean_json(
        {
            "states": [state.code for state in hook.states],
            "tasks": hook.tasks,
            "queues": hook.queues,
            "lane": lane.id,
            "class": lane.kind,
            "member": lane.member,
            "ring": lane.ring,
            "priority": lane.priority,
            "body": f"\\x{lane_body(lane).hex()}",
            "policy": hook.policy.id,
            "policy_body": msgspec.json.encode(hook.policy).decode(),
        }
    )


async def controls(client: Client, kind: str) -> list[Control]:
    """All records of a kind, by name."""
    return [Control(kind, *row) for row in await client.rows(CONTROLS, (clean(kind),), verb="controls")]


# -- logs


async def append(client: Client, entries: Sequence[Entry]) -> None:
    """Add lines to the logs they name."""
    for start in range(0, len(entries), LINES):
        part = entries[start : start + LINES]
        values = (
            call_name(),
            [entry.log for entry in part],
            [entry.at_ms for entry in part],
            [clean(entry.kind) for entry in part],
            [clean(entry.actor) for entry in part],
            [entry.job for entry in part],
            [clean(entry.reason) for entry in part],
            [entry.data for entry in part],
        )
        await client.row(APPEND, values, verb="append")


async def read(client: Client, log: Literal["audit", "event"], after: int, limit: int, *, newest: bool) -> list[Entry]:
    """Lines of a log that come after one, oldest first: the first of them, or the newest."""
    rows = await client.rows(READ, (log, after, limit, newest), verb="read")
    return [Entry(log, *row) for row in rows]
