"""Idempotency keys: a request that is repeated has one effect, and is answered as the first time."""

from __future__ import annotations

import asyncio

import pytest

from limpet.core.access import request_key
from limpet.ops import Operator, idempotency
from limpet.ops.idempotency import Begun, Idempotency
from limpet.server import Api
from limpet.server.route import PREFIX
from limpet.stores.base import Store
from tests.ops.making import job, put
from tests.server.asking import Client
from tests.server.conftest import GENEROUS, app_on

JOBS = f"{PREFIX}/jobs"
KEY = {"idempotency-key": "order-42"}


async def test_a_request_that_is_repeated_stores_one_job(everywhere: Store) -> None:
    async with Api(app_on(everywhere), settings=GENEROUS, local=True).lifespan() as api:
        client = Client(api)
        first = await client.ask("POST", JOBS, {"task": "a"}, headers=KEY)
        again = await client.ask("POST", JOBS, {"task": "a"}, headers=KEY)
        assert (again.raw, again.headers["idempotency-replayed"]) == (first.raw, "true")
        other = await client.ask("POST", JOBS, {"task": "b"}, headers=KEY)
        assert (other.status, other.problem) == (409, "idempotency_key_reused")
        assert (await client.ask("POST", f"{JOBS}?x=1", {"task": "a"}, headers=KEY)).status == 422
        made = await Operator(everywhere, "ada").tokens.create("producer")
        theirs = await Client(api, made.token).ask("POST", JOBS, {"task": "b"}, headers=KEY)
        assert theirs.status == 200, "each token has keys of its own"
    assert (await everywhere.count()).enqueued == 2


async def test_a_token_that_has_the_name_of_another_has_keys_of_its_own(store: Store) -> None:
    tokens = Operator(store, "ada").tokens
    for _ in range(2):
        made = await tokens.create("producer", name="shop")
        async with Api(app_on(store), settings=GENEROUS).lifespan() as api:
            answer = await Client(api, made.token).ask("POST", JOBS, {"task": "a"}, headers=KEY)
        assert (answer.status, "idempotency-replayed" in answer.headers) == (200, False)
        await tokens.revoke("shop")
    assert (await store.count()).enqueued == 2


async def test_many_at_once_store_one_job(client: Client, store: Store) -> None:
    answers = await asyncio.gather(*(client.ask("POST", JOBS, [{"task": "a"}] * 3, headers=KEY) for _ in range(10)))
    assert {each.problem for each in answers} <= {"", "idempotency_key_in_use"}
    assert all(int(each.headers["retry-after"]) > 0 for each in answers if each.problem)
    assert (await store.count()).enqueued == 3


async def test_a_refused_request_leaves_its_key_free(client: Client, store: Store) -> None:
    assert (await client.ask("POST", JOBS, {"task": "a", "priority": "x"}, headers=KEY)).status == 422
    assert (await client.ask("POST", JOBS, {"task": "a"}, headers=KEY)).status == 200
    await put(store, job())
    path = f"{PREFIX}/queues/mail/pause"
    assert (await client.ask("POST", path, {}, headers={"idempotency-key": "p"})).json["state"] == "paused"
    assert (await client.ask("POST", path, {}, headers={"idempotency-key": "p"})).status == 200
    lines = [each.kind for each in await Operator(store, "ada").audit()]
    assert lines == ["queue.pause"]


async def test_a_try_that_died_is_made_again_with_the_same_ids(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed(self: Idempotency, begun: Begun, status: int, answer: bytes) -> bool:
        raise ConnectionError("the process died here")

    with monkeypatch.context() as dying:
        dying.setattr(Idempotency, "finish", killed)
        assert (await client.ask("POST", JOBS, {"task": "a"}, headers=KEY)).status == 500
    assert (await client.ask("POST", JOBS, {"task": "a"}, headers=KEY)).problem == "idempotency_key_in_use"
    now = Idempotency._now_ms

    async def later(self: Idempotency) -> int:
        return await now(self) + idempotency.HOLD_MS + 1

    monkeypatch.setattr(Idempotency, "_now_ms", later)
    assert (await client.ask("POST", JOBS, {"task": "a"}, headers=KEY)).json["jobs"][0]["existing"]
    assert (await store.count()).enqueued == 1


async def test_an_answer_that_was_too_long_is_made_again(client: Client, store: Store) -> None:
    many = [{"task": "a"}] * (request_key.ANSWER_BYTES // 50)
    first = await client.ask("POST", JOBS, many, headers=KEY)
    assert len(first.raw) > request_key.ANSWER_BYTES
    again = (await client.ask("POST", JOBS, many, headers=KEY)).json["jobs"]
    assert [each["id"] for each in again] == [each["id"] for each in first.json["jobs"]]
    assert (await store.count()).enqueued == len(many)
