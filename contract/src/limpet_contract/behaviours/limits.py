"""Behaviours of concurrency limits: never exceeded, never leaked, changed at run time, and first to the most urgent."""

from __future__ import annotations

from collections import Counter

import pytest

from limpet.core.gate import GateChange, GateRule
from limpet.core.jobs.view import Retention
from limpet_contract.behaviours.housekeeping import prune
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench
from limpet_contract.hand import next_seq
from limpet_contract.making import JobOptions, make_job

HOUR_MS = 3_600_000


@asynchronous
class TestConcurrency:
    async def test_no_more_run_at_once_than_a_limit_allows(self, bench: Bench) -> None:
        ids = await bench.add_many(5, limits=("smtp",))
        await bench.declare(GateRule("limit:smtp", concurrency=2))
        hand = bench.hand()
        first = await hand.claim(10)
        assert [job.id for job in first] == ids[:2]
        assert await bench.hand("w2").claim(10) == []
        await hand.succeed(first[0])
        assert await hand.ids(10) == ids[2:3]

    async def test_rules_may_be_declared_with_the_jobs(self, bench: Bench) -> None:
        jobs = [bench.job(keys=("c:1",)) for _ in range(3)]
        await bench.put(*jobs, rules=[GateRule("limit:c:1", concurrency=1)])
        assert await bench.hand().ids(10) == [jobs[0].id]

    async def test_a_templated_key_stops_only_its_own_lane(self, bench: Bench) -> None:
        rules = [GateRule(f"limit:c:{n}", concurrency=1) for n in range(3)]
        jobs = [bench.job(keys=(f"c:{n % 3}",)) for n in range(9)]
        await bench.put(*jobs, rules=rules)
        hand = bench.hand()
        assert sorted(await hand.ids(10)) == [job.id for job in jobs[:3]]

    @pytest.mark.parametrize("key", ["queue:default", "task:work", "all"])
    async def test_a_queue_a_task_or_everything_may_have_a_ceiling(self, bench: Bench, key: str) -> None:
        await bench.add_many(4)
        await bench.change(GateChange(key, rule=GateRule(key, concurrency=2)))
        hand = bench.hand()
        first = await hand.claim(10)
        assert len(first) == 2
        assert await hand.claim(10) == []
        await hand.succeed(*first)
        assert len(await hand.claim(10)) == 2

    async def test_a_claim_says_how_many_may_run_together(self, bench: Bench) -> None:
        """A worker that is cut off has to know which of its jobs must not run beside another."""
        rules = [GateRule(f"limit:c:{n}", concurrency=n) for n in (1, 2, 3)]
        alone = bench.job(limits=("c:3",), keys=("c:1",))
        two = bench.job(limits=("c:3",), keys=("c:2",))
        free, rated = bench.job(), bench.job(limits=("r",))
        await bench.put(alone, two, free, rated, rules=[*rules, GateRule("limit:r", interval_us=1_000_000)])
        hand, seq = bench.hand(), next_seq()
        await hand.beat()
        found = {alone.id: 1, two.id: 2, free.id: 0, rated.id: 0}
        for _ in range(2):  # the same question again
            assert {job.id: job.together for job in (await hand.ask(10, seq=seq)).jobs} == found

    @pytest.mark.parametrize("key", ["limit:c", "queue:default", "task:work", "all"])
    async def test_what_an_operator_sets_counts_from_the_next_claim(self, bench: Bench, key: str) -> None:
        await bench.put(*(bench.job(limits=("c",)) for _ in range(2)), rules=[GateRule("limit:c", concurrency=5)])
        hand = bench.hand()
        assert (await hand.take()).together == 5
        await bench.change(GateChange(key, rule=GateRule(key, concurrency=1)))
        await hand.leave()
        assert (await bench.hand("later").take()).together == 1

    @pytest.mark.parametrize("end", ["succeed", "fail", "bury", "drop", "release", "snooze", "lose", "leave", "force"])
    async def test_a_slot_returns_however_the_job_ends(self, bench: Bench, end: str) -> None:
        await bench.declare(GateRule("limit:x", concurrency=1))
        hand, other = bench.hand(), bench.hand("w2")
        first = await bench.add(limits=("x",))
        job = await hand.take()
        second = await bench.add(limits=("x",), priority=0)
        assert await other.claim() == []
        if end == "leave":
            await hand.leave()
        elif end == "force":
            assert await bench.cancel(first, force=True) == ["cancelled"]
        else:
            await hand.end(end, job)
        assert await other.ids(5) == [second]

    async def test_a_slot_returns_when_a_silent_sessions_job_is_taken_back(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:x", concurrency=1))
        ids = await bench.add_many(2, limits=("x",))
        await bench.hand("gone").take()
        other = bench.hand("w2")
        await bench.lose(ids[0], other)
        assert await other.ids(5) == [ids[0]]

    async def test_a_job_under_several_limits_needs_room_in_all(self, bench: Bench) -> None:
        rules = [GateRule("limit:smtp", concurrency=3), *(GateRule(f"limit:c:{n}", concurrency=2 - n) for n in (0, 1))]
        jobs = [bench.job(limits=("smtp",), keys=(f"c:{n % 2}",)) for n in range(6)]
        await bench.put(*jobs, rules=rules)
        hand = bench.hand()
        running = await hand.claim(10)
        assert Counter(job.lane.keys for job in running) == {("c:1",): 1, ("c:0",): 2}
        gate = await bench.gate("limit:smtp")
        assert gate is not None
        assert gate.used == 3

    async def test_a_raised_ceiling_lets_waiters_in(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:x", concurrency=1))
        ids = await bench.add_many(4, limits=("x",))
        hand = bench.hand()
        assert len(await hand.claim(10)) == 1
        assert await hand.claim(10) == []
        await bench.change(GateChange("limit:x", rule=GateRule("limit:x", concurrency=3)))
        assert await hand.ids(10) == ids[1:3]

    async def test_a_lowered_ceiling_admits_nobody_until_enough_have_ended(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:x", concurrency=3))
        await bench.add_many(5, limits=("x",))
        hand = bench.hand()
        running = await hand.claim(10)
        await bench.change(GateChange("limit:x", rule=GateRule("limit:x", concurrency=1)))
        for job in running[:2]:
            await hand.succeed(job)
            assert await hand.claim(10) == []
        await hand.succeed(running[2])
        assert len(await hand.claim(10)) == 1

    async def test_a_lifted_limit_lets_everyone_in(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:x", concurrency=1))
        await bench.add_many(4, limits=("x",))
        hand = bench.hand()
        first = await hand.claim(10)
        assert await hand.claim(10) == []
        await bench.change(GateChange("limit:x", rule=GateRule("limit:x")))
        assert len(await hand.claim(10)) == 3
        await hand.succeed(*first)

    async def test_a_gate_added_while_jobs_run_releases_only_what_was_charged(self, bench: Bench) -> None:
        await bench.add_many(10, limits=("x",))
        hand = bench.hand()
        before = await hand.claim(2)
        await bench.change(GateChange("limit:x", rule=GateRule("limit:x", concurrency=3)))
        counted = await hand.claim(10)
        assert len(counted) == 3
        await hand.succeed(*before)
        assert await hand.claim(10) == []
        await hand.succeed(counted[0])
        assert len(await hand.claim(10)) == 1

    async def test_an_operators_rule_is_not_overwritten_by_a_declaration(self, bench: Bench) -> None:
        await bench.change(GateChange("limit:x", rule=GateRule("limit:x", concurrency=1)))
        jobs = [bench.job(limits=("x",)) for _ in range(3)]
        await bench.put(*jobs, rules=[GateRule("limit:x", concurrency=3)])
        assert len(await bench.hand().claim(10)) == 1
        gate = await bench.gate("limit:x")
        assert gate is not None
        assert not gate.declared

    async def test_a_new_declaration_replaces_the_old_one(self, bench: Bench) -> None:
        hand = bench.hand()
        await bench.put(*[bench.job(limits=("x",)) for _ in range(3)], rules=[GateRule("limit:x", concurrency=1)])
        assert len(await hand.claim(10)) == 1
        await bench.put(bench.job(limits=("x",)), rules=[GateRule("limit:x", concurrency=2)])
        assert len(await hand.claim(10)) == 1

    async def test_a_crowd_behind_a_full_limit_holds_nobody_back(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:x", concurrency=1))
        await bench.add_many(500, limits=("x",), priority=0)
        plain = await bench.add_many(2, task="plain", priority=9)
        hand = bench.hand()
        assert len(await hand.claim(1)) == 1
        assert await hand.ids(5) == plain

    @pytest.mark.parametrize("kind", ["limits", "keys"])
    async def test_a_freed_slot_goes_to_the_most_urgent_waiter(self, bench: Bench, kind: str) -> None:
        where: JobOptions = {"limits": ("x",)} if kind == "limits" else {"keys": ("x",)}
        await bench.declare(GateRule("limit:x", concurrency=1))
        hand = bench.hand()
        await bench.add(**where)
        running = await hand.take()
        for priority in (8, 5, 3):
            await bench.put(make_job(bench.id(), {**where, "priority": priority}))
        assert await hand.claim(5) == []
        await hand.succeed(running)
        order = []
        while jobs := await hand.claim(5):
            order += [job.lane.priority for job in jobs]
            await hand.succeed(*jobs)
        assert order == [3, 5, 8]

    async def test_a_limit_that_two_tasks_share_outlives_the_lane_of_one_of_them(self, bench: Bench) -> None:
        rule = GateRule("limit:customer:1", concurrency=1)
        await bench.put(*(bench.job(task="constant", limits=("customer:1",)) for _ in range(3)), rules=[rule])
        await bench.put(bench.job(task="templated", keys=("customer:1",), priority=0), rules=[rule])
        hand = bench.hand()
        job = await hand.take()
        assert job.lane.task == "templated"
        await hand.succeed(job)
        bench.clock.advance(HOUR_MS)
        await prune(bench, Retention(succeeded_ms=0))
        assert len(await hand.claim(5)) == 1
        assert await bench.gate(rule.key) is not None

    async def test_a_templated_limit_outlives_the_class_that_named_it_as_a_constant(self, bench: Bench) -> None:
        rule = GateRule("limit:customer:1", concurrency=1)
        await bench.put(*(bench.job(task="templated", keys=("customer:1",)) for _ in range(3)), rules=[rule])
        await bench.put(bench.job(task="constant", limits=("customer:1",), priority=0), rules=[rule])
        hand = bench.hand()
        job = await hand.take()
        assert job.lane.task == "constant"
        await hand.succeed(job)
        bench.clock.advance(HOUR_MS)
        await prune(bench, Retention(succeeded_ms=0))
        assert len(await hand.claim(5)) == 1
