"""Operators see which hooks are published and who runs them, and remove one that no code has any more."""

from __future__ import annotations

import pytest

from limpet.core.endings.hook import QUEUE, Hook
from limpet.core.jobs.job import Lane
from limpet.core.jobs.lease import Beat, Serves
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Query, Term
from limpet.core.tasks.declaration import Declaration
from limpet.ops import Operator
from limpet.ops.names import UnknownName
from limpet.records import FindingRecord, HookRecord
from limpet.stores.base import Store
from tests.ops.making import job, kill


async def publish(store: Store, name: str, *states: State) -> None:
    await store.put_control(Hook(Lane(QUEUE, name), states=states, tasks=("mail",)).control())


async def warned(operator: Operator) -> dict[str, FindingRecord]:
    return {finding.code: finding for finding in await operator.doctor() if finding.level == "warning"}


async def test_a_hook_is_shown_with_its_jobs_and_its_workers(operator: Operator, store: Store) -> None:
    await publish(store, "alert", State.dead)
    await publish(store, "bill", State.succeeded, State.cancelled)
    await kill(store, job("mail"), job("mail"), job("work"))
    await store.beat(Beat("w1", 15_000, Serves(queues=("default",), tasks=("alert", "bill"))))
    await store.beat(Beat("w2", 15_000, Serves(queues=("default", QUEUE), tasks=("bill",))))
    alert, bill = await operator.hooks()
    assert alert == HookRecord(
        name="alert", states=(State.dead,), tasks=("mail",), queues=(), waiting=2, running=0, dead=0, workers=0
    )
    assert (bill.waiting, bill.workers) == (0, 1)
    assert alert.to_dict()["states"] == ["dead"]


async def test_doctor_warns_of_a_hook_that_no_worker_runs_and_only_of_that(operator: Operator, store: Store) -> None:
    await publish(store, "alert", State.dead)
    await kill(store, job("mail"))
    await store.leave("w1")
    finding = (await warned(operator))["unserved_hook"]
    assert finding.text == "no live worker runs the hook alert, and jobs of it that wait: 1"
    assert "limpet hooks remove alert" in (finding.fix or "")
    await store.beat(Beat("w1", 15_000, Serves(queues=("default",), tasks=("alert", "mail"))))
    assert "unserved_hook" in (found := await warned(operator))
    assert "unserved_queue" not in found, "it would be said twice"
    await store.beat(Beat("w2", 15_000, Serves(queues=(QUEUE,), tasks=("alert",))))
    assert "unserved_hook" not in await warned(operator)


async def test_doctor_warns_of_a_hook_for_a_task_that_is_not_known(operator: Operator, store: Store) -> None:
    await publish(store, "alert", State.dead)  # for the task mail
    await store.put_control(Declaration("mial").control())
    finding = (await warned(operator))["hook_of_unknown_task"]
    assert finding.text == "the hook alert is for the task 'mail', which no code declares and no job has"
    assert finding.fix == "did you mean 'mial'? Correct tasks= of the hook"
    await store.beat(Beat("w1", 15_000, Serves(queues=("default",), tasks=("mail",))))
    assert "hook_of_unknown_task" not in await warned(operator)
    await store.leave("w1")
    await kill(store, job("mail"))
    assert "hook_of_unknown_task" not in await warned(operator)


async def test_a_task_names_the_hooks_that_hear_of_its_ends(operator: Operator, store: Store) -> None:
    await store.put_control(Declaration("post", queue="slow", aliases=("mail",)).control())
    await store.put_control(Declaration("alert", queue=QUEUE).control())
    for name, tasks, queues in (
        ("alert", (), ()),
        ("bill", ("mail", "pay"), ("slow",)),
        ("elsewhere", ("post",), ("fast",)),
        ("others", ("pay",), ()),
    ):
        hook = Hook(Lane(QUEUE, name), states=(State.dead,), tasks=tasks, queues=queues)
        await store.put_control(hook.control())
    assert (await operator.task("post")).hooks == ("alert", "bill")
    assert (await operator.task("alert")).hooks == (), "hooks have none"


async def test_the_checklist_is_not_for_hooks(operator: Operator, store: Store) -> None:
    await store.put_control(Declaration("mail").control())
    await store.put_control(Declaration("alert", queue=QUEUE).control())
    (finding,) = [finding for finding in await operator.doctor() if finding.code == "review_idempotency"]
    assert finding.text.endswith(": mail")


async def test_a_hook_that_is_removed_hears_of_no_end(operator: Operator, store: Store) -> None:
    await publish(store, "alert", State.dead)
    await kill(store, job("mail"))
    changed = await operator.remove_hook("alert", reason="the pager does it")
    assert (changed.key, changed.state) == ("alert", "removed")
    await kill(store, job("mail"))
    assert await operator.hooks() == ()
    assert "unserved_hook" not in await warned(operator)
    assert len((await store.find(Query(terms=(Term("queue", QUEUE),)))).jobs) == 1
    (entry,) = await operator.audit()
    assert (entry.kind, entry.reason) == ("hook.remove", "the pager does it")
    for name in ("alert", "alrt"):
        with pytest.raises(UnknownName, match=f"there is no hook '{name}'"):
            await operator.remove_hook(name)
