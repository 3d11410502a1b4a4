"""Decides which role may do which kind of action."""

from __future__ import annotations

from typing import Final, Literal, get_args

from limpet.core.errors import InvalidOption
from limpet.core.tasks.naming import did_you_mean

Role = Literal["viewer", "producer", "worker", "operator", "admin"]
Action = Literal["read", "enqueue", "work", "correct", "administer"]

ROLES: Final[tuple[Role, ...]] = get_args(Role)
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)

# read: jobs, queues, events, the audit log. enqueue: new jobs. work: claim jobs and end them. correct: cancel, retry,
# edit, pause, limits, schedules, dead letters. administer: tokens, repair, and whatever shows or moves a whole store.
MATRIX: Final[dict[Role, frozenset[Action]]] = {
    "viewer": frozenset({"read"}),
    "producer": frozenset({"read", "enqueue"}),
    "worker": frozenset({"read", "work"}),
    "operator": frozenset({"read", "enqueue", "work", "correct"}),
    "admin": frozenset(ACTIONS),
}


def may(role: Role, action: Action) -> bool:
    """Whether the role allows the action.

    >>> may("operator", "enqueue"), may("producer", "work")
    (True, False)
    """
    return action in MATRIX[role]


def least_role(action: Action) -> Role:
    """The first role that allows the action: the one to ask for."""
    return next(role for role in ROLES if may(role, action))


def checked_role(value: str, *, what: str = "role") -> Role:
    """A role by its name."""
    for role in ROLES:
        if value == role:
            return role
    raise InvalidOption(f"{what}={value!r:.80} is not a role", fix=did_you_mean(str(value), ROLES))
