"""What a token may do and see: every route of the table, with each role, and with the scope of a queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from limpet.core.access.role import ROLES, Role
from limpet.core.jobs.ids import id_text
from limpet.ops import Operator
from limpet.ops.scope import HIDDEN
from limpet.server import Api, Caller
from limpet.server.route import PREFIX
from limpet.server.table import ROUTES
from limpet.stores.base import Store
from tests.contract.harnesses import HARNESSES
from tests.ops.making import job, put
from tests.server.asking import Client
from tests.server.conftest import GENEROUS, app_on
from tests.server.town import QUEUES, SECRET, Half, path_of, town

SILENT = ("/stats", "/tokens", "/doctor")  # they name no queue, or have nothing to say of this one
READS = [each for each in ROUTES if each.method == "GET" and not each.bare and not each.stream]


@dataclass
class Place:
    """A store with two of everything, and what serves it."""

    api: Api
    store: Store
    mail: Half
    other: Half

    async def client(self, role: Role, queues: list[str] | None = None) -> Client:
        made = await Operator(self.store, "ada").tokens.create(role, queues=queues)
        self.api.tokens.forget()
        return Client(self.api, made.token)


@pytest.fixture
async def place(everywhere: Store) -> AsyncIterator[Place]:
    mail, other = await town(everywhere)
    async with Api(app_on(everywhere), settings=GENEROUS).lifespan() as api:
        yield Place(api, everywhere, mail, other)


async def test_every_list_and_record_can_be_read(place: Place) -> None:
    client = await place.client("admin")
    for route in READS:
        for half, word in ((place.mail, "mail"), (place.other, SECRET)):
            path = PREFIX + path_of(route.path, half, word)
            answer = await client.get(path)
            assert answer.status == 200, (path, answer.raw)
            if "{" in route.path or word == SECRET:
                continue
            assert SECRET.encode() in answer.raw or route.path in (
                "/stats",
                "/stats/series",
                "/runs",
                "/doctor",
                "/hooks",
                "/tokens",
                "/session",
            ), path


async def test_a_token_of_one_queue_sees_nothing_of_another(place: Place) -> None:
    client = await place.client("admin", ["mail"])
    for route in READS:
        own = await client.get(PREFIX + path_of(route.path, place.mail, "mail"))
        assert SECRET.encode() not in own.raw, route.path
        assert own.status == {"/doctor": 403, "/operations/{id}": 404}.get(route.path, 200), (route.path, own.raw)
        if "{" in route.path:
            other = await client.get(PREFIX + path_of(route.path, place.other, SECRET))
            assert other.status == 404, (route.path, other.raw)


async def test_a_token_of_one_queue_is_told_its_own_counts(place: Place) -> None:
    client = await place.client("viewer", ["mail"])
    stats = (await client.get(f"{PREFIX}/stats")).json
    assert (stats["dead"], stats["cancelled"], stats["scheduled"], stats["ever"]) == (1, 1, 1, None)
    (queue,) = (await client.get(f"{PREFIX}/queues")).json["queues"]
    assert (queue["queue"], queue["dead"]) == ("mail", 1)
    audit = (await client.get(f"{PREFIX}/audit")).json["audit"]
    assert {line["kind"] for line in audit} >= {"job.cancel", "queue.pause", "cause.escalate", "schedule.add"}
    assert {line["actor"] for line in audit} == {"mail.person"}


async def test_a_token_of_both_queues_sees_both(place: Place) -> None:
    client = await place.client("viewer", [*QUEUES])
    for path in (
        "jobs",
        "dead",
        "queues",
        "dead/causes",
        "flows",
        "schedules",
        "tasks",
        "audit",
        "approvals",
        "workers",
    ):
        raw = (await client.get(f"{PREFIX}/{path}")).raw
        assert SECRET.encode() in raw, path
        assert b"mail" in raw, path
    assert (await client.get(f"{PREFIX}/stats")).json["dead"] == 2
    page = (await client.get(f"{PREFIX}/jobs?limit=1")).json
    seen = [each["id"] for each in page["jobs"]]
    while page["cursor"] is not None:
        page = (await client.get(f"{PREFIX}/jobs?limit=1&cursor={page['cursor']}")).json
        seen += [each["id"] for each in page["jobs"]]
    assert len(seen) == len(set(seen)) == 8


async def test_a_worker_of_both_queues_is_half_seen(place: Place) -> None:
    from limpet.core.jobs.lease import Beat, Serves

    await place.store.beat(Beat("both", 600_000, Serves(QUEUES, None), f'{{"host":"{SECRET}"}}'.encode()))
    client = await place.client("viewer", ["mail"])
    found = {each["session"]: each for each in (await client.get(f"{PREFIX}/workers")).json["workers"]}
    assert found["both"]["queues"] == ["mail"]
    assert found["both"]["info"] == {}


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_may_ask_what_the_table_says(client: Client, store: Store, role: Role) -> None:
    api = Api(app_on(store), settings=GENEROUS)
    made = await Operator(store, "ada").tokens.create(role)
    asking = Client(api, made.token)
    for route in ROUTES:
        if route.role is None or route.stream:
            continue
        answer = await asking.ask(route.method, route.full_path.replace("{", "").replace("}", "") + "?nonsense=1")
        allowed = Caller("", role).may(route.role)
        assert (answer.problem == "forbidden") == (not allowed), route
        assert answer.status == (422 if allowed else 403), route
    await api.close()


async def test_a_caller_of_another_namespace_is_unknown_here(store: Store) -> None:
    elsewhere = Caller("user:eve", "admin", namespace="elsewhere")
    api = Api(app_on(store), settings=GENEROUS, auth=lambda request: elsewhere)
    for route in ROUTES:
        if route.role is not None:
            assert (await Client(api).ask(route.method, route.full_path)).problem == "token_invalid", route
    await api.close()


@pytest.mark.redis
async def test_a_token_of_another_namespace_opens_nothing(tmp_path: Path) -> None:
    harness = HARNESSES["redis"](tmp_path)
    here, beside = await harness.open(), await harness.open()
    made = await Operator(beside, "ada").tokens.create("admin")
    for store, problem in ((beside, ""), (here, "token_invalid")):
        api = Api(app_on(store), settings=GENEROUS)
        assert (await Client(api, made.token).get(f"{PREFIX}/stats")).problem == problem
        await api.close()
    await harness.close()


async def test_a_task_of_another_queue_is_not_asked_for_through_a_queue_of_the_scope(place: Place) -> None:
    """A worker of that queue may know it, and would do what the token is not for."""
    client = await place.client("producer", ["mail"])
    refused = await client.post(f"{PREFIX}/jobs", {"task": f"{SECRET}.task", "queue": "mail"})
    assert (refused.status, refused.problem) == (403, "out_of_scope")
    assert (await client.post(f"{PREFIX}/jobs", {"task": "mail.task"})).status == 200
    assert (await client.post(f"{PREFIX}/jobs", {"task": "unheard.of", "queue": "mail"})).status == 200
    operator = await place.client("operator", ["mail"])
    schedule = {"task": f"{SECRET}.task", "every": "1h", "name": "s", "queue": "mail"}
    assert (await operator.post(f"{PREFIX}/schedules", schedule)).problem == "out_of_scope"


async def test_who_may_not_end_jobs_sees_no_token_of_a_lease(store: Store) -> None:
    await put(store, job())
    async with Api(app_on(store), settings=GENEROUS).lifespan() as api:
        tokens = Operator(store, "ada").tokens
        worker = Client(api, (await tokens.create("worker")).token)
        (held,) = (await worker.post(f"{PREFIX}/claim", {"worker": "w1"})).json["jobs"]
        for role in ROLES:
            asking = Client(api, (await tokens.create(role)).token)
            api.tokens.forget()
            shown = (await asking.get(f"{PREFIX}/jobs/{held['id']}")).json["token"]
            (line,) = (await asking.get(f"{PREFIX}/jobs/{held['id']}/events")).json["audit"]
            (same,) = [
                each for each in (await asking.get(f"{PREFIX}/audit")).json["audit"] if each["job"] == held["id"]
            ]
            assert line["kind"] == "agent.claim"
            told = held["token"] if Caller("", role).may("worker") else None
            assert (shown, line["data"].get("token"), same["data"].get("token")) == (told, told, told), role


async def test_a_duplicate_of_another_queue_is_told_and_not_named(place: Place) -> None:
    app = app_on(place.store)
    held = await app.enqueue("shared", queue=QUEUES[1], unique="k")
    client = await place.client("producer", ["mail"])
    (answer,) = (await client.post(f"{PREFIX}/jobs", {"task": "shared", "queue": "mail", "unique": "k"})).json["jobs"]
    assert answer == {"id": id_text(HIDDEN), "task": "shared", "existing": True}
    (mine,) = (await client.post(f"{PREFIX}/jobs", {"task": "other", "queue": "mail", "unique": "k"})).json["jobs"]
    (again,) = (await client.post(f"{PREFIX}/jobs", {"task": "other", "queue": "mail", "unique": "k"})).json["jobs"]
    assert (mine["existing"], again) == (False, {**mine, "existing": True})
    everywhere = await place.client("producer")
    (told,) = (await everywhere.post(f"{PREFIX}/jobs", {"task": "shared", "unique": "k"})).json["jobs"]
    assert told["id"] == held.id, "who may see every queue is told"
