"""A task is renamed while jobs of its old name wait, on every engine: they run, and all rules hold for both names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from limpet import Breaker, Every, InvalidTask, Limit, Limpet
from limpet.core.errors import QueueDraining
from limpet.core.gate import Gate
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.lease import Beat
from limpet.ops import LimitChange, Operator
from limpet.runtime import WorkerPlan
from tests.flows.conftest import app_on

ENGINES = ("sqlite", "redis", "postgres")


class Deployment:
    """The code of before and of today, on one store."""

    def __init__(self, engine: str, folder: Path) -> None:
        self.before = app_on(engine, folder)
        self.today = Limpet(self.before.url, namespace=self.before.namespace, enqueue_timeout=60)
        self.ran: list[tuple[str, str]] = []

        async def send(to: str) -> str:
            self.ran.append(("before", to))
            return f"to {to}"

        async def deliver(to: str) -> str:
            self.ran.append(("today", to))
            return f"to {to}"

        limits = [Limit("{task}:{to}", concurrency=1)]
        breaker = Breaker(failures=3)
        self.old = self.before.task(name="mail.send", unique=True, limits=limits, breaker=breaker)(send)
        self.new = self.today.task(
            name="mail.deliver", aliases=["mail.send"], unique=True, limits=limits, breaker=breaker
        )(deliver)
        self.operator = Operator(self.today.store, "ada")

    async def gate(self, key: str) -> Gate:
        (gate,) = await self.today.store.gates(keys=[key])
        return gate

    async def close(self) -> None:
        await self.before.close()
        await self.today.close()


@pytest.fixture(params=ENGINES)
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Deployment]:
    shop = Deployment(request.param, tmp_path)
    yield shop
    await shop.close()


async def test_jobs_that_wait_under_the_old_name_run_and_keep_it(shop: Deployment) -> None:
    jobs = [await shop.old.enqueue(f"{number}@b.c") for number in range(3)]
    report = await shop.today.work(until_empty=True)
    assert (report.succeeded, report.claimed) == (3, 3)
    assert [where for where, _ in shop.ran] == ["today"] * 3
    assert await jobs[0].result() == "to 0@b.c"
    (view,) = await shop.today.store.get([id_bytes(jobs[0].id)])
    assert view is not None
    assert view.lane.task == "mail.send"


async def test_an_old_worker_gets_no_job_of_the_new_name(shop: Deployment) -> None:
    await shop.new.enqueue("a@b.c")
    await shop.before.publish()
    report = await shop.before.work(until_empty=True)
    assert report.claimed == 0


async def test_both_names_share_keys_limits_and_the_breaker(shop: Deployment) -> None:
    old = await shop.old.enqueue("a@b.c")
    new = await shop.new.enqueue("a@b.c")
    assert (new.id, new.existing) == (old.id, True)
    other = await shop.new.enqueue("x@y.z")
    first, second = await shop.today.store.get([id_bytes(old.id), id_bytes(other.id)])
    assert first is not None
    assert second is not None
    assert (second.lane.task, second.lane.scope) == ("mail.deliver", "mail.send")
    assert first.lane.class_gates == second.lane.class_gates
    assert (first.lane.keys, second.lane.keys) == (("mail.send:a@b.c",), ("mail.send:x@y.z",))


@pytest.mark.parametrize("name", ["mail.send", "mail.deliver"])
async def test_an_operator_may_say_either_name(shop: Deployment, name: str) -> None:
    await shop.before.publish()
    await shop.today.publish()
    assert (await shop.operator.gates.pause(f"task:{name}", reason="renamed")).paused is not None
    await shop.old.enqueue("a@b.c")
    await shop.new.enqueue("x@y.z")
    assert (await shop.today.work(until_empty=True)).claimed == 0
    await shop.operator.resume(f"task:{name}")
    await shop.operator.trip(name)
    assert (await shop.gate("breaker:mail.send")).breaker_open
    await shop.operator.reset(name)
    assert (await shop.today.work(until_empty=True)).succeeded == 2
    await shop.operator.set_limit(f"task:{name}", LimitChange(concurrency=1))
    assert (await shop.gate("task:mail.send")).rule.concurrency == 1
    await shop.operator.drain(f"task:{name}")
    with pytest.raises(QueueDraining):
        await shop.new.enqueue("again@b.c")
    with pytest.raises(QueueDraining):
        await shop.old.enqueue("again@b.c")


async def test_a_job_is_asked_for_by_either_name_without_the_code(shop: Deployment) -> None:
    await shop.before.publish()
    await shop.today.publish()
    asking = Limpet(shop.today.url, namespace=shop.today.namespace, enqueue_timeout=60)
    try:
        old = await asking.enqueue("mail.send", {"to": "a@b.c"})
        assert (await asking.enqueue("mail.deliver", {"to": "a@b.c"})).id == old.id
        assert (await shop.today.enqueue("mail.send", {"to": "a@b.c"})).id == old.id
        assert (await shop.before.work(until_empty=True)).succeeded == 1
    finally:
        await asking.close()


async def test_a_schedule_of_the_old_name_goes_on_with_the_new_code(shop: Deployment) -> None:
    shop.before.schedule(Every("1d"), {"to": "daily"})(shop.old)
    shop.today.schedule(Every("1d"), {"to": "daily"})(shop.new)
    await shop.before.publish()
    await shop.before.schedules.add(Every("2d"), "mail.send", {"to": "added"}, name="added")
    await shop.today.publish()
    assert [each.name for each in await shop.today.schedules.list()] == ["added", "mail.send"]
    await (await shop.today.schedules.run_now("mail.send")).status()
    await shop.today.schedules.run_now("added")
    await shop.today.work(until_empty=True)
    assert sorted(shop.ran) == [("today", "added"), ("today", "daily")]


async def test_a_worker_knows_all_names(shop: Deployment) -> None:
    job = await shop.old.enqueue("a@b.c")
    plan = WorkerPlan(store=shop.today.store, parts=shop.today.parts())
    assert plan.serves.tasks == ("mail.deliver", "mail.send")
    await plan.store.beat(Beat(plan.session, 15_000, plan.serves))
    await shop.operator.pause("task:mail.send", new=True)
    codes = [reason.code for reason in (await job.explain()).reasons]
    assert "task_paused" in codes
    assert "unknown_task" not in codes


@pytest.mark.parametrize("aliases", [["b"], ["a"], ["c", "b"]])
@pytest.mark.parametrize("other_first", [True, False])
def test_a_name_belongs_to_one_task(aliases: list[str], *, other_first: bool) -> None:
    app = Limpet("sqlite://")

    def renamed() -> None: ...

    def other() -> None: ...

    def declare_both() -> None:
        if other_first:
            app.task(name="b")(other)
        app.task(name="a", aliases=aliases)(renamed)
        app.task(name="b")(other)

    with pytest.raises(InvalidTask):
        declare_both()


def test_two_tasks_cannot_have_one_alias() -> None:
    app = Limpet("sqlite://")
    app.task(name="a", aliases=["x"])(lambda: None)
    with pytest.raises(InvalidTask, match="an alias of the task 'a'"):
        app.task(name="b", aliases=["x"])(lambda: None)
    with pytest.raises(InvalidTask, match="'x' is an alias of the task 'a'"):
        app.task(name="x")(lambda: None)
    assert list(app.tasks) == ["a"]
