"""Decides which states a job may be in and which moves between them exist: the only table of its kind."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Final


class State(StrEnum):
    """Where a job is; it is in exactly one of these from the moment enqueue returns."""

    blocked = "blocked"  # waits for parents
    scheduled = "scheduled"  # not before a time; also the wait before a retry
    ready = "ready"
    running = "running"
    succeeded = "succeeded"
    dead = "dead"  # in the dead-letter queue, waiting for a person
    cancelled = "cancelled"  # expired is a cancelled with that reason

    @cached_property
    def code(self) -> int:
        """The small integer that SQL engines store."""
        return _CODES[self]


_CODES: Final = {state: code for code, state in enumerate(State)}
STATES: Final = tuple(State)

WAITING: Final = frozenset({State.blocked, State.scheduled, State.ready})
LIVE: Final = WAITING | {State.running}
FINISHED: Final = frozenset({State.succeeded, State.dead, State.cancelled})

# from → {to: the verb that moves it}. The docs' diagram is generated from this table.
MOVES: Final[dict[State, dict[State, str]]] = {
    State.blocked: {
        State.ready: "last parent succeeded",
        State.scheduled: "last parent succeeded, due later",
        State.cancelled: "cancel, expire, parent failed",
        State.dead: "undecodable",
    },
    State.scheduled: {
        State.ready: "due, signalled",
        State.scheduled: "replace, debounce",
        State.cancelled: "cancel, expire",
        State.dead: "undecodable",
    },
    State.ready: {
        State.running: "claim",
        State.ready: "replace",
        State.scheduled: "debounce",
        State.cancelled: "cancel, expire",
        State.dead: "undecodable",
    },
    State.running: {
        State.succeeded: "succeed",
        State.scheduled: "retry, snooze, suspend",
        State.ready: "release, refuse, hold, suspend, lost lease",
        State.dead: "bury, poison, undecodable",
        State.cancelled: "cancelled by its handler or on request",
    },
    State.succeeded: {},
    State.dead: {
        State.ready: "retry by a person",
        State.scheduled: "retry later by a person",
    },
    State.cancelled: {State.blocked: "replay of the parent that took it down"},
}

# The words people and folders of JSON files use for the seven states.
GROUPS: Final[dict[str, frozenset[State]]] = {
    "pending": WAITING,
    "in-progress": frozenset({State.running}),
    "completed": frozenset({State.succeeded}),
    "cancelled": frozenset({State.cancelled}),
    "dead-letter": frozenset({State.dead}),
}


def may_move(old: State, new: State) -> bool:
    """True when the table allows a job to go from `old` to `new`."""
    return new in MOVES[old]
