"""Reads and changes how long the finished jobs of single queues stay."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from limpet.core.errors import InvalidOption
from limpet.core.jobs.retention import DECLARED, SET, Keep, control_of, keep_of, merged, said_in
from limpet.core.jobs.state import State
from limpet.core.records.queue import RetentionChange, RetentionRecord
from limpet.core.records.record import seconds
from limpet.core.tasks.naming import checked_name
from limpet.ops.names import unknown_gate_note
from limpet.stores.base import Store


async def retention(store: Store) -> list[RetentionRecord]:
    """Every queue of which something is said, by name."""
    declared, by_hand = [said_in(await store.controls(kind)) for kind in (DECLARED, SET)]
    found = merged(declared, by_hand)
    return [_record(queue, found[queue], by_hand.get(queue, ())) for queue in sorted(found)]


async def set_retention(store: Store, queue: str, keep: Keep) -> RetentionChange:
    """Say it by hand; what is not named stays as it was. It wins over what code and settings files say."""
    checked_name(queue, what="the queue")
    states = keep_of(keep, what="keep")
    note = await unknown_gate_note(store, f"queue:{queue}")
    if not states:
        raise InvalidOption("no end of a job is named", fix='such as {"succeeded": "7d", "dead": "90d"}')
    known = {control.name: control for control in await store.controls(SET)}
    before = said_in(known.values()).get(queue, {})
    await store.put_control(control_of(SET, queue, {**before, **states}))
    return await _of(store, queue, (note,) if note else ())


async def clear_retention(store: Store, queue: str) -> RetentionChange:
    """Forget what was said by hand: code and settings files count again."""
    if queue not in said_in(await store.controls(SET)):
        raise InvalidOption(
            f"queue {queue!r} has no retention of its own", fix="limpet retention lists the queues that have one"
        )
    await store.put_control(control_of(SET, queue, {}))
    return await _of(store, queue)


async def _of(store: Store, queue: str, notes: tuple[str, ...] = ()) -> RetentionChange:
    found = next((kept for kept in await retention(store) if kept.queue == queue), _record(queue, {}, ()))
    return RetentionChange(queue=queue, keep=found.keep, set_by=found.set_by, notes=notes)


def _record(queue: str, states: Mapping[State, int | None], by_hand: Collection[State]) -> RetentionRecord:
    return RetentionRecord(
        queue=queue,
        keep={state: seconds(ms) for state, ms in states.items()},
        set_by={state: "operator" if state in by_hand else "code" for state in states},
    )
