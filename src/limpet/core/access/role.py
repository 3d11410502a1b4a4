"""Decides which role may do what: each request asks for one role, and each caller has one."""

from __future__ import annotations

from typing import Final, Literal, get_args

from limpet.core.errors import InvalidOption
from limpet.core.tasks.naming import did_you_mean

Role = Literal["viewer", "producer", "worker", "operator", "admin"]

ROLES: Final[tuple[Role, ...]] = get_args(Role)

# What requests of a role are about.
ABOUT: Final[dict[Role, str]] = {
    "viewer": "look: jobs, queues, events, the audit log",
    "producer": "enqueue jobs",
    "worker": "claim jobs and end them",
    "operator": "correct: cancel, retry, edit, pause, limits, schedules, dead letters",
    "admin": "whatever shows, moves or mends the whole store, and tokens",
}

# Of which roles a caller may make requests. A producer does not claim, and a worker does not enqueue.
INCLUDED: Final[dict[Role, frozenset[Role]]] = {
    "viewer": frozenset({"viewer"}),
    "producer": frozenset({"viewer", "producer"}),
    "worker": frozenset({"viewer", "worker"}),
    "operator": frozenset({"viewer", "producer", "worker", "operator"}),
    "admin": frozenset(ROLES),
}


def checked_role(value: str, *, what: str = "role") -> Role:
    """A role by its name."""
    for role in ROLES:
        if value == role:
            return role
    raise InvalidOption(f"{what}={value!r:.80} is not a role", fix=did_you_mean(str(value), ROLES))
