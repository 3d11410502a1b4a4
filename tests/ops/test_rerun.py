"""Finished jobs run again as new ones."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from limpet.client.registry import publish
from limpet.core.endings.transition import Succeed
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Lane, Unique
from limpet.core.jobs.state import State
from limpet.core.jobs.view import JobView
from limpet.core.limits.limit import Limit
from limpet.core.tasks.task import TaskSpec
from limpet.ops import Operator
from limpet.stores.base import Store
from tests.ops.making import claim, job, kill, put


async def send(customer: str, to: str = "", extra: object = None) -> None: ...


async def finish(store: Store, *jobs: Any, result: bytes | None = None) -> list[bytes]:
    """Store jobs and let them succeed."""
    ids = await put(store, *jobs)
    for claimed in await claim(store):
        if claimed.id in ids:
            await store.settle("w1", time.monotonic_ns(), [Succeed(claimed.id, claimed.token, result)])
    return ids


async def view(store: Store, id: bytes) -> JobView:
    (found,) = await store.get([id])
    assert found is not None
    return found


async def made_of(operator: Operator, id: bytes, **how: Any) -> JobView:
    report = await operator.rerun([id_text(id)], **how)
    assert report.answers == {"rerun": 1}
    return await view(operator.store, await operator.resolve(report.made[id_text(id)]))


@pytest.mark.parametrize("state", [State.succeeded, State.cancelled])
async def test_a_finished_job_becomes_a_new_one_that_names_it(operator: Operator, store: Store, state: State) -> None:
    asked = job(args={"n": 2**60, "to": "a"}, tags=("eu",), meta=b'{"trace":"1"}')
    if state is State.succeeded:
        (old,) = await finish(store, asked)
    else:
        (old,) = await put(store, asked)
        await operator.cancel([id_text(old)])
    before = await view(store, old)
    new = await made_of(operator, old, reason="once more")
    assert (new.state, new.args, new.tags) == (State.ready, before.args, ("eu",))
    assert new.id != old
    assert (await operator.job(new.id)).rerun_of == id_text(old)
    assert msgspec.json.decode(new.meta)["trace"] == "1"
    assert await view(store, old) == before
    entry = (await operator.audit())[-1]
    assert (entry.kind, entry.job, entry.reason) == ("job.rerun", id_text(old), "once more")
    assert entry.data["new"] == id_text(new.id)


async def test_it_is_queued_as_its_task_is_declared_today(operator: Operator, store: Store) -> None:
    (old,) = await finish(store, job("send", "old", args={"customer": "acme"}, tenant="before", priority=8))
    limits = [Limit("customer:{customer}", rate="10/s"), Limit("smtp", concurrency=3)]
    spec = TaskSpec.declare(send, name="send", queue="new", priority="high", tenant="customer", limits=limits, retry=7)
    await publish(store, [spec])
    new = await made_of(operator, old)
    assert (new.lane.queue, new.lane.priority, new.lane.tenant) == ("new", 3, "acme")
    assert (new.lane.limits, new.lane.keys) == (("smtp",), ("customer:acme",))
    assert new.policy.attempts == spec.policy.attempts
    (gate,) = await store.gates("limit:smtp")
    assert gate.rule is not None
    assert gate.rule.concurrency == 3


async def test_a_task_that_nobody_published_keeps_its_place(operator: Operator, store: Store) -> None:
    (old,) = await finish(store, job("novel", "odd", tenant="acme", priority=2))
    assert (await made_of(operator, old)).lane == Lane("odd", "novel", tenant="acme", priority=2)


async def test_arguments_that_the_task_takes_no_more_are_refused(operator: Operator, store: Store) -> None:
    await publish(store, [TaskSpec.declare(send, name="send")])
    (old,) = await finish(store, job(args={"client": "acme"}))
    report = await operator.rerun([id_text(old)])
    assert report.answers == {"unfit": 1}
    assert "takes other arguments today: customer is missing" in report.notes[0]


async def test_the_unique_key_is_taken_if_it_is_free(operator: Operator, store: Store) -> None:
    (old,) = await finish(store, job(unique=Unique("k")))
    new = await made_of(operator, old)
    assert new.unique == "k"
    report = await operator.rerun([id_text(old)])
    assert (report.answers, report.holders) == ({"unique_held": 1}, {id_text(old): id_text(new.id)})
    beside = await made_of(operator, old, unique=False)
    assert beside.unique is None


async def test_two_with_one_key_do_not_run_beside_each_other(operator: Operator, store: Store) -> None:
    (first,) = await finish(store, job(unique=Unique("k")))
    (second,) = await finish(store, job(unique=Unique("k")))
    report = await operator.rerun("queue:mail")
    assert report.answers == {"rerun": 1, "unique_held": 1}
    assert report.holders == {id_text(second): report.made[id_text(first)]}


async def test_results_of_parents_take_their_places(operator: Operator, store: Store) -> None:
    (parent,) = await finish(store, job("first"), result=b'{"n": 12345678901234567890}')
    (old,) = await finish(store, job(args={"customer": {"$job": 0}, "to": "a"}, after=(parent,)))
    new = await made_of(operator, old)
    assert new.args == b'{"customer":{"n": 12345678901234567890},"to":"a"}'
    assert new.after == ()


async def test_without_the_results_of_its_parents_a_job_is_not_run_again(operator: Operator, store: Store) -> None:
    (parent,) = await kill(store, job("first"))
    (old,) = await finish(store, job(args={"customer": {"$job": 0}}, after=(parent,), if_parent_fails="run"))
    report = await operator.rerun([id_text(old)])
    assert report.answers == {"unfit": 1}
    assert id_text(parent) in report.notes[0]


async def test_dependents_have_no_part_in_it(operator: Operator, store: Store) -> None:
    (parent,) = await put(store, job("first"))
    (child,) = await put(store, job("second", after=(parent,)))
    await operator.cancel([id_text(parent)])
    await made_of(operator, parent)
    assert (await view(store, child)).state is State.cancelled


async def test_by_query_the_finished_ones_run_again_in_their_order(operator: Operator, store: Store) -> None:
    done = await finish(store, *(job(args={"n": n}) for n in range(3)))
    (waits,) = await put(store, job(delay_ms=3_600_000))
    (dead,) = await kill(store, job())
    dry = await operator.rerun("queue:mail", dry_run=True)
    ever = (await operator.stats()).ever
    assert ever is not None
    assert (dry.matched, dry.made, ever.enqueued) == (3, {}, 5)
    report = await operator.rerun("queue:mail")
    assert [await operator.resolve(old) for old in report.made] == done
    assert list(report.made.values()) == sorted(report.made.values())
    named = await operator.rerun([id_text(waits), id_text(dead)])
    assert named.answers == {"not_finished": 1, "dead": 1}
    assert "only finished jobs are run again" in named.notes[0]
    assert "retry it" in named.notes[1]
