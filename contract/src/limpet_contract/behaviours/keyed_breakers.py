"""Behaviours of breakers by key: each key is cut off by itself, and costs nothing while all goes well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from limpet.core.endings.transition import RetryAfter, Settled, Succeed
from limpet.core.gate import CLOSED, COUNTING, FOREVER_MS, OPEN, BreakerRule, GateChange, GateRule, WorstFirst, rank_key
from limpet.core.jobs.job import Job, Unique
from limpet.core.jobs.lease import Claimed
from limpet.core.jobs.view import Retention
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench
from limpet_contract.hand import Hand, failure

OWN = "breaker:hook"
NUMBERS = BreakerRule(failures=3, within_ms=60_000, cooldown_ms=30_000, probe_after_ms=10_000)
RULE = GateRule(OWN, breaker=NUMBERS)
LATER_MS = 3_600_000


def under(bench: Bench, key: str, priority: int = 5, unique: Unique | None = None) -> Job:
    """A job under the breaker of this key."""
    return bench.job(task="hook", breaker="hook", breaker_key=f"hook:{key}", priority=priority, unique=unique)


def gate_of(key: str) -> str:
    return f"breaker:hook:{key}"


def keys_of(jobs: Iterable[Claimed]) -> Counter[str]:
    return Counter(str(job.lane.breaker_key).removeprefix("hook:") for job in jobs)


async def put(bench: Bench, *keys: str, rule: GateRule = RULE) -> None:
    await bench.put(*(under(bench, key) for key in keys), rules=[rule])


async def fail(bench: Bench, hand: Hand, key: str, times: int = 3) -> list[Settled]:
    """Jobs of this key fail, one after the other; their attempts have an end, and the jobs wait for an hour."""
    answers = []
    for _ in range(times):
        await put(bench, key)
        job = await hand.take()
        assert keys_of([job]) == {key: 1}, "only this key should have a job"
        answers.append(await hand.fail(job, delay_ms=LATER_MS))
    return answers


@asynchronous
class TestBreakerByKey:
    async def test_the_failures_of_one_key_stop_that_key_alone(self, bench: Bench) -> None:
        hand = bench.hand()
        answers = await fail(bench, hand, "down")
        assert [each.shut for each in answers] == [(), (), (gate_of("down"),)]
        await put(bench, *["down"] * 5, "fine", "fine", "other")
        assert keys_of(await hand.claim(10)) == {"fine": 2, "other": 1}
        bench.clock.advance(9_999)
        assert await hand.claim(10) == []
        own = await bench.gate(OWN)
        assert own is not None
        assert (own.breaker_open, own.failed_at_ms) == (False, ())

    async def test_failures_of_different_keys_do_not_add_up(self, bench: Bench) -> None:
        hand = bench.hand()
        for number in range(6):
            await fail(bench, hand, f"c{number}", times=2)
        assert not [gate for gate in await bench.store.gates("breaker:") if gate.breaker_open]
        await put(bench, *(f"c{number}" for number in range(6)))
        assert len(await hand.claim(10)) == 6

    async def test_failures_in_one_settlement_count_for_their_keys(self, bench: Bench) -> None:
        await put(bench, *["a"] * 3, *["b"] * 2)
        hand = bench.hand()
        jobs = sorted(await hand.claim(5), key=lambda job: str(job.lane.breaker_key))
        answers = await hand.settle(*(RetryAfter(job.id, job.token, failure(), LATER_MS) for job in jobs))
        assert [each.shut for each in answers] == [(gate_of("a"),)] * 3 + [()] * 2

    async def test_a_success_starts_the_count_of_its_key_anew(self, bench: Bench) -> None:
        hand = bench.hand()
        for key in ("a", "b"):
            await fail(bench, hand, key, times=2)
        await put(bench, "a")
        await hand.succeed(await hand.take())
        assert [each.shut for each in await fail(bench, hand, "a", times=2)] == [(), ()]
        assert (await fail(bench, hand, "b", times=1))[0].shut == (gate_of("b"),)

    async def test_a_key_without_failures_has_no_record(self, bench: Bench) -> None:
        await put(bench, *(f"c{number}" for number in range(50)))
        hand = bench.hand()
        jobs = await hand.claim(50)
        await hand.settle(*(Succeed(job.id, job.token) for job in jobs[:40]))
        await hand.release(*jobs[40:45])
        for job in jobs[45:]:
            await hand.snooze(job, 60_000)
        assert [gate.key for gate in await bench.store.gates("breaker:")] == [OWN]

    async def test_tasks_that_share_a_key_share_its_breaker(self, bench: Bench) -> None:
        hand = bench.hand()
        await fail(bench, hand, "down")
        other = replace(RULE, key="breaker:other")
        await bench.put(bench.job(task="other", breaker="other", breaker_key="hook:down"), rules=[other])
        await bench.put(bench.job(task="other", breaker="other", breaker_key="hook:fine"), rules=[other])
        assert keys_of(await hand.claim(5)) == {"fine": 1}

    async def test_a_job_under_it_is_claimed_for_a_free_slot_only(self, bench: Bench) -> None:
        await put(bench, "a", "b", "c")
        hand = bench.hand()
        assert await hand.claim(3, slots=0) == []
        assert len(await hand.claim(3, slots=2)) == 2

    async def test_keys_take_turns(self, bench: Bench) -> None:
        await put(bench, *["many"] * 50, "few")
        assert keys_of(await bench.hand().claim(4)) == {"many": 3, "few": 1}

    async def test_what_is_declared_anew_counts_for_every_key(self, bench: Bench) -> None:
        hand = bench.hand()
        await fail(bench, hand, "a", times=1)
        strict = replace(RULE, breaker=replace(NUMBERS, failures=2, probe_after_ms=5_000))
        await put(bench, "a", rule=strict)
        assert (await hand.fail(await hand.take(), delay_ms=LATER_MS)).shut == (gate_of("a"),)
        await put(bench, "a", rule=strict)
        bench.clock.advance(5_000)
        assert (await hand.take()).probe

    async def test_a_share_of_failures_opens_the_breaker_of_its_key(self, bench: Bench) -> None:
        rule = replace(RULE, breaker=replace(NUMBERS, rate=0.5, min_calls=4))
        hand = bench.hand()
        for key, outcomes in (("good", "ssssf"), ("bad", "ssff"), ("new", "fff")):
            for outcome in outcomes:
                await put(bench, key, rule=rule)
                job = await hand.take()
                await (hand.succeed(job) if outcome == "s" else hand.fail(job, delay_ms=LATER_MS))
        opened = {key: (gate := await bench.gate(gate_of(key))) and gate.opened for key in ("good", "bad", "new")}
        assert opened == {"good": 0, "bad": 1, "new": 0}

    async def test_a_replaced_job_goes_to_the_breaker_of_its_new_key(self, bench: Bench) -> None:
        hand = bench.hand()
        await fail(bench, hand, "down")
        (first,) = await bench.put(under(bench, "down", unique=Unique("u")), rules=[RULE])
        assert await hand.claim() == []
        await bench.put(under(bench, "fine", unique=Unique("u", on_duplicate="replace")), rules=[RULE])
        assert await hand.ids() == [first.id]

    async def test_a_dead_job_that_is_retried_waits_at_the_breaker_of_its_key(self, bench: Bench) -> None:
        hand = bench.hand()
        await put(bench, "down")
        dead = await hand.take()
        await hand.bury(dead, kind="transient")
        await fail(bench, hand, "down", times=2)
        assert await bench.retry(dead.id) == ["retried"]
        assert await hand.claim() == []
        bench.clock.advance(10_000)
        probe = await hand.take()
        assert (probe.id, probe.probe) == (dead.id, True)

    async def test_waiting_jobs_are_cancelled_behind_an_open_breaker(self, bench: Bench) -> None:
        hand = bench.hand()
        await fail(bench, hand, "down")
        waiting = [each.id for each in await bench.put(*(under(bench, "down") for _ in range(3)), rules=[RULE])]
        assert await bench.cancel(*waiting[:2]) == ["cancelled"] * 2
        bench.clock.advance(10_000)
        assert await hand.ids(5) == waiting[2:]

    async def test_it_is_logged_and_explained_by_its_key(self, bench: Bench) -> None:
        hand = bench.hand()
        await fail(bench, hand, "down")
        (waiting,) = await bench.put(under(bench, "down"), rules=[RULE])
        found = await bench.store.inspect(waiting.id, now_ms=bench.clock.now_ms)
        assert found is not None
        assert [gate.key for gate in found.gates if gate.breaker_open] == [gate_of("down")]
        bench.clock.advance(10_000)
        await hand.succeed(await hand.take())
        entries = await bench.store.read("event")
        assert [(entry.kind, gate_of("down").encode() in entry.data) for entry in entries] == [
            ("breaker.opened", True),
            ("breaker.closed", True),
        ]


@asynchronous
class TestProbeByKey:
    async def test_each_key_has_a_probe_of_its_own(self, bench: Bench) -> None:
        hand = bench.hand()
        for key in ("a", "b"):
            await fail(bench, hand, key)
        await put(bench, *["a"] * 4, *["b"] * 4, "fine")
        bench.clock.advance(10_000)
        jobs = await hand.claim(20)
        assert keys_of(jobs) == {"a": 1, "b": 1, "fine": 1}
        assert keys_of(job for job in jobs if job.probe) == {"a": 1, "b": 1}
        by_key = {str(job.lane.breaker_key): job for job in jobs}
        await hand.succeed(by_key["hook:a"])
        await hand.fail(by_key["hook:b"], delay_ms=LATER_MS)
        assert keys_of(await hand.claim(20)) == {"a": 3}
        bench.clock.advance(29_999)
        assert await hand.claim(20) == []
        bench.clock.advance(1)
        assert keys_of(await hand.claim(20)) == {"b": 1}

    @pytest.mark.parametrize("end", ["release", "lose", "drop", "snooze", "bury", "force", "leave"])
    async def test_a_probe_that_proves_nothing_is_returned(self, bench: Bench, end: str) -> None:
        hand, other = bench.hand(), bench.hand("w2")
        await fail(bench, hand, "down")
        await put(bench, *["down"] * 5)
        bench.clock.advance(10_000)
        job = await hand.take()
        assert await other.claim(10) == []
        if end == "force":
            await bench.cancel(job.id, force=True)
        elif end == "leave":
            await hand.leave()
        else:
            await hand.end(end, job)
        jobs = await other.claim(10)
        assert [job.probe for job in jobs] == [True]
        await other.leave()

    async def test_a_probe_of_a_silent_session_is_returned_by_the_sweep(self, bench: Bench) -> None:
        hand, other = bench.hand("silent"), bench.hand("w2")
        await fail(bench, hand, "down")
        await put(bench, *["down"] * 5)
        bench.clock.advance(10_000)
        await bench.lose((await hand.take()).id, other)
        assert [job.probe for job in await other.claim(10)] == [True]
        await other.leave()

    async def test_lanes_of_one_key_share_its_probe(self, bench: Bench) -> None:
        hand = bench.hand()
        await fail(bench, hand, "down")
        await bench.put(*(under(bench, "down", priority) for priority in range(5)), rules=[RULE])
        bench.clock.advance(10_000)
        probe = await hand.take()
        assert await hand.claim(10) == []
        await hand.succeed(probe)
        assert len(await hand.claim(10)) == 4


@asynchronous
class TestBreakersByKeyByHand:
    async def test_the_breaker_of_the_task_stops_every_key(self, bench: Bench) -> None:
        await put(bench, "a", "b")
        await bench.change(GateChange(OWN, trip_ms=5_000))
        hand = bench.hand()
        assert await hand.claim(5) == []
        bench.clock.advance(5_000)
        jobs = await hand.claim(5)
        assert [job.probe for job in jobs] == [True]
        await hand.succeed(*jobs)
        assert len(await hand.claim(5)) == 1

    async def test_a_probe_of_the_task_says_nothing_about_a_closed_key(self, bench: Bench) -> None:
        hand = bench.hand()
        await fail(bench, hand, "counting", times=2)
        await bench.change(GateChange(OWN, trip_ms=1_000))
        await put(bench, "counting")
        bench.clock.advance(1_000)
        probe = await hand.take()
        assert (await hand.fail(probe, delay_ms=LATER_MS)).shut == (OWN,)
        gate = await bench.gate(gate_of("counting"))
        assert gate is not None
        assert (gate.breaker_open, len(gate.failed_at_ms)) == (False, 2)

    async def test_one_job_probes_the_task_and_its_key(self, bench: Bench) -> None:
        hand = bench.hand()
        await fail(bench, hand, "down")
        await bench.change(GateChange(OWN, trip_ms=10_000))
        await put(bench, "down", "down")
        bench.clock.advance(10_000)
        jobs = await hand.claim(5)
        assert [job.probe for job in jobs] == [True]
        assert await bench.hand("w2").claim(5) == []
        await hand.succeed(*jobs)
        assert [gate.key for gate in await bench.store.gates("breaker:") if gate.breaker_open] == []
        assert len(await hand.claim(5)) == 1

    async def test_a_key_is_tripped_before_its_first_job_and_counts_after_its_reset(self, bench: Bench) -> None:
        await bench.change(GateChange(gate_of("a"), trip_ms=FOREVER_MS))
        await put(bench, "a", "b")
        hand = bench.hand()
        assert keys_of(await hand.claim(5)) == {"b": 1}
        await bench.change(GateChange(gate_of("a"), reset=True))
        await hand.succeed(await hand.take())
        assert (await fail(bench, hand, "a"))[2].shut == (gate_of("a"),)

    async def test_a_reset_key_forgets_its_failures_and_no_other_does(self, bench: Bench) -> None:
        hand = bench.hand()
        for key in ("a", "b"):
            await fail(bench, hand, key)
        await bench.change(GateChange(gate_of("a"), reset=True))
        await put(bench, "a", "b")
        assert keys_of(await hand.claim(5)) == {"a": 1}

    async def test_closed_ones_without_failures_are_pruned_though_their_jobs_are_stored(self, bench: Bench) -> None:
        hand = bench.hand()
        for key, times in (("open", 3), ("counting", 2), ("closed", 3), ("old", 1)):
            await fail(bench, hand, key, times)
        await put(bench, "old")
        await hand.succeed(await hand.take())
        await bench.change(
            GateChange(gate_of("closed"), reset=True), GateChange(gate_of("tripped"), trip_ms=FOREVER_MS)
        )
        await put(bench, "open", "closed", "counting")
        while await bench.store.prune(Retention(), now_ms=bench.clock.now_ms):
            pass
        kept = {gate.key.removeprefix("breaker:hook:") for gate in await bench.store.gates("breaker:hook:")}
        assert kept == {"open", "counting", "tripped"}
        assert keys_of(await hand.claim(5)) == {"closed": 1, "counting": 1}
        bench.clock.advance(61_000)
        while await bench.store.prune(Retention(), now_ms=bench.clock.now_ms):
            pass
        kept = {gate.key.removeprefix("breaker:hook:") for gate in await bench.store.gates("breaker:hook:")}
        assert kept == {"open", "tripped"}

    async def test_they_are_listed_page_by_page_and_open_ones_first(self, bench: Bench) -> None:
        hand = bench.hand()
        for key, times in (("a2", 2), ("b3", 3), ("c1", 1), ("d3", 3), ("z3", 3)):
            await fail(bench, hand, key, times)
        await bench.change(GateChange(gate_of("e0"), trip_ms=1_000), GateChange("limit:bank", trip_ms=1_000))
        await bench.change(GateChange(gate_of("e0"), reset=True), GateChange("limit:calls", hold_ms=1_000))
        expected = [
            *((OPEN, gate_of(key)) for key in ("b3", "d3", "z3")),
            (OPEN, "limit:bank"),
            *((COUNTING, gate_of(key)) for key in ("a2", "c1")),
            (CLOSED, OWN),
            (CLOSED, gate_of("e0")),
        ]
        for limit in (1, 3, 100):
            found, after = list[tuple[int, str]](), (OPEN, "")
            while page := await bench.store.gates(worst_first=WorstFirst(limit, after)):
                assert len(page) <= limit
                found += map(rank_key, page)
                after = found[-1]
            assert found == expected
        page = await bench.store.gates(gate_of(""), worst_first=WorstFirst(100, (OPEN, gate_of("d3"))))
        assert [gate.key.removeprefix(gate_of("")) for gate in page] == ["z3", "a2", "c1", "e0"]
        await bench.change(GateChange("limit:bank", reset=True))
        await put(bench, "a2")
        await hand.succeed(await hand.take())
        page = await bench.store.gates(worst_first=WorstFirst(5))
        assert [rank_key(gate)[1] for gate in page] == [gate_of(key) for key in ("b3", "d3", "z3", "c1")] + [OWN]
