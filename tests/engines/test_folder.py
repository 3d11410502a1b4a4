"""A folder of JSON files as agents keep it, on every engine: taken over with its damage, worked off, written again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from limpet.client.file_types import publish_types
from limpet.core.jobs.lease import Serves
from limpet.core.jobs.state import State
from limpet.ops import Agents, Operator
from limpet.ops.folder_export import FolderWatch, export_folder
from limpet.ops.folder_import import import_folder
from limpet.ops.names import UnknownName
from limpet.ops.redaction import Redactions
from limpet.records import FolderExport
from limpet.stores.base import Store
from tests.contract.harnesses import HARNESSES, SHARED
from tests.ops.making import job, put

ANY = Serves()
FIELDS = [
    *("id", "idempotencyKey", "type", "priority", "dependencies", "payload", "createdAt", "claimedBy", "claimedAt"),
    *("timeout", "retries", "maxRetries", "backoffSeconds", "lastError", "completedAt", "result"),
]


@pytest.fixture(params=SHARED)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    harness = HARNESSES[request.param](tmp_path)
    yield await harness.open()
    await harness.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As a team of agents left it: a truncated file, entries that are none, and one that lies in two files."""
    place = tmp_path / ".loki" / "queue"
    place.mkdir(parents=True)
    entry: dict[str, Any] = {"type": "eng-backend", "createdAt": "2026-11-01T10:00:00Z"}
    pending = [
        {**entry, "id": "task-2", "priority": 8, "dependencies": ["task-1"], "payload": {"goal": "b"}, "maxRetries": 3},
        {**entry, "id": "task-3", "priority": 10, "payload": "just words", "idempotencyKey": "k3", "timeout": 3600},
        {**entry, "id": "task-4", "dependencies": ["task-2", "task-9"], "payload": {}},
        {**entry, "id": "task-5", "dependencies": ["nowhere"]},
        {"id": "task-6"},
        "no entry at all",
        {**entry, "id": "task-7", "priority": "urgent!"},
        {**entry, "id": "task-1", "payload": {"done": "already"}},
    ]
    (place / "pending.json").write_text(json.dumps({"tasks": pending}))
    held = {**entry, "id": "task-9", "claimedBy": "agent-7", "claimedAt": "2026-11-01T11:00:00Z"}
    (place / "in-progress.json").write_text(json.dumps([held])[:-1] + ', {"id": "task-10", "type": "eng-ba')
    done = {
        **entry,
        "id": "task-1",
        "payload": {"goal": "a"},
        "result": {"ok": 1},
        "completedAt": "2026-11-02T08:00:00Z",
    }
    (place / "completed.json").write_text(json.dumps([done]))
    dead = {**entry, "id": "task-8", "lastError": "no such API", "retries": 5}
    (place / "dead-letter.json").write_text(json.dumps({"tasks": [dead]}))
    return place


async def read(store: Store, folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """What the files hold after an export: file → entry by id."""
    await export_folder(Operator(store, "ada"), folder)
    found = {}
    for name in ("pending", "in-progress", "completed", "cancelled", "dead-letter"):
        whole = json.loads((folder / f"{name}.json").read_text())
        entries = whole if isinstance(whole, list) else whole["tasks"]
        found[name] = {entry["id"]: entry for entry in entries}
    return found


async def test_a_folder_is_taken_over_worked_off_and_written_again_without_loss(store: Store, folder: Path) -> None:
    report = await import_folder(store, folder, "ada")
    assert report.stored == {"completed": 1, "dead-letter": 1, "in-progress": 1, "pending": 3}
    said = {(problem.file, problem.entry): problem.text for problem in report.problems}
    assert "damaged" in said["in-progress.json", None]
    assert "'agent-7' held it" in said["in-progress.json", "task-9"]
    assert "no such file" in said["cancelled.json", None]
    assert "completed.json, too" in said["pending.json", "task-1"]
    assert "'nowhere', which is nowhere" in said["pending.json", "task-5"]
    assert "type is None" in said["pending.json", "task-6"]
    assert "10 is the most urgent" in said["pending.json", "task-7"]
    assert report.refused == 5

    again = await import_folder(store, folder, "ada")
    assert (again.stored, again.existing) == (dict.fromkeys(again.stored, 0), 6)

    found = await read(store, folder)
    assert {name: sorted(entries) for name, entries in found.items()} == {
        "pending": ["task-2", "task-3", "task-4", "task-9"],
        "in-progress": [],
        "completed": ["task-1"],
        "cancelled": [],
        "dead-letter": ["task-8"],
    }
    second, third, done = found["pending"]["task-2"], found["pending"]["task-3"], found["completed"]["task-1"]
    assert list(second) == FIELDS
    assert (second["priority"], second["dependencies"], second["maxRetries"]) == (8, ["task-1"], 3)
    assert (third["priority"], third["payload"], third["idempotencyKey"]) == (10, "just words", "k3")
    assert (done["result"], done["createdAt"], done["completedAt"]) == (
        {"ok": 1},
        "2026-11-01T10:00:00Z",
        "2026-11-02T08:00:00Z",
    )
    assert "no such API" in found["dead-letter"]["task-8"]["lastError"]
    assert found["dead-letter"]["task-8"]["retries"] == 5
    kept = json.loads((folder / "rejected.json").read_text())
    assert [each["entry"]["id"] for each in kept if isinstance(each.get("entry"), dict)] == [
        "task-6",
        "task-7",
        "task-5",
    ]

    order = []
    agents = Agents(store)
    while held := await agents.claim("a1", ANY):
        in_files = await read(store, folder)
        (line,) = in_files["in-progress"].values()
        assert line["claimedBy"] == "a1"
        order.append(line["id"])
        await agents.complete(held[0].id, held[0].token, b'"fine"')
    assert order[0] == "task-3"
    assert order.index("task-2") < order.index("task-4")
    assert order.index("task-9") < order.index("task-4")
    found = await read(store, folder)
    assert sorted(found["completed"]) == ["task-1", "task-2", "task-3", "task-4", "task-9"]
    await Operator(store, "ada").retry("state:dead")
    (held_again,) = await agents.claim("a1", ANY)
    assert held_again.task == "eng-backend", "a dead job of a folder can be retried by any agent"


async def test_an_exported_folder_can_be_imported_elsewhere(store: Store, folder: Path, tmp_path: Path) -> None:
    await import_folder(store, folder, "ada")
    before = await read(store, folder)
    other = HARNESSES["sqlite-file"](tmp_path / "other")
    (tmp_path / "other").mkdir()
    target = await other.open()
    await import_folder(target, folder, "ada")
    copied = tmp_path / "copied"
    after = await read(target, copied)
    assert {name: {*entries} for name, entries in after.items()} == {
        name: {*entries} for name, entries in before.items()
    }
    for name in ("type", "priority", "payload", "dependencies", "createdAt", "idempotencyKey", "maxRetries", "timeout"):
        assert after["pending"]["task-2"][name] == before["pending"]["task-2"][name], name
    await other.close()


async def test_files_are_written_only_when_they_change_and_keep_their_form(store: Store, tmp_path: Path) -> None:
    await put(store, job("eng"), job("eng"))
    operator, place = Operator(store, "ada"), tmp_path / "queue"
    first = await export_folder(operator, place)
    assert len(first.written) == 6
    assert (await export_folder(operator, place)).written == ()
    (place / "pending.json").write_text("[]")
    assert (await export_folder(operator, place)).written == ("pending",)
    assert len(json.loads((place / "pending.json").read_text())) == 2
    assert [path.name for path in place.iterdir() if path.name.startswith(".")] == []


async def test_a_folder_shows_no_hidden_value(store: Store, tmp_path: Path) -> None:
    await Redactions(store, "ada").add("password")
    await put(store, job("eng", args={"password": "hunter2"}))
    await export_folder(Operator(store, "ada"), tmp_path / "queue")
    assert "hunter2" not in (tmp_path / "queue" / "pending.json").read_text()


async def test_finished_files_hold_the_newest(store: Store, tmp_path: Path) -> None:
    await put(store, *(job("eng", args={"n": n}) for n in range(5)))
    agents = Agents(store)
    while held := await agents.claim("a1", ANY):
        await agents.complete(held[0].id, held[0].token)
    await export_folder(Operator(store, "ada"), tmp_path / "queue", finished=2)
    kept = json.loads((tmp_path / "queue" / "completed.json").read_text())["tasks"]
    assert [entry["payload"]["n"] for entry in kept] == [4, 3]


async def test_a_watched_folder_follows_the_queue(store: Store, tmp_path: Path) -> None:
    stop, reports = asyncio.Event(), asyncio.Queue[FolderExport]()
    watch = FolderWatch(Operator(store, "ada"), tmp_path / "queue", 10, reports.put_nowait)
    watching = asyncio.create_task(watch.run(stop, look_s=0.01))
    assert (await asyncio.wait_for(reports.get(), 60)).entries["pending"] == 0
    await put(store, job("eng"))
    assert (await asyncio.wait_for(reports.get(), 60)).entries["pending"] == 1
    await Agents(store).claim("a1", ANY)
    assert (await asyncio.wait_for(reports.get(), 60)).written == ("pending", "in-progress")
    stop.set()
    await asyncio.wait_for(watching, 60)


async def test_an_entry_that_breaks_its_contract_is_refused_and_a_folder_must_be_there(
    store: Store, tmp_path: Path
) -> None:
    await publish_types(store, {"eng": {"queue": "eng", "arguments": {"required": ["ticket"]}}})
    place = tmp_path / "queue"
    with pytest.raises(UnknownName, match="is not a folder"):
        await import_folder(store, place, "ada")
    place.mkdir()
    entries = [{"id": "a", "type": "eng", "payload": {}}, {"id": "b", "type": "eng", "payload": {"ticket": 1}}]
    (place / "pending.json").write_text(json.dumps(entries))
    report = await import_folder(store, place, "ada")
    (why,) = [problem.text for problem in report.problems if problem.entry == "a"]
    assert why.startswith("eng cannot take")
    ((held,),) = [await Agents(store).claim("a1", ANY, most=5)]
    assert held.queue == "eng"
    assert (await store.count()).total(State.ready) == 0
