"""Live events over HTTP: streams that continue, are filtered, share one subscription, and end without a trace."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Self

import h11
import msgspec
import pytest

from limpet import Limpet
from limpet.core.endings.transition import Succeed
from limpet.core.records.live import EventGap, JobCounts, JobEvent
from limpet.ops import Operator
from limpet.runtime.listening import listener_on, place_on
from limpet.server import Api, event_stream
from limpet.server.caller import Caller
from limpet.server.event_stream import summed
from limpet.server.serving import Serving
from limpet.stores.base import READER, Store
from tests.ops.making import claim, job, put
from tests.server.asking import Client, Wire
from tests.server.conftest import GENEROUS, app_on

WITHIN_S = 100
PATH = "/api/v1/events"
CLIENTS = 200


class Block:
    """What stands between two blank lines."""

    def __init__(self, text: str) -> None:
        fields = [line.partition(": ")[::2] for line in text.splitlines()]
        self.comment = next((value for name, value in fields if not name), "")
        found = dict(fields)
        self.event, self.id, self.retry = found.get("event", ""), found.get("id", ""), found.get("retry", "")
        self.data: Any = msgspec.json.decode(found["data"]) if "data" in found else None

    @property
    def said(self) -> Any:
        """The job's task and kind, a number of jobs, or the reason of a gap."""
        match self.event:
            case "job":
                return self.data["task"], self.data["kind"]
            case "counts":
                return self.data["task"], self.data["state"], self.data["count"]
            case "gap":
                return self.data["reason"]
        return self.comment


class Reader(Wire):
    """A client of the stream."""

    def __init__(self, url: str, path: str = PATH, **headers: str) -> None:
        super().__init__(url)
        self._path = path
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self._text = ""
        self.status = 0
        self.headers: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.ask("GET", self._path, self._headers)
        self.first = await self.block()
        return self

    async def block(self) -> Block:
        """The next one; an EOFError at the end of the stream."""
        async with asyncio.timeout(WITHIN_S):
            while "\n\n" not in self._text:
                await self._more()
        text, _, self._text = self._text.partition("\n\n")
        return Block(text)

    async def _more(self) -> None:
        event = self._h11.next_event()
        if event is h11.NEED_DATA:
            self._h11.receive_data(await self._reader.read(65_536))
        elif isinstance(event, h11.Response):
            self.status = event.status_code
            self.headers = {name.decode(): value.decode() for name, value in event.headers}
        elif isinstance(event, h11.Data):
            self._text += bytes(event.data).decode()
        else:
            raise EOFError

    async def event(self) -> Block:
        """The next one that has data."""
        while True:
            block = await self.block()
            if block.event:
                return block

    async def until_end(self) -> None:
        """Return when the server has ended the stream, in good order."""
        with suppress(EOFError):
            while True:
                await self.block()

    async def said(self, count: int) -> list[Any]:
        """The next of those, in short."""
        return [(await self.event()).said for _ in range(count)]


class Server:
    """A server in this process."""

    def __init__(self, api: Api, url: str, stop: asyncio.Event, running: asyncio.Task[None]) -> None:
        self.api, self.url = api, url
        self._stop, self._running = stop, running

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.wait_for(asyncio.shield(self._running), WITHIN_S)


@asynccontextmanager
async def served(app: Limpet, **options: Any) -> AsyncIterator[Server]:
    """The API of an app, over a real connection."""
    api, stop, ready = Api(app, settings=GENEROUS, local=True, **options), asyncio.Event(), asyncio.Event()
    listener = listener_on("127.0.0.1", 0)
    running = asyncio.create_task(Serving(api, stop, ready.set).run_on(listener))
    await asyncio.wait_for(ready.wait(), WITHIN_S)
    server = Server(api, f"http://{place_on(listener)}", stop, running)
    try:
        yield server
    finally:
        await server.stop()


async def test_a_stream_tells_what_happens_to_jobs(everywhere: Store) -> None:
    async with served(app_on(everywhere)) as server, Reader(server.url) as reader:
        assert reader.status == 200
        assert reader.headers["content-type"].startswith("text/event-stream")
        assert reader.headers["cache-control"] == "no-store"
        assert reader.first.retry == "1000"
        assert reader.first.id.endswith("-0")
        await put(everywhere, job("send"))
        (claimed,) = await claim(everywhere)
        await everywhere.settle("w1", 1, [Succeed(claimed.id, claimed.token)])
        blocks = [await reader.event() for _ in range(3)]
        assert [block.said for block in blocks] == [("send", "enqueued"), ("send", "claimed"), ("send", "succeeded")]
        assert [block.id for block in blocks] == [block.data["id"] for block in blocks]
        assert blocks[-1].data["state"] == "succeeded"


class TestContinuing:
    async def test_a_client_that_comes_back_gets_what_it_missed(self, store: Store) -> None:
        async with served(app_on(store)) as server:
            async with Reader(server.url) as reader:
                await put(store, job("one"))
                last = (await reader.event()).id
            async with Reader(server.url, f"{PATH}?q=task:t*") as other:
                await put(store, job("two"))
                await other.said(1)
                async with Reader(server.url, last_event_id=last) as again:
                    assert again.first.id == "", "an id now would leave out what it missed"
                    assert await again.said(1) == [("two", "enqueued")]
                    await put(store, job("three"))
                    assert await again.said(1) == [("three", "enqueued")]

    async def test_it_may_have_seen_nothing_but_the_first_id(self, store: Store) -> None:
        async with served(app_on(store)) as server, Reader(server.url) as other:
            await put(store, job("one"))
            await other.said(1)
            async with Reader(server.url, last_event_id=other.first.id) as again:
                assert await again.said(1) == [("one", "enqueued")]

    @pytest.mark.parametrize("id", ["ffffffff-1", "x", "1"])
    async def test_an_unknown_id_is_a_gap_to_continue_after(self, store: Store, id: str) -> None:
        async with served(app_on(store)) as server, Reader(server.url, last_event_id=id) as reader:
            gap = await reader.event()
            assert gap.said == "unknown_id"
            async with Reader(server.url, last_event_id=gap.id) as again:
                await put(store, job("one"))
                assert await again.said(1) == [("one", "enqueued")]


class TestChoosing:
    async def test_a_query_chooses(self, store: Store) -> None:
        async with served(app_on(store)) as server, Reader(server.url, f"{PATH}?q=queue:pdf%20state:ready") as reader:
            await put(store, job("send"), job("render", "pdf"))
            assert await reader.said(1) == [("render", "enqueued")]

    async def test_a_token_for_some_queues_hears_of_no_other(self, store: Store) -> None:
        async with (
            served(app_on(store), auth=lambda request: Caller("ci", "viewer", frozenset({"mail"}))) as server,
            Reader(server.url) as reader,
            Reader(server.url, f"{PATH}?every=0.1") as counting,
        ):
            await put(store, job("render", "pdf"), job("send"))
            assert await reader.said(1) == [("send", "enqueued")]
            assert await counting.said(1) == [("send", "ready", 1)]

    async def test_a_page_may_want_counts_alone(self, store: Store) -> None:
        async with served(app_on(store)) as server, Reader(server.url, f"{PATH}?every=0.01") as reader:
            await put(store, *(job("send") for _ in range(5)), *(job("render", "pdf") for _ in range(3)))
            assert await reader.said(2) == [("send", "ready", 5), ("render", "ready", 3)]
            place = await reader.block()
            assert place.id.endswith("-8")

    @pytest.mark.parametrize(
        ("query", "code"),
        [("?q=args.x:1", "invalid_query"), ("?every=11", "invalid_request"), ("?x=1", "invalid_request")],
    )
    async def test_what_cannot_be_streamed_is_a_problem(self, client: Client, query: str, code: str) -> None:
        assert (await client.get(PATH + query)).problem == code

    async def test_without_a_token_nothing_is_told(self, store: Store) -> None:
        async with Api(app_on(store), settings=GENEROUS).lifespan() as api:
            assert (await Client(api).get(PATH)).problem == "token_required"
            assert api.feed.readers == 0

    async def test_the_head_of_a_stream_has_an_end(self, client: Client) -> None:
        answer = await client.ask("HEAD", PATH)
        assert (answer.status, answer.headers["content-type"], answer.raw) == (
            200,
            "text/event-stream; charset=utf-8",
            b"",
        )


class TestLife:
    async def test_a_quiet_stream_has_heartbeats_and_an_end(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(event_stream, "HEARTBEAT_S", 0.01)
        async with served(app_on(store)) as server, Reader(server.url) as reader:
            beat = await reader.block()
            assert (beat.comment, beat.id) == ("heartbeat", reader.first.id)
            monkeypatch.setattr(event_stream, "LIFE_S", 0.0)
            async with Reader(server.url) as short:
                with pytest.raises(EOFError):
                    await short.block()

    async def test_the_end_of_the_server_ends_streams_and_logs_no_error(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with (
            served(app_on(store)) as server,
            Reader(server.url) as one,
            Reader(server.url, f"{PATH}?every=10") as two,
        ):
            await put(store, job("send"))
            await one.said(1)
            await two.said(1)
            await server.stop()
            for reader in (one, two):
                await reader.until_end()
        assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []

    async def test_a_client_that_is_cut_off_leaves_nothing(self, store: Store) -> None:
        async with served(app_on(store)) as server, Reader(server.url) as stays:
            async with AsyncExitStack() as stack:
                readers = [await stack.enter_async_context(Reader(server.url)) for _ in range(5)]
                assert server.api.feed.readers == 6
                for reader in readers:
                    reader.cut()
            await put(store, job("send"))
            await stays.said(1)
            await until_readers(server.api, 1)

    async def test_too_many_streams_are_refused(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("limpet.server.routes.events.MOST_STREAMS", 1)
        async with served(app_on(store)) as server, Reader(server.url), Wire(server.url) as refused:
            await refused.ask("GET", PATH)
            answer = await asyncio.wait_for(refused.answer(), WITHIN_S)
            assert (answer.status, answer.problem) == (429, "too_many_requests")


async def until_readers(api: Api, count: int) -> None:
    """Return when the server has noticed who is gone."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            if api.feed.readers == count:
                return
            await asyncio.sleep(0.01)


async def drained_among_readers(store: Store, jobs: int) -> None:
    app = app_on(store)

    @app.task(name="nothing")
    async def nothing() -> None: ...

    before = asyncio.all_tasks()
    async with served(app) as server, AsyncExitStack() as stack:
        readers = [
            await stack.enter_async_context(Reader(server.url, f"{PATH}?q=state:succeeded")) for _ in range(CLIENTS)
        ]
        assert len(await store.controls(READER[0])) == 1
        assert sum(task.get_name() == "limpet-feed" for task in asyncio.all_tasks()) == 1
        await app.enqueue_many((nothing.job() for _ in range(jobs)), atomic=False)
        counting = [asyncio.create_task(until_told(reader, jobs)) for reader in readers]
        await app.work(until_empty=True)
        assert (await Operator(store, "test").stats()).succeeded == jobs
        await asyncio.gather(*counting)
        for reader in readers:
            reader.cut()
        await until_readers(server.api, 0)
    left = asyncio.all_tasks() - before
    assert {task.get_name() for task in left if not task.done()} == set()


async def until_told(reader: Reader, jobs: int) -> None:
    """Read until all have succeeded, or a gap says that some are not told."""
    told = 0
    while told < jobs:
        event = await reader.event()
        if event.event == "gap":
            return
        told += event.data.get("count", 1)


async def test_two_hundred_clients_share_one_subscription_while_jobs_drain(everywhere: Store) -> None:
    await drained_among_readers(everywhere, 500)


@pytest.mark.matrix("its size is what it shows; 500 jobs show the rest")
@pytest.mark.timeout(900)
async def test_two_hundred_clients_while_fifty_thousand_jobs_drain(everywhere: Store) -> None:
    await drained_among_readers(everywhere, 50_000)


def test_counts_sum_up_and_keep_the_last_gap() -> None:
    at = EventGap.of("lost", "e-1", 5).at
    one = JobEvent(id="e-2", at=at, kind="dead", job="j", queue="q", task="t", state="dead", attempt=1)  # type: ignore[arg-type]
    many = JobCounts(id="e-3", at=at, queue="q", task="t", state="dead", count=4)  # type: ignore[arg-type]
    gap, counts = summed([EventGap.of("slow", "e-0", 5), one, EventGap.of("lost", "e-1", 5), many])
    assert isinstance(gap, EventGap)
    assert gap.reason == "lost"
    assert isinstance(counts, JobCounts)
    assert (counts.id, counts.count) == ("e-3", 5)
