"""Every list, index and counter says what the records say, after any history."""

from __future__ import annotations

import asyncio

import pytest

from limpet.core.jobs.repair import Difference
from limpet.stores.base import Examines, Store
from limpet.stores.open import open_store
from limpet_contract.seeds import chance_of
from limpet_contract.stroll import STEPS, Stroll
from limpet_contract.walk import StoreWalk
from tests.engines.redis.audit import faults
from tests.servers.flavours import REDIS
from tests.servers.redis import RedisServer, shared
from tests.size import FULL, in_matrix


@pytest.fixture(scope="module")
def ground() -> RedisServer:
    return shared(REDIS)


class Namespace:
    """A namespace of the test's own on the shared server."""

    name = REDIS

    def __init__(self, server: RedisServer, namespace: str) -> None:
        self.server = server
        self.namespace = namespace
        self._opened: list[Store] = []

    async def open(self) -> Store:
        store = open_store(self.server.url, self.namespace)
        self._opened.append(store)
        return store

    async def reopen(self, store: Store) -> Store:
        return await self.open()

    async def close(self) -> None:
        for store in self._opened:
            await store.close()
        self._opened.clear()


async def differences(server: RedisServer, namespace: str) -> list[Difference]:
    """What a repair would change."""
    store = open_store(server.url, namespace)
    assert isinstance(store, Examines)
    try:
        return await store.repair(dry_run=True)
    finally:
        await store.close()


@pytest.mark.parametrize("seed", [100, *in_matrix("further seeds of the same walk", *range(101, 106))])
def test_the_indexes_follow_the_records_on_a_long_way(ground: RedisServer, seed: int) -> None:
    namespace = f"audit{seed}"
    walk, rng = StoreWalk(Namespace(ground, namespace)), chance_of(seed)
    went = Stroll(walk, rng)
    kinds, weights = list(STEPS), list(STEPS.values())
    went.begin()
    try:
        for number in range(250 if FULL else 120):
            step = rng.choices(kinds, weights)[0]
            step(went)
            found = faults(ground, namespace)
            assert not found, f"after step {number} ({step.__name__}): {found}"
    except BaseException:
        walk.abandon()
        raise
    walk.teardown()
    assert not faults(ground, namespace)
    assert asyncio.run(differences(ground, namespace)) == []
