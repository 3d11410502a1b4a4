"""Decides how results of parents stand in a job's arguments: as places in `after` while stored, as values at run."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

import msgspec
from msgspec import Struct

from limpet.core.errors import InvalidArguments, PayloadTooLarge
from limpet.core.jobs.ids import id_bytes, id_text
from limpet.core.jobs.lease import Claimed, Input, Note

# In stored arguments {"$job": 2} stands for the result of the third parent, and {"$jobs": [0, 10000]} for the list of
# the results of the first ten thousand. Places instead of ids: they are short, and they stay true when another job
# stands for a parent. {"$job": "<id>"} means the same where it names a parent: for JSON that people write.
REF: Final = "$job"
REFS: Final = "$jobs"

STANDS_FOR: Final = "stands_for"  # the kind of a job's notes: a parent that it names → the job that is there instead

MAX_INPUT_BYTES: Final = 16 * 1024 * 1024  # results handed to one job: as much as one call may enqueue

Spread = bytes | Sequence["Spread"]  # the id of one job, or of several, nested as their results will be


class Refers:
    """What may stand in arguments for results of other jobs: a handle, a node of a flow, a group of them."""

    __slots__ = ()

    def spread(self) -> Spread:
        """The jobs it stands for."""
        raise NotImplementedError


class Ref(Refers):
    """The result of one job, by its id."""

    __slots__ = ("id",)

    def __init__(self, id: bytes) -> None:
        self.id = id

    def spread(self) -> bytes:
        return self.id

    def __repr__(self) -> str:
        return f"Ref({id_text(self.id)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


class ParentFailed(Struct, frozen=True):
    """What a dependent gets instead of a result when it asked to run although its parent failed."""

    id: str
    reason: str


# -- at enqueue


def stands_for(parent: bytes, stand_in: bytes) -> tuple[str, str, bytes]:
    """Kind, name and body of the note that `stand_in` is there instead of `parent`."""
    return STANDS_FOR, id_text(parent), f'"{id_text(stand_in)}"'.encode()


def flat(spread: Spread) -> Iterator[bytes]:
    """Its ids, in order."""
    if isinstance(spread, bytes):
        yield spread
    else:
        for part in spread:
            yield from flat(part)


def placed(value: Any, places: Mapping[bytes, int]) -> Any:
    """`value` with the stored form of every reference in it; records are left to the encoder's hook."""
    if isinstance(value, Refers):
        return stored(value.spread(), places)
    if isinstance(value, dict):
        return {key: placed(item, places) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if len(value) > 1 and all(isinstance(item, Refers) for item in value):
            return stored([item.spread() for item in value], places)
        return [placed(item, places) for item in value]
    return value


def stored(spread: Spread, places: Mapping[bytes, int]) -> Any:
    """The stored form of a reference: a place, a run of places, or a list of such."""
    if isinstance(spread, bytes):
        return {REF: places[spread]}
    ids = [part for part in spread if isinstance(part, bytes)]
    if len(ids) == len(spread) > 1:
        first = places[ids[0]]
        if all(places[id] == first + n for n, id in enumerate(ids)):
            return {REFS: [first, first + len(ids)]}
    return [stored(part, places) for part in spread]


def with_refs(value: Any, parents: Container[bytes]) -> Any:
    """JSON that names jobs by id, such as {"$job": "<id>"}, with references where these are `parents`."""
    if isinstance(value, dict):
        if len(value) == 1 and isinstance(name := value.get(REF), str) and (id := _id_of(name)) in parents:
            return Ref(id)
        return {key: with_refs(item, parents) for key, item in value.items()}
    return [with_refs(item, parents) for item in value] if isinstance(value, list) else value


def _id_of(text: str) -> bytes:
    """The id that `text` is; empty when it is none, which no job has."""
    try:
        return id_bytes(text)
    except ValueError:
        return b""


def look_alikes(value: Any) -> int:
    """How many things in decoded JSON would be taken for places of parents."""
    if isinstance(value, dict):
        return int(_place_of(value) is not None) or sum(map(look_alikes, value.values()))
    return sum(map(look_alikes, value)) if isinstance(value, list) else 0


def _place_of(value: dict[str, Any]) -> int | range | None:
    if len(value) != 1:
        return None
    match value:
        case {"$job": int(place)} if type(place) is int:
            return place
        case {"$jobs": [int(first), int(end)]}:
            return range(first, end)
    return None


# -- at run


def stand_ins_of(notes: Iterable[Note]) -> dict[bytes, bytes]:
    """Parent → the job that is there instead, as it is noted with their child."""
    return {
        id_bytes(note.name): id_bytes(msgspec.json.decode(note.body, type=str))
        for note in notes
        if note.kind == STANDS_FOR
    }


class Given:
    """What the parents of one job left for it, by place and by id."""

    def __init__(
        self, inputs: Mapping[bytes, Input], after: Sequence[bytes] = (), stand_ins: Mapping[bytes, bytes] | None = None
    ) -> None:
        self._inputs = inputs
        self._after = after
        self._stand_ins = stand_ins or {}
        size = sum(len(given.result) for given in inputs.values() if given.result is not None)
        if size > MAX_INPUT_BYTES or len(inputs) < len({self._stand_in(id) for id in after}):
            raise PayloadTooLarge(
                f"the results of its {len(after):,} parents are more than {MAX_INPUT_BYTES:,} bytes together",
                fix="let each store its result elsewhere and return where it is",
            )

    @classmethod
    def to(cls, job: Claimed) -> Given | None:
        """What a claimed job was given; None when it has no parents."""
        if not job.inputs and not job.after:
            return None
        return cls(job.inputs, job.after, stand_ins_of(job.notes))

    def at(self, place: int) -> Any:
        """The value for one place: a result as raw JSON, or a ParentFailed."""
        if not 0 <= place < len(self._after):
            raise InvalidArguments(
                f"the arguments refer to parent {place} of {len(self._after)}", fix="edit the job's arguments and retry"
            )
        return self._value(self._after[place])

    def by_id(self, text: str) -> Any:
        """The value of the parent with this id; msgspec.UNSET when no parent has it."""
        id = _id_of(text)
        return self._value(id) if self._stand_in(id) in self._inputs else msgspec.UNSET

    def _stand_in(self, id: bytes) -> bytes:
        return self._stand_ins.get(id, id)

    def _value(self, id: bytes) -> Any:
        given = self._inputs[self._stand_in(id)]
        if given.failed is not None:
            return ParentFailed(id_text(self._stand_in(id)), given.failed)
        return msgspec.Raw(b"null" if given.result is None else given.result)


def filled(value: Any, given: Given) -> Any:
    """Decoded JSON with every reference replaced by what the parent left.

    Results come as raw JSON, to be encoded again with the rest: so they are rebuilt exactly, large numbers too. An id
    is replaced only if a parent has it, so text of others that merely looks alike stays as it is.
    """
    if isinstance(value, dict):
        place = _place_of(value)
        if isinstance(place, int):
            return given.at(place)
        if place is not None:
            return [given.at(each) for each in place]
        if len(value) == 1 and isinstance(name := value.get(REF), str):
            found = given.by_id(name)
            return value if found is msgspec.UNSET else found
        return {key: filled(item, given) for key, item in value.items()}
    return [filled(item, given) for item in value] if isinstance(value, list) else value


def holds_failed(value: Any) -> bool:
    """True when a failed parent is in what `filled` answered."""
    if isinstance(value, dict):
        return any(map(holds_failed, value.values()))
    return any(map(holds_failed, value)) if isinstance(value, list) else isinstance(value, ParentFailed)


def refuse_look_alikes() -> NoReturn:
    """The caller's own data would be taken for a parent's result."""
    raise InvalidArguments(
        f'the arguments hold {{"{REF}": …}}, which in a job with parents stands for the result of one',
        fix="rename that key, or pass the data as text",
    )
