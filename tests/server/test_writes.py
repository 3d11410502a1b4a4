"""Every route that changes something, on every engine: what it does, and that a scope keeps it from other queues."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from limpet.core.jobs.ids import id_text
from limpet.core.redaction.rule import MASK
from limpet.ops import Operator
from limpet.server import Api
from limpet.server.route import PREFIX
from limpet.server.table import ROUTES
from limpet.stores.base import Store
from tests.ops.making import job, kill, put
from tests.ops.suspended import asks
from tests.server.asking import Client
from tests.server.conftest import GENEROUS, app_on
from tests.server.town import SECRET, Half, path_of, town

NOWHERE = "019a0000-0000-7000-8000-000000000000"


class Desk:
    """An admin's client, and shorter words."""

    def __init__(self, store: Store, api: Api) -> None:
        self.store, self.api = store, api
        self.client = Client(api)

    async def __call__(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = await self.client.ask(method, PREFIX + path, body)
        assert answer.status == status, answer.raw
        return answer.json

    async def audited(self) -> set[str]:
        """The kinds of the lines that this machine's requests have left."""
        lines = await Operator(self.store, "ada").audit(limit=1_000)
        return {line.kind for line in lines if line.actor == "http:127.0.0.1"}


@pytest.fixture
async def desk(everywhere: Store) -> AsyncIterator[Desk]:
    async with Api(app_on(everywhere), settings=GENEROUS, local=True).lifespan() as api:
        yield Desk(everywhere, api)


async def test_jobs_are_asked_for_one_or_many(desk: Desk) -> None:
    options = {
        "queue": "mail",
        "priority": "high",
        "delay": "5m",
        "unique": "welcome:42",
        "tags": ["eu"],
        "attempts": 2,
    }
    asked = {"task": "email.send", "args": {"to": "a@b.c"}, "meta": {"r": 1}, "cost": {"usd": 0.5}, **options}
    (first,) = (await desk("POST", "/jobs", asked))["jobs"]
    (again,) = (await desk("POST", "/jobs", asked))["jobs"]
    assert (first["existing"], again) == (False, {**first, "existing": True})
    stored = await desk("GET", f"/jobs/{first['id']}")
    assert (stored["queue"], stored["priority"], stored["attempts"], stored["tags"]) == ("mail", 3, 2, ["eu"])
    many = (
        await desk(
            "POST", "/jobs", [{"task": "a"}, {"task": "b", "after": [first["id"]], "at": "2099-01-01T00:00:00Z"}]
        )
    )["jobs"]
    assert [each["task"] for each in many] == ["a", "b"]
    assert (await desk("GET", f"/jobs/{many[1]['id']}"))["after"] == [first["id"]]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"task": "a", "args": {"x": "y" * 300_000}}, 413, "jobs[0]"),
        ([{"task": "a"}, {"task": "b", "priority": "urgent"}], 422, "jobs[1]"),
        ([{"task": "a"}, {"task": "b", "after": [NOWHERE]}], 404, "item 1"),
        ({"task": "a", "at": "2099-01-01T00:00:00"}, 422, "at"),
        ({"task": "a", "prio": 3}, 422, "prio"),
        ({"args": {}}, 422, "task"),
        ([{"task": "a"}] * 20_001, 413, "20,000"),
    ],
)
async def test_a_bad_job_refuses_all(client: Client, store: Store, body: Any, status: int, words: str) -> None:
    answer = await client.post(f"{PREFIX}/jobs", body)
    assert (answer.status, words in answer.json["detail"]) == (status, True), answer.raw
    assert (await store.count()).enqueued == 0


async def test_jobs_are_corrected_one_by_one(desk: Desk) -> None:
    dead, rotten = [id_text(id) for id in await kill(desk.store, job(args={"to": "x"}), job())]
    (waiting,) = [id_text(id) for id in await put(desk.store, job())]
    seen = await desk("POST", f"/jobs/{waiting}/cancel", {"dry_run": True})
    assert (seen["matched"], seen["done"], seen["dry_run"]) == (1, 0, True)
    assert (await desk("POST", f"/jobs/{waiting}/cancel", {"reason": "why"}))["done"] == 1
    assert (await desk("POST", f"/jobs/{waiting}/cancel"))["answers"] == {"finished": 1}
    assert waiting in (await desk("POST", f"/jobs/{waiting}/rerun", {}))["made"]
    assert (await desk("POST", f"/jobs/{dead}/retry", {"patch": {"to": "y"}, "delay": "1h"}))["done"] == 1
    assert (await desk("GET", f"/jobs/{dead}"))["args"] == {"to": "y"}
    assert (await desk("POST", f"/jobs/{rotten}/discard", {}))["done"] == 1
    await desk("POST", f"/jobs/{NOWHERE}/cancel", {}, status=404)
    assert await desk.audited() == {"job.cancel", "job.rerun", "job.retry", "job.discard"}
    assert [line["kind"] for line in (await desk("GET", f"/jobs/{rotten}/events"))["audit"]] == ["job.discard"]


async def test_many_jobs_are_corrected_by_a_query_or_their_ids(desk: Desk) -> None:
    ids = [id_text(id) for id in await put(desk.store, *(job() for _ in range(3)))]
    dry = await desk("POST", "/jobs/cancel", {"q": "queue:mail", "dry_run": True})
    assert (dry["matched"], len(dry["samples"]), dry["done"]) == (3, 3, 0)
    assert (await desk("POST", "/jobs/cancel", {"ids": ids[:2]}))["done"] == 2
    assert (await desk("POST", "/jobs/rerun", {"q": "queue:mail"}))["done"] == 2
    await kill(desk.store, job(queue="late"))
    assert (await desk("POST", "/jobs/retry", {"q": "queue:late"}))["done"] == 1
    await desk("POST", "/jobs/discard", {"q": "state:dead queue:late"})
    for body in ({}, {"q": "state:dead", "ids": ids}):
        refused = await desk("POST", "/jobs/discard", body, status=422)
        assert "q or ids" in refused["detail"]
    await desk("POST", "/jobs/cancel", {"q": "null"}, status=422)


async def test_queues_limits_breakers_and_shares_are_controlled(desk: Desk) -> None:
    await put(desk.store, job())
    assert (await desk("POST", "/queues/mail/pause", {"reason": "why"}))["state"] == "paused"
    assert (await desk("GET", "/queues/mail"))["paused"]["by"] == "http:127.0.0.1"
    assert (await desk("POST", "/queues/mail/resume", {}))["state"] == "resumed"
    assert (await desk("POST", "/queues/mail/drain", {}))["state"] == "draining"
    await desk("POST", "/queues/nowhere/pause", {}, status=404)
    for verb in ("pause", "drain", "resume"):
        await desk("POST", f"/{verb}", {"key": "task:send"})
    assert (await desk("PUT", "/limits/smtp%2Feu", {"rate": "10/m", "concurrency": 2}))["key"] == "limit:smtp/eu"
    assert (await desk("GET", "/limits/smtp%2Feu"))["concurrency"] == 2
    assert (await desk("DELETE", "/limits/smtp%2Feu?reason=done"))["state"] == "cleared"
    await desk("PUT", "/limits/smtp", {}, status=422)
    assert (await desk("POST", "/breakers/smtp/trip", {"duration": "10m", "new": True}))["state"] == "open"
    assert (await desk("GET", "/breakers/smtp"))["state"] == "open"
    assert (await desk("POST", "/breakers/smtp/reset", {}))["state"] == "closed"
    assert (await desk("PUT", "/weights/queue:mail", {"weight": 3}))["weight"] == 3
    assert (await desk("GET", "/weights"))["weights"] == [{"name": "queue:mail", "weight": 3}]
    kept = await desk("PUT", "/retention/mail", {"keep": {"succeeded": "7d", "dead": None}})
    assert kept["keep"] == {"succeeded": 604_800.0, "dead": None}
    assert (await desk("DELETE", "/retention/mail"))["queue"] == "mail"
    await desk("DELETE", "/hooks/nothing", status=404)


async def test_causes_are_reviewed(desk: Desk) -> None:
    await kill(desk.store, job())
    (cause,) = (await desk("GET", "/dead/causes"))["causes"]
    at = f"/dead/causes/{cause['cause']}"
    assert (await desk("POST", f"{at}/acknowledge", {"reason": "on it"}))["status"] == "acknowledged"
    assert (await desk("POST", f"{at}/snooze", {"duration": "2h"}))["status"] == "snoozed"
    assert (await desk("POST", f"{at}/snooze", {"until": "2099-01-01T00:00:00Z"}))["until"].startswith("2099")
    assert (await desk("POST", f"{at}/resolve", {}))["status"] == "resolved"
    assert (await desk("POST", f"{at}/reopen", {}))["status"] == "open"
    assert (await desk("POST", f"{at}/assign", {"assignee": "ada"}))["assignee"] == "ada"
    assert (await desk("POST", f"{at}/assign", {"assignee": None}))["assignee"] is None
    noted = await desk("POST", f"{at}/note", {"text": "the provider knows"})
    assert (await desk("POST", f"{at}/escalate", {"to": "payments", "version": noted["version"]}))[
        "assignee"
    ] == "payments"
    assert (await desk("POST", f"{at}/resolve", {"version": noted["version"]}, status=409))["code"] == "cause_changed"
    assert [each["status"] for each in (await desk("GET", "/dead/causes?status=open&status=regressed"))["causes"]] == [
        "open"
    ]


async def test_schedules_are_made_changed_and_run(desk: Desk) -> None:
    new = {
        "task": "digest",
        "cron": "0 8 * * *",
        "tz": "Europe/Paris",
        "overlap": "allow",
        "queue": "mail",
        "priority": "high",
    }
    made = await desk("POST", "/schedules", {**new, "name": "daily", "args": {"language": "fr"}})
    assert (made["name"], made["task"], made["overlap"]) == ("daily", "digest", "allow")
    await desk("POST", "/schedules", {**new, "name": "daily"}, status=409)
    changed = await desk("PATCH", "/schedules/daily", {"cron": "0 9 * * *", "jitter": 5})
    assert (changed["rule"]["tz"], changed["jitter_s"]) == ("Europe/Paris", 5)
    await desk("PATCH", "/schedules/daily", {}, status=422)
    assert (await desk("POST", "/schedules/daily/pause", {"reason": "why"}))["state"] == "paused"
    assert (await desk("POST", "/schedules/daily/resume", {}))["state"] == "on"
    run = await desk("POST", "/schedules/daily/run", {})
    assert (await desk("GET", f"/jobs/{run['id']}"))["schedule"] == "daily"
    past = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-03T00:00:00Z"}
    assert (await desk("POST", "/schedules/daily/backfill", {**past, "dry_run": True}))["ticks"] == 2
    assert (await desk("POST", "/schedules/daily/backfill", past))["enqueued"] == 2
    await desk("POST", "/schedules/daily/reset", {}, status=422)
    assert (await desk("GET", "/runs?schedule=daily&limit=2"))["runs"][0]["schedule"] == "daily"
    assert (await desk("DELETE", "/schedules/daily"))["state"] == "removed"
    await desk("POST", "/schedules", {"task": "digest"}, status=422)
    await desk("POST", "/schedules", {"task": "digest", "every": 5, "cron": "* * * * *"}, status=422)


async def test_a_question_is_asked_and_answered(desk: Desk) -> None:
    (id,) = await put(desk.store, job())
    (held,) = (await desk("POST", "/claim", {"worker": "w1"}))["jobs"]
    asked = {"token": held["token"], "message": "Which one?", "kind": "needs-human", "timeout": 3600}
    assert (await desk("POST", f"/leases/{id_text(id)}/fail", asked))["state"] == "scheduled"
    (question,) = (await desk("GET", "/approvals"))["approvals"]
    assert (question["kind"], question["question"]) == ("question", "Which one?")
    answer = {"text": "the second"}
    assert (await desk("POST", f"/jobs/{id_text(id)}/answer", answer))["answer"] == "woken"
    (again,) = (await desk("POST", "/claim", {"worker": "w2"}))["jobs"]
    assert {"kind": "event", "name": "answer:1", "body": {"answer": "the second", "by": "http:127.0.0.1"}} in again[
        "notes"
    ]
    await desk("POST", f"/leases/{id_text(id)}/fail", {**asked, "token": again["token"], "retry_after": 3}, status=422)


async def test_types_are_made_changed_and_forgotten(desk: Desk) -> None:
    made = await desk("PUT", "/types/eng.api", {"set": {"queue": "eng", "result": {"required": ["report"]}}})
    assert (made["queue"], made["changed"]) == ("eng", ["queue", "result"])
    (listed,) = (await desk("GET", "/types"))["types"]
    assert listed == await desk("GET", "/types/eng.api")
    await desk("POST", "/jobs", {"task": "eng.api"})
    (held,) = (await desk("POST", "/claim", {"worker": "w1"}))["jobs"]
    assert held["result_contract"] == {"required": ["report"]}
    path, end = f"/leases/{held['id']}/complete", {"token": held["token"], "result": {}}
    assert "report is missing" in (await desk("POST", path, end, status=422))["detail"]
    assert (await desk("POST", path, {**end, "result": {"report": 1}}))["state"] == "succeeded"
    await desk("PUT", "/types/eng.api", {"set": {"quue": "eng"}}, status=422)
    await desk("POST", "/types/eng.api/reset", {}, status=404)
    assert (await desk("DELETE", "/types/eng.api"))["type"] == "eng.api"
    await desk("GET", "/types/eng.api", status=404)
    assert {"type.set", "type.remove"} <= await desk.audited()


async def test_a_token_cannot_take_over_the_type_of_another_queue(everywhere: Store) -> None:
    await town(everywhere)
    api = Api(app_on(everywhere), settings=GENEROUS)
    made = await Operator(everywhere, "ada").tokens.create("admin", queues=["mail"])
    answer = await Client(api, made.token).ask("PUT", f"{PREFIX}/types/{SECRET}.type", {"set": {"queue": "mail"}})
    assert answer.problem == "out_of_scope"
    await api.close()


async def test_flows_approvals_and_signals(desk: Desk) -> None:
    id = id_text(await asks(desk.store))
    assert (await desk("GET", "/approvals"))["approvals"][0]["id"] == id
    assert (await desk("POST", f"/jobs/{id}/approve", {"comment": "yes"}))["answer"] == "woken"
    assert (await desk("POST", f"/jobs/{id}/reject", {}))["answer"] == "already"
    assert (await desk("POST", f"/jobs/{id}/signal", {"event": "paid", "value": {"by": "card"}}))["answer"] == "kept"
    app = app_on(desk.store)
    flow = app.flow("report")
    flow.add(app.task(name="fetch")(_nothing).job())
    flow_id = (await flow.enqueue()).id
    assert (await desk("POST", f"/flows/{flow_id}/cancel", {"dry_run": True}))["matched"] == 1
    assert (await desk("POST", f"/flows/{flow_id}/cancel", {}))["done"] == 1
    assert (await desk("POST", f"/flows/{flow_id}/retry", {"nodes": ["fetch"]}))["done"] == 1
    await desk("POST", f"/flows/{flow_id}/retry", {"nodes": ["nothing"]}, status=422)
    await desk("POST", f"/flows/{NOWHERE}/cancel", {}, status=404)


async def _nothing() -> None: ...


async def test_tokens_are_made_and_revoked(desk: Desk) -> None:
    made = await desk("POST", "/tokens", {"role": "viewer", "name": "board", "queues": ["mail"], "expires": "1h"})
    desk.api.tokens.forget()
    assert (await Client(desk.api, made["token"]).get(f"{PREFIX}/stats")).status == 200
    assert "token" not in (await desk("GET", "/tokens"))["tokens"][0]
    assert (await desk("DELETE", "/tokens/board"))["state"] == "revoked"
    desk.api.tokens.forget()
    assert (await Client(desk.api, made["token"]).get(f"{PREFIX}/stats")).problem == "token_invalid"
    await desk("POST", "/tokens", {"role": "king"}, status=422)


async def test_what_is_hidden_is_said_over_http(desk: Desk) -> None:
    (id,) = await put(desk.store, job(args={"to": "ada", "card": "4111"}))
    await desk("POST", "/redaction", {"rule": "card", "reason": "why"})
    assert (await desk("GET", f"/jobs/{id_text(id)}"))["args"] == {"to": "ada", "card": MASK}
    assert [each["rule"] for each in (await desk("GET", "/redaction"))["rules"]] == ["card"]
    await desk("DELETE", "/redaction/card?reason=why")
    await desk("DELETE", "/redaction/card", status=404)
    assert (await desk("GET", f"/jobs/{id_text(id)}"))["args"]["card"] == "4111"
    assert {"redaction.add", "redaction.remove"} <= await desk.audited()


async def test_decisions_are_told_by_cause(desk: Desk) -> None:
    await kill(desk.store, *(job() for _ in range(2)))
    await desk("POST", "/jobs/retry", {"q": "state:dead", "reason": "provider is back"})
    (cause,) = (await desk("GET", "/dead/decisions?since=1h&queue=mail"))["causes"]
    (decision,) = cause["decisions"]
    assert (cause["error"], decision["jobs"], decision["became"]) == ("ValueError", 2, {"waiting": 2})
    assert (await desk("GET", "/dead/decisions?queue=other"))["causes"] == []


async def test_operations_run_in_the_server(desk: Desk) -> None:
    await kill(desk.store, *(job() for _ in range(3)))
    assert (await desk("POST", "/operations", {"verb": "retry", "q": "state:dead", "dry_run": True}))["matched"] == 3
    started = await desk("POST", "/operations", {"verb": "retry", "q": "state:dead", "reason": "why"})
    ended = await Operator(desk.store, "ada").operations.run(started["id"])
    assert (ended.state, ended.changed) == ("done", 3)
    assert (await desk("GET", f"/operations/{started['id']}"))["state"] == "done"
    assert len((await desk("GET", "/operations"))["operations"]) == 1
    for verb in ("pause", "resume", "cancel"):
        await desk("POST", f"/operations/{started['id']}/{verb}", {}, status=409)
    await desk("POST", "/operations", {"verb": "discard", "q": "state:dead", "sample": 3}, status=422)


WRITES = [each for each in ROUTES if each.method != "GET"]


REFUSALS = (
    "out_of_scope",
    "job_not_found",
    "flow_not_found",
    "unknown_name",
    "unknown_queue",
    "unknown_parent",
    "invalid_option",  # "queue x has no retention of its own": of this one nothing is seen
)


async def test_a_token_of_one_queue_changes_nothing_of_another(everywhere: Store) -> None:
    _, other = await town(everywhere)
    api = Api(app_on(everywhere), settings=GENEROUS)
    made = await Operator(everywhere, "ada").tokens.create("admin", queues=["mail"])
    client = Client(api, made.token)
    before = await state_of(everywhere)
    for route in WRITES:
        path = PREFIX + path_of(route.path, other, SECRET)
        body = body_for(route.path, other, route.example) if route.method != "DELETE" else None
        answer = await client.ask(route.method, path, body)
        if route.path == "/session":
            continue  # what a browser keeps is its own
        nothing = answer.status == 200 and route.path.startswith(("/jobs/", "/operations")) and answer.json["done"] == 0
        assert answer.problem in REFUSALS or nothing, (route.method, path, body, answer.status, answer.raw)
    assert await state_of(everywhere) == before
    await api.close()


def body_for(path: str, other: Half, example: Any) -> Any:
    """A body that means things of the other queue."""
    queue = f"{SECRET}.queue"
    special: dict[str, Any] = {
        "/jobs": {"task": f"{SECRET}.task", "queue": queue},
        "/schedules": {"task": f"{SECRET}.new", "every": 60, "queue": queue},
        "/tokens": {"role": "admin"},
        "/operations": {"verb": "discard", "q": f"queue:{queue}"},
        "/claim": {"worker": "w1", "queues": [queue]},
        "/leases/settle": {"leases": [{"end": "complete", "id": other.job, "token": 1}]},
    }
    if path in ("/pause", "/resume", "/drain"):
        return {"key": f"queue:{queue}"}
    if path in ("/jobs/cancel", "/jobs/retry", "/jobs/rerun", "/jobs/discard"):
        return {"q": f"queue:{queue} task:{SECRET}*"}
    return special.get(path, example)


async def state_of(store: Store) -> Any:
    """Whatever an unscoped admin sees, but for what time changes."""
    operator = Operator(store, "ada")
    jobs = [(each.id, each.state, each.args) for each in (await operator.jobs(limit=100)).jobs]
    limits = [(each.key, each.concurrency, each.set_by) for each in await operator.limits()]
    causes = [(each.cause, each.version) for each in await operator.causes()]
    controls = [
        await store.controls(kind) for kind in ("schedule", "weight", "retention", "cause", "token", "hook", "task")
    ]
    return jobs, limits, causes, controls, [each.to_dict() for each in await operator.queues()]
