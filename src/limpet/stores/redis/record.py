"""Reads and writes the bytes of a stored job: a head of fixed size, what few jobs have, and the arguments.

`lua/lib/record.lua` is its counterpart. Texts and numbers only where Lua reads too: Redis's msgpack knows no bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from limpet.core.gate import FOREVER_MS
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.core.jobs.lease import Claimed, Input, Note
from limpet.core.jobs.state import STATES, State
from limpet.stores.packed import PLAIN, Extra, is_plain
from limpet.stores.redis import fields
from limpet.stores.redis.fields import ADDED, BODY, EXTRA, INPUTS, LAST_MS, NOTES, PACKED, PIECE, RARE, RECORD

HEAD_BYTES: Final = RECORD.size
SMALL: Final = 1024  # larger arguments lie beside the record, so that moving a job never copies them
_UNUSUAL: Final = RARE | EXTRA | BODY | INPUTS | NOTES  # what makes handing a job out more than one unpack

VERSION: Final = 1  # of a record
_head_of: Final = RECORD.reader(*list(RECORD.fields)[:-1]).unpack_from
_claim_of: Final = RECORD.reader(
    "version", "flags", "attempt", "lost", "held", "due", "enqueued", "lane", "policy"
).unpack_from
_LENGTH: Final = PIECE.reader("length")
_LANE, _POLICY = RECORD.slice("lane"), RECORD.slice("policy")

NO_INPUTS: Final[dict[bytes, Input]] = {}

Lanes = Mapping[bytes, Lane]
Policies = Mapping[bytes, Policy]


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """The packed part as Lua can read it: ids are hex, and JSON is text. A later layout adds at its end."""

    cost: int
    tags: tuple[str, ...]
    meta: str
    flow: str | None
    unique: str | None
    if_parent_fails: str
    unique_states: int
    costs: dict[str, int]


assert _Stored.__struct_fields__[: len(PACKED.names)] == PACKED.names


class Rare(msgspec.Struct, frozen=True, rename=ADDED.names):
    """What scripts add to a job in the course of its life."""

    expires_ms: int | None = None
    held_since_ms: int | None = None
    reason: str = ""
    cause: str = ""
    error_type: str = ""


class Head(msgspec.Struct, frozen=True):
    """The fixed part of a record."""

    state: int
    flags: int
    attempt: int  # runs that have ended
    lost: int
    held: int
    seq: int
    due_ms: int
    enqueued_ms: int
    lane: bytes
    policy: bytes
    claimed_ms: int
    finished_ms: int


COMMON: Final = Rare()
_encode = msgspec.msgpack.Encoder().encode
_decode_stored = msgspec.msgpack.Decoder(_Stored).decode
_decode_rare = msgspec.msgpack.Decoder(Rare).decode


LONGEST_MS: Final = 1 << 47  # from now on it ends before the last instant that can be stored
MOST_COST: Final = 1 << 53  # what a script still counts exactly


def at_most(duration_ms: int) -> int:
    """A time to come that, counted from now, ends at an instant that can be stored."""
    return min(duration_ms, LONGEST_MS)


def due_of(due_ms: int) -> int:
    """A stored instant as it is shown: from the last of all on it is never."""
    return FOREVER_MS if due_ms >= LAST_MS else due_ms


def id8(number: int) -> bytes:
    """The stored form of a lane's, class's, member's or policy's id."""
    return number.to_bytes(8, "big", signed=True)


def head_of(raw: bytes) -> Head | None:
    """The fixed part; None when the bytes are no record of this layout."""
    if len(raw) < HEAD_BYTES:
        return None
    version, state, flags, attempt, lost, held, *before, lane, policy, c_high, c_low, f_high, f_low = _head_of(raw)
    if version != VERSION or state >= len(STATES) or state == State.running.code:
        return None  # that a job runs is never written there
    seq, due_ms, enqueued_ms, claimed_ms, finished_ms = _joined([*before, c_high, c_low, f_high, f_low])
    return Head(state, flags, attempt, lost, held, seq, due_ms, enqueued_ms, lane, policy, claimed_ms, finished_ms)


def _joined(halves: list[int]) -> list[int]:
    return [high << 32 | low for high, low in zip(halves[::2], halves[1::2], strict=True)]


# -- enqueue


def tail_of(job: Job) -> tuple[int, bytes]:
    """(flags, what follows the head of a new record). With BODY the arguments go beside it.

    The last byte, the last of the id, is there for Lua: it hashes long strings by some of their bytes, always by the
    last, and records that differ in none of those would be searched for one by one.
    """
    flags, tail = 0, b""
    if not is_plain(job):
        packed = _pack_extra(job)
        flags, tail = EXTRA, _LENGTH.pack(len(packed)) + packed
    if len(job.args) > SMALL:
        return flags | BODY, tail + job.id[-1:]
    return flags, tail + job.args + job.id[-1:]


def _pack_extra(job: Job) -> bytes:
    key, states = None, 0
    if job.unique is not None:
        key, states = job.unique.key, sum(1 << state.code for state in job.unique.states)
    flow = None if job.flow is None else job.flow.hex()
    # Its parents lie beside it: a job of ten thousand would be read whole whenever one of them ends.
    return _encode(_Stored(job.cost, job.tags, job.meta.decode(), flow, key, job.if_parent_fails, states, job.costs))


# -- reading what follows the head


def parts_of(raw: bytes, flags: int) -> tuple[Rare, Extra, int]:
    """(what scripts added, the packed part, where the arguments begin). Raises what says that it makes no sense."""
    at, rare, extra = HEAD_BYTES, COMMON, PLAIN
    if flags & RARE:
        packed, at = _piece(raw, at)
        rare = _decode_rare(packed)
    if flags & EXTRA:
        packed, at = _piece(raw, at)
        extra = _extra_of(_decode_stored(packed))
    return rare, extra, at


def _piece(raw: bytes, at: int) -> tuple[bytes, int]:
    (size,) = _LENGTH.unpack_from(raw, at)
    end = at + 4 + size
    if end > len(raw):
        raise ValueError("a part is longer than its record")
    return raw[at + 4 : end], end


def _extra_of(stored: _Stored) -> Extra:
    return Extra(
        stored.cost,
        stored.tags,
        stored.meta.encode(),
        None if stored.flow is None else bytes.fromhex(stored.flow),
        stored.unique,
        (),
        stored.if_parent_fails,
        stored.unique_states,
        stored.costs,
    )


SPOILT: Final = (ValueError, struct.error)  # msgspec's DecodeError and a bad UTF-8 are ValueErrors


def notes_of(flat: list[bytes]) -> tuple[Note, ...]:
    """The notes of a job from the fields and values of their hash, by kind and name."""
    notes = []
    for field, body in zip(flat[::2], flat[1::2], strict=True):
        kind, _, name = field.partition(b"\0")
        notes.append(Note(kind.decode(), name.decode(), body))
    return tuple(sorted(notes, key=lambda note: (note.kind, note.name)))


def inputs_of(flat: list[bytes]) -> dict[bytes, Input]:
    """What its parents left for a job, from the fields and values of its dependencies' hash."""
    inputs = {}
    for parent, value in zip(flat[::2], flat[1::2], strict=True):
        match value[:1].decode("latin-1"):
            case fields.PARENT_RESULT:
                inputs[parent] = Input(value[1:])
            case fields.PARENT_NOTHING:
                inputs[parent] = Input()
            case fields.PARENT_FAILED:
                inputs[parent] = Input(None, value[1:].decode())
    return inputs


NAMED: Final = b"@"  # the field of the dependencies' hash that holds the parents as the job named them


def parents_of(packed: bytes) -> tuple[bytes, ...]:
    """The parents of a job, from that field."""
    return tuple(packed[at : at + 16] for at in range(1, len(packed), 16))


# -- claim


class Beside(msgspec.Struct, frozen=True):
    """What lies beside the record of a job: large arguments, its parents and their results, its notes."""

    args: bytes | None = None
    inputs: dict[bytes, Input] = NO_INPUTS
    notes: tuple[Note, ...] = ()
    after: tuple[bytes, ...] = ()


_NOTHING: Final = Beside()


def claimed_of(
    id: bytes,
    raw: bytes,
    token: int,
    now_ms: int,
    lanes: Lanes,
    policies: Policies,
    beside: Beside = _NOTHING,
    probe: bool = False,
    together: int = 0,
) -> Claimed | None:
    """The job under its lease; None when its record, lane or policy cannot be read (or is not known yet).

    `raw` is the record as it is stored: `attempt` in it counts runs that have ended.
    """
    try:
        version, flags, attempt, lost, held, due_hi, due_lo, enq_hi, enq_lo, lane_id, policy_id = _claim_of(raw)
        if version != VERSION or len(raw) < HEAD_BYTES:
            return None
        lane, policy = lanes[lane_id], policies[policy_id]
        if not flags & _UNUSUAL:
            return Claimed(
                id, token, attempt + 1, lost, lane, policy, raw[HEAD_BYTES:-1], enq_hi << 32 | enq_lo,
                due_hi << 32 | due_lo, now_ms, held, None, 1, (), b"", None, probe, NO_INPUTS, together=together,
            )  # fmt: skip
        rare, extra, at = parts_of(raw, flags)
    except (KeyError, *SPOILT):
        return None
    args = beside.args if flags & BODY else raw[at:-1]
    if args is None:
        return None
    return Claimed(
        id, token, attempt + 1, lost, lane, policy, args, enq_hi << 32 | enq_lo, due_hi << 32 | due_lo, now_ms, held,
        rare.held_since_ms, extra.cost, extra.tags, extra.meta, extra.flow, probe, beside.inputs, beside.notes,
        beside.after, extra.costs, together,
    )  # fmt: skip


def named_in(raws: Iterable[bytes | None]) -> tuple[set[bytes], set[bytes]]:
    """The ids of the lanes and of the policies that records name."""
    there = [raw for raw in raws if raw is not None]
    return {raw[_LANE] for raw in there}, {raw[_POLICY] for raw in there}
