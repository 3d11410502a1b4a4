"""Keeps operations in the store: one control in each of a bounded number of slots, changed over the version seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Final, NamedTuple

from limpet.core.access.request_key import hash_of
from limpet.core.errors import AmbiguousId, UsageError
from limpet.core.jobs.view import Control
from limpet.core.operations.operation import KIND, UNFINISHED, Operation, read_operation
from limpet.core.tasks.naming import did_you_mean
from limpet.ops.names import UnknownName
from limpet.ops.scope import queues_of
from limpet.ops.select import SHORTEST_SUFFIX, may_be_id
from limpet.stores.base import Store

KEPT_MS: Final = 7 * 86_400_000  # a finished operation is shown so long
SLOTS: Final = 1_000  # operations that are stored at once: the oldest finished one makes room
MOST_UNFINISHED: Final = 100  # each may be a million jobs, and a person has to know of it


class TooManyOperations(UsageError):
    """The most operations that may be unfinished are: no more are taken."""

    code = "too_many_operations"


class Kept(NamedTuple):
    """An operation as it was read: where it lies, and its version there."""

    operation: Operation
    slot: str
    version: int


Change = Callable[[Operation], Operation | None]  # None: leave it


class Shelf:
    """The operations of one namespace."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._row = row_of(queues_of(store))

    async def all(self, now_ms: int) -> list[Kept]:
        """Every operation, newest first; those that ended more than seven days ago are not shown."""
        found = [kept for control in await self.store.controls(KIND) if (kept := _kept(control)) is not None]
        return sorted((one for one in found if not _old(one.operation, now_ms)), key=lambda one: one.operation.id)[::-1]

    async def find(self, text: str, now_ms: int) -> Kept:
        """The operation of that id, or whose id alone ends so."""
        text = text.strip().lower().removeprefix("…")
        known = await self.all(now_ms)
        found = [one for one in known if one.operation.id == text] or [
            one for one in known if may_be_id(text) and one.operation.id.endswith(text)
        ]
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(one.operation.id for one in found[:5])
            raise AmbiguousId(f"more than one operation's id ends in {text!r}: {ids}", fix="give more characters")
        fix = did_you_mean(text, [one.operation.id for one in known])
        if len(text) < SHORTEST_SUFFIX:
            fix = f"give its last {SHORTEST_SUFFIX} or more characters"
        raise UnknownName(f"there is no operation {text!r:.80}", fix=fix)

    async def add(self, operation: Operation) -> Kept:
        """Store a new one in a free slot; one of the same id that is there stays, and is answered."""
        while True:
            controls = await self.store.controls(KIND)
            known = [kept for control in controls if (kept := _kept(control)) is not None]
            for one in known:
                if one.operation.id == operation.id:
                    return one
            own = [one for one in known if _in_row(one.slot, self._row)]
            _refuse_too_many(own)
            taken = {control.name for control in controls if _in_row(control.name, self._row)}
            slot, version = _free(self._row, taken, own, operation.began_ms)
            if (written := await self.put(operation, slot, version)) is not None:
                return written

    async def put(self, operation: Operation, slot: str, version: int) -> Kept | None:
        """Write it over that version; None when another process has written meanwhile."""
        written = await self.store.put_control(operation.control(slot), expect=version)
        return None if written is None else Kept(operation, slot, written.version)

    async def again(self, kept: Kept) -> Kept | None:
        """The same as it is now; None when its slot holds another one."""
        for control in await self.store.controls(KIND):
            if control.name == kept.slot and (found := _kept(control)) is not None:
                return found if found.operation.id == kept.operation.id else None
        return None

    async def change(self, kept: Kept, change: Change) -> Kept | None:
        """Change it, whatever others write meanwhile; None when it is gone. A change of None writes nothing."""
        while True:
            changed = change(kept.operation)
            if changed is None:
                return kept
            if (written := await self.put(changed, kept.slot, kept.version)) is not None:
                return written
            found = await self.again(kept)
            if found is None:
                return None
            kept = found


def _kept(control: Control) -> Kept | None:
    operation = read_operation(control)
    return None if operation is None else Kept(operation, control.name, control.version)


def _old(operation: Operation, now_ms: int) -> bool:
    return operation.over and now_ms - (operation.ended_ms or 0) > KEPT_MS


def _refuse_too_many(known: Sequence[Kept]) -> None:
    unfinished = sum(one.operation.state in UNFINISHED for one in known)
    if unfinished >= MOST_UNFINISHED:
        raise TooManyOperations(
            f"{unfinished} operations are not finished, and {MOST_UNFINISHED} is the most",
            fix="continue or cancel some: limpet operations",
        )


def row_of(queues: frozenset[str] | None) -> str:
    """How the slots begin of callers for these queues: who sees some operations only must find free slots all the same.

    Callers for all queues have those without a row.
    """
    return "" if queues is None else f"{hash_of(*sorted(queues))[:16]}-"


def _in_row(slot: str, row: str) -> bool:
    return slot[: slot.rfind("-") + 1] == row


def _free(row: str, taken: Set[str], known: Sequence[Kept], now_ms: int) -> tuple[str, int]:
    """The slot for a new operation, and its version: of one that is old, a new one, else of the oldest finished one."""
    over = sorted((one for one in known if one.operation.over), key=lambda one: one.operation.ended_ms or 0)
    if over and (_old(over[0].operation, now_ms) or len(taken) >= SLOTS):
        return over[0].slot, over[0].version
    return next((name for number in range(SLOTS * 2) if (name := f"{row}{number:04}") not in taken), f"{row}0000"), 0
