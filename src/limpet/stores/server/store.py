"""What stores on servers share: clients and receivers per loop, sleeping callers, unreadable jobs, definitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from limpet.core.endings.transition import Bury
from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.lease import ClaimRequest, Handed, Wake
from limpet.core.jobs.view import Control
from limpet.core.settings import namespace_of
from limpet.stores.base import Features, Hear, Store
from limpet.stores.offers import Offers
from limpet.stores.server.client import Held, PerLoop
from limpet.stores.waiters import HANDED, Waiters, Watches, wake_of

C = TypeVar("C", bound=Held)
R = TypeVar("R", bound=Held)
Id = TypeVar("Id")
T = TypeVar("T")

Stored = Iterable[tuple[Id, bytes]]

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
        self.offers = Offers(self)

    @property
    def sleepers(self) -> Waiters:
        return self._waiters

    async def close(self) -> None:
        await self.offers.close()
        await self._receivers.close()
        await self._clients.close()

    async def publish(self, message: str) -> None:
        raise NotImplementedError

    async def subscribe(self, hear: Hear) -> Callable[[], None]:
        raise NotImplementedError

    async def announce(self, until_ms: int) -> None:
        await self.offers.announce(until_ms)

    async def put_control(self, control: Control, *, expect: int | None = None) -> Control | None:
        raise NotImplementedError

    async def controls(self, kind: str) -> list[Control]:
        raise NotImplementedError

    async def now(self) -> int:
        raise NotImplementedError

    async def wait(self, session: str, timeout_ms: int) -> Wake:
        name = session.encode()
        kinds = await self._waiters.sleep(name, timeout_ms / 1000)
        return wake_of(kinds, await self._handed(self._waiters.take(name)) if HANDED in kinds else ())

    async def _handed(self, records: list[Any]) -> tuple[Handed, ...]:
        """The jobs of wake-ups, as an engine that hands off sends them."""
        raise NotImplementedError


async def bury(store: Store, request: ClaimRequest, unreadable: Sequence[Bury], now_ms: int | None) -> None:
    """Send claimed jobs that no worker could run to the dead letters, under a sequence of the claimer's own."""
    if unreadable:
        await store.settle(f"{request.session}/{request.claimer}", request.seq, unreadable, now_ms=now_ms)


class Definitions(Generic[Id, C]):
    """The lanes and policies that this process has read. They are named by their content and never change."""

    def __init__(self, lane: Callable[[bytes], Lane], policy: Callable[[bytes], Policy]) -> None:
        self._lanes: dict[Id, Lane] = {}
        self._policies: dict[Id, Policy] = {}
        self._lane = lane
        self._policy = policy

    async def fetch_missing(
        self, client: C, lanes: Collection[Id], policies: Collection[Id], *, verb: str
    ) -> tuple[Mapping[Id, Lane], Mapping[Id, Policy]]:
        """Definitions by id, asked for where they are not known; one that cannot be read is left out."""
        if len(self._lanes) >= MOST:
            self._lanes = {}  # of tenants long gone: those in use are read again
        lane_of, policy_of = self._lanes, self._policies  # another call may forget lanes while this one waits
        # No differences of sets: those walk through all that is known.
        missing = [id for id in set(lanes) if id not in lane_of], [id for id in set(policies) if id not in policy_of]
        if any(missing):
            found_lanes, found_policies = await self._read(client, *missing, verb)
            lane_of.update(_readable(found_lanes, self._lane))
            policy_of.update(_readable(found_policies, self._policy))
        return lane_of, policy_of

    async def _read(self, client: C, lanes: list[Id], policies: list[Id], verb: str) -> tuple[Stored[Id], Stored[Id]]:
        """What the server has of these."""
        raise NotImplementedError


def _readable(found: Stored[Id], decode: Callable[[bytes], T]) -> Iterable[tuple[Id, T]]:
    for id, stored in found:
        try:
            yield id, decode(stored)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
