"""Routes, their decoding and their refusals: every refusal is a problem document."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.types import ASGIApp

from limpet import Limpet
from limpet.core.jobs.ids import id_text
from limpet.core.records.queue import StatsRecord
from limpet.core.records.record import Record
from limpet.server import Api, decode, serving
from limpet.server.call import Call
from limpet.server.route import MiB, Route, post
from limpet.server.table import ROUTES
from limpet.stores.base import Store
from tests.ops.making import job, put
from tests.server.asking import Client
from tests.server.conftest import GENEROUS, app_on
from tests.server.serving import served


async def test_jobs_are_listed_and_shown(everywhere: Store) -> None:
    ids = await put(everywhere, job("send"), job("send"), job("noop", "other"))
    async with Api(app_on(everywhere), settings=GENEROUS, local=True).lifespan() as api:
        client = Client(api)
        page = (await client.get("/api/v1/jobs?q=queue:mail&limit=1")).json
        assert [each["id"] for each in page["jobs"]] == [id_text(ids[1])]
        rest = (await client.get(f"/api/v1/jobs?q=queue:mail&cursor={page['cursor']}")).json
        assert [each["id"] for each in rest["jobs"]] == [id_text(ids[0])]
        shown = await client.get(f"/api/v1/jobs/{id_text(ids[2])}")
        assert (shown.json["task"], shown.json["queue"], shown.json["state"]) == ("noop", "other", "ready")
        assert [each["queue"] for each in (await client.get("/api/v1/queues")).json["queues"]] == ["mail", "other"]
        assert (await client.get("/api/v1/stats")).json["ready"] == 3


async def test_a_record_that_has_not_changed_is_not_sent_again(client: Client, store: Store) -> None:
    (id,) = await put(store, job())
    path = f"/api/v1/jobs/{id_text(id)}"
    first = await client.get(path)
    again = await client.get(path, if_none_match=first.headers["etag"])
    assert (again.status, again.raw, again.headers["etag"]) == (304, b"", first.headers["etag"])
    await store.cancel([id], "why")
    assert (await client.get(path, if_none_match=f'"other", W/{first.headers["etag"]}')).status == 200


class TestIfMatch:
    """A record that another person has changed since it was read is left alone."""

    async def test_a_record_that_has_changed_is_not_changed_again(self, client: Client, store: Store) -> None:
        (id,) = await put(store, job())
        path = f"/api/v1/jobs/{id_text(id)}"
        tag = (await client.get(path)).headers["etag"]
        refused = await client.post(f"{path}/cancel", {}, if_match='"of another time"')
        assert (refused.status, refused.problem, tag in refused.json["detail"]) == (412, "record_changed", True)
        (view,) = await store.get([id])
        assert view is not None
        assert view.state.value == "ready"
        assert (await client.post(f"{path}/cancel", {}, if_match=f'"x", {tag}')).json["done"] == 1
        assert (await client.post(f"{path}/rerun", {}, if_match=tag)).status == 412

    async def test_it_is_the_record_at_the_path_or_before_the_verb(self, client: Client, store: Store) -> None:
        await client.ask("PUT", "/api/v1/limits/smtp", {"concurrency": 5})
        tag = (await client.get("/api/v1/limits/smtp")).headers["etag"]
        changing = {"concurrency": 6}
        assert (await client.ask("PUT", "/api/v1/limits/smtp", changing, headers={"if_match": tag})).status == 200
        assert (await client.ask("PUT", "/api/v1/limits/smtp", changing, headers={"if_match": tag})).status == 412
        assert (await client.ask("DELETE", "/api/v1/limits/smtp", headers={"if_match": "*"})).status == 200

    async def test_a_route_without_a_record_refuses_the_header(self, client: Client) -> None:
        answer = await client.post("/api/v1/jobs", {"task": "send"}, if_match="*")
        assert (answer.status, answer.problem) == (422, "invalid_request")

    async def test_a_request_that_was_done_is_answered_again(self, client: Client, store: Store) -> None:
        """Its own act has changed the record."""
        (id,) = await put(store, job())
        path = f"/api/v1/jobs/{id_text(id)}"
        headers = {"if_match": (await client.get(path)).headers["etag"], "idempotency_key": "k"}
        first = await client.post(f"{path}/cancel", {}, **headers)
        assert (await client.post(f"{path}/cancel", {}, **headers)).raw == first.raw
        assert first.json["done"] == 1


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/v1/jobs/019a0000-0000-7000-8000-000000000000", 404, "job_not_found"),
        ("/api/v1/jobs/a%2Fb", 404, "job_not_found"),
        ("/api/v1/nothing", 404, "no_such_route"),
        ("/api/v1/jobs/", 404, "no_such_route"),
        ("/nothing", 404, "no_such_route"),
        ("/api/v1/jobs?q=colour:red", 422, "invalid_query"),
        ("/api/v1/jobs?limt=3", 422, "invalid_request"),
        ("/api/v1/jobs?limit=3&limit=4", 422, "invalid_request"),
        ("/api/v1/jobs?limit=three", 422, "invalid_request"),
        ("/api/v1/jobs?limit=501", 422, "invalid_request"),
        ("/api/v1/queues?limit=3", 422, "invalid_request"),
        ("/api/v1/jobs?cursor=x", 422, "invalid_option"),
    ],
)
async def test_what_cannot_be_answered_is_a_problem(client: Client, path: str, status: int, code: str) -> None:
    answer = await client.get(path)
    assert (answer.status, answer.problem) == (status, code)
    assert answer.json["instance"] == path.partition("?")[0]


async def test_an_unknown_parameter_is_answered_with_the_nearest_one(client: Client) -> None:
    assert "limit" in (await client.get("/api/v1/jobs?limt=3")).json["fix"]
    assert "'limit'" in (await client.get("/api/v1/jobs?limit=three")).json["detail"]


async def test_another_method_is_refused_with_those_that_there_are(client: Client) -> None:
    answer = await client.ask("DELETE", "/api/v1/stats")
    assert (answer.status, answer.problem, answer.headers["allow"]) == (405, "method_not_allowed", "GET, HEAD")
    assert (await client.ask("HEAD", "/api/v1/stats")).status == 200


async def test_health_is_told_to_anybody(store: Store) -> None:
    api = Api(app_on(store), settings=GENEROUS)
    for path in ("/healthz", "/readyz"):
        answer = await Client(api, address="203.0.113.5").get(path)
        assert (answer.status, answer.json) == (200, {"status": "ok"})
    await api.close()
    assert (await Client(api).get("/readyz")).status == 503
    assert (await Client(api).get("/healthz")).status == 200


async def test_an_error_of_ours_is_told_without_its_words(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> StatsRecord:
        raise RuntimeError("the secret word")

    monkeypatch.setattr(StatsRecord, "of", broken)
    answer = await client.get("/api/v1/stats")
    assert (answer.status, answer.problem) == (500, "limpet")
    assert b"secret" not in answer.raw
    assert "the secret word" in caplog.text


async def test_the_first_request_starts_what_is_mounted() -> None:
    app = Limpet("sqlite://")
    api = Api(app, settings=GENEROUS, local=True)
    assert (await Client(api).get("/api/v1/stats")).status == 200
    await api.close()
    assert api.closing.is_set()
    await app.close()


async def test_a_store_that_cannot_be_opened_is_opened_by_a_later_request(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    folder.write_text("a file stands in the way")
    app = Limpet(f"sqlite:///{folder}/jobs.db")
    api = Api(app, settings=GENEROUS, local=True)
    assert (await Client(api).get("/api/v1/stats")).status == 503
    folder.unlink()
    folder.mkdir()
    assert [(await Client(api).get("/api/v1/stats")).status for _ in range(2)] == [200, 200]
    assert api.operations is not None
    await api.close()
    await app.close()


@pytest.mark.parametrize("each", ROUTES, ids=lambda each: f"{each.method} {each.path}")
def test_every_route_says_what_it_does(each: Route) -> None:
    assert each.summary.endswith("."), "its docstring is its summary"
    assert each.role is not None or each.bare, "only what watches the server needs no role"


def test_the_types_of_a_route_are_those_of_its_handler() -> None:
    (shown,) = [each for each in ROUTES if each.path == "/stats"]
    assert (shown.answer, shown.noun, shown.most_bytes) == (StatsRecord, "stats", MiB)
    assert post("/stats", "admin", shown.handler, status=201).full_path == "/api/v1/stats"


class Said(Record, frozen=True, forbid_unknown_fields=True):
    """A body."""

    text: str = ""
    number: int = 0


async def echoed(call: Call[None, Said]) -> Said:
    """What was said."""
    return call.body


@pytest.fixture
def echo(client: Client, store: Store, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client of a server with a route that answers its body."""
    monkeypatch.setattr("limpet.server.api.ROUTES", (*ROUTES, post("/echo", "operator", echoed)))
    return Client(Api(app_on(store), settings=GENEROUS, local=True))


@pytest.mark.parametrize(
    ("raw", "headers", "status", "code"),
    [
        (b'{"text":"x","number":7}', {}, 200, ""),
        (b"", {}, 200, ""),
        (b'{"text":"x"', {}, 400, "malformed_body"),
        (b"\xff\xfe", {}, 400, "malformed_body"),
        (b"[" * 100_000, {}, 422, "invalid_request"),
        (b'{"text":7}', {}, 422, "invalid_request"),
        (b'{"txet":"x"}', {}, 422, "invalid_request"),
        (b'{"number":7.5}', {}, 422, "invalid_request"),
        (b"[]", {}, 422, "invalid_request"),
        (b'{"text":"x"}', {"content-type": "text/plain"}, 415, "unsupported_media_type"),
        (b" " * (MiB + 1), {}, 413, "body_too_large"),
        (b"{}", {"content-length": "999999999"}, 413, "body_too_large"),
    ],
)
async def test_a_body_is_read_strictly(
    echo: Client, raw: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    answer = await echo.ask("POST", "/api/v1/echo", raw=raw, headers={"content-type": "application/json", **headers})
    assert (answer.status, answer.problem) == (status, code)


async def test_a_body_in_chunks_is_counted_while_it_comes(echo: Client) -> None:
    headers = {**echo.headers, "content-type": "application/json"}
    answer = await echo.send("POST", "/api/v1/echo", headers, [b" " * 1_000_000, b" " * 1_000_000, b"{}"])
    assert (answer.status, answer.problem) == (413, "body_too_large")
    assert (await echo.send("POST", "/api/v1/echo", headers, [b'{"text":', b'"x"}'])).json["text"] == "x"


async def test_a_body_that_comes_too_slowly_is_refused(echo: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "BODY_S", 0.01)
    head = "POST /api/v1/echo HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 40"
    said = await said_to(echo.app, f'{head}\r\n\r\n{{"text": ')
    assert said.startswith("HTTP/1.1 408 ")
    assert "connection: close" in said
    assert '"code":"body_too_slow"' in said


async def test_a_long_body_may_take_its_time_while_it_comes(echo: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "BODY_S", 0.0)  # so that no byte but those that are there already is in time
    monkeypatch.setattr(decode, "PACE", 1)
    headers, later = {**echo.headers, "content-type": "application/json"}, asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, later.set)
    answer = await echo.send("POST", "/api/v1/echo", headers, [b'{"text":' + b" " * 100, b'"x"}'], between=later)
    assert answer.json["text"] == "x", "each byte is worth a second at this pace"


@pytest.mark.parametrize("begun", ["", "GET /healthz HTTP/1.1\r\nhost: local"])
async def test_a_connection_that_brings_no_request_is_closed(
    echo: Client, monkeypatch: pytest.MonkeyPatch, begun: str
) -> None:
    monkeypatch.setattr(serving, "HEAD_S", 0.01)
    assert await said_to(echo.app, begun) == ""
    whole = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    assert (await said_to(echo.app, whole + begun)).count("HTTP/1.1 200") == 1, "the second one does not come either"


async def said_to(app: ASGIApp, sent: str) -> str:
    """What a server says to this until it closes the connection."""
    assert isinstance(app, Api)
    async with served(app) as server:
        place = urlsplit(server.url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(sent.encode())
        said = await asyncio.wait_for(reader.read(), 30)
        writer.close()
        return said.decode()


async def test_a_field_of_the_wrong_kind_is_named(echo: Client) -> None:
    answer = await echo.post("/api/v1/echo", {"number": "seven"})
    assert answer.json["detail"] == "field 'number': Expected 'int', got 'str'"
