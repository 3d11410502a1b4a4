"""Commands about jobs that wait, and about steps."""

from __future__ import annotations

import time

import msgspec

from limpet.core.endings.transition import Bury, Failure
from limpet.core.flows.steps import Record
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Unique
from limpet.stores.base import Store
from tests.cli.conftest import Cli
from tests.ops.making import claim, job, put
from tests.ops.suspended import asks, suspend


async def asking(store: Store) -> str:
    return id_text(await asks(store, unique=Unique("order:7")))


async def waiting(store: Store) -> str:
    return id_text(await suspend(store, "wait", "paid", event="paid"))


async def dead(store: Store) -> str:
    (id,) = await put(store, job())
    (claimed,) = await claim(store)
    await store.save(id, claimed.token, Record("step", 1, value=msgspec.Raw(b'{"id":7}')).note("pay"))
    await store.save(id, claimed.token, Record("sleep", 2, event="sleep:nap", until_ms=0).note("nap"))
    failure = Failure("permanent", "limpet.StepsChanged", "the code changed", cause="c")
    await store.settle("w1", time.monotonic_ns(), [Bury(id, claimed.token, failure)])
    return id_text(id)


def test_approvals_are_listed_and_decided(cli: Cli) -> None:
    id = cli.seed(asking)
    listed = cli("approvals")
    assert id in listed.out
    assert "Pay 90 USD?" in listed.out
    (shape,) = cli("approvals", "task:send", "--json").json["approvals"]
    assert (shape["id"], shape["name"], shape["question"], shape["until"]) == (id, "approval", "Pay 90 USD?", None)
    assert len(cli("approvals", "--jsonl").out.splitlines()) == 1
    assert "waits for a person to approve or reject: Pay 90 USD?" in cli("explain", id).out
    answer = cli("approve", id[-8:], "--comment", "fine", "--json").json
    assert answer == {
        "id": id,
        "event": "approval:approval",
        "answer": "woken",
        "text": f"job {id} continues",
    }
    assert "no approvals" in cli("approvals").err
    late = cli("reject", id, code=4)
    assert "was approved by" in late.err
    entry = cli("audit", "--json").json["entries"][-1]
    assert (entry["kind"], entry["job"], entry["reason"]) == ("job.approve", id, "fine")


def test_a_job_is_rejected_by_its_key(cli: Cli) -> None:
    id = cli.seed(asking)
    assert cli("reject", "order:7", "--task", "send").out == f"job {id} continues\n"


def test_events_are_signalled(cli: Cli) -> None:
    id = cli.seed(waiting)
    assert cli("signal", id, "paid", '{"amount": 7}').out == f"job {id} continues\n"
    assert "first value stays" in cli("signal", id, "paid", code=4).err
    assert cli("signal", id, "later", "--json").json["answer"] == "kept"
    cli("cancel", id)
    assert "is cancelled" in cli("signal", id, "more", code=1).err
    cli("signal", "0190a5b2-7c3d-7e8f-9a0b-1c2d3e4f5a6b", "paid", code=3)
    assert "no job has the id or the unique key" in cli("signal", "nobody", "paid", code=3).err
    assert "not JSON" in cli("signal", id, "x", "{", code=2).err
    assert "Limpet's own" in cli("signal", id, "approval:approval", "true", code=2).err


def test_a_job_without_a_question_cannot_be_approved(cli: Cli) -> None:
    id = cli.seed(waiting)
    assert "asks for no approval now" in cli("approve", id, code=2).err
    assert "will get it" in cli("approve", id, "--name", "approval").out


def test_steps_are_shown_and_forgotten(cli: Cli) -> None:
    id = cli.seed(dead)
    shown = cli("job", id).out
    assert '"id": 7' in shown
    assert "sleep nap    until 1970-01-01T00:00:00.000Z" in shown
    steps = cli("job", id, "--json").json["steps"]
    assert [(step["name"], step["kind"]) for step in steps] == [("pay", "step"), ("nap", "sleep")]
    assert "no step 'pya' is recorded" in cli("dead", "retry", id, "--forget", "pya", code=2).err
    cli("dead", "retry", id, "--forget", "pay", "--reason", "new code")
    assert [step["name"] for step in cli("job", id, "--json").json["steps"]] == ["nap"]


def test_all_steps_are_forgotten(cli: Cli) -> None:
    id = cli.seed(dead)
    cli("retry", id, "--forget-all")
    assert cli("job", id, "--json").json["steps"] == []
