"""Names, keeps and closes the sessions of agents: each claim is one, so its leases end together and with no other's.

One session per agent would tie its leases together: a restarted agent's next claim would keep the job it forgot alive
for ever, and giving one job back would give back all.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from limpet.core.access.request_key import hash_of
from limpet.core.errors import InvalidOption
from limpet.core.jobs.lease import Beat, Pulse, Serves
from limpet.core.text.storable import checked_text
from limpet.ops.bulk import Decision
from limpet.stores.base import Store

LONGEST_NAME: Final = 200  # characters of an agent's name, and of a key
MOST_KNOWN: Final = 10_000  # sessions that are remembered
_KIND: Final = "agent"


class KnownSessions:
    """Remembers what the sessions serve that began here, so that a heartbeat need not look through all sessions."""

    def __init__(self) -> None:
        self._serves: dict[str, Serves] = {}

    def note(self, session: str, serves: Serves) -> None:
        """A session has begun, or has been found; of very many the oldest are forgotten."""
        self._serves[session] = serves
        if len(self._serves) > MOST_KNOWN:
            del self._serves[next(iter(self._serves))]

    def forget(self, session: str) -> None:
        """It was closed."""
        self._serves.pop(session, None)

    def of(self, session: str) -> Serves | None:
        """What it serves, if that is known."""
        return self._serves.get(session)


class AgentSessions:
    """The sessions of one store's agents, as one caller keeps them; lines of the audit log are in the name of `actor`.

    Without an actor they are in that of the agent.
    """

    def __init__(
        self,
        store: Store,
        actor: str | None,
        known: KnownSessions,
        clock: Callable[[], int] | None = None,
        queues: frozenset[str] | None = None,
    ) -> None:
        self.store = store
        self._actor = actor
        self._known = known
        self._clock = clock
        self._queues = queues

    @property
    def asked_ms(self) -> int | None:
        """The instant that verbs of the store are told; None: they take the engine's."""
        return None if self._clock is None else self._clock()

    def name(self, agent: str, key: str | None) -> str:
        """The session of one claim: with a key it is the same whenever this caller, for these queues, claims with it.

        Of all three only a hash is in the name: no other caller's key can make the same one, and no reader learns it.
        """
        if not agent or ":" in checked_text(agent, what="agent") or len(agent) > LONGEST_NAME:
            raise InvalidOption(
                f"{agent!r:.80} is not an agent's name", fix=f"1 to {LONGEST_NAME} characters without a colon"
            )
        if key is None:
            return f"{_KIND}:{agent}:{secrets.token_hex(6)}"
        if len(checked_text(key, what="key")) > LONGEST_NAME:
            raise InvalidOption(f"the key {key!r:.40} is too long", fix=f"{LONGEST_NAME} characters at most")
        whose = "" if self._queues is None else "\n".join(sorted(self._queues))
        return f"{_KIND}:{agent}:{hash_of(self._actor or '', whose, key)}"

    async def beat(self, session: str, serves: Serves, ttl_ms: int) -> Pulse:
        """Open it, or keep what it holds for so long."""
        about = {"kind": _KIND, "agent": agent_of(session), **({} if self._actor is None else {"by": self._actor})}
        self._known.note(session, serves)
        return await self.store.beat(Beat(session, ttl_ms, serves, msgspec.json.encode(about)), now_ms=self.asked_ms)

    async def serves(self, session: str) -> Serves | None:
        """What a live session serves; None when there is none of that name."""
        known = self._known.of(session)
        if known is not None:
            return known
        return next((view.serves for view in await self.store.sessions() if view.session == session), None)

    async def leave(self, session: str) -> None:
        """Close it; what it still holds is released unspent."""
        self._known.forget(session)
        await self.store.leave(session, now_ms=self.asked_ms)

    async def leave_empty(self, sessions: Iterable[str]) -> None:
        """Close those that hold nothing any more."""

        async def one(session: str) -> None:
            if not await self.store.held(session):
                await self.leave(session)

        await asyncio.gather(*(one(session) for session in sessions if is_agents(session)))

    def line(self, kind: str, session: str, token: int, reason: str = "") -> Decision:
        """What the audit log keeps of one verb of the agent whose session it is."""
        agent = agent_of(session)
        facts: dict[str, object] = {"token": token}
        if self._actor is not None:
            facts["agent"] = agent
        return Decision(kind, self._actor or agent, reason, facts)


def is_agents(session: str) -> bool:
    """False for the session of a worker of ours, which keeps and closes it by itself."""
    return session.startswith(f"{_KIND}:")


def session_begins(agent: str) -> str:
    """How the names of an agent's sessions begin."""
    return f"{_KIND}:{agent}:"


def agent_of(session: str) -> str:
    """Who holds it, for people."""
    kind, _, rest = session.partition(":")
    return rest.partition(":")[0] if kind == _KIND else session
