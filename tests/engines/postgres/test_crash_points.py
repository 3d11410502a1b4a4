"""A verb that takes several statements is broken off between any two of them: nothing is lost or done twice.

Each statement is a transaction of its own on the server, so these are all the points at which the engine itself can die
half-way. What is lost before a verb, or after it, is in the contract (tests/contract/test_crash.py).
"""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import pytest

from limpet.core.errors import StoreUnreachable
from limpet.stores.base import Store
from limpet.stores.postgres.store import PostgresStore
from limpet_contract.bench import Bench
from limpet_contract.crash import CALLERS, Caller, Unreliable, ends_well
from limpet_contract.harness import Clock
from limpet_contract.story import Story
from tests.engines.postgres.namespace import Namespace, fresh_namespace
from tests.servers.installations import POSTGRES
from tests.servers.postgres import PostgresServer, shared
from tests.size import FULL

EVERY = 8  # on an ordinary day; each point needs a schema of its own


@pytest.fixture(scope="module")
def server() -> PostgresServer:
    return shared(POSTGRES)


class Telling:
    """The story on a store whose client is cut after its n-th statement, before it can send the next."""

    def __init__(self, store: PostgresStore, clock: Clock, caller: Caller, cut_after: int = 0) -> None:
        self.line = Unreliable(cast(Store, store), 0, "never sent", caller)
        self.story = Story(Bench(cast(Store, self.line), clock))
        self.store = store
        self.cut_after = cut_after
        self.sent: list[tuple[int, str]] = []  # the number of the call that it was for, and its verb

    def answered(self, verb: str, when: str) -> None:
        if when == "after":
            self.sent.append((len(self.line.calls), self.line.calls[-1]))
            if len(self.sent) == self.cut_after:
                raise StoreUnreachable("the connection is dead", verb=verb)

    async def tell(self) -> None:
        client = await self.store._client()
        client.intercept = self.answered
        try:
            await self.story.tell()
        except StoreUnreachable:
            assert self.cut_after
        finally:
            client.intercept = None


async def points(place: Namespace) -> dict[int, str]:
    """After which statements of the story the same verb has more to send, and which verb that is."""
    telling = Telling(await place.open(), place.clock, "dies")
    await telling.tell()
    return {number: one[1] for number, (one, next) in enumerate(pairwise(telling.sent), 1) if one[0] == next[0]}


@pytest.mark.parametrize("caller", CALLERS)
async def test_nothing_is_lost_or_doubled_when_a_verb_is_broken_off(server: PostgresServer, caller: Caller) -> None:
    async with fresh_namespace(server) as place:
        between = await points(place)
    assert {"claim", "prune"} <= set(between.values()), "all others that change something are one statement"
    every = 1 if FULL else EVERY
    for number, verb in list(between.items())[CALLERS.index(caller) :: every]:
        async with fresh_namespace(server) as place:
            bench = await place.bench()
            telling = Telling(cast(PostgresStore, bench.store), place.clock, caller, number)
            await telling.tell()
            try:
                await ends_well(bench, telling.story, caller)
            except AssertionError as error:
                raise AssertionError(f"after statement {number}, within {verb}: {error}") from error
