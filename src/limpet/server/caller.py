"""Says in which name a request is answered, and what it may see and do."""

from __future__ import annotations

from msgspec import Struct

from limpet.core.access.role import INCLUDED, Role


class Caller(Struct, frozen=True):
    """Who asks, once admitted.

    >>> Caller("token:ci-bot", "producer", frozenset({"mail"})).may("worker")
    False
    """

    name: str  # actor of audit lines, such as "token:ci-bot" or "http:127.0.0.1"
    role: Role
    queues: frozenset[str] | None = None  # None: every queue
    namespace: str | None = None  # None: every namespace
    id: str = ""  # of its token: a name may be given again; empty: the name tells callers apart

    @property
    def own(self) -> str:
        """What no other caller ever has: what is kept for this one is kept under it."""
        return self.id or self.name

    def may(self, role: Role) -> bool:
        """True when this caller may do what asks for `role` at least."""
        return role in INCLUDED[self.role]

    def sees(self, queue: str) -> bool:
        """True when this caller may know of jobs of the queue."""
        return self.queues is None or queue in self.queues
