"""Doctor: what deserves a person's attention, found on a real store."""

from __future__ import annotations

import pytest

from limpet.core.gate import BreakerRule, GateChange, GateRule
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Policy
from limpet.core.jobs.lease import Beat, Serves
from limpet.core.jobs.view import Finding
from limpet.core.limits.limit import DeclaredLimit
from limpet.core.tasks.declaration import Declaration
from limpet.ops import Operator
from limpet.ops.doctor import doctor
from limpet.stores.base import Store
from tests.ops.making import claim, job, kill, put


async def found(operator: Operator) -> dict[str, Finding]:
    return {each.code: each for each in await doctor(operator.store, now_ms=operator.now_ms()) if each.level != "ok"}


async def test_an_empty_store_has_nothing_to_complain_about(operator: Operator) -> None:
    findings = await operator.doctor()
    assert {finding.level for finding in findings} <= {"ok", "warning"}
    assert "no_workers" in {finding.code for finding in findings}
    assert all(finding.text for finding in findings)


async def test_work_without_workers_is_an_error(operator: Operator, store: Store) -> None:
    await put(store, job())
    finding = (await found(operator))["no_workers"]
    assert finding.level == "error"
    assert "limpet worker" in finding.fix


async def test_tasks_nobody_knows_and_queues_nobody_serves(operator: Operator, store: Store) -> None:
    await put(store, job("new_task", queue="mail"), job("send", queue="mail"))
    await store.beat(Beat("w1", 15_000, Serves(queues=("pdf",), tasks=("send",))))
    findings = await found(operator)
    assert "task new_task waits in queue mail, and no live worker knows it" in findings["unknown_task"].text
    assert "--queues mail" in findings["unserved_queue"].fix
    await store.beat(Beat("w2", 15_000, Serves()))
    assert not {"unknown_task", "unserved_queue"} & (await found(operator)).keys()


async def test_running_jobs_of_dead_workers_are_told(store: Store) -> None:
    await put(store, job())
    now_ms = (await store.get([(await claim(store))[0].id]))[0]
    assert now_ms is not None
    later = Operator(store, "ada", clock=lambda: (now_ms.claimed_at_ms or 0) + 3_600_000)
    assert "stuck_leases" in await found(later)
    await store.beat(Beat("w1", 1, Serves()))
    while await store.sessions():
        pass
    assert "orphaned_leases" in await found(later)


async def test_lost_places_are_told(operator: Operator, store: Store) -> None:
    await store.beat(Beat("w1", 15_000, Serves(), b'{"stuck":2}'))
    await store.beat(Beat("w2", 15_000, Serves(), b'{"stuck":0}'))
    await store.beat(Beat("agent", 15_000, Serves(), b"[]"))
    finding = (await found(operator))["lost_places"]
    assert finding.level == "warning"
    assert "2 slots of worker w1 " in finding.text


async def test_thread_tasks_under_a_limit_of_one_are_named(operator: Operator, store: Store) -> None:
    one = (DeclaredLimit("door", concurrency=1),)
    many = (DeclaredLimit("smtp", concurrency=5),)
    tasks = [
        Declaration("alone", executor="thread", limits=one),
        Declaration("stops", executor="thread", on_lost_lease="stop"),
        Declaration("queued", executor="thread", queue="narrow"),
        Declaration("set_by_hand", executor="thread", limits=many),
        Declaration("goes_on", executor="thread", limits=one, on_lost_lease="go_on"),
        Declaration("in_loop", limits=one),
        Declaration("in_process", executor="process", limits=one),
        Declaration("plain", executor="thread"),
    ]
    for task in tasks:
        await store.put_control(task.control())
    for key in ("queue:narrow", "limit:smtp"):
        await store.change_gates([GateChange(key, rule=GateRule(key, concurrency=1))])
    finding = (await found(operator))["review_threads"]
    assert finding.text.endswith(": alone, queued, set_by_hand, stops")


async def test_pauses_drains_open_breakers_and_dead_letters(operator: Operator, store: Store) -> None:
    await kill(store, job(), job())
    await put(store, job(queue="pdf", breaker="api"), rules=(GateRule("breaker:api", breaker=BreakerRule()),))
    await operator.pause("queue:mail", reason="deployment")
    await operator.drain("queue:pdf")
    await operator.trip("api")
    findings = await found(operator)
    assert "paused by ada" in findings["paused"].text
    assert "deployment" in findings["paused"].text
    assert "pdf" in findings["draining"].text
    assert "until it is reset" in findings["breaker_open"].text
    assert findings["breaker_open"].fix.startswith("read the errors: limpet jobs 'task:api error:*'")
    assert "2 dead jobs" in findings["dead_letters"].text
    await store.change_gates([GateChange("limit:openai", trip_ms=600_000)])
    spent = (await found(operator))["spent"]
    assert spent.text.startswith("no money or quota is left: limit openai is shut until 20")
    assert "limpet breakers reset limit:openai" in spent.fix


async def test_a_budget_that_a_job_can_never_fit_is_told_with_what_to_do(operator: Operator, store: Store) -> None:
    rule = GateRule("limit:usd/month:llm:acme", unit="usd", cap=1_000_000, period="month")
    dear = job(keys=("usd/month:llm:acme",), costs={"usd": 1_500_000})
    small = job("other", keys=("usd/month:llm:acme",), costs={"usd": 100_000})
    await put(store, dear, small, rules=(rule,))
    assert await claim(store) == []
    finding = (await found(operator))["never_fits"]
    assert finding.level == "error"
    assert finding.text == "the budget 'llm:acme' is $1 a month, and the first job in line needs $1.50: it never fits"
    assert "limpet limits set llm:acme --budget usd=1.5/month" in finding.fix
    assert "cancel the job, then: limpet breakers reset limit:usd/month:llm:acme" in finding.fix
    assert (await operator.explain(id_text(dear.id))).reasons[0].code == "never_fits"
    await store.cancel([dear.id], "too dear")
    await operator.reset("limit:usd/month:llm:acme")
    assert "never_fits" not in await found(operator)
    assert [each.id for each in await claim(store)] == [small.id]


async def test_old_jobs_are_told(store: Store) -> None:
    (id,) = await put(store, job())
    (view,) = await store.get([id])
    assert view is not None
    at_ms = view.due_at_ms
    assert "old_jobs" in await found(Operator(store, "ada", clock=lambda: at_ms + 2 * 3_600_000))


async def test_the_review_checklist_reads_what_tasks_declare(operator: Operator, store: Store) -> None:
    for task in (
        Declaration("hangs", policy=Policy(timeout_ms=None, hard_timeout_ms=None)),
        Declaration("stubborn", policy=Policy(attempts=1000)),
        Declaration("lockstep", policy=Policy(jitter="none")),
        Declaration("good", unique=True, limits=(DeclaredLimit("openai", "60/m", learns=True),)),
        Declaration("stray", limits=(DeclaredLimit("openai", "90/m", learns=True),)),
    ):
        await store.put_control(task.control())
    findings = await found(operator)
    assert findings["review_timeout"].text.endswith(": hangs")
    assert findings["review_retries"].text.endswith(": stubborn")
    assert findings["review_jitter"].text.endswith(": lockstep")
    assert "tasks 'good' and 'stray' share the limit 'openai'" in findings["review_limits"].text
    notes = {finding.code: finding for finding in await operator.doctor()}
    assert "good" not in notes["review_idempotency"].text
    assert notes["review_sdk_retries"].text.endswith(": good, stray")
    assert "max_retries=0" in (notes["review_sdk_retries"].fix or "")


async def test_the_counters_are_checked(operator: Operator, store: Store) -> None:
    await kill(store, job())
    await put(store, job(), job())
    codes = {finding.code: finding.level for finding in await operator.doctor()}
    assert codes["conservation"] == "ok"


async def test_a_worker_whose_loop_does_not_turn_is_told(operator: Operator, store: Store) -> None:
    await store.beat(Beat("w1", 15_000, Serves(), b'{"silent_ms": 20000}'))
    await store.beat(Beat("w2", 15_000, Serves(), b"not even JSON"))
    finding = (await found(operator))["silent_worker"]
    assert finding.level == "warning"
    assert finding.text == "the loop of worker w1 has not turned for 20s"
    assert [worker.silent_s for worker in await operator.workers()] == [20, None]


async def test_a_large_store_is_not_read_whole(
    operator: Operator, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(store, job(), job(), job())
    monkeypatch.setattr("limpet.ops.repair.SMALL", 2)
    (finding,) = [each for each in await operator.doctor() if each.code == "books"]
    assert finding.level == "ok"
    assert finding.text == "the store holds 3 jobs, more than 2: its counters were not compared with its records"
    assert finding.fix == "limpet doctor --repair --dry-run compares them, whatever the size"
