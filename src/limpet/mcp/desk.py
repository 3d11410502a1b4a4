"""Remembers the caller of a tool: its name and role, and the verbs that it may ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from limpet.client.client import Client
from limpet.core.access.refusal import Forbidden
from limpet.core.access.role import INCLUDED, Role
from limpet.ops import Agents, Operator
from limpet.stores.base import Store

Report = Callable[[float, float | None, str], Awaitable[None]]  # how far a call is: done, of how much, in words


@dataclass(frozen=True)
class Desk:
    """The verbs of one caller, who sees no more than it may."""

    name: str  # for the audit log
    role: Role
    store: Store
    client: Client
    agents: Agents

    @property
    def operator(self) -> Operator:
        """Asks and corrects."""
        return Operator(self.store, self.name)

    def may(self, role: Role) -> bool:
        """True when the caller may do what asks for that role at least."""
        return role in INCLUDED[self.role]

    def insist(self, role: Role, tool: str) -> None:
        """Refuse what the caller's role does not include."""
        if not self.may(role):
            raise Forbidden(
                f"{self.name} has the role {self.role}, and {tool} needs {role}", fix="use a token with that role"
            )
