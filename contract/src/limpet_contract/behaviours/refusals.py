"""Behaviours of a job that a worker refuses: it goes back untouched, into the lane of workers that it may fit."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from limpet.core.endings.transition import Bury, Refuse
from limpet.core.errors import QueueFull
from limpet.core.gate import GateChange, GateRule
from limpet.core.jobs.lease import Claimed
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Retention
from limpet_contract.behaviours.housekeeping import prune
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench
from limpet_contract.hand import failure

NEW = ("code:new",)


def refuse(job: Claimed, needs: tuple[str, ...] = NEW) -> Refuse:
    return Refuse(job.id, job.token, failure("permanent", "2 is no text"), "1a2b", replace(job.lane, needs=needs))


async def buried_elsewhere(bench: Bench, beside: int = 0) -> Claimed:
    """A job that has died, in a lane that was not there before; `beside` others have succeeded."""
    await bench.add_many(1 + beside, needs=NEW)
    new = bench.hand("new", capabilities=NEW)
    job, *others = await new.claim(1 + beside)
    await new.settle(Bury(job.id, job.token, failure("permanent"), replace(job.lane, needs=())))
    await new.succeed(*others)
    return job


@asynchronous
class TestRefused:
    async def test_only_a_worker_with_what_it_needs_now_gets_it(self, bench: Bench) -> None:
        id = await bench.add()
        old, new = bench.hand("old"), bench.hand("new", capabilities=NEW)
        job = await old.take()
        (settled,) = await old.settle(refuse(job))
        assert (settled.answer, settled.state) == ("done", State.ready)
        assert await old.claim() == []
        again = await new.take()
        assert (again.id, again.lane.needs, again.attempt, again.lost) == (id, NEW, 1, 0)
        assert again.token > job.token
        await new.succeed(again)
        assert await bench.state(id) is State.succeeded

    async def test_it_is_told_who_refused_it_and_why(self, bench: Bench) -> None:
        id = await bench.add()
        old = bench.hand("old")
        await old.settle(refuse(await old.take()))
        view = await bench.view(id)
        assert (view.reason, view.attempt, view.lane.needs) == ("2 is no text", 0, NEW)
        seen = await bench.store.inspect(id)
        assert seen is not None
        (attempt,) = seen.attempts
        assert (attempt.number, attempt.outcome, attempt.session) == (1, "refused", "old")
        assert (attempt.message, attempt.cause) == ("2 is no text", "1a2b")
        assert (seen.able, seen.able_without_needs) == (0, 1)

    async def test_it_waits_in_its_new_lane_in_order(self, bench: Bench) -> None:
        first, second = await bench.add_many(2)
        third = await bench.add(needs=NEW)
        old, new = bench.hand("old"), bench.hand("new", capabilities=NEW)
        jobs = await old.claim(2)
        await old.settle(refuse(jobs[1]))
        await old.settle(refuse(jobs[0]))
        assert await new.ids(3) == [first, second, third]

    async def test_a_worker_with_the_new_need_is_woken(self, bench: Bench) -> None:
        await bench.add()
        old, new = bench.hand("old"), bench.hand("new", capabilities=NEW, queues=("default",), tasks=("work",))
        job = await old.take()
        assert await new.claim() == []
        await old.settle(refuse(job))
        assert (await new.wait(5_000)).work
        assert await new.ids() == [job.id]

    async def test_a_stale_token_moves_nothing(self, bench: Bench) -> None:
        id = await bench.add()
        old, other = bench.hand("old"), bench.hand("other")
        job = await old.take()
        await old.release(job)
        running = await other.take()
        (settled,) = await old.settle(refuse(job))
        assert settled.answer == "stale"
        assert (await bench.view(id)).lane.needs == ()
        await other.succeed(running)

    async def test_the_same_call_again_changes_nothing(self, bench: Bench) -> None:
        await bench.add()
        old, new = bench.hand("old"), bench.hand("new", capabilities=NEW)
        ended = refuse(await old.take())
        first = await old.settle(ended, seq=1_000_000)
        job = await new.take()
        assert await old.settle(ended, seq=1_000_000) == first
        await new.succeed(job)

    async def test_all_that_it_took_comes_back(self, bench: Bench) -> None:
        rate = GateRule("limit:api", concurrency=2, interval_us=60_000_000, burst=1)
        budget = GateRule("limit:usd/day:api", cap=10, period="day", unit="usd")
        await bench.put(
            bench.job(limits=("api", "usd/day:api"), costs={"usd": 10}, expires_ms=600_000), rules=[rate, budget]
        )
        old, new = bench.hand("old"), bench.hand("new", capabilities=NEW)
        await old.settle(refuse(await old.take()))
        api, usd = await bench.store.gates(keys=["limit:api", "limit:usd/day:api"])
        assert (api.used, usd.spent) == (0, 0)
        job = await new.take()
        assert (await bench.view(job.id)).expires_at_ms is not None
        await new.succeed(job)

    async def test_one_that_was_asked_to_stop_is_cancelled(self, bench: Bench) -> None:
        id = await bench.add()
        old = bench.hand("old")
        job = await old.take()
        await bench.cancel(id)
        (settled,) = await old.settle(refuse(job))
        assert settled.state is State.cancelled

    async def test_tenants_keys_and_counters_stay(self, bench: Bench) -> None:
        id = await bench.add(tenant="acme", keys=("customer:1",), priority=3)
        old, new = bench.hand("old"), bench.hand("new", capabilities=NEW)
        await old.settle(refuse(await old.take()))
        counts = await bench.store.count()
        assert counts.now == {("default", "work", State.ready): 1}
        assert (counts.enqueued, counts.discarded) == (1, 0)
        view = await bench.view(id)
        assert (view.lane.tenant, view.lane.keys, view.lane.priority) == ("acme", ("customer:1",), 3)
        assert await new.drain() == [id]
        assert (await bench.store.count()).now == {("default", "work", State.succeeded): 1}

    async def test_a_dead_job_is_in_the_lane_that_it_was_given(self, bench: Bench) -> None:
        id = await bench.add(needs=NEW)
        new = bench.hand("new", capabilities=NEW)
        job = await new.take()
        await new.settle(Bury(job.id, job.token, failure("permanent"), replace(job.lane, needs=())))
        assert await bench.state(id) is State.dead
        assert [cause.count for cause in await bench.store.causes("default")] == [1]
        assert (await bench.store.causes("default"))[0].task == "work"
        assert await bench.retry(id) == ["retried"]
        assert await bench.hand("old").ids() == [id]

    @pytest.mark.parametrize("how", ["retry", "discard"])
    async def test_a_job_leaves_its_cause_out_of_a_lane_that_no_claim_has_seen(self, bench: Bench, how: str) -> None:
        job = await buried_elsewhere(bench)
        if how == "retry":
            assert await bench.retry(job.id) == ["retried"]
        else:
            assert await bench.store.discard([job.id]) == 1
        assert await bench.store.causes() == []
        await bench.hand("old").drain()
        assert await bench.store.causes() == []

    async def test_a_job_that_is_retried_in_such_a_lane_counts_for_the_depth(self, bench: Bench) -> None:
        key = "queue:default"
        await bench.change(GateChange(key, rule=GateRule(key, depth=3)))
        job = await buried_elsewhere(bench, beside=2)
        await bench.add()
        assert await bench.retry(job.id) == ["retried"]
        await bench.add()
        with pytest.raises(QueueFull):
            await bench.add()

    async def test_a_lane_that_is_left_is_forgotten_and_the_new_one_is_not(self, bench: Bench) -> None:
        id = await bench.add()
        old, new = bench.hand("old"), bench.hand("new", capabilities=NEW)
        await old.settle(refuse(await old.take()))
        for _ in range(3):
            bench.clock.advance(2 * 3_600_000)
            await prune(bench, Retention())
        assert await new.ids() == [id]

    async def test_the_new_lane_stays_while_one_of_its_jobs_is_stored(self, bench: Bench) -> None:
        first, second = await bench.add_many(2)
        old, new = bench.hand("old"), bench.hand("new", capabilities=NEW)
        await old.settle(*map(refuse, await old.claim(2)))
        await new.bury(await new.take())
        assert await bench.store.discard([first]) == 1
        await prune(bench, Retention())
        assert await new.ids(2) == [second]

    async def test_a_claim_may_ask_only_for_jobs_that_need_a_capability(self, bench: Bench) -> None:
        plain, needy = await bench.add(priority=0), await bench.add(needs=(*NEW, "gpu"))
        other = await bench.add(needs=("gpu",))
        hand = bench.hand(capabilities=(*NEW, "gpu"))
        await hand.beat()
        assert [job.id for job in (await hand.ask(5, needing=NEW[0])).jobs] == [needy]
        assert (await hand.ask(5, needing=NEW[0])).jobs == ()
        assert await hand.ids(5) == [plain, other]

    async def test_a_session_that_asked_for_one_need_in_vain_is_not_taken_for_asleep(self, bench: Bench) -> None:
        asker, sleeper = bench.hand("asker", capabilities=NEW), bench.hand("sleeper")
        assert await sleeper.claim() == []
        await asker.beat()
        assert (await asker.ask(5, needing=NEW[0])).jobs == ()
        idle = {session.session for session in await bench.store.sessions() if session.idle}
        assert idle == {"sleeper"}
