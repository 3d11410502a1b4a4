"""The operator API on a real store: asking, bulk actions, gates, and the audit log behind them."""

from __future__ import annotations

import msgspec
import pytest

from limpet.core.errors import AmbiguousId, InvalidOption, JobNotFound, UnknownQueue
from limpet.core.gate import BreakerRule, GateRule
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Beat, Serves
from limpet.core.jobs.state import State
from limpet.core.limits.limit import DeclaredLimit
from limpet.core.records.limit import BreakerRecord
from limpet.core.tasks.declaration import Declaration
from limpet.ops import InvalidQuery, LimitChange, Operator
from limpet.ops.names import UnknownName
from limpet.ops.select import PAGE
from limpet.stores.base import Store
from tests.ops.making import claim, fail_once, job, kill, put


async def state_of(store: Store, id: bytes) -> State | None:
    (view,) = await store.get([id])
    return None if view is None else view.state


async def audit_kinds(operator: Operator) -> list[str]:
    return [entry.kind for entry in await operator.audit()]


# -- asking


async def test_a_page_of_jobs_by_query(operator: Operator, store: Store) -> None:
    await put(store, job("send", args={"user": {"id": 42}}), job("send", args={"user": {"id": 7}}), job("noop"))
    page = await operator.jobs("task:send args.user.id:42 -task:noop")
    assert [job.args for job in page.jobs] == [{"user": {"id": 42}}]


async def test_pages_follow_the_cursor_to_the_end(operator: Operator, store: Store) -> None:
    ids = await put(store, *(job() for _ in range(5)))
    first = await operator.jobs("queue:mail", limit=3)
    second = await operator.jobs("queue:mail", limit=3, cursor=first.cursor)
    assert sorted(job.id for job in (*first.jobs, *second.jobs)) == sorted(map(id_text, ids))
    assert second.cursor is None


async def test_no_action_takes_a_word_for_a_query(operator: Operator, store: Store) -> None:
    """What was meant as an id must not be searched for in the tasks and errors of all jobs."""
    await put(store, job("beef"))
    for words in ("beef", "beef -pork", '"beef"'):
        with pytest.raises(InvalidQuery, match="add a condition"):
            await operator.cancel(words)
    assert (await operator.cancel("beef state:ready")).done == 1


async def test_a_job_is_found_by_its_whole_id_or_its_unique_end(operator: Operator, store: Store) -> None:
    (id,) = await put(store, job())
    text = id_text(id)
    assert await operator.resolve(text) == id
    assert await operator.resolve(text.upper()) == id
    assert await operator.resolve(text[-8:]) == id
    assert (await operator.job(text[-8:])).id == text


async def test_an_end_that_fits_two_jobs_is_refused_with_both(operator: Operator, store: Store) -> None:
    one = job()
    two = msgspec.structs.replace(job(), id=bytes([one.id[0] ^ 1]) + one.id[1:])
    await put(store, one, two)
    with pytest.raises(AmbiguousId, match="more than one"):
        await operator.resolve(id_text(one.id)[-12:])


async def test_what_is_no_id_and_what_is_not_there(operator: Operator, store: Store) -> None:
    await put(store, job())
    with pytest.raises(JobNotFound, match="not a job id"):
        await operator.resolve("hello")
    with pytest.raises(JobNotFound, match="last 4"):
        await operator.resolve("abc")
    with pytest.raises(JobNotFound):
        await operator.resolve("00000000ffff")
    with pytest.raises(JobNotFound):
        await operator.job("0190a5b2-7c3d-7e8f-9a0b-1c2d3e4f5a6b")


async def test_detail_holds_every_attempt(operator: Operator, store: Store) -> None:
    (id,) = await put(store, job())
    (claimed,) = await claim(store)
    await fail_once(store, claimed)
    detail = await operator.job(id)
    assert [attempt.outcome for attempt in detail.history] == ["retried"]
    assert detail.id == id_text(id)


# -- explain, from facts that a real store gives


async def codes(operator: Operator, id: bytes) -> list[str]:
    return [reason.code for reason in (await operator.explain(id)).reasons]


async def test_explain_follows_a_job_through_its_life(operator: Operator, store: Store) -> None:
    parent, child = job("make"), job("send", needs=("eu",))
    child = msgspec.structs.replace(child, after=(parent.id,))
    await put(store, parent, child)
    assert await codes(operator, child.id) == ["parent", "no_workers"]
    assert f"waits for parent {id_text(parent.id)} (ready)" in str(await operator.explain(child.id))
    assert "no_workers" in await codes(operator, parent.id)

    (claimed,) = await claim(store, serves=Serves(tasks=("make", "send")))
    assert await codes(operator, parent.id) == ["running"]
    await fail_once(store, claimed)
    assert await codes(operator, parent.id) == ["retry"]
    assert "TimeoutError: no answer" in str(await operator.explain(parent.id))

    await operator.cancel([id_text(parent.id)], reason="not needed")
    assert await codes(operator, parent.id) == ["cancelled"]
    assert await codes(operator, child.id) == ["cancelled"]


async def test_explain_names_the_missing_worker(operator: Operator, store: Store) -> None:
    (id,) = await put(store, job("send", queue="mail", needs=("eu",)))
    await store.beat(Beat("w1", 15_000, Serves(queues=("pdf",), tasks=("send",))))
    assert "unserved_queue" in await codes(operator, id)
    await store.beat(Beat("w1", 15_000, Serves(queues=("mail",), tasks=("send",))))
    assert "capability" in await codes(operator, id)
    await store.beat(Beat("w1", 15_000, Serves(capabilities=("eu",))))
    assert await codes(operator, id) == ["next"]


async def test_explain_names_pauses_limits_and_breakers(operator: Operator, store: Store) -> None:
    rules = (
        GateRule("limit:smtp", concurrency=1),
        GateRule("breaker:api", breaker=BreakerRule()),
        GateRule("limit:slow", interval_us=60_000_000),
    )
    slots = [job("slots", limits=("smtp",)) for _ in range(2)]
    rated = [job("rated", limits=("slow",)) for _ in range(2)]
    await put(store, *slots, *rated, rules=rules)
    assert len(await claim(store)) == 2
    assert "1 of 1 slots taken" in str(await operator.explain(slots[1].id))
    assert "limit slow has no room; it frees in" in str(await operator.explain(rated[1].id))

    broken = job("broken", breaker="api")
    await put(store, broken, rules=rules)
    await operator.gates.trip("api", reason="provider is down")
    assert "open until it is reset" in str(await operator.explain(broken.id))

    await operator.pause("queue:mail", reason="deployment")
    await operator.pause("task:broken")
    await operator.pause("all")
    words = str(await operator.explain(broken.id))
    assert "queue mail is paused by ada" in words
    assert "because: deployment" in words
    assert {"queue_paused", "task_paused", "all_paused", "breaker_open"} <= set(await codes(operator, broken.id))


# -- bulk actions


async def test_a_dry_run_counts_shows_three_and_changes_nothing(operator: Operator, store: Store) -> None:
    ids = await put(store, *(job() for _ in range(5)), job("other"))
    report = await operator.cancel("task:send", dry_run=True)
    assert (report.matched, report.done, len(report.samples)) == (5, 0, 3)
    assert {job.task for job in report.samples} == {"send"}
    assert await state_of(store, ids[0]) is State.ready
    assert await audit_kinds(operator) == []


async def test_cancel_acts_on_the_query_in_chunks_with_progress(operator: Operator, store: Store) -> None:
    await put(store, *(job() for _ in range(PAGE + 20)), job("other"))
    seen: list[tuple[int, int]] = []
    report = await operator.cancel("task:send", reason="wrong list", progress=lambda *done: seen.append(done))
    assert report.done == report.matched == PAGE + 20
    assert seen == [(PAGE, PAGE + 20), (PAGE + 20, PAGE + 20)]
    assert (await store.count()).total(State.ready) == 1
    entries = await operator.audit(limit=PAGE + 100)
    assert len(entries) == PAGE + 20
    assert await operator.audit(limit=3) == entries[-3:]
    assert await operator.audit(0, limit=3) == entries[:3]
    assert {(entry.actor, entry.kind, entry.reason) for entry in entries} == {("ada", "job.cancel", "wrong list")}


async def test_cancel_asks_running_jobs_and_leaves_finished_ones(operator: Operator, store: Store) -> None:
    (dead,) = await kill(store, job())
    (running,) = await put(store, job())
    await claim(store)
    report = await operator.cancel([id_text(running), id_text(dead)], reason="stop")
    assert report.answers == {"cancelling": 1, "finished": 1}
    assert report.done == 1
    with pytest.raises(InvalidQuery, match="leave the state out"):
        await operator.cancel("state:dead")


async def test_retry_means_dead_jobs_unless_scheduled_ones_are_named(operator: Operator, store: Store) -> None:
    (dead,) = await kill(store, job())
    (later,) = await put(store, job(delay_ms=3_600_000))
    report = await operator.retry("queue:mail", reason="fixed")
    assert (report.matched, report.answers) == (1, {"retried": 1})
    assert await state_of(store, dead) is State.ready
    assert await state_of(store, later) is State.scheduled
    assert (await operator.retry("state:scheduled")).done == 1
    assert await state_of(store, later) is State.ready


async def test_retry_with_a_delay_and_edited_arguments(operator: Operator, store: Store) -> None:
    one, two = await kill(store, job(args={"to": "a", "n": 1}), job(args={"to": "b", "n": 2}))
    await operator.retry([id_text(one)], args={"to": "fixed"}, delay_ms=60_000)
    await operator.retry([id_text(two)], patch={"n": 3})
    first, second = await store.get([one, two])
    assert first is not None
    assert second is not None
    assert (first.state, msgspec.json.decode(first.args)) == (State.scheduled, {"to": "fixed"})
    assert (second.state, msgspec.json.decode(second.args)) == (State.ready, {"to": "b", "n": 3})
    with pytest.raises(InvalidOption, match="exclude each other"):
        await operator.retry([id_text(one)], args={}, patch={})


async def test_discard_removes_dead_jobs_and_only_those(operator: Operator, store: Store) -> None:
    (dead,) = await kill(store, job())
    (ready,) = await put(store, job())
    report = await operator.discard([id_text(dead), id_text(ready)], reason="spam")
    assert report.answers == {"discarded": 1, "not_dead": 1}
    assert await state_of(store, dead) is None
    assert await state_of(store, ready) is State.ready
    (entry,) = await operator.audit()
    assert (entry.kind, entry.job, entry.reason) == ("job.discard", id_text(dead), "spam")


async def test_a_tag_in_a_bulk_query_is_a_whole_word(operator: Operator, store: Store) -> None:
    await put(store, job(tags=("eu",)), job(tags=("europe",)), job(tags=("us",)))
    assert (await operator.cancel("tag:eu", dry_run=True)).matched == 1
    assert (await operator.cancel("tag:eu*", dry_run=True)).matched == 2


async def test_ids_and_conditions_do_not_mix(operator: Operator, store: Store) -> None:
    (id,) = await put(store, job())
    with pytest.raises(InvalidQuery, match="not both"):
        await operator.cancel([id_text(id), "task:send"])


# -- gates


async def test_a_pause_stops_claims_until_it_is_lifted(operator: Operator, store: Store) -> None:
    await put(store, job())
    await operator.pause("queue:mail", reason="deployment")
    assert await claim(store) == []
    await operator.resume("queue:mail")
    assert len(await claim(store)) == 1
    entries = await operator.audit()
    assert [entry.kind for entry in entries] == ["queue.pause", "queue.resume"]
    assert entries[0].data == {"key": "queue:mail"}


async def test_a_misspelt_name_is_refused_with_the_nearest(operator: Operator, store: Store) -> None:
    await put(store, job())
    with pytest.raises(UnknownQueue, match="did you mean 'mail'"):
        await operator.pause("queue:mial")
    with pytest.raises(UnknownName, match="did you mean 'send'"):
        await operator.pause("task:sned")
    with pytest.raises(UnknownName):
        await operator.reset("nothing")
    with pytest.raises(InvalidOption, match="names nothing that can be paused"):
        await operator.pause("mail")
    await operator.pause("queue:future", new=True)
    assert await audit_kinds(operator) == ["queue.pause"]


async def test_a_limit_set_by_hand_wins_until_it_is_cleared(operator: Operator, store: Store) -> None:
    rule = GateRule("limit:smtp", concurrency=1)
    await put(store, *(job(limits=("smtp",)) for _ in range(5)), rules=(rule,))
    await operator.gates.set_limit("smtp", LimitChange(concurrency=3), reason="more capacity")
    await put(store, job(limits=("smtp",)), rules=(rule,))
    (gate,) = await operator.gates.limits()
    assert (gate.rule.concurrency, gate.declared) == (3, False)
    assert len(await claim(store)) == 3

    await operator.gates.clear_limit("smtp")
    await put(store, job(limits=("smtp",)), rules=(rule,))
    (gate,) = await operator.gates.limits()
    assert (gate.rule.concurrency, gate.declared) == (1, True)
    assert await audit_kinds(operator) == ["limit.set", "limit.clear"]


async def test_clearing_a_limit_brings_the_published_declaration_back_at_once(operator: Operator, store: Store) -> None:
    rule = GateRule("limit:smtp", concurrency=2)
    await store.put_control(Declaration("send", limits=(DeclaredLimit("smtp", concurrency=2),)).control())
    await put(store, job(limits=("smtp",)), rules=(rule,))
    await operator.gates.set_limit("smtp", LimitChange(concurrency=50))
    (gate,) = await operator.gates.clear_limit("smtp")
    assert gate.rule == rule


async def test_a_queue_may_have_a_ceiling_and_a_rate(operator: Operator, store: Store) -> None:
    await put(store, *(job() for _ in range(5)))
    (gate,) = await operator.gates.set_limit("queue:mail", LimitChange(concurrency=2, rate="10/m", burst=3))
    assert (gate.key, gate.rule.concurrency, gate.rule.burst, gate.rule.interval_us) == ("queue:mail", 2, 3, 6_000_000)
    assert len(await claim(store)) == 2
    with pytest.raises(InvalidOption, match="rate or a concurrency"):
        LimitChange()


async def test_a_breaker_is_tripped_and_reset_by_hand(operator: Operator, store: Store) -> None:
    await put(store, job(breaker="api"), rules=(GateRule("breaker:api", breaker=BreakerRule()),))
    await operator.gates.trip("api", for_ms=60_000)
    assert await claim(store) == []
    (gate,) = (await operator.gates.breakers()).breakers
    assert gate.breaker_open
    assert BreakerRecord.of(gate, operator.now_ms()).to_dict()["by_hand"]
    await operator.reset("api")
    assert len(await claim(store)) == 1


async def test_a_drained_queue_refuses_new_jobs(operator: Operator, store: Store) -> None:
    from limpet.core.errors import QueueDraining

    await put(store, job())
    await operator.drain("queue:mail", reason="moving")
    with pytest.raises(QueueDraining):
        await put(store, job())
    await operator.resume("queue:mail")
    await put(store, job())
