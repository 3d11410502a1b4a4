"""Behaviours of the dead letters: every attempt is kept, causes are grouped, and a person decides what comes next."""

from __future__ import annotations

import pytest

from limpet.core.jobs.job import Unique
from limpet.core.jobs.state import State
from limpet.stores.asking import attempts_of
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench


async def dead(bench: Bench, id: bytes, *, cause: str = "broke", message: str = "it broke") -> None:
    """Let the next job, which must be this one, die."""
    hand = bench.hand("undertaker")
    job = await hand.take()
    assert job.id == id
    await hand.bury(job, cause=cause, message=message)


@asynchronous
class TestDeadLetters:
    async def test_a_buried_job_waits_for_a_person(self, bench: Bench) -> None:
        id = await bench.add(args=b'{"n":1}')
        hand = bench.hand()
        answer = await hand.bury(await hand.take())
        assert (answer.answer, answer.state) == ("done", State.dead)
        view = await bench.view(id)
        assert (view.state, view.args, view.attempt) == (State.dead, b'{"n":1}', 1)
        assert (view.reason, view.error_type, view.cause) == ("it broke", "builtins.RuntimeError", "broke")
        assert view.finished_at_ms == bench.clock.now_ms
        assert await hand.claim() == []

    async def test_every_attempt_is_kept(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand("w7")
        started = []
        for number in range(3):
            job = await hand.take()
            started.append(bench.clock.now_ms)
            bench.clock.advance(100)
            await (hand.fail(job, kind="timeout") if number < 2 else hand.bury(job))
        rows = await attempts_of(bench.store, id)
        assert [row.number for row in rows] == [1, 2, 3]
        assert [row.outcome for row in rows] == ["retried", "retried", "dead"]
        assert [row.kind for row in rows] == ["timeout", "timeout", "permanent"]
        assert [row.started_at_ms for row in rows] == started
        assert [row.finished_at_ms for row in rows] == [at_ms + 100 for at_ms in started]
        assert {(row.session, row.type, row.message, row.traceback, row.cause) for row in rows} == {
            ("w7", "builtins.RuntimeError", "it broke", "Traceback ...", "broke")
        }

    @pytest.mark.parametrize("result", [None, b'{"sent":1}'])
    async def test_a_clean_first_success_writes_no_attempt(self, bench: Bench, result: bytes | None) -> None:
        id = await bench.add()
        hand = bench.hand()
        await hand.succeed(await hand.take(), result=result)
        assert await attempts_of(bench.store, id) == ()

    async def test_a_success_after_failures_is_an_attempt_too(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        await hand.fail(await hand.take())
        await hand.succeed(await hand.take())
        assert [row.outcome for row in await attempts_of(bench.store, id)] == ["retried", "succeeded"]

    async def test_a_job_that_never_ran_has_no_attempts(self, bench: Bench) -> None:
        assert await attempts_of(bench.store, await bench.add()) == ()
        assert await attempts_of(bench.store, bench.id()) == ()

    async def test_dead_jobs_are_grouped_by_cause_most_frequent_first(self, bench: Bench) -> None:
        for cause, count in (("dns", 2), ("tls", 3), ("bug", 1)):
            for _ in range(count):
                await dead(bench, await bench.add(task=f"task-{cause}"), cause=cause, message=f"{cause}!")
                bench.clock.advance(10)
        causes = await bench.store.causes()
        assert [(one.cause, one.count, one.task, one.queue) for one in causes] == [
            ("tls", 3, "task-tls", "default"),
            ("dns", 2, "task-dns", "default"),
            ("bug", 1, "task-bug", "default"),
        ]
        assert (causes[0].type, causes[0].message) == ("builtins.RuntimeError", "tls!")
        assert causes[0].last_at_ms - causes[0].first_at_ms == 20
        assert await bench.state(causes[0].sample) is State.dead

    async def test_causes_may_be_asked_for_one_queue_and_some(self, bench: Bench) -> None:
        for queue, cause in (("a", "one"), ("a", "two"), ("b", "three")):
            await dead(bench, await bench.add(queue=queue), cause=cause)
        assert {one.cause for one in await bench.store.causes("a")} == {"one", "two"}
        assert len(await bench.store.causes(limit=2)) == 2

    async def test_the_last_death_of_a_cause_is_told_whatever_has_left_it(self, bench: Bench) -> None:
        """A cause that was called resolved is known to be back by its last death."""
        ids = [await bench.add(task="send") for _ in range(2)]
        await dead(bench, ids[0])
        bench.clock.advance(1_000)
        await dead(bench, ids[1], message="again")
        second_ms = bench.clock.now_ms
        await bench.retry(ids[1])
        (cause,) = await bench.store.causes()
        assert (cause.count, cause.last_at_ms) == (1, second_ms)
        await bench.store.discard([ids[0]], now_ms=bench.clock.now_ms)
        assert await bench.store.causes() == []
        bench.clock.advance(1_000)
        await dead(bench, ids[1], message="and again")
        (cause,) = await bench.store.causes()
        assert (cause.count, cause.last_at_ms, cause.message) == (1, second_ms + 1_000, "and again")

    async def test_a_cause_shrinks_as_its_jobs_leave(self, bench: Bench) -> None:
        ids = [await bench.add(task=f"t{n}") for n in range(3)]
        for id in ids:
            await dead(bench, id)
        await bench.retry(ids[0])
        await bench.store.discard([ids[1]], now_ms=bench.clock.now_ms)
        assert [one.count for one in await bench.store.causes()] == [1]
        await bench.store.discard([ids[2]], now_ms=bench.clock.now_ms)
        assert await bench.store.causes() == []


@asynchronous
class TestRetryByAPerson:
    async def test_a_dead_job_comes_back_with_fresh_attempts_under_its_id(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        await hand.fail(await hand.take())
        await hand.lose(await hand.take())
        await hand.bury(await hand.take())
        assert await bench.retry(id) == ["retried"]
        view = await bench.view(id)
        assert (view.state, view.attempt, view.lost, view.finished_at_ms) == (State.ready, 0, 0, None)
        job = await hand.take()
        assert (job.id, job.attempt, job.lost) == (id, 1, 0)

    async def test_the_old_attempts_stay_on_record(self, bench: Bench) -> None:
        id = await bench.add()
        await dead(bench, id)
        await bench.retry(id)
        await dead(bench, id)
        assert [row.outcome for row in await attempts_of(bench.store, id)] == ["dead", "dead"]

    async def test_a_retry_may_edit_the_arguments(self, bench: Bench) -> None:
        id = await bench.add(args=b'{"to":"bad"}')
        await dead(bench, id)
        await bench.retry(id, args=b'{"to":"good"}')
        job = await bench.hand().take()
        assert (job.id, job.args) == (id, b'{"to":"good"}')

    async def test_a_retry_may_wait(self, bench: Bench) -> None:
        id = await bench.add()
        await dead(bench, id)
        await bench.retry(id, delay_ms=5_000)
        view = await bench.view(id)
        assert (view.state, view.due_at_ms) == (State.scheduled, bench.clock.now_ms + 5_000)
        hand = bench.hand()
        assert await hand.claim() == []
        bench.clock.advance(5_000)
        assert await hand.ids() == [id]

    async def test_a_scheduled_job_may_be_told_to_run_now(self, bench: Bench) -> None:
        id = await bench.add(delay_ms=3_600_000)
        assert await bench.retry(id) == ["retried"]
        assert await bench.hand().ids() == [id]

    async def test_what_is_not_dead_is_left_alone(self, bench: Bench) -> None:
        hand = bench.hand()
        succeeded, running = await bench.add(task="a"), await bench.add(task="b")
        await hand.succeed(await hand.take())
        await hand.take()
        ready, cancelled = await bench.add(task="c"), await bench.add(task="d")
        await bench.cancel(cancelled)
        ids = [succeeded, running, ready, cancelled]
        before = await bench.store.get(ids)
        assert await bench.retry(*ids, bench.id()) == [*["not_dead"] * 4, "gone"]
        assert await bench.store.get(ids) == before

    async def test_a_retry_that_meets_a_unique_holder_is_refused(self, bench: Bench) -> None:
        key = Unique("k")
        id = await bench.add(unique=key)
        await dead(bench, id)
        holder = await bench.add(unique=key)
        assert await bench.retry(id) == ["unique_held"]
        assert await bench.states([id, holder]) == [State.dead, State.ready]

    async def test_a_retried_job_holds_its_unique_key_again(self, bench: Bench) -> None:
        key = Unique("k")
        id = await bench.add(unique=key)
        await dead(bench, id)
        await bench.retry(id)
        assert (await bench.put(bench.job(unique=key)))[0].id == id

    async def test_two_dead_jobs_of_one_key_do_not_both_come_back(self, bench: Bench) -> None:
        key, ids = Unique("k"), []
        for _ in range(2):
            ids.append(await bench.add(unique=key))
            await dead(bench, ids[-1])
        assert await bench.retry(*ids) == ["retried", "unique_held"]

    async def test_a_stale_holder_from_before_the_retry_stays_stale(self, bench: Bench) -> None:
        await bench.add()
        hand = bench.hand()
        job = await hand.take()
        await hand.bury(job)
        await bench.retry(job.id)
        assert (await hand.succeed(job))[0].answer == "stale"
        await hand.take()
        assert (await hand.succeed(job))[0].answer == "stale"


@asynchronous
class TestDiscard:
    async def test_discard_removes_dead_jobs_for_good(self, bench: Bench) -> None:
        ids = [await bench.add(task=f"t{n}") for n in range(2)]
        for id in ids:
            await dead(bench, id)
        alive = await bench.add()
        assert await bench.store.discard([*ids, alive, bench.id()], now_ms=bench.clock.now_ms) == 2
        assert await bench.states([*ids, alive]) == [None, None, State.ready]
        counts = await bench.store.count()
        assert (counts.discarded, counts.total(State.dead)) == (2, 0)
        assert await bench.retry(ids[0]) == ["gone"]

    @pytest.mark.parametrize("again", ["at once", "after five minutes"])
    async def test_a_discarded_id_is_remembered(self, bench: Bench, again: str) -> None:
        id = await bench.add()
        await dead(bench, id)
        await bench.store.discard([id], now_ms=bench.clock.now_ms)
        if again != "at once":
            bench.clock.advance(300_000)
        assert (await bench.put(bench.job(id=id)))[0].existing
        assert (await bench.store.count()).enqueued == 1

    async def test_those_who_wait_for_a_discarded_parent_are_cancelled(self, bench: Bench) -> None:
        parent = await bench.add(task="parent")
        child = await bench.add(after=(parent,), if_parent_fails="wait")
        grandchild = await bench.add(after=(child,))
        await dead(bench, parent)
        assert await bench.state(child) is State.blocked
        await bench.store.discard([parent], now_ms=bench.clock.now_ms)
        assert await bench.states([child, grandchild]) == [State.cancelled] * 2
        assert "parent" in (await bench.view(child)).reason

    async def test_a_discarded_parents_dependent_that_runs_anyway_goes_on_waiting_for_the_others(
        self, bench: Bench
    ) -> None:
        failing, other = await bench.add(task="failing", priority=0), await bench.add(task="other")
        child = await bench.add(after=(failing, other), if_parent_fails="run")
        await dead(bench, failing)
        await bench.store.discard([failing], now_ms=bench.clock.now_ms)
        assert await bench.hand().drain(1) == [other, child]
