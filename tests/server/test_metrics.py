"""What a server tells Prometheus of the store, to callers as far as they may see; and what it tells an autoscaler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain

from limpet.core.jobs import rollup
from limpet.core.metrics.family import MOST, STORE, WORKER
from limpet.ops import Operator
from limpet.ops.store_metrics import store_metrics
from limpet.runtime import rollup_folder
from limpet.server import Api
from limpet.server.route import PREFIX
from limpet.stores.base import Store
from tests.ops.making import claim, job, put
from tests.server.asking import Client
from tests.server.conftest import GENEROUS, app_on
from tests.server.town import SECRET, town

Scrape = dict[str, dict[tuple[str, ...], float]]


@pytest.fixture
async def api(everywhere: Store) -> AsyncIterator[Api]:
    async with Api(app_on(everywhere), settings=GENEROUS).lifespan() as api:
        yield api


async def client_of(api: Api, queues: list[str] | None = None) -> Client:
    made = await Operator(api.app.store, "ada").tokens.create("viewer", queues=queues)
    api.tokens.forget()
    return Client(api, made.token)


async def scraped(client: Client) -> Scrape:
    found: Scrape = {}
    answer = await client.get("/metrics")
    assert answer.status == 200
    for metric in plain(answer.raw.decode()):
        found[metric.name] = {tuple(each.labels.values()): each.value for each in metric.samples}
    return found


async def test_a_scrape_says_what_the_counters_say(api: Api) -> None:
    store = api.app.store
    await town(store)
    await put(store, *(job("send", queue="mail") for _ in range(3)))
    client = await client_of(api)
    found = await scraped(client)
    stats = (await client.get(f"{PREFIX}/stats")).json
    for state in ("blocked", "scheduled", "ready", "running", "dead"):
        counted = sum(count for labels, count in found["limpet_queue_jobs"].items() if labels[1] == state)
        assert counted == stats[state], state
    assert found["limpet_store_enqueued"] == {(): stats["ever"]["enqueued"]}
    assert found["limpet_store_finished"]["cancelled",] == stats["ever"]["cancelled"]
    assert sum(found["limpet_dead_jobs"].values()) == stats["dead"]
    assert found["limpet_queue_oldest_ready_seconds"]["mail",] > 0
    names = {family.name for family in STORE}
    assert found.keys() <= names
    assert names - found.keys() <= {"limpet_alerts_firing", "limpet_budget_spent_ratio"}, "the town has all else"
    assert {family.name for family in WORKER}.isdisjoint(found)
    answer = await client.get("/metrics", accept="application/openmetrics-text; version=1.0.0")
    families = {each.name for each in open_metrics(answer.raw.decode())}  # type: ignore[no-untyped-call]
    assert families == found.keys()


async def test_a_scrape_asks_for_a_token_and_heeds_its_queues(api: Api) -> None:
    await town(api.app.store)
    assert (await Client(api).get("/metrics")).status == 401
    answer = await (await client_of(api, ["mail"])).get("/metrics")
    assert answer.status == 200
    assert b"mail" in answer.raw
    assert SECRET.encode() not in answer.raw
    assert b"limpet_store_enqueued" not in answer.raw, "the counters are of all queues"


async def test_a_scrape_stays_bounded_and_leaves_no_job_out(store: Store) -> None:
    jobs = [job("send", queue=f"queue{number:03}") for number in range(MOST + 50)]
    await put(store, *jobs, job("send", queue="queue000"))
    values = await store_metrics(store)
    depths = [value for value in values if value.name == "limpet_queue_jobs"]
    assert len(depths) == 5 * (MOST + 1)
    assert sum(getattr(value, "value", 0) for value in depths) == MOST + 51
    assert {value.labels[0] for value in depths} >= {"queue000", "other"}


async def test_depths_are_kept_while_no_worker_lives(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup_folder, "FOLD_MS", 10)
    await put(store, job("send", queue="mail"))
    async with Api(app_on(store), settings=GENEROUS).lifespan(), asyncio.timeout(60):
        while not await store.controls(rollup.MARK[0]):
            pass  # until the server has looked
        found = None
        while found is None or found.total.depth is None or 1 not in found.total.depth.ready:
            found = await Operator(store, "ada").series("10m")


async def test_scale_says_how_many_workers_are_wanted(api: Api) -> None:
    store = api.app.store
    await put(store, *(job("send", queue="mail") for _ in range(250)))
    await claim(store, limit=30)
    await put(store, job("charge", queue="pay"))
    client = await client_of(api)

    async def wanted(query: str) -> tuple[int, int, int]:
        found = (await client.get(f"{PREFIX}/scale?{query}")).json
        return found["depth"], found["wanted"], found["workers"]

    assert await wanted("queue=mail") == (250, 3, 1)
    assert await wanted("queue=mail&per_worker=10") == (250, 25, 1)
    assert await wanted("queue=mail,pay&per_worker=251") == (251, 1, 1)
    assert await wanted("per_worker=250") == (251, 2, 1)
    await Operator(store, "ada").pause("queue:mail")
    running, enough, _ = await wanted("queue=mail&per_worker=10")
    assert (running, enough) == (30, 3), "a paused queue wants no more than what runs"
    refused = await client.get(f"{PREFIX}/scale?queue=mial")
    assert (refused.status, refused.problem) == (404, "unknown_queue")
    assert "mail" in refused.json["fix"]
