"""`--json` prints what the operator API answers: one set of records for both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from limpet.core.gate import BreakerRule, GateRule
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Enqueued
from limpet.core.jobs.view import Query
from limpet.core.records.record import plain
from limpet.core.schedules.when import Cron
from limpet.ops import Agents, LimitChange, Operator, Schedules, Waits
from limpet.stores.base import Store
from limpet.stores.sqlite import SqliteStore
from tests.cli.conftest import Cli
from tests.ops.making import job, kill, put
from tests.ops.suspended import asks

Ask = Callable[[Operator, str], Awaitable[Any]]
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def calendar(operator: Operator) -> Schedules[Enqueued]:
    return Schedules(operator.store, operator.actor, handle=lambda answer, task: answer)


# what is typed, the list in its answer (None: the answer is one record), and the same from Python
ASKED: dict[str, tuple[str, str | None, Ask]] = {
    "jobs": ("jobs state:ready", None, lambda operator, id: operator.jobs("state:ready")),
    "dead": ("dead", None, lambda operator, id: operator.jobs("state:dead")),
    "job": ("job ID", None, lambda operator, id: operator.job(id)),
    "explain": ("explain ID", None, lambda operator, id: operator.explain(id)),
    "causes": ("dead causes", "causes", lambda operator, id: operator.causes()),
    "queues": ("queues", "queues", lambda operator, id: operator.queues()),
    "workers": ("workers", "workers", lambda operator, id: operator.workers()),
    "tasks": ("tasks", "tasks", lambda operator, id: operator.tasks()),
    "limits": ("limits", "limits", lambda operator, id: operator.limits()),
    "breakers": ("breakers", None, lambda operator, id: operator.breakers()),
    "events": ("events", "events", lambda operator, id: operator.events()),
    "audit": ("audit", "entries", lambda operator, id: operator.audit()),
    "repair": ("doctor --repair --dry-run", None, lambda operator, id: operator.repair(dry_run=True)),
    "weights": ("weights", "weights", lambda operator, id: operator.weights()),
    "retention": ("retention", "retention", lambda operator, id: operator.retention()),
    "schedules": ("schedules", "schedules", lambda operator, id: calendar(operator).list()),
    "schedule": ("schedules show yearly", None, lambda operator, id: calendar(operator).get("yearly")),
    "next runs": ("schedules next", "runs", lambda operator, id: calendar(operator).next()),
    "backfill": (
        "schedules backfill yearly --from 2026-01-01T00:00:00Z --to 2026-01-01T00:00:00Z --dry-run",
        None,
        lambda operator, id: calendar(operator).backfill("yearly", NEW_YEAR, NEW_YEAR, dry_run=True),
    ),
    "approvals": ("approvals", None, lambda operator, id: Waits(operator.store, "ada").approvals(Query())),
    "lease": ("heartbeat ID --token 9", None, lambda operator, id: Agents(operator.store).heartbeat(id, 9)),
    "cancel": ("cancel ID --dry-run", None, lambda operator, id: operator.cancel([id], dry_run=True)),
}

SLOW = LimitChange(rate="10/m")
# what is typed, and the same from Python: both change the same again
CHANGED: dict[str, tuple[str, Ask]] = {
    "pause": ("pause mail --reason r", lambda operator, id: operator.pause("queue:mail", reason="r")),
    "resume": ("resume mail", lambda operator, id: operator.resume("queue:mail")),
    "drain": ("drain mail", lambda operator, id: operator.drain("queue:mail")),
    "limits set": ("limits set smtp --rate 10/m", lambda operator, id: operator.set_limit("smtp", SLOW)),
    "limits clear": ("limits clear smtp", lambda operator, id: operator.clear_limit("smtp")),
    "breakers trip": ("breakers trip api", lambda operator, id: operator.trip("api")),
    "breakers reset": ("breakers reset api", lambda operator, id: operator.reset("api")),
    "weights set": ("weights set queue:mail 3", lambda operator, id: operator.set_weight("queue:mail", 3)),
    "retention set": (
        "retention set mail --dead 90d",
        lambda operator, id: operator.set_retention("mail", {"dead": "90d"}),
    ),
    "schedules change": (
        "schedules change yearly --overlap allow",
        lambda operator, id: calendar(operator).change("yearly", overlap="allow"),
    ),
    "schedules pause": ("schedules pause yearly", lambda operator, id: calendar(operator).pause("yearly")),
    "schedules resume": ("schedules resume yearly", lambda operator, id: calendar(operator).resume("yearly")),
}
MOVES = {"free", "tokens", "latency_ms", "in_words"}  # with the time that passes between two answers


async def shop(store: Store) -> bytes:
    rules = (GateRule("limit:smtp", concurrency=2), GateRule("breaker:api", breaker=BreakerRule()))
    await asks(store, queue="desk", delay_ms=3_600_000)
    await kill(store, job(), job("pdf", queue="paper"))
    (id,) = await put(store, job(limits=("smtp",), breaker="api", tags=("a",)), rules=rules)
    operator = Operator(store, "ada")
    await operator.trip("api", for_ms=3_600_000)
    await operator.set_weight("tenant:acme", 2, reason="pays")
    await operator.set_retention("paper", {"dead": "90d"})
    for name, when in (("yearly", "@yearly"), ("monthly", "@monthly")):
        await calendar(operator).add(Cron(when), "mail", name=name)
    return id


def still(shape: Any) -> Any:
    """The answer without levels that rise by themselves."""
    if isinstance(shape, dict):
        return {name: still(value) for name, value in shape.items() if name not in MOVES}
    return [still(each) for each in shape] if isinstance(shape, list) else shape


def asked(cli: Cli, ask: Ask, id: str) -> Any:
    """What the operator API answers on the same store."""

    async def answer() -> Any:
        store = SqliteStore(str(cli.path), sync="normal")
        try:
            return await ask(Operator(store, cli_actor()), id)
        finally:
            await store.close()

    found = asyncio.run(answer())
    return [plain(each) for each in found] if isinstance(found, list) else plain(found)


def cli_actor() -> str:
    from limpet.cli.terminal import Terminal

    return Terminal(None, None).actor


@pytest.mark.parametrize("name", ASKED)
def test_json_prints_what_the_operator_answers(cli: Cli, name: str) -> None:
    id = id_text(cli.seed(shop))
    words, inside, ask = ASKED[name]
    printed = cli(*words.replace("ID", id).split(), "--json", code=None).json
    assert still(printed if inside is None else printed[inside]) == still(asked(cli, ask, id))
    assert still(printed), name


@pytest.mark.parametrize("name", CHANGED)
def test_json_of_a_change_prints_what_the_operator_answers(cli: Cli, name: str) -> None:
    id = id_text(cli.seed(shop))
    words, ask = CHANGED[name]
    first = cli(*words.split(), "--json").json
    again = asked(cli, ask, id)
    assert isinstance(first["notes"], list)
    assert isinstance(again.get("notes", []), list)
    assert {**first, "notes": []} == {**again, "notes": []}


def test_json_of_a_removed_schedule_prints_what_its_removal_answers(cli: Cli) -> None:
    id = id_text(cli.seed(shop))
    printed = cli("schedules", "remove", "monthly", "--yes", "--json").json
    assert printed == {**asked(cli, lambda operator, _: calendar(operator).remove("yearly"), id), "schedule": "monthly"}


def test_json_of_a_signal_prints_what_a_signal_answers(cli: Cli) -> None:
    id = id_text(cli.seed(shop))
    assert cli("signal", id, "paid", "--json").json["answer"] == "kept"
    again = cli("signal", id, "paid", "--json", code=4).json
    assert again == asked(cli, lambda operator, id: Waits(operator.store, "ada").signal(id, "paid"), id)


def test_stats_and_doctor_print_what_the_operator_answers(cli: Cli) -> None:
    id = id_text(cli.seed(shop))
    printed = cli("stats", "--json").json
    assert {**printed, "per_second": None} == {
        **asked(cli, lambda operator, _: operator.stats(), id),
        "per_second": None,
    }
    findings = asked(cli, lambda operator, _: operator.doctor(), id)
    shown = cli("doctor", "--json", code=None).json["findings"]
    assert [(each["level"], each["code"], each["fix"]) for each in shown] == [
        (each["level"], each["code"], each["fix"]) for each in findings
    ]
