"""What live workers declare is seen, and can be changed, before the first job."""

from __future__ import annotations

import pytest

from limpet.core.errors import InvalidOption, QueueDraining, QueueFull
from limpet.core.gate import BreakerRule, GateRule
from limpet.core.jobs.lease import Beat, Serves
from limpet.core.limits.limit import Breaker, Limit
from limpet.core.tasks.declaration import Declaration
from limpet.core.tasks.queue import Queue
from limpet.core.tasks.task import TaskSpec
from limpet.ops import LimitChange, Operator
from limpet.ops.names import UnknownName
from limpet.stores.base import Store
from tests.ops.making import claim, job, put


def spec() -> TaskSpec:
    return TaskSpec.declare(
        lambda customer: None,
        name="send",
        queue=Queue("mail", concurrency=9, depth=2),
        limits=[Limit("smtp", rate="10/m", burst=3, concurrency=4), Limit("customer:{customer}", concurrency=1)],
        breaker=Breaker("api", failures=2),
    )


async def live(store: Store) -> None:
    """A worker that has published its task, and serves it."""
    await store.put_control(Declaration.of(spec()).control())
    await store.beat(Beat("w1", 15_000, Serves(queues=("mail", "urgent"), tasks=("send",))))


async def test_limits_breakers_and_queues_are_listed_before_their_first_job(operator: Operator, store: Store) -> None:
    await live(store)
    assert {gate.key: gate.rule.concurrency for gate in await operator.gates.limits()} == {
        "limit:smtp": 4,
        "queue:mail": 9,
    }
    assert [gate.key for gate in await operator.gates.limits("smtp")] == ["limit:smtp"]
    assert [gate.key for gate in await operator.gates.limits("queue:")] == ["queue:mail"]
    assert [(gate.key, gate.rule.breaker) for gate in (await operator.gates.breakers()).breakers] == [
        ("breaker:api", BreakerRule(failures=2))
    ]
    queues = {one.queue: one for one in await operator.queues()}
    assert sorted(queues) == ["mail", "urgent"]
    assert queues["mail"].depth == 2
    await store.leave("w1")
    listed = (await operator.gates.limits(), (await operator.gates.breakers()).breakers, await operator.queues())
    assert listed == ([], (), [])


async def test_what_is_stored_is_listed_as_it_is(operator: Operator, store: Store) -> None:
    await live(store)
    await operator.gates.set_limit("smtp", LimitChange(concurrency=1))
    (gate,) = await operator.gates.limits("smtp")
    assert (gate.rule.concurrency, gate.declared) == (1, False)
    assert (gate.rule.interval_us, gate.rule.burst) == (6_000_000, 3)  # as declared: nobody has named them


async def test_a_breaker_is_tripped_before_its_first_job(operator: Operator, store: Store) -> None:
    with pytest.raises(UnknownName):
        await operator.gates.trip("api")
    await live(store)
    gate = await operator.gates.trip("api", for_ms=60_000)
    assert (gate.breaker_open, gate.rule.breaker, gate.declared) == (True, BreakerRule(failures=2), True)
    await put(store, job(breaker="api"), rules=(GateRule("breaker:api", breaker=BreakerRule(failures=2)),))
    assert await claim(store) == []
    await operator.reset("api")
    assert len(await claim(store)) == 1


async def test_a_queue_is_paused_and_bounded_before_its_first_job(operator: Operator, store: Store) -> None:
    await live(store)
    await operator.pause("queue:urgent")
    (gate,) = await operator.gates.set_limit("queue:mail", LimitChange(depth=1))
    assert (gate.rule.concurrency, gate.rule.depth) == (9, 1)
    await put(store, job())
    with pytest.raises(QueueFull):
        await put(store, job())
    (gate,) = await operator.gates.clear_limit("queue:mail")
    assert gate.rule == GateRule("queue:mail", concurrency=9, depth=2)


async def test_only_queues_have_a_depth(operator: Operator) -> None:
    for key in ("smtp", "task:send"):
        with pytest.raises(InvalidOption, match="only queues have a depth"):
            await operator.gates.set_limit(key, LimitChange(tenant_depth=5))
    with pytest.raises(InvalidOption, match="the number must be an integer from 1 to"):
        LimitChange(depth=0)


@pytest.mark.parametrize(("gate", "fix"), [("task:send", "--task send"), ("all", "--all"), ("queue:mail", "mail")])
async def test_a_task_or_everything_is_drained_like_a_queue(
    operator: Operator, store: Store, gate: str, fix: str
) -> None:
    await put(store, job())
    await operator.drain(gate, reason="moving")
    with pytest.raises(QueueDraining) as refused:
        await put(store, job())
    assert refused.value.fix == f"limpet resume {fix}"
    if gate == "task:send":
        await put(store, job(task="other"))
    assert "send" in {claimed.lane.task for claimed in await claim(store)}
    await operator.resume(gate)
    await put(store, job())
    with pytest.raises(InvalidOption, match="cannot be drained"):
        await operator.drain("limit:smtp")


async def keyed(store: Store) -> None:
    """A worker that serves a task with a breaker for each customer."""
    hook = TaskSpec.declare(lambda customer: None, name="hook", breaker=Breaker("webhook:{customer}", failures=2))
    await store.put_control(Declaration.of(hook).control())
    await store.beat(Beat("w1", 15_000, Serves(queues=("mail",), tasks=("hook",))))


async def test_a_breaker_by_key_is_tripped_and_reset_though_it_has_no_record(operator: Operator, store: Store) -> None:
    await keyed(store)
    assert [gate.key for gate in (await operator.gates.breakers()).breakers] == ["breaker:hook"]
    gate = await operator.gates.trip("webhook:acme", for_ms=60_000)
    assert (gate.breaker_open, gate.rule.breaker, gate.declared) == (True, BreakerRule(failures=2), True)
    assert not (await operator.gates.reset("webhook:zen")).breaker_open
    with pytest.raises(UnknownName):
        await operator.gates.trip("webhok:acme")
    await operator.gates.trip("hook")
    page = await operator.gates.breakers()
    assert [gate.key for gate in page.breakers] == ["breaker:hook", "breaker:webhook:acme", "breaker:webhook:zen"]


async def test_declared_breakers_have_their_place_on_the_pages(operator: Operator, store: Store) -> None:
    await live(store)
    await keyed(store)
    await store.beat(Beat("w2", 15_000, Serves(queues=("mail",), tasks=("send",))))
    await operator.gates.trip("webhook:acme")
    await operator.gates.trip("zoo", new=True)
    await operator.reset("zoo")
    found, cursor = list[str](), None
    while True:
        page = await operator.gates.breakers(limit=1, cursor=cursor)
        found += [gate.key.removeprefix("breaker:") for gate in page.breakers]
        if (cursor := page.cursor) is None:
            break
    assert found == ["webhook:acme", "api", "hook", "zoo"]
    assert [gate.key for gate in (await operator.gates.breakers("w")).breakers] == ["breaker:webhook:acme"]
    with pytest.raises(InvalidOption, match="the cursor 'x' is not of a list of breakers"):
        await operator.gates.breakers(cursor="x")
    with pytest.raises(InvalidOption, match="limit must be an integer from 1 to 10,000, got 0"):
        await operator.gates.breakers(limit=0)
