"""Names the fields of what is stored as bytes or as an array, and the codes and flags in them, for Python and for Lua.

Lua says `sub(raw, RECORD.lane)` and `class[CLASS.queue]`; `scripts.py` puts the numbers in when it builds a script.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import Final

import msgspec

from limpet.core.gate import CLOSED, COUNTING, MOST_BREAKERS, OPEN
from limpet.core.jobs.state import State
from limpet.stores import waiters
from limpet.stores.codes import DISCARDED, ENQUEUED, EVER_CANCELLED, EVER_LOST, EVER_SUCCEEDED, STALE

_WIDTH: Final = re.compile(r"[Ic](\d+)")
_SIZES: Final = {"B": 1, "H": 2}
_PYTHON: Final = {"B": "B", "H": "H", "I4": "I", "I6": "HI", "I7": "BHI", "I8": "Q"}


class Bytes(msgspec.Struct, frozen=True):
    """Fields one after the other: the format of each as Lua's struct writes it; that of an open end is empty."""

    fields: dict[str, str]

    @property
    def format(self) -> str:
        """The format of all fields together."""
        return ">" + "".join(self.fields.values())

    @property
    def size(self) -> int:
        """The bytes before the open end."""
        return sum(map(_size, self.fields.values()))

    def span(self, name: str) -> tuple[int, int | None]:
        """Where a field begins and ends, as a slice has it; `a_to_b` is all from one to another."""
        first, last = self._ends(name)
        names = list(self.fields)
        begin = sum(_size(self.fields[each]) for each in names[: names.index(first)])
        if not self.fields[last]:
            return begin, None
        return begin, sum(_size(self.fields[each]) for each in names[: names.index(last) + 1])

    def slice(self, name: str) -> slice:
        """The same as a slice."""
        return slice(*self.span(name))

    def reader(self, *wanted: str) -> Struct:
        """Python's way to read some of the fields: a number of six bytes comes as 2 + 4, one of seven as 1 + 2 + 4."""
        last = max(map(list(self.fields).index, wanted))
        parts = [
            _PYTHON.get(format, f"{_size(format)}s") if name in wanted else f"{_size(format)}x"
            for name, format in list(self.fields.items())[: last + 1]
        ]
        return Struct(">" + "".join(parts))

    def format_of(self, name: str) -> str:
        """The format of one field, or of all from one to another."""
        first, last = self._ends(name)
        names = list(self.fields)
        return ">" + "".join(self.fields[each] for each in names[names.index(first) : names.index(last) + 1])

    def _ends(self, name: str) -> tuple[str, str]:
        first, _, last = name.partition("_to_")
        return first, last or first


class Row(msgspec.Struct, frozen=True):
    """A msgpack array: what stands at each place."""

    names: tuple[str, ...]


class Map(msgspec.Struct, frozen=True):
    """A msgpack map with short names, because many jobs carry it."""

    names: dict[str, str]


def _size(format: str) -> int:
    found = _WIDTH.fullmatch(format)
    return int(found[1]) if found else _SIZES.get(format, 0)


# -- bytes

RECORD: Final = Bytes(
    {
        "version": "B",
        "state": "B",
        "flags": "H",
        "attempt": "H",  # runs that have ended
        "lost": "H",
        "held": "H",
        "seq": "I6",  # arrival number
        "due": "I6",
        "enqueued": "I6",
        "lane": "c8",
        "policy": "c8",
        "claimed": "I6",
        "finished": "I6",
        "rest": "",  # what scripts added, what clients packed, the arguments, one byte of the id: see record.py
    }
)
ITEM: Final = Bytes({"due": "I6", "seq": "I6", "id": "c16"})  # a job in its lane or on the schedule
HOLD: Final = Bytes({"token": "I7", "claimed": "I6", "charges": ""})  # a running job
EXPIRY: Final = Bytes({"expires": "I6", "id": "c16"})
ENDED: Final = Bytes({"finished": "I6", "ids": ""})  # a member of the index of finished jobs
LANE: Final = Bytes({"kind": "c8", "member": "c8", "ring": "c8", "prio": "B", "flags": "B", "definition": ""})
ACTIVE: Final = Bytes({"prio": "B", "ring": "c8", "kind": "c8"})  # an active class
TURN: Final = Bytes({"turn": "I6", "left": "I4", "seats": "I4"})
HOLDER: Final = Bytes({"id": "c16", "states": "B", "window": "I6"})  # of a unique key
RANGE: Final = Bytes({"first": "I6", "last": "I6"})  # arrival numbers of a flow's jobs
ERASED: Final = Bytes({"id": "c16", "state": "B"})
COUNTED: Final = Bytes({"lane": "c8", "state": "B", "cause": ""})  # where a repair has counted a job
CONTROL: Final = Bytes({"version": "I8", "value": ""})
GROUP: Final = Bytes({"kind": "c1", "token": "c7", "count": "H"})  # equal transitions of one settle call
SENT: Final = Bytes(  # a job that was handed off, in a mailbox: the length is that of the session's name
    {"token": "I7", "number": "I7", "claimed": "I6", "awake": "B", "id": "c16", "length": "H", "rest": ""}
)
PIECE: Final = Bytes({"length": "I4", "body": ""})  # a part of a record that says how long it is

# -- arrays

PACKED: Final = Row(("cost", "tags", "meta", "flow", "unique", "if_parent_fails", "unique_states", "costs"))
CLASS: Final = Row(("queue", "task", "needs", "limits", "breaker", "keyed", "scope"))
DEFINITION: Final = Row(
    ("queue", "task", "priority", "tenant", "needs", "limits", "keys", "breaker", "scope", "breaker_key")
)  # of a lane
SERVES: Final = Row(("queues", "tasks", "capabilities"))
LEASE: Final = Row(("session", "left", "handed"))  # the last only of a job that was handed off: its number
CHARGE: Final = Row(("gate", "slot", "cost", "probe", "own"))
CAUSE: Final = Row(("count", "type", "message", "first_at", "last_at", "sample"))
WALK: Final = Row(("what", "parent", "after", "text", "revivable", "cause"))  # through the children of a job
HOOK: Final = Row(("states", "tasks", "queues", "lane", "definition", "class", "policy"))  # its states by their codes
RUN: Final = Row(("lane", "policy", "flags", "delay", "due_at", "expires", "jobs"))  # equal jobs of one enqueue

# -- maps

ADDED: Final = Map({"expires_ms": "e", "held_since_ms": "hs", "reason": "r", "cause": "c", "error_type": "t"})

# -- codes and flags

# Bits of a record's flags.
KIDS, WATCHED, CANCELLING, NOTES, INPUTS, BY_PARENT = 1, 2, 4, 8, 16, 32
RARE, EXTRA, BODY, RESULT, ATTEMPTS = 64, 128, 256, 512, 1024

# Bits of a lane's flags.
KEYED, LIMITED, MULTI, TENANT = 1, 2, 4, 8

ID_BYTES: Final = 16
TOKEN_BYTES: Final = 7
SEQ_BYTES: Final = 6  # of an arrival number
BUCKET_BYTES: Final = 5  # of an id: those of erased jobs that begin with them lie together
SLOTS: Final = 64  # ids in one chunk of the ledger

# Instants are stored in six bytes. The last that every release can show is of the year 9999, and as good as never.
LAST_MS: Final = 253_402_300_799_000

# What a lane's entry in lane_states begins with, and an entry of timers.
LANE_ACTIVE, LANE_WAITS = "a", "w"
TIMER_LEVEL, TIMER_GATE = "z", "g"

# What a parent's entry in the hash of a job's parents begins with.
PARENT_OPEN, PARENT_RESULT, PARENT_NOTHING, PARENT_FAILED = "o", "r", "n", "f"

# -- by name, for the builder of scripts

LAYOUTS: Final[dict[str, Bytes | Row | Map]] = {
    "RECORD": RECORD,
    "ITEM": ITEM,
    "HOLD": HOLD,
    "EXPIRY": EXPIRY,
    "ENDED": ENDED,
    "LANE": LANE,
    "ACTIVE": ACTIVE,
    "TURN": TURN,
    "HOLDER": HOLDER,
    "RANGE": RANGE,
    "ERASED": ERASED,
    "COUNTED": COUNTED,
    "CONTROL": CONTROL,
    "GROUP": GROUP,
    "SENT": SENT,
    "PIECE": PIECE,
    "PACKED": PACKED,
    "CLASS": CLASS,
    "DEFINITION": DEFINITION,
    "SERVES": SERVES,
    "LEASE": LEASE,
    "CHARGE": CHARGE,
    "CAUSE": CAUSE,
    "WALK": WALK,
    "HOOK": HOOK,
    "RUN": RUN,
    "ADDED": ADDED,
}
VALUES: Final[dict[str, int | str]] = {
    **{state.upper(): state.code for state in State},
    "ENQUEUED": ENQUEUED,
    "EVER_SUCCEEDED": EVER_SUCCEEDED,
    "EVER_CANCELLED": EVER_CANCELLED,
    "DISCARDED": DISCARDED,
    "EVER_LOST": EVER_LOST,
    "STALE": STALE,
    "KIDS": KIDS,
    "WATCHED": WATCHED,
    "CANCELLING": CANCELLING,
    "NOTES": NOTES,
    "INPUTS": INPUTS,
    "BY_PARENT": BY_PARENT,
    "RARE": RARE,
    "EXTRA": EXTRA,
    "BODY": BODY,
    "RESULT": RESULT,
    "ATTEMPTS": ATTEMPTS,
    "KEYED": KEYED,
    "LIMITED": LIMITED,
    "MULTI": MULTI,
    "TENANT": TENANT,
    "ID_BYTES": ID_BYTES,
    "BUCKET_BYTES": BUCKET_BYTES,
    "SLOTS": SLOTS,
    "NEVER": LAST_MS,
    "MOST_BREAKERS": MOST_BREAKERS,
    "OPEN": OPEN,
    "COUNTING": COUNTING,
    "CLOSED": CLOSED,
    "LANE_ACTIVE": LANE_ACTIVE,
    "LANE_WAITS": LANE_WAITS,
    "TIMER_LEVEL": TIMER_LEVEL,
    "TIMER_GATE": TIMER_GATE,
    "PARENT_OPEN": PARENT_OPEN,
    "PARENT_RESULT": PARENT_RESULT,
    "PARENT_NOTHING": PARENT_NOTHING,
    "PARENT_FAILED": PARENT_FAILED,
    "TELL_WORK": waiters.WORK.decode(),
    "TELL_URGENT": waiters.URGENT.decode(),
    "TELL_CANCEL": waiters.CANCEL.decode(),
    "TELL_FINISHED": waiters.FINISHED.decode(),
    "TELL_HANDED": waiters.HANDED.decode(),
}
