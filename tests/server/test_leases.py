"""Workers in other languages: claim, keep and end leases over HTTP; a client that goes holds nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Policy
from limpet.core.jobs.lease import Serves
from limpet.core.jobs.state import State
from limpet.ops import Agents, Operator
from limpet.ops.redaction import Redactions
from limpet.server import Api
from limpet.stores.base import Store
from tests.ops.between import Between
from tests.ops.making import job, put
from tests.ops.whole import whole
from tests.server.asking import Answer, Client, Wire
from tests.server.conftest import GENEROUS, app_on
from tests.server.serving import served, until

CLAIM = "/api/v1/claim"
JSON = {"content-type": "application/json"}
# verb → what it says beside the token
VERBS: dict[str, dict[str, Any]] = {
    "heartbeat": {"lease": 600},
    "checkpoint": {"value": {"page": 9}},
    "progress": {"done": 9, "total": 10},
    "complete": {"result": "late", "spent": {"usd": 1}},
    "fail": {"message": "late", "kind": "permanent"},
    "release": {"reason": "late"},
    "block": {"question": "late?", "timeout": 60},
}


def api_on(store: Any, **settings: object) -> Api:
    return Api(app_on(store), settings=replace(GENEROUS, **settings), local=True)


async def claim(client: Client, worker: str = "w1", **more: Any) -> list[dict[str, Any]]:
    answer = await client.post(CLAIM, {"worker": worker, **more})
    assert answer.status == 200, answer.json
    jobs: list[dict[str, Any]] = answer.json["jobs"]
    return jobs


async def say(client: Client, held: dict[str, Any], verb: str, **more: Any) -> Answer:
    return await client.post(f"/api/v1/leases/{held['id']}/{verb}", {"token": held["token"], **more})


async def states(store: Store, ids: list[bytes]) -> list[tuple[State, int]]:
    return [(view.state, view.attempt) for view in await store.get(ids) if view is not None]


async def test_a_job_from_claim_to_end(everywhere: Store) -> None:
    store = everywhere
    ids = await put(store, job(args={"card": "4111", "n": 2**60}), job(needs=("gpu",)))
    async with api_on(store).lifespan() as api:
        client = Client(api)
        (held,) = await claim(client, max=10, tasks=["send"], queues=["mail"], lease=30)
        assert (held["id"], held["args"], held["attempt"]) == (id_text(ids[0]), {"card": "4111", "n": 2**60}, 1)
        assert held["until"].endswith("Z")
        assert "checkpoint" not in held
        kept = (await say(client, held, "heartbeat", lease=120)).json
        assert (kept["answer"], kept["cancel_requested"]) == ("done", False)
        assert (await say(client, held, "checkpoint", value={"page": 3})).status == 200
        assert (await say(client, held, "progress", done=3, total=10, message="page 3")).status == 200
        assert (await client.get(f"/api/v1/jobs/{held['id']}")).json["progress"]["message"] == "page 3"
        failed = await say(client, held, "fail", message="no", type="Timeout", traceback="at 3", retry_after=60)
        assert failed.json["state"] == "scheduled"
        await Operator(store, "ada").retry([held["id"]])
        (again,) = await claim(client)
        assert (again["checkpoint"], again["failed_before"][0]["error"]) == ({"page": 3}, "Timeout")
        await Operator(store, "ada").cancel([again["id"]], reason="stop")
        assert (await say(client, again, "heartbeat")).json["cancel_requested"]
        done = await say(client, again, "complete", result={"sum": 2**60})
        assert done.json["state"] == "succeeded"
        assert (await client.get(f"/api/v1/jobs/{held['id']}")).json["result"] == {"sum": 2**60}
        (needing,) = await claim(client, capabilities=["gpu"])
        assert (await say(client, needing, "release", reason="not today")).json["state"] == "ready"
        assert await claim(client) == []
        assert await store.sessions() == []


@pytest.mark.parametrize("verb", VERBS)
async def test_a_stale_token_changes_not_one_byte(everywhere: Store, verb: str) -> None:
    store = everywhere
    await put(store, job())
    async with api_on(store).lifespan() as api:
        client = Client(api)
        (old,) = await claim(client)
        await say(client, old, "release")
        (new,) = await claim(client, "w2", lease=600)
        for stale in (old, {**new, "token": new["token"] + 1}):
            before = await whole(store)
            answer = await say(client, stale, verb, **VERBS[verb])
            assert (answer.status, answer.problem) == (409, "lease_lost")
            assert "stale lease" in answer.json["detail"]
            assert "held by w2" in answer.json["detail"]
            assert answer.json["fix"] == "drop the work and claim again"
            assert await whole(store) == before
        assert (await say(client, new, "complete")).status == 200
        before = await whole(store)
        assert "is succeeded" in (await say(client, new, verb, **VERBS[verb])).json["detail"]
        assert await whole(store) == before


async def test_a_claim_shows_secrets_and_what_is_said_afterwards_hides_them(client: Client, store: Store) -> None:
    await Redactions(store, "ada").add("card")
    await put(store, job(args={"card": "4111-1111"}), job(args={"card": "4111-1111"}))
    one, two = await claim(client, max=2)
    assert one["args"] == {"card": "4111-1111"}
    said = "4111-1111 was refused"
    await say(client, one, "progress", done=1, message=said)
    await say(client, one, "fail", message=said, traceback=f"at {said}", kind="permanent")
    await say(client, two, "release", reason=said)
    (view, *_), *rest = await whole(store)
    assert "4111" not in str((replace(view, args=b""), rest[0], await store.read("audit", limit=100)))


async def test_several_leases_end_in_one_request(client: Client, store: Store) -> None:
    await put(store, *(job() for _ in range(3)))
    one, two, three = await claim(client, max=3)
    ends = [
        {"end": "complete", "id": one["id"], "token": one["token"], "result": [1]},
        {"end": "fail", "id": two["id"], "token": two["token"], "message": "no", "kind": "permanent"},
        {"end": "release", "id": three["id"], "token": three["token"] - 1},
    ]
    answer = await client.post("/api/v1/leases/settle", {"leases": ends})
    assert [each["state"] for each in answer.json["leases"]] == ["succeeded", "dead", "running"]
    assert [each["answer"] for each in answer.json["leases"]] == ["done", "done", "stale"]
    assert (await client.post("/api/v1/leases/settle", {"leases": [{"end": "burn"}]})).status == 422


async def test_the_token_of_a_request_says_which_queues_and_who(store: Store) -> None:
    await put(store, job(queue="mail"), job(queue="paper"))
    operator = Operator(store, "ada")
    made = {role: (await operator.tokens.create(role)).token for role in ("viewer", "producer", "operator")}
    ci = (await operator.tokens.create("worker", name="ci", queues=["mail"])).token
    async with api_on(store).lifespan() as api:
        client = Client(api, ci)
        assert (await client.post(CLAIM, {"worker": "w1", "queues": ["paper"]})).problem == "out_of_scope"
        (mine,) = await claim(client, max=9)
        (other,) = await claim(Client(api), "w2")
        assert (mine["queue"], other["queue"]) == ("mail", "paper")
        before = await whole(store)
        for verb, more in VERBS.items():
            assert (await say(client, other, verb, **more)).problem == "out_of_scope"
            assert await whole(store) == before
        await say(client, mine, "complete")
        line = (await operator.audit())[-1]
        assert (line.kind, line.actor, line.data["agent"]) == ("agent.complete", "token:ci", "w1")
        for role, status in (("viewer", 403), ("producer", 403), ("operator", 200)):
            assert (await Client(api, made[role]).post(CLAIM, {"worker": "w1"})).status == status


@pytest.mark.parametrize(
    "wrong",
    [
        {"worker": "a:1"},
        {"worker": ""},
        {"worker": "w", "max": 101},
        {"worker": "w", "max": 0},
        {"worker": "w", "lease": 0},
        {"worker": "w", "wait": 61},
        {"worker": "w", "key": ""},
        {"worker": "w", "quues": ["mail"]},
        {},
    ],
)
async def test_what_makes_no_sense_is_refused_by_name(client: Client, wrong: dict[str, Any]) -> None:
    answer = await client.post(CLAIM, wrong)
    assert (answer.status, answer.problem) == (422, "invalid_request")


async def test_what_is_not_there_or_too_large_is_refused(client: Client, store: Store) -> None:
    await put(store, job(policy=Policy(max_result_bytes=100)))
    (held,) = await claim(client)
    assert (await say(client, held, "complete", result="x" * 101)).problem == "payload_too_large"
    assert (await say(client, held, "checkpoint", value="x" * 300_000)).problem == "payload_too_large"
    unknown = {"id": "019a0000-0000-7000-8000-000000000000", "token": 1}
    for lost in (unknown, {"id": held["id"][-12:], "token": held["token"]}):
        for verb, more in VERBS.items():
            assert (await say(client, lost, verb, **more)).problem == "job_not_found"


async def test_a_claim_with_a_key_may_be_sent_again(client: Client, store: Store) -> None:
    await put(store, *(job() for _ in range(3)))
    first = await claim(client, max=2, key="k1")
    assert [each["token"] for each in await claim(client, max=2, key="k1")] == [each["token"] for each in first]
    assert len(await claim(client, max=2, key="k2")) == 1


async def test_a_key_is_one_callers_alone(store: Store) -> None:
    """Not that of a caller whose name and key read the same together, nor of a token of that name for other queues."""
    await put(store, job(queue="pay"), job(queue="pay"), job(queue="mail"))
    got = []
    for name, key, queues in (("a", "b:k", frozenset({"mail"})), ("a", "b:k", None), ("a:b", "k", None)):
        got += await Agents(store, f"token:{name}", queues=queues).claim("w", Serves(), key=key)
    assert [each.queue for each in got] == ["mail", "pay", "pay"]
    assert len({each.id for each in got}) == 3
    assert not [view.session for view in await store.sessions() if "b:k" in view.session or "token" in view.session]


@pytest.mark.parametrize("verb", ["claim", "append"])
async def test_what_was_answered_under_a_key_is_kept_when_the_call_before_is_cut(everywhere: Store, verb: str) -> None:
    """A client that hears nothing hangs up and asks again; the call before ends later than the second one."""
    store, over, seen = everywhere, asyncio.Event(), []

    async def again() -> None:
        over.set()
        seen.extend(await Agents(store, "u").claim("w", Serves(), key="k", lease_ms=60_000))

    await put(store, job(), job())
    first = Agents(Between(store, {verb}, again), "u")
    await first.claim("w", Serves(), key="k", lease_ms=60_000, over=over)
    (held,) = seen
    assert (await Agents(store, "u").heartbeat(held.id, held.token)).answer == "done"


async def test_as_many_claims_wait_as_may(store: Store) -> None:
    async with api_on(store, waiting=2).lifespan() as api:
        client = Client(api)
        waiting = [asyncio.create_task(client.post(CLAIM, {"worker": "w", "wait": 60})) for _ in range(2)]
        await idle(store, 2)
        refused = await client.post(CLAIM, {"worker": "w", "wait": 60})
        assert (refused.status, refused.problem) == (429, "too_many_waiting")
        assert int(refused.headers["retry-after"]) >= 1
        assert await claim(client) == [], "who does not wait is not refused"
        await put(store, job(), job())
        assert [len((await task).json["jobs"]) for task in waiting] == [1, 1]
        assert len(await store.sessions()) == 2


# -- clients that go, and servers that end


async def idle(store: Store, count: int) -> None:
    """Wait until so many sessions wait for a job."""

    async def so_many() -> bool:
        return sum(session.idle for session in await store.sessions()) == count

    await until(so_many)


async def left(store: Store) -> None:
    """Wait until no session is there."""

    async def none() -> bool:
        return not await store.sessions()

    await until(none)


async def asks(wire: Wire, **more: Any) -> None:
    await wire.ask("POST", CLAIM, JSON, msgspec.json.encode({"worker": "w1", "wait": 60, **more}))


async def test_a_client_that_goes_while_it_waits_leaves_nothing(everywhere: Store) -> None:
    store = everywhere
    async with served(api_on(store)) as server:
        wires = [await Wire(server.url).__aenter__() for _ in range(6)]
        for wire in wires:
            await asks(wire, max=5)
        await idle(store, 6)
        for wire in wires[:5]:
            wire.cut()
        await idle(store, 1)
        ids = await put(store, *(job() for _ in range(3)))
        got = (await wires[5].answer()).json["jobs"]
        assert [each["id"] for each in got] == [id_text(id) for id in ids]
        assert len(await store.sessions()) == 1
        await wires[5].__aexit__()


@pytest.mark.parametrize("verb", ["claim", "append"])
async def test_what_is_claimed_for_a_client_that_has_gone_goes_back(everywhere: Store, verb: str) -> None:
    """It goes right before the claim that gets the jobs, or while the answer is made."""
    store = everywhere
    ids = await put(store, job(), job())
    gone = asyncio.Event()

    async def go() -> None:
        wire.cut()
        await server.has_noticed()
        gone.set()

    async with served(api_on(Between(store, {verb}, go))) as server, Wire(server.url) as wire:
        await asks(wire, max=2)
        await asyncio.wait_for(gone.wait(), 60)
        await left(store)
    assert await states(store, ids) == [(State.ready, 0)] * 2
    audit = [line.kind for line in await store.read("audit")]
    assert audit == ([] if verb == "claim" else ["agent.claim"] * 2 + ["agent.release"] * 2)


async def test_a_server_that_ends_answers_those_that_wait_with_nothing(
    everywhere: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store = everywhere
    async with served(api_on(store)) as server, Wire(server.url) as one, Wire(server.url) as two:
        for wire in (one, two):
            await asks(wire)
        await idle(store, 2)
        await server.ends()
        for wire in (one, two):
            answer = await wire.answer()
            assert (answer.status, answer.json) == (200, {"jobs": []})
    assert await store.sessions() == []
    assert caplog.records == []
    ids = await put(store, job())
    assert [each.id for each in await Agents(store).claim("a", Serves())] == [id_text(ids[0])]
