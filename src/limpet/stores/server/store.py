"""The part of a store on a server that does not depend on the server: who sleeps here, and who asks from which loop."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from limpet.core.endings.transition import Bury, Settled, Transition
from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.lease import ClaimRequest, Wake
from limpet.core.settings import namespace_of
from limpet.stores.base import NOTHING_SPENT, Features
from limpet.stores.server.client import Held, PerLoop
from limpet.stores.waiters import Waiters, Watches, wake_of

C = TypeVar("C", bound=Held)
R = TypeVar("R", bound=Held)
Id = TypeVar("Id")
T = TypeVar("T")

Known = tuple[dict[Id, Lane], dict[Id, Policy]]

MOST: Final = 50_000  # lanes that one process keeps in memory


class ServerStore(Watches, Generic[C, R]):
    """Serves every loop and thread of its process, and survives a fork: each loop has a client and a receiver."""

    def __init__(self, namespace: str, features: Features, client: Callable[[], C], receiver: Callable[[], R]) -> None:
        self.namespace = namespace_of(namespace)
        self.features = features
        self.identity = ""
        self._waiters = Waiters()
        self._clients = PerLoop(client)
        self._receivers = PerLoop(receiver)
        self._checked = False

    @property
    def sleepers(self) -> Waiters:
        return self._waiters

    async def close(self) -> None:
        await self._receivers.close()
        await self._clients.close()

    async def wait(self, session: str, timeout_ms: int) -> Wake:
        return wake_of(await self._waiters.sleep(session.encode(), timeout_ms / 1000))

    async def settle(
        self,
        session: str,
        seq: int,
        transitions: Sequence[Transition],
        *,
        spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT,
        now_ms: int | None = None,
    ) -> list[Settled]:
        raise NotImplementedError

    async def _bury(self, request: ClaimRequest, unreadable: Sequence[Bury], now_ms: int | None) -> None:
        """Send claimed jobs that no worker could run to the dead letters, under a sequence of the claimer's own."""
        if unreadable:
            await self.settle(f"{request.session}/{request.claimer}", request.seq, unreadable, now_ms=now_ms)


class Definitions(Generic[Id]):
    """The lanes and policies that this process has read. They are named by their content and never change."""

    def __init__(self, lane: Callable[[bytes], Lane], policy: Callable[[bytes], Policy]) -> None:
        self._lanes: dict[Id, Lane] = {}
        self._policies: dict[Id, Policy] = {}
        self._lane = lane
        self._policy = policy

    def known(self) -> Known[Id]:
        """All that was read. A call works with what it gets here: others may forget lanes while it waits."""
        if len(self._lanes) >= MOST:
            self._lanes = {}  # of tenants long gone: those in use are read again
        return self._lanes, self._policies

    def keep(self, known: Known[Id], lanes: Iterable[tuple[Id, bytes]], policies: Iterable[tuple[Id, bytes]]) -> None:
        """Add what was read to what a call works with; what makes no sense is left out."""
        known[0].update(_readable(lanes, self._lane))
        known[1].update(_readable(policies, self._policy))


def missing(wanted: Iterable[Id], known: Container[Id]) -> list[Id]:
    """The ids of definitions that were not read yet, or could not be read, each once."""
    return [id for id in set(wanted) if id not in known]  # not a difference of sets: that walks through all known ones


def _readable(found: Iterable[tuple[Id, bytes]], decode: Callable[[bytes], T]) -> Iterable[tuple[Id, T]]:
    for id, stored in found:
        try:
            yield id, decode(stored)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
