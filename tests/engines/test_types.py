"""Types on every engine: tasks without code, with contracts at enqueue and at the end, changed while jobs wait."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from limpet import Limpet
from limpet.client.file_types import publish_types
from limpet.core.errors import InvalidArguments, InvalidOption, InvalidTask
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.lease import Serves
from limpet.core.jobs.state import State
from limpet.core.tasks.declaration import Declaration
from limpet.core.tasks.task import TaskSpec
from limpet.ops import Agents, Operator, Types
from limpet.ops.agent_endings import Completed
from limpet.ops.names import UnknownName
from limpet.stores.base import Store
from tests.contract.harnesses import HARNESSES, SHARED
from tests.server.conftest import app_on

ANY = Serves()
TABLE: dict[str, Any] = {
    "queue": "eng",
    "priority": "high",
    "capabilities": ["eng-backend"],
    "lease": "20m",
    "retry": {"attempts": 3, "base": 60},
    "description": "Change the API as the ticket says.",
    "arguments": {"required": ["ticket"], "properties": {"ticket": {"type": "string"}}},
    "result": {"type": "object", "required": ["decision", "files"]},
}
PAID = {**TABLE, "budgets": [{"key": "team:{team}", "usd": 5}], "cost": {"usd": 0.5}}
ABLE = Serves(capabilities=("eng-backend",))


@pytest.fixture(params=SHARED)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    harness = HARNESSES[request.param](tmp_path)
    yield await harness.open()
    await harness.close()


def app_with(store: Store, monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> Limpet:
    """An app whose folder has a configuration file."""
    (folder / "limpet.toml").write_text(text)
    monkeypatch.chdir(folder)
    return app_on(store)


async def test_a_type_of_the_file_is_published_before_its_first_job(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = '[types."eng.api"]\nqueue = "eng"\npriority = 0\narguments = { required = ["ticket"] }\nlease = "20m"'
    app = app_with(store, monkeypatch, tmp_path, text)
    with pytest.raises(InvalidArguments, match=r"eng\.api cannot take these arguments: ticket is missing"):
        await app.enqueue("eng.api", {})
    job = await app.enqueue("eng.api", {"ticket": "T-1"})
    (view,) = await store.get([id_bytes(job.id)])
    assert view is not None
    assert (view.lane.queue, view.lane.priority, view.lane.breaker) == ("eng", 0, "eng.api")
    assert (view.policy.attempts, view.policy.base_ms, view.policy.factor) == (5, 60_000, 2)
    (record,) = await Types(store, "ada").list()
    assert (record.type, record.set_by["queue"]) == ("eng.api", "file")
    assert record.breaker == {"failures": 5, "within": 86_400, "cooldown": 300, "probe_after": 60}
    assert await app.publish() == 0


async def test_a_result_that_breaks_the_contract_is_refused_and_the_lease_stays(store: Store) -> None:
    await publish_types(store, {"eng.api": PAID})
    app = app_on(store)
    await app.enqueue("eng.api", {"ticket": "T-1", "team": "web"})
    agents = Agents(store)
    assert await agents.claim("a1", ANY) == [], "it takes a capability"
    (held,) = await agents.claim("a1", ABLE)
    assert (held.description, held.result_contract) == (TABLE["description"], TABLE["result"])
    (session,) = await store.sessions()
    assert session.deadline_at_ms - session.beat_at_ms == 1_200_000
    for wrong, why in ((b'{"decision":"ship"}', "files is missing"), (None, "not of type object")):
        with pytest.raises(InvalidArguments, match=why):
            await agents.complete(held.id, held.token, wrong)
        with pytest.raises(InvalidArguments, match="complete it again"):
            await agents.settle([Completed(id=held.id, token=held.token, result=wrong)])
    assert (await agents.heartbeat(held.id, held.token)).answer == "done"
    done = await agents.complete(held.id, held.token, b'{"decision":"ship","files":[]}', spent={"usd": 0.2})
    assert done.state is State.succeeded
    (budget,) = [limit.budget for limit in await Operator(store, "ada").limits() if limit.budget is not None]
    assert (budget.spent, budget.cap) == (0.2, 5)


async def test_a_stale_agent_learns_that_and_not_what_is_wrong_with_its_result(store: Store) -> None:
    await publish_types(store, {"eng.api": TABLE})
    await app_on(store).enqueue("eng.api", {"ticket": "T-1"})
    (held,) = await Agents(store).claim("a1", ABLE)
    assert (await Agents(store).complete(held.id, held.token - 1, b"1")).answer == "stale"


async def test_what_other_jobs_will_answer_is_not_asked_for_at_enqueue(store: Store) -> None:
    await publish_types(store, {"eng.api": TABLE})
    app = app_on(store)
    first = await app.enqueue("eng.plan", {})
    with pytest.raises(InvalidArguments, match="ticket is missing"):
        await app.enqueue("eng.api", {"plan": {"$job": first.id}}, after=[first])
    await app.enqueue("eng.api", {"ticket": {"$job": first.id}}, after=[first])


async def test_a_change_at_run_time_is_visible_audited_and_survives_the_file(store: Store) -> None:
    types = Types(store, "ada")
    await publish_types(store, {"eng.api": TABLE})
    change = await types.set("eng.api", {"lease": "1h", "priority": "critical"}, reason="long tickets")
    assert change.changed == ("lease", "priority")
    assert await publish_types(store, {"eng.api": {**TABLE, "queue": "api"}}) == 1
    record = await types.get("eng.api")
    assert (record.queue, record.lease_s, record.priority) == ("api", 3_600, 0)
    assert (record.set_by["lease"], record.set_by["queue"]) == ("operator", "file")
    job = await app_on(store).enqueue("eng.api", {"ticket": "T-1"})
    (view,) = await store.get([id_bytes(job.id)])
    assert view is not None
    assert (view.lane.queue, view.lane.priority) == ("api", 0)
    assert (await types.set("eng.api", {"lease": None})).lease_s == 1_200
    assert (await types.set("eng.api", {"priority": "critical"})).changed == ()
    assert (await types.reset("eng.api", reason="as before")).priority == 3
    lines = [(line.kind, line.reason, line.data) for line in await Operator(store, "ada").audit()]
    assert [(kind, reason) for kind, reason, _ in lines] == [
        ("type.set", "long tickets"),
        ("type.set", None),
        ("type.reset", "as before"),
    ]
    assert lines[0][2]["before"] == {"lease": "20m", "priority": "high"}
    assert lines[0][2]["after"] == {"lease": "1h", "priority": "critical"}


async def test_a_type_can_be_made_and_removed_without_a_file(store: Store) -> None:
    types = Types(store, "ada")
    await types.set("ops.scan", {"result": {"required": ["report"]}})
    with pytest.raises(UnknownName, match="no file declares"):
        await types.reset("ops.scan")
    await app_on(store).enqueue("ops.scan", {})
    (held,) = await Agents(store).claim("a1", ANY)
    with pytest.raises(InvalidArguments, match="report is missing"):
        await Agents(store).complete(held.id, held.token, b"{}")
    await types.remove("ops.scan")
    assert await types.list() == ()
    with pytest.raises(UnknownName):
        await types.get("ops.scan")
    assert (await Agents(store).complete(held.id, held.token, b"{}")).answer == "done"
    await types.set("ops.scan", {"queue": "ops"})
    assert (await types.get("ops.scan")).result is True


async def test_what_makes_no_sense_is_refused_by_name(store: Store) -> None:
    types = Types(store, "ada")
    for table, why in (
        ({"quue": "eng"}, "did you mean 'queue'"),
        ({"retry": {"atempts": 3}}, "did you mean 'attempts'"),
        ({"lease": "0.1s"}, "too short"),
        ({"result": {"type": "strin"}}, "not a JSON Schema"),
        ({"breaker": {"failures": 0}}, "never opens"),
    ):
        with pytest.raises(InvalidOption, match=why):
            await types.set("eng.api", table)
    await store.put_control(Declaration.of(TaskSpec.named("mail.send")).control())
    with pytest.raises(InvalidOption, match="code declares"):
        await types.set("mail.send", {"queue": "eng"})
    with pytest.raises(InvalidTask, match="code declares"):
        await publish_types(store, {"mail.send": {}})
    assert await types.list() == ()


async def test_an_edit_keeps_to_the_contract(store: Store) -> None:
    await publish_types(store, {"eng.api": TABLE})
    await app_on(store).enqueue("eng.api", {"ticket": "T-1"})
    (held,) = await Agents(store).claim("a1", ABLE)
    await Agents(store).fail(held.id, held.token, "no such ticket", kind="permanent")
    operator = Operator(store, "ada")
    with pytest.raises(InvalidArguments, match="ticket is 7"):
        await operator.retry([held.id], patch={"ticket": 7})
    assert (await operator.retry([held.id], patch={"ticket": "T-2"})).done == 1
