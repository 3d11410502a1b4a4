"""Decides how long the finished jobs of single queues stay, and how a store walks over them without looking twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from limpet.core.errors import InvalidOption
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Control
from limpet.core.tasks.naming import did_you_mean
from limpet.core.text.duration import Duration, to_ms

FOREVER: Final = "forever"
SET: Final = "retention"  # the kind of the controls in which operators say how long jobs of a queue stay
DECLARED: Final = "retention.declared"  # and workers: what their code and their settings file say
WALK: Final = "retention.walk"  # the kind of the controls in which an engine keeps how far it has looked

LOOKED_AT: Final = 10  # jobs that one step looks at, for each that it may remove
ANEW_MS: Final = 86_400_000  # once a day all is looked at again: what was held, or ended by another clock

States = Mapping[State, int | None]
Keep = Mapping[str, "Duration | None"]


class Said(Struct, frozen=True, omit_defaults=True):
    """How long the jobs of one queue stay, as it is stored; null = for ever, left out = as those of all queues."""

    succeeded: int | UnsetType | None = UNSET
    cancelled: int | UnsetType | None = UNSET
    dead: int | UnsetType | None = UNSET

    @classmethod
    def of(cls, states: States) -> Said:
        """What is said of these states."""
        return cls(**{state.value: ms for state, ms in states.items()})

    def states(self) -> dict[State, int | None]:
        """The states of which something is said."""
        said = {state: getattr(self, state.value) for state in _STATES}
        return {state: ms for state, ms in said.items() if ms is not UNSET}


_STATES: Final = (State.succeeded, State.cancelled, State.dead)


def keep_of(given: Keep, *, what: str) -> dict[State, int | None]:
    """The retention of one queue: seconds or text such as "7d" by state; None or "forever" is for ever.

    >>> keep_of({"succeeded": "1h", "dead": None}, what="keep")[State.succeeded]
    3600000
    """
    if not isinstance(given, Mapping):
        raise InvalidOption(f"{what}={given!r:.80} names no states", fix='such as {"succeeded": "7d", "dead": "90d"}')
    known = {state.value: state for state in _STATES}
    for name in given:
        if name not in known:
            raise InvalidOption(
                f"{what} names {name!r}, which is not a final state", fix=did_you_mean(str(name), known)
            )
    return {
        known[name]: None if value is None or value == FOREVER else to_ms(value, what=f"{what}[{name!r}]")
        for name, value in given.items()
    }


def control_of(kind: str, queue: str, states: States) -> Control:
    """The record that a store keeps; without states: the queue has no retention of its own."""
    return Control(kind, queue, msgspec.json.encode(Said.of(states)))


def said_in(controls: Iterable[Control]) -> dict[str, dict[State, int | None]]:
    """What is said of queues; a record that cannot be read says that nothing may go: it may mean "for ever"."""
    found: dict[str, dict[State, int | None]] = {}
    for control in controls:
        try:
            states = msgspec.json.decode(control.value, type=Said).states()
        except msgspec.MsgspecError:
            states = dict.fromkeys(_STATES)
        if states:
            found[control.name] = states
    return found


def merged(*sources: Mapping[str, States]) -> dict[str, dict[State, int | None]]:
    """What holds of each queue and state: the last source that says anything."""
    found: dict[str, dict[State, int | None]] = {}
    for source in sources:
        for queue, states in source.items():
            found.setdefault(queue, {}).update(states)
    return found


class Walk(Struct, frozen=True):
    """One look at all jobs that ended in a state, for one queue, or for all queues without a retention of their own."""

    name: str
    state: State
    keep_ms: int
    queue: str | None  # None: all but `others`
    others: frozenset[str] = frozenset()

    def concerns(self, queue: str) -> bool:
        """Whether jobs of this queue go by it."""
        return queue not in self.others if self.queue is None else queue == self.queue


def walks(state: State, keep_ms: int | None, queues: Mapping[str, int | None]) -> Iterator[Walk]:
    """The walks over jobs that ended so. If a queue loses its own retention, the common walk begins again."""
    for queue, own_ms in sorted(queues.items()):
        if own_ms is not None:
            yield Walk(f"{state.value}:{queue}", state, own_ms, queue)
    if keep_ms is not None:
        others = frozenset(queues)
        mark = blake2b(msgspec.json.encode(sorted(others)), digest_size=8).hexdigest()
        yield Walk(f"{state.value}/{mark}", state, keep_ms, None, others)


class Walked(Struct, frozen=True):
    """How far a walk has come: all that ended before, or then and with a smaller id, was looked at."""

    at_ms: int = -1
    id: bytes = b""
    since_ms: int = -ANEW_MS

    @classmethod
    def read(cls, value: bytes | None, now_ms: int) -> Walked:
        """Where to go on; from the beginning when there is no walk, or it began long ago."""
        try:
            found = cls() if value is None else msgspec.json.decode(value, type=cls)
        except msgspec.MsgspecError:
            found = cls()
        return found if 0 <= now_ms - found.since_ms < ANEW_MS else cls(since_ms=now_ms)

    def passed(self, at_ms: int, id: bytes) -> Walked:
        """The same walk, after this job."""
        return Walked(at_ms, id, self.since_ms)

    def written(self) -> bytes:
        """The value of its record."""
        return msgspec.json.encode(self)
