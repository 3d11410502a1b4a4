"""A call whose answer got lost is made again, and answers what it would have: it happened once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count

import pytest

from limpet.core.gate import GateChange
from limpet.core.jobs.lease import Signal
from limpet.core.jobs.state import State
from limpet.stores.base import RetryRequest
from limpet.stores.open import open_store
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.servers.flavours import REDIS
from tests.servers.redis import RedisServer, shared

_number = count()


class Wire:
    """A way to the server that cuts the connection instead of handing on the next answer, if told to."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.cut_next = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        self._door = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return f"redis://127.0.0.1:{self._door.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        self._door.close()
        await asyncio.gather(*self._tasks)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        back, out = await asyncio.open_connection("127.0.0.1", self.server.port)
        asking = asyncio.create_task(_copy(reader, out))
        while data := await back.read(65536):
            if self.cut_next:
                self.cut_next = False
                break
            writer.write(data)
        for end in (writer, out):
            end.transport.abort()
        await asking


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.transport.abort()


class Place(Bench):
    """A bench whose next answer can be lost."""

    def __init__(self, wire: Wire, url: str) -> None:
        self.wire = wire
        super().__init__(open_store(url, f"again-{next(_number)}"), Clock())

    def lose_answer(self) -> None:
        """Of the next call: the server did it, and nobody heard."""
        self.wire.cut_next = True


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    wire = Wire(shared(REDIS))
    place = Place(wire, await wire.open())
    store = place.store
    # The server knows the scripts, so that the next answer of each is the one that counts.
    await store.cancel([place.id()], "")
    await store.retry(RetryRequest((place.id(),)))
    await store.discard([place.id()])
    await store.signal([Signal(place.id(), "", b"")])
    await store.change_gates([])
    await place.hand("first").beat()
    yield place
    assert not wire.cut_next
    await place.check_books()
    await store.close()
    await wire.close()


async def test_a_beat_that_opened_the_session_says_so_again(place: Place) -> None:
    """A worker whose session was swept must hear of it: it holds its jobs no more."""
    hand = place.hand("new")
    place.lose_answer()
    assert (await hand.beat()).fresh
    assert not (await hand.beat()).fresh
    place.lose_answer()
    assert not (await hand.beat()).fresh


async def test_a_cancel_says_what_it_did(place: Place) -> None:
    id = await place.add()
    place.lose_answer()
    assert await place.store.cancel([id, place.id()], "enough", now_ms=place.clock.now_ms) == ["cancelled", "gone"]
    assert await place.store.cancel([id], "enough", now_ms=place.clock.now_ms) == ["finished"]


async def test_a_retry_and_a_discard_say_what_they_did(place: Place) -> None:
    id = await place.add()
    hand = place.hand()
    await hand.bury(await hand.take())
    place.lose_answer()
    assert await place.store.retry(RetryRequest((id,)), now_ms=place.clock.now_ms) == ["retried"]
    assert await place.state(id) is State.ready
    await hand.bury(await hand.take())
    place.lose_answer()
    assert await place.store.discard([id], now_ms=place.clock.now_ms) == 1
    assert await place.store.discard([id], now_ms=place.clock.now_ms) == 0


async def test_a_signal_says_what_it_did(place: Place) -> None:
    id = await place.add()
    hand = place.hand()
    await hand.suspend(await hand.take(), None, "approved")
    place.lose_answer()
    assert await place.signal(Signal(id, "approved", b"1"), Signal(id, "paid", b"2")) == ["woken", "kept"]
    assert await place.signal(Signal(id, "approved", b"3")) == ["already"]
    assert {note.body for note in (await hand.take()).notes} == {b"1", b"2"}


async def test_a_breaker_is_tripped_once(place: Place) -> None:
    place.lose_answer()
    (gate,) = await place.store.change_gates([GateChange("breaker:b", trip_ms=60_000)], now_ms=place.clock.now_ms)
    assert gate.opened == 1
    assert await place.store.gates("breaker:") == [gate]
