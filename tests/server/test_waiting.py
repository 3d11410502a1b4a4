"""Long polls: they end with the job, with their time, with the client and with the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from starlette.requests import Request

from limpet.core.endings.transition import Succeed
from limpet.core.errors import StoreUnreachable
from limpet.core.jobs.ids import id_text
from limpet.ops import Operator
from limpet.runtime.listening import listener_on
from limpet.server import Api, admission, known_tokens
from limpet.server.serving import Serving
from limpet.stores.base import Store
from tests.ops.making import claim, job, put
from tests.server.asking import Client, Wire
from tests.server.conftest import GENEROUS, app_on
from tests.server.serving import served, until


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


class TestTokensThatEnd:
    """A request that waits is looked after: what its token may see ends with the token."""

    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(admission, "LOOK_S", 0.01)
        monkeypatch.setattr(known_tokens, "FRESH_S", 0.0)

    async def test_a_revoked_token_ends_a_long_poll(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        (id,) = await put(store, job())
        tokens = Operator(store, "ada").tokens
        made = await tokens.create("viewer", name="board")
        watched = Watched(store, monkeypatch)
        async with Api(app_on(store), settings=GENEROUS).lifespan() as api:
            asking = asyncio.ensure_future(Client(api, made.token).get(f"/api/v1/jobs/{id_text(id)}?wait=60"))
            await watched.began.wait()
            await tokens.revoke("board")
            answer = await asyncio.wait_for(asking, 30)
            assert (answer.status, answer.problem) == (401, "token_invalid")
            assert watched.ended.is_set()
        (line,) = [line for line in await Operator(store, "ada").audit() if line.kind == "access.refused"]
        assert (line.actor, line.data["code"]) == ("token:board", "token_invalid")

    async def test_a_revoked_token_ends_a_claim_and_holds_nothing(self, store: Store) -> None:
        tokens = Operator(store, "ada").tokens
        made = await tokens.create("worker", name="w")
        async with Api(app_on(store), settings=GENEROUS).lifespan() as api:
            body = {"worker": "w1", "wait": 60}
            asking = asyncio.ensure_future(Client(api, made.token).post("/api/v1/claim", body))
            await until(lambda: _is_there(store))
            await tokens.revoke("w")
            assert (await asyncio.wait_for(asking, 30)).problem == "token_invalid"
            assert await store.sessions() == []

    async def test_an_expired_token_ends_a_stream(self, store: Store) -> None:
        made = await Operator(store, "ada").tokens.create("viewer", expires="1h")
        api = Api(app_on(store), settings=GENEROUS, local=True)
        async with served(api) as server, Wire(server.url) as wire:
            await wire.ask("GET", "/api/v1/events", {"authorization": f"Bearer {made.token}"})
            await until(lambda: _reads(api))
            later_ms = Operator(store, "ada").now_ms() + 3_600_000
            api.admission._now_ms = lambda: later_ms
            answer = await asyncio.wait_for(wire.answer(), 30)
            assert answer.status == 200
            assert api.feed.readers == 0

    async def test_a_store_that_is_away_ends_none(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """What cannot be known is no reason to end a request; the token is asked for again."""
        tokens = Operator(store, "ada").tokens
        made = await tokens.create("viewer", name="board")
        async with Api(app_on(store), settings=GENEROUS).lifespan() as api:
            caller = await api.admission.admit(request_with(made.token))
            asked, opens = asyncio.Event(), api.tokens.still_opens

            async def away(*words: object) -> bool:
                asked.set()
                raise StoreUnreachable("away", verb="controls")

            monkeypatch.setattr(api.tokens, "still_opens", away)
            barred = asyncio.ensure_future(api.admission.barred(caller))
            await asked.wait()
            monkeypatch.setattr(api.tokens, "still_opens", opens)
            assert not barred.done()
            await tokens.revoke("board")
            await asyncio.wait_for(barred, 30)


async def _is_there(store: Store) -> bool:
    return bool(await store.sessions())


async def _reads(api: Api) -> bool:
    return api.feed.readers == 1


def request_with(token: str) -> Request:
    return Request({"type": "http", "headers": [(b"authorization", f"Bearer {token}".encode())]})
