"""Says in which name a request is answered, and what it may see and do."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

Role = Literal["viewer", "producer", "worker", "operator", "admin"]

# What each role may do besides its own: an operator looks and enqueues, an admin may do everything.
INCLUDED: Final[dict[Role, frozenset[Role]]] = {
    "viewer": frozenset({"viewer"}),
    "producer": frozenset({"producer"}),
    "worker": frozenset({"worker"}),
    "operator": frozenset({"viewer", "producer", "operator"}),
    "admin": frozenset({"viewer", "producer", "worker", "operator", "admin"}),
}


class Caller(Struct, frozen=True):
    """Who asks, once admitted.

    >>> Caller("token:ci-bot", "producer", frozenset({"mail"})).may("viewer")
    False
    """

    name: str  # actor of audit lines, such as "token:ci-bot" or "http:127.0.0.1"
    role: Role
    queues: frozenset[str] | None = None  # None: every queue
    namespace: str | None = None  # None: every namespace

    def may(self, role: Role) -> bool:
        """True when this caller may do what asks for `role` at least."""
        return role in INCLUDED[self.role]

    def sees(self, queue: str) -> bool:
        """True when this caller may know of jobs of the queue."""
        return self.queues is None or queue in self.queues
