"""What a worker publishes lets programs without its code ask for the same jobs by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from limpet import Breaker, Budget, Limit, Limpet, Retry
from limpet.core.gate import BreakerRule, GateRule
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.view import Control
from limpet.core.tasks.declaration import Declaration, read_declaration
from limpet.core.tasks.task import PLAIN, TaskSpec, build_job


def _send(customer: str, to: str) -> None: ...


SPEC = TaskSpec.declare(
    _send,
    name="email.send",
    queue="mail",
    priority="critical",
    timeout=30,
    retry=Retry(attempts=3, base=2),
    tenant="customer",
    limits=[
        Limit("bare", buckets={"usd": "5/h"}),
        Limit("customer:{customer}", rate="10/m", buckets={"tokens": "600/m"}),
        Budget("mail:{customer}", usd=0.1, tokens=5, per="week", over="refuse"),
        Limit("smtp", concurrency=20),
    ],
    breaker=Breaker(name="smtp", failures=3, within=30, cooldown=90, probe_after=15),
    needs=["smtp"],
    tags=["eu"],
    unique="welcome:{to}",
    unique_for=3600,
    cost={"cost": 2, "usd": 0.01},
)


def test_a_published_task_builds_the_same_job_as_its_code() -> None:
    read = read_declaration(Declaration.of(SPEC).control())
    assert read is not None
    id, values = b"i" * 16, {"customer": "acme", "to": "a@b.c"}
    ours, theirs = (build_job(spec, values, PLAIN, id=id) for spec in (SPEC, read.spec()))
    assert ours == theirs
    assert ours[0].lane.id == theirs[0].lane.id
    caps = [[(budget.over, rule) for budget, rule in spec.caps(ours[0].lane)] for spec in (SPEC, read.spec())]
    assert caps[0] == caps[1]


def test_a_published_task_names_the_gates_that_all_its_jobs_share() -> None:
    keys = [rule.key for rule in Declaration.of(SPEC).constant_rules()]
    assert keys == ["limit:bare", "limit:usd:bare", "limit:smtp", "breaker:smtp"]


def test_a_record_of_another_release_is_not_an_error() -> None:
    assert read_declaration(Control("task", "t", b'{"name":"t","new":1}')) == Declaration("t")
    assert read_declaration(Control("task", "t", b'{"name":3}')) is None
    assert read_declaration(Control("task", "t", b"\xff")) is None


def test_a_breaker_with_numbers_that_are_refused_here_is_taken_as_another_release_declared_it() -> None:
    gate = GateRule("breaker:{odd}", breaker=BreakerRule(failures=5_000, within_ms=0))
    spec = Declaration("t", breaker=gate).spec()
    assert spec.breaker is not None
    assert spec.breaker.rule("t") == gate


async def test_publishing_writes_only_what_changed(app: Limpet) -> None:
    app.task(name="a")(lambda: None)
    assert await app.publish() == 1
    assert await app.publish() == 0
    app.task(name="b", tenant="n")(lambda n: None)
    assert await app.publish() == 1
    assert [control.name for control in await app.store.controls("task")] == ["a", "b"]


async def test_a_producer_without_the_code_enqueues_as_the_worker_declared(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with Limpet(url) as worker, Limpet(url) as producer:

        @worker.task(name="email.send", queue="mail", priority="critical", tenant="customer", retry=2)
        async def send(customer: str) -> str:
            return f"sent to {customer}"

        await worker.work(until_empty=True)
        job = await producer.enqueue("email.send", {"customer": "acme"})
        (view,) = await producer.store.get([id_bytes(job.id)])
        assert view is not None
        assert (view.lane.queue, view.lane.priority, view.lane.tenant) == ("mail", 0, "acme")
        assert view.policy.attempts == 2
        await worker.work(until_empty=True)
        assert await job.result(60) == "sent to acme"


@pytest.mark.parametrize("name", ["", "with space", "x" * 300])
async def test_a_name_that_cannot_be_one_is_refused(app: Limpet, name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        await app.enqueue(name, {})
