"""A store that is opened for who needs it, and closed when nobody did for a while."""

from __future__ import annotations

import asyncio

import pytest

from limpet.runtime import spare as spare_module
from limpet.runtime.spare import Spare
from limpet.stores.sqlite import SqliteStore


class Counted(SqliteStore):
    """A store that says when it is closed."""

    def __init__(self) -> None:
        super().__init__(None)
        self.closed = asyncio.Event()

    async def close(self) -> None:
        await super().close()
        self.closed.set()


async def test_it_is_closed_after_a_while_and_made_anew_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_module, "IDLE_S", 0.01)
    made: list[Counted] = []

    def make() -> Counted:
        made.append(Counted())
        return made[-1]

    spare = Spare(make)
    async with spare.lent() as one, spare.lent() as same:
        assert one is same
        await asyncio.sleep(0.05)
        assert not made[0].closed.is_set(), "somebody uses it"
    async with asyncio.timeout(60):
        await made[0].closed.wait()
    async with spare.lent() as other:
        assert other is made[1]
    await spare.close()
    assert made[1].closed.is_set()
    await spare.close()


async def test_it_stays_for_who_comes_back_soon() -> None:
    made: list[Counted] = []

    def make() -> Counted:
        made.append(Counted())
        return made[-1]

    spare = Spare(make)
    for _ in range(3):
        async with spare.lent() as store:
            await store.count()
    assert len(made) == 1
    await spare.close()
