"""Long polls: they end with the job, with their time, with the client and with the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from limpet.core.endings.transition import Succeed
from limpet.core.jobs.ids import id_text
from limpet.runtime.listening import listener_on
from limpet.server import Api
from limpet.server.serving import Serving
from limpet.stores.base import Store
from tests.ops.making import claim, job, put
from tests.server.asking import Client, Wire
from tests.server.conftest import GENEROUS, app_on


@asynccontextmanager
async def serving(store: Store) -> AsyncIterator[tuple[str, Api, asyncio.Event]]:
    """A real server on a socket, until the event is set."""
    stop, ready = asyncio.Event(), asyncio.Event()
    api = Api(app_on(store), settings=GENEROUS, local=True)
    with listener_on("127.0.0.1", 0) as listener:
        host, port = listener.getsockname()
        running = asyncio.ensure_future(Serving(api, stop, ready.set).run_on(listener))
        await ready.wait()
        yield f"http://{host}:{port}", api, stop
        stop.set()
        await running


class Watched:
    """What waits in the store now, without changing what it does."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.ended = asyncio.Event(), asyncio.Event()
        watch = store.watch

        async def watched(id: bytes, timeout_ms: int | None) -> object:
            self.began.set()
            try:
                return await watch(id, timeout_ms)
            finally:
                self.ended.set()

        monkeypatch.setattr(store, "watch", watched)


async def test_a_long_poll_answers_when_the_job_has_finished(
    everywhere: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (id,) = await put(everywhere, job())
    watched = Watched(everywhere, monkeypatch)
    async with Api(app_on(everywhere), settings=GENEROUS, local=True).lifespan() as api:
        asking = asyncio.ensure_future(Client(api).get(f"/api/v1/jobs/{id_text(id)}?wait=60"))
        await watched.began.wait()
        (claimed,) = await claim(everywhere)
        await everywhere.settle("w1", time.monotonic_ns(), [Succeed(id, claimed.token, b"7")])
        answer = (await asking).json
    assert (answer["state"], answer["result"]) == ("succeeded", 7)


async def test_a_long_poll_answers_what_there_is_when_its_time_is_over(client: Client, store: Store) -> None:
    (id,) = await put(store, job())
    assert (await client.get(f"/api/v1/jobs/{id_text(id)}?wait=1")).json["state"] == "ready"
    assert (await client.get(f"/api/v1/jobs/{id_text(id)}?wait=61")).status == 422


async def test_as_many_wait_for_results_as_may(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (id,) = await put(store, job())
    watched = Watched(store, monkeypatch)
    async with Api(app_on(store), settings=replace(GENEROUS, waiting=1), local=True).lifespan() as api:
        client, path = Client(api), f"/api/v1/jobs/{id_text(id)}"
        asking = asyncio.ensure_future(client.get(f"{path}?wait=60"))
        await watched.began.wait()
        assert (await client.get(f"{path}?wait=60")).problem == "too_many_waiting"
        assert (await client.get(path)).status == 200, "who does not wait is not refused"
        await store.cancel([id], "over")
        assert (await asking).json["state"] == "cancelled"
        assert (await client.get(f"{path}?wait=60")).status == 200, "there is a place again"


async def test_a_client_that_goes_is_noticed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (id,) = await put(store, job())
    watched = Watched(store, monkeypatch)
    async with serving(store) as (url, _, _), Wire(url) as wire:
        await wire.ask("GET", f"/api/v1/jobs/{id_text(id)}?wait=60")
        await watched.began.wait()
        wire.cut()
        await asyncio.wait_for(watched.ended.wait(), 30)


async def test_a_server_that_ends_answers_its_long_polls(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (id,) = await put(store, job())
    watched = Watched(store, monkeypatch)
    async with serving(store) as (url, api, stop), Wire(url) as wire:
        await wire.ask("GET", f"/api/v1/jobs/{id_text(id)}?wait=60")
        await watched.began.wait()
        stop.set()
        answer = await wire.answer()
        assert (answer.status, answer.json["state"]) == (200, "ready")
    assert api.closing.is_set()
    assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []
