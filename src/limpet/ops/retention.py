"""Reads and changes how long the finished jobs of single queues stay."""

from __future__ import annotations

from msgspec import Struct

from limpet.core.errors import InvalidOption
from limpet.core.jobs.retention import DECLARED, SET, Keep, control_of, keep_of, merged, said_in
from limpet.core.jobs.state import State
from limpet.core.tasks.naming import checked_name
from limpet.stores.base import Store


class Kept(Struct, frozen=True):
    """How long jobs of a queue stay, by how they ended; None = for ever. Other ends are as for all queues."""

    queue: str
    states: dict[State, int | None]
    set_by_operator: frozenset[State] = frozenset()


async def retention(store: Store) -> list[Kept]:
    """Every queue of which something is said, by name."""
    declared, by_hand = [said_in(await store.controls(kind)) for kind in (DECLARED, SET)]
    found = merged(declared, by_hand)
    return [Kept(queue, found[queue], frozenset(by_hand.get(queue, ()))) for queue in sorted(found)]


async def set_retention(store: Store, queue: str, keep: Keep) -> Kept:
    """Say it by hand; what is not named stays as it was. It wins over what code and settings files say."""
    checked_name(queue, what="the queue")
    states = keep_of(keep, what="keep")
    if not states:
        raise InvalidOption("no end of a job is named", fix='such as {"succeeded": "7d", "dead": "90d"}')
    known = {control.name: control for control in await store.controls(SET)}
    before = said_in(known.values()).get(queue, {})
    await store.put_control(control_of(SET, queue, {**before, **states}))
    return await _of(store, queue)


async def clear_retention(store: Store, queue: str) -> Kept:
    """Forget what was said by hand: code and settings files count again."""
    if queue not in said_in(await store.controls(SET)):
        raise InvalidOption(
            f"queue {queue!r} has no retention of its own", fix="limpet retention lists the queues that have one"
        )
    await store.put_control(control_of(SET, queue, {}))
    return await _of(store, queue)


async def _of(store: Store, queue: str) -> Kept:
    return next((kept for kept in await retention(store) if kept.queue == queue), Kept(queue, {}))
