"""Behaviours of costs in several units, of budgets, and of what a job really cost."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from limpet.core.endings.transition import Drop, Hold, Release, Snooze, Succeed, Suspend, Transition
from limpet.core.gate import MOST, GateChange, GateRule, budget_left
from limpet.core.jobs.job import Unique
from limpet.core.jobs.lease import Claimed
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Retention
from limpet.core.limits.period import DAY_MS, began_ms
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench
from limpet_contract.hand import Hand
from limpet_contract.making import JobOptions, make_job
from limpet_contract.seeds import chance_of

USD = GateRule("limit:usd", unit="usd", cap=10, period="day")


def usd(amount: int) -> dict[str, int]:
    return {"usd": amount}


async def succeed(hand: Hand, job: Claimed, real: int) -> None:
    await hand.settle(Succeed(job.id, job.token), spent={job.id: usd(real)})


async def left_in(bench: Bench, key: str = "limit:usd") -> int:
    """What is left of a budget, by what it will admit now."""
    gate = await bench.gate(key)
    assert gate is not None
    return budget_left(gate, bench.clock.now_ms)


@asynchronous
class TestCosts:
    async def test_each_limit_counts_the_unit_that_it_names(self, bench: Bench) -> None:
        calls = GateRule("limit:calls", interval_us=1_000_000, burst=100)
        words = GateRule("limit:words", interval_us=1_000, burst=250, unit="words")
        await bench.declare(calls, words)
        ids = await bench.add_many(5, limits=("calls", "words"), costs={"words": 100})
        hand = bench.hand()
        assert await hand.ids(5) == ids[:3]  # the third leaves a debt of 50
        bench.clock.advance(50)
        assert await hand.claim(5) == []
        bench.clock.advance(1)
        assert await hand.ids(5) == ids[3:4]

    async def test_a_unit_that_a_job_does_not_name_costs_it_nothing(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:words", interval_us=1_000_000, burst=1, unit="words"))
        await bench.add_many(20, limits=("words",), cost=5)
        assert len(await bench.hand().claim(20)) == 20

    async def test_limits_of_a_key_and_of_all_count_each_their_own(self, bench: Bench) -> None:
        rules = [
            GateRule("limit:all", interval_us=1_000_000, burst=5, unit="words"),
            *(GateRule(f"limit:c:{n}", interval_us=60_000_000, burst=2) for n in range(3)),
        ]
        jobs = [bench.job(limits=("all",), keys=(f"c:{n % 3}",), costs={"words": 1 + n % 2}) for n in range(12)]
        await bench.put(*jobs, rules=rules)
        hand = bench.hand()
        taken = await hand.claim(12)
        assert sum(job.costs["words"] for job in taken) in (5, 6)
        assert max(sum(job.lane.keys == (f"c:{n}",) for job in taken) for n in range(3)) <= 2

    async def test_costs_are_shown_and_stay_with_the_job(self, bench: Bench) -> None:
        id = await bench.add(cost=3, costs={"words": 7, "usd": 12_000_000_000})
        plain = await bench.add()
        hand = bench.hand()
        for _ in range(2):
            job = await hand.take()
            assert (job.id, job.cost, job.costs) == (id, 3, {"words": 7, "usd": 12_000_000_000})
            await hand.fail(job)
        view = await bench.view(id)
        assert (view.cost, view.costs) == (3, {"words": 7, "usd": 12_000_000_000})
        assert (await bench.view(plain)).costs == {}


@asynchronous
class TestBudget:
    async def test_a_budget_admits_what_fits_and_the_rest_in_the_next_period(self, bench: Bench) -> None:
        await bench.declare(USD)
        ids = await bench.add_many(4, limits=("usd",), costs=usd(4))
        hand = bench.hand()
        assert await hand.ids(4) == ids[:2]
        answer = await hand.ask(4)
        tomorrow = began_ms("day", bench.clock.now_ms) + DAY_MS
        assert (answer.jobs, answer.next_at_ms) == ((), tomorrow)
        bench.clock.now_ms = tomorrow - 1
        assert await hand.claim(4) == []
        bench.clock.now_ms = tomorrow
        assert await hand.ids(4) == ids[2:]

    async def test_budgets_of_single_keys_stop_nobody_else(self, bench: Bench) -> None:
        rules = [GateRule(f"limit:c:{n}", unit="usd", cap=5, period="day") for n in range(3)]
        jobs = [bench.job(keys=(f"c:{n % 3}",), costs=usd(1 + n % 3)) for n in range(30)]
        await bench.put(*jobs, rules=rules)
        hand = bench.hand()
        taken = await hand.claim(30)
        by_key = [[job for job in taken if job.lane.keys == (f"c:{n}",)] for n in range(3)]
        assert [len(jobs) for jobs in by_key] == [5, 2, 1]
        answer = await hand.ask(30)
        assert answer.jobs == ()
        tomorrow = began_ms("day", bench.clock.now_ms) + DAY_MS
        assert answer.next_at_ms is None or answer.next_at_ms <= tomorrow
        bench.clock.now_ms = tomorrow
        assert len(await hand.claim(30)) == 8

    async def test_nobody_passes_the_first_job_that_did_not_fit(self, bench: Bench) -> None:
        await bench.declare(USD)
        await bench.add(limits=("usd",), costs=usd(7))
        large = await bench.add(limits=("usd",), costs=usd(4))
        hand = bench.hand()
        first = await hand.take()
        assert await hand.claim(5) == []
        await bench.add(limits=("usd",), costs=usd(1), task="other", tenant="g")
        await bench.add(limits=("usd",), costs=usd(1), priority=0)
        assert await hand.claim(5) == []
        await succeed(hand, first, 4)
        assert large in await hand.ids(5)

    @pytest.mark.parametrize("where", ["limits", "keys"])
    @pytest.mark.parametrize("how", ["cancelled", "expired", "replaced"])
    async def test_when_the_job_that_nobody_passes_is_gone_the_next_goes_on(
        self, bench: Bench, how: str, where: str
    ) -> None:
        at: JobOptions = {"limits": ("usd",)} if where == "limits" else {"keys": ("usd",)}
        large: JobOptions = {**at, "costs": usd(4), "unique": Unique("large", on_duplicate="replace")}
        await bench.declare(USD)
        await bench.put(make_job(bench.id(), {**at, "costs": usd(7)}))
        (answer,) = await bench.put(make_job(bench.id(), {**large, "expires_ms": 5_000}))
        hand, sleeper = bench.hand(), bench.hand("w2")
        await hand.take()
        assert await hand.claim(5) == []
        (small,) = await bench.put(make_job(bench.id(), {**at, "costs": usd(1), "tenant": "g"}))
        assert await sleeper.claim(5) == []
        if how == "cancelled":
            await bench.cancel(answer.id)
        elif how == "replaced":
            await bench.put(make_job(bench.id(), {**large, "costs": usd(2)}))
        else:
            bench.clock.advance(5_000)
            await bench.store.expire(now_ms=bench.clock.now_ms)
        assert (await sleeper.wait(5_000)).work
        await sleeper.beat()
        assert sorted(await sleeper.ids(5)) == sorted([small.id, *([answer.id] if how == "replaced" else [])])

    @pytest.mark.parametrize("amounts", [(4, 0), (0, 4), (4, 2)])
    async def test_of_jobs_of_one_call_that_replace_each_other_the_last_says_the_cost(
        self, bench: Bench, amounts: tuple[int, int]
    ) -> None:
        await bench.declare(USD)
        key = Unique("k", on_duplicate="replace")
        jobs = [bench.job(limits=("usd",), unique=key, costs=usd(amount) if amount else {}) for amount in amounts]
        assert [answer.id for answer in await bench.put(*jobs)] == [jobs[0].id] * 2
        await bench.hand().take()
        gate = await bench.gate("limit:usd")
        assert gate is not None
        assert gate.spent == usd(amounts[1])["usd"]

    async def test_a_job_that_another_limit_stops_does_not_shut_a_budget(self, bench: Bench) -> None:
        await bench.declare(USD, GateRule("limit:slot", concurrency=1))
        await bench.add_many(2, limits=("slot", "usd"), costs=usd(6), priority=0)
        small = await bench.add_many(2, limits=("usd",), costs=usd(2), task="other")
        hand = bench.hand()
        taken = await hand.ids(5)
        assert taken[1:] == small

    async def test_what_a_job_did_not_use_comes_back_at_once(self, bench: Bench) -> None:
        await bench.declare(USD)
        ids = await bench.add_many(3, limits=("usd",), costs=usd(8))
        hand = bench.hand()
        first = await hand.take()
        assert await hand.claim(3) == []
        await succeed(hand, first, 2)
        assert await hand.ids(3) == ids[1:2]

    async def test_what_a_job_used_beyond_its_estimate_is_counted(self, bench: Bench) -> None:
        await bench.declare(USD)
        await bench.add_many(3, limits=("usd",), costs=usd(2))
        hand = bench.hand()
        first = await hand.take()
        await succeed(hand, first, 9)
        assert await left_in(bench) == 1
        assert await hand.claim(3) == []

    async def test_a_key_that_waits_for_money_goes_on_when_some_comes_back(self, bench: Bench) -> None:
        rule = GateRule("limit:c:1", unit="usd", cap=10, period="day")
        jobs = [bench.job(keys=("c:1",), costs=usd(6)) for _ in range(3)]
        await bench.put(*jobs, rules=[rule])
        hand, other = bench.hand(), bench.hand("w2")
        first = await hand.take()
        assert await other.claim(3) == []
        await succeed(hand, first, 1)
        assert await other.ids(3) == [jobs[1].id]
        assert await other.claim(3) == []

    @pytest.mark.parametrize("started", [False, True])
    async def test_a_release_returns_what_was_reserved_only_before_the_start(self, bench: Bench, started: bool) -> None:
        await bench.declare(USD)
        await bench.add_many(2, limits=("usd",), costs=usd(10))
        hand = bench.hand()
        job = await hand.take()
        await hand.settle(Release(job.id, job.token, started))
        assert await left_in(bench) == (0 if started else 10)
        assert len(await hand.claim(2)) == (0 if started else 1)

    @pytest.mark.parametrize("end", ["succeed", "fail", "bury", "lose"])
    async def test_what_is_not_told_stays_spent_as_it_was_reserved(self, bench: Bench, end: str) -> None:
        await bench.declare(USD)
        await bench.add(limits=("usd",), costs=usd(7))
        hand = bench.hand()
        await hand.end(end, await hand.take())
        assert await left_in(bench) == 3

    async def test_a_lease_that_runs_out_leaves_its_reservation_spent(self, bench: Bench) -> None:
        await bench.declare(USD)
        id = await bench.add(limits=("usd",), costs=usd(7))
        hand, janitor = bench.hand(), bench.hand("janitor")
        await hand.take()
        await bench.lose(id, janitor)
        assert await left_in(bench) == 3

    @pytest.mark.parametrize("told", [False, True])
    @pytest.mark.parametrize("asked", [False, True])
    async def test_a_job_that_is_cancelled_gives_back_what_it_does_not_own_up_to(
        self, bench: Bench, asked: bool, told: bool
    ) -> None:
        await bench.declare(USD)
        await bench.add(limits=("usd",), costs=usd(7))
        hand = bench.hand()
        job = await hand.take()
        if asked:
            await bench.cancel(job.id)
        await hand.settle(Drop(job.id, job.token, "no use"), spent={job.id: usd(2)} if told else {})
        assert await bench.state(job.id) is State.cancelled
        assert await left_in(bench) == (8 if told else 10)

    async def test_a_forced_cancel_gives_nothing_back_since_somebody_may_go_on_spending(self, bench: Bench) -> None:
        await bench.declare(USD)
        await bench.add(limits=("usd",), costs=usd(7))
        job = await bench.hand().take()
        await bench.cancel(job.id, force=True)
        assert await bench.state(job.id) is State.cancelled
        assert await left_in(bench) == 3

    @pytest.mark.parametrize("how", ["held", "snoozed", "suspended"])
    @pytest.mark.parametrize("told", [False, True])
    async def test_a_job_that_is_put_off_gives_back_what_it_does_not_own_up_to(
        self, bench: Bench, how: str, told: bool
    ) -> None:
        await bench.declare(USD)
        await bench.add(limits=("usd",), costs=usd(7))
        hand = bench.hand()
        job = await hand.take()
        puts_off: dict[str, Transition] = {
            "held": Hold(job.id, job.token, "limit:usd", 1_000),
            "snoozed": Snooze(job.id, job.token, 1_000),
            "suspended": Suspend(job.id, job.token, 1_000),
        }
        await hand.settle(puts_off[how], spent={job.id: usd(2)} if told else {})
        assert await left_in(bench) == (8 if told else 10)
        bench.clock.advance(1_000)
        assert (await hand.take()).id == job.id
        assert await left_in(bench) == (1 if told else 3)

    async def test_what_ends_after_its_period_changes_nothing_in_the_next(self, bench: Bench) -> None:
        await bench.declare(USD)
        await bench.add_many(2, limits=("usd",), costs=usd(9))
        hand = bench.hand()
        old = await hand.take()
        bench.clock.now_ms = began_ms("day", bench.clock.now_ms) + DAY_MS
        await hand.take()
        await succeed(hand, old, 1)
        assert await left_in(bench) == 1

    async def test_a_larger_cap_lets_those_who_wait_go_on(self, bench: Bench) -> None:
        await bench.declare(USD)
        ids = await bench.add_many(2, limits=("usd",), costs=usd(7))
        hand = bench.hand()
        await hand.take()
        assert await hand.claim(2) == []
        await bench.change(GateChange("limit:usd", rule=GateRule("limit:usd", unit="usd", cap=14, period="day")))
        assert await hand.ids(2) == ids[1:]
        assert await left_in(bench) == 0

    async def test_an_answer_asked_for_again_counts_nothing_twice(self, bench: Bench) -> None:
        await bench.declare(USD)
        await bench.add(limits=("usd",), costs=usd(7))
        hand = bench.hand()
        job = await hand.take()
        for _ in range(2):
            await hand.settle(Succeed(job.id, job.token), seq=77, spent={job.id: usd(2)})
        assert await left_in(bench) == 8

    async def test_a_stale_holder_changes_no_budget(self, bench: Bench) -> None:
        await bench.declare(USD)
        id = await bench.add(limits=("usd",), costs=usd(5))
        hand, janitor = bench.hand(), bench.hand("janitor")
        job = await hand.take()
        await bench.lose(id, janitor)
        (answer,) = await hand.settle(Succeed(job.id, job.token), spent={job.id: usd(0)})
        assert answer.answer == "stale"
        assert await left_in(bench) == 5

    async def test_a_sleeper_is_woken_when_money_comes_back(self, bench: Bench) -> None:
        await bench.declare(USD)
        await bench.add_many(2, limits=("usd",), costs=usd(8))
        hand, sleeper = bench.hand(), bench.hand("w2")
        first = await hand.take()
        assert await sleeper.claim() == []
        await succeed(hand, first, 1)
        assert (await sleeper.wait(5_000)).work

    async def test_a_forgotten_gate_was_not_spent_in_this_period(self, bench: Bench) -> None:
        await bench.declare(USD)
        id = await bench.add(limits=("usd",), costs=usd(7))
        hand = bench.hand()
        await hand.succeed(await hand.take())
        assert await bench.state(id) is State.succeeded
        while await bench.store.prune(Retention(succeeded_ms=0), now_ms=bench.clock.now_ms):
            pass
        assert await left_in(bench) == 3

    @pytest.mark.parametrize("where", ["limits", "keys"])
    async def test_a_claim_that_a_budget_stops_at_its_first_look_says_when_the_period_ends(
        self, bench: Bench, where: str
    ) -> None:
        await bench.declare(USD)
        job: JobOptions = {"limits": ("usd",)} if where == "limits" else {"keys": ("usd",)}
        await bench.put(make_job(bench.id(), {**job, "costs": usd(11)}))
        hand = bench.hand()
        await hand.beat()
        answer = await hand.ask(4)
        tomorrow = began_ms("day", bench.clock.now_ms) + DAY_MS
        assert (answer.jobs, answer.next_at_ms) == ((), tomorrow)

    async def test_nobody_passes_within_one_claim_either(self, bench: Bench) -> None:
        await bench.declare(USD)
        first = await bench.add(limits=("usd",), costs=usd(7), tenant="a")
        await bench.add(limits=("usd",), costs=usd(4), tenant="a")
        await bench.add_many(2, limits=("usd",), costs=usd(1), tenant="b")
        assert await bench.hand().ids(4) == [first]

    async def test_a_job_that_a_rate_stops_too_does_not_shut_a_budget(self, bench: Bench) -> None:
        await bench.declare(USD, GateRule("limit:calls", interval_us=1_000_000, burst=2))
        first, _ = await bench.add_many(2, limits=("calls", "usd"), cost=5, costs=usd(6), priority=0)
        small = await bench.add(limits=("usd",), costs=usd(2), task="other")
        assert await bench.hand().ids(5) == [first, small]

    async def test_jobs_of_a_task_with_a_budget_are_given_only_for_free_slots(self, bench: Bench) -> None:
        await bench.change(GateChange("task:work", rule=GateRule("task:work", cap=10, period="day")))
        full = bench.hand("full")
        await bench.put(bench.job(), bench.job(priority=3))
        assert await full.claim(3, slots=0) == []
        assert len(await full.claim(3, slots=1)) == 1

    async def test_a_rate_takes_costs_that_no_count_of_jobs_reaches(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:words", unit="words", interval_us=1_000, burst=100))
        await bench.add(limits=("words",), costs={"words": 1 << 40})
        assert len(await bench.hand().claim(1)) == 1

    @pytest.mark.parametrize("seed", range(3))
    async def test_estimates_admitted_in_a_period_never_exceed_the_cap(self, bench: Bench, seed: int) -> None:
        rng = chance_of(seed)
        cap = rng.choice([20, 50])
        rules = [
            GateRule("limit:usd", unit="usd", cap=cap, period="minute"),
            GateRule("limit:c:1", unit="usd", cap=cap // 2, period="hour"),
        ]
        jobs = [
            bench.job(
                limits=("usd",), keys=(f"c:{rng.randint(1, 2)}",), costs=usd(rng.randint(1, 9)), tenant=rng.choice("ab")
            )
            for _ in range(80)
        ]
        await bench.put(*jobs, rules=rules)
        hand = bench.hand()
        running: list[Claimed] = []
        # Of a budget in a period: what was admitted, less what was given back.
        books: dict[tuple[str, int], int] = {}
        charged: dict[tuple[bytes, int], list[tuple[str, int]]] = {}
        started = 0
        for _ in range(150):
            bench.clock.advance(rng.choice([0, 5_000, 20_000]))
            for job in await hand.claim(rng.randint(1, 5)):
                started += 1
                running.append(job)
                places = [("usd", began_ms("minute", bench.clock.now_ms))]
                if job.lane.keys == ("c:1",):
                    places.append(("c:1", began_ms("hour", bench.clock.now_ms)))
                charged[job.id, job.token] = places
                for place in places:
                    books[place] = books.get(place, 0) + job.costs["usd"]
                    assert books[place] <= (cap if place[0] == "usd" else cap // 2), place
            if running and rng.random() < 0.7:
                job = running.pop(rng.randrange(len(running)))
                real = rng.randint(0, job.costs["usd"])
                end: Transition = Succeed(job.id, job.token)
                if rng.random() < 0.3:
                    real, end = 0, Release(job.id, job.token)
                await hand.settle(end, spent={job.id: usd(real)})
                for place in charged[job.id, job.token]:
                    if place[1] == began_ms("minute" if place[0] == "usd" else "hour", bench.clock.now_ms):
                        books[place] -= job.costs["usd"] - real
        assert started > 20


@asynchronous
class TestSpentOfARate:
    async def test_a_rate_pays_later_for_what_a_job_cost_more(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:words", interval_us=1_000, burst=100, unit="words"))
        await bench.add_many(3, limits=("words",), costs={"words": 10})
        hand = bench.hand()
        job = await hand.take()
        await hand.settle(Succeed(job.id, job.token), spent={job.id: {"words": 250}})
        bench.clock.advance(150)
        assert await hand.claim(2) == []
        bench.clock.advance(1)
        assert len(await hand.claim(2)) == 1

    async def test_a_rate_gets_back_what_time_has_not_given_back_yet(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:r", interval_us=1_000_000, burst=5))
        await bench.add_many(1, limits=("r",), cost=5)
        ids = await bench.add_many(5, limits=("r",))
        hand = bench.hand()
        job = await hand.take()
        bench.clock.advance(2_000)
        await hand.settle(Succeed(job.id, job.token), spent={job.id: {"": 1}})
        assert await hand.ids(5) == ids[:4]

    async def test_a_rate_that_was_lowered_gets_nothing_back_for_old_estimates(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:words", interval_us=600, burst=100_000, unit="words"))
        await bench.add_many(3, limits=("words",), costs={"words": 30_000})
        hand = bench.hand()
        old = await hand.claim(3)
        bench.clock.advance(1_000)
        await bench.declare(GateRule("limit:words", interval_us=60_000, burst=1_000, unit="words"))
        await bench.add_many(5, limits=("words",), costs={"words": 1_000})
        assert len(await hand.claim(5)) == 1
        for job in old:
            await hand.settle(Succeed(job.id, job.token), spent={job.id: {"words": 5_000}})
            assert await hand.claim(5) == []

    async def test_a_debt_of_more_years_than_can_be_counted_is_kept_and_paid_back(self, bench: Bench) -> None:
        one_a_year = GateRule("limit:r", interval_us=366 * 86_400 * 1_000_000)
        await bench.declare(one_a_year)
        await bench.add_many(2, limits=("r",), cost=100_000)
        hand = bench.hand()
        job = await hand.take()
        assert (await hand.ask(1)).jobs == ()
        gate = await bench.gate("limit:r")
        assert gate is not None
        assert gate.full_at_us == MOST
        await hand.settle(Succeed(job.id, job.token), spent={job.id: {"": 100_000}})
        assert await bench.gate("limit:r") == gate
        await bench.change(GateChange("limit:r", rule=replace(one_a_year, interval_us=1)))
        bench.clock.advance(1)
        assert len(await hand.claim(5)) == 1

    async def test_a_debt_too_large_to_count_that_is_handed_back_forgives_nothing_that_others_took(
        self, bench: Bench
    ) -> None:
        await bench.declare(GateRule("limit:r", interval_us=86_400 * 1_000_000, burst=10))
        await bench.add_many(9, limits=("r",))
        dear = await bench.add(limits=("r",), cost=100_000)
        hand = bench.hand()
        jobs = await hand.claim(10)
        assert jobs[-1].id == dear
        bench.clock.advance(1)
        await hand.settle(*(Release(job.id, job.token) for job in (jobs[0], jobs[-1])))
        await bench.add_many(20, limits=("r",))
        assert await hand.claim(20) == []
        await bench.change(GateChange("limit:r", reset=True))
        assert len(await hand.claim(20)) == 1


@asynchronous
class TestSpentForGood:
    async def test_a_tripped_key_admits_nobody_until_one_job_probes_it(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:openai", concurrency=5))
        ids = await bench.add_many(4, limits=("openai",))
        hand = bench.hand()
        job = await hand.take()
        assert (await hand.trip(job, "limit:openai", 60_000)).state is State.ready
        assert await hand.claim(4) == []
        view = await bench.view(job.id)
        assert (view.attempt, view.reason) == (0, "no money left")
        bench.clock.advance(60_000)
        probes = await hand.claim(4)
        assert [(probe.id, probe.probe, probe.attempt) for probe in probes] == [(ids[0], True, 1)]
        await hand.trip(probes[0], "limit:openai", 60_000)
        bench.clock.advance(59_999)
        assert await hand.claim(4) == []
        bench.clock.advance(1)
        (probe,) = await hand.claim(4)
        await hand.succeed(probe)
        assert len(await hand.claim(4)) == 3

    async def test_jobs_that_were_under_way_prolong_nothing(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:openai", concurrency=5))
        await bench.add_many(4, limits=("openai",))
        hand = bench.hand()
        one, two, three = await hand.claim(3)
        await hand.trip(one, "limit:openai", 60_000)
        bench.clock.advance(30_000)
        await hand.trip(two, "limit:openai", 60_000)
        gate = await bench.gate("limit:openai")
        assert gate is not None
        assert gate.opened == 1
        bench.clock.advance(30_000)
        (probe,) = await hand.claim(4)
        await hand.trip(three, "limit:openai", 60_000)
        await hand.succeed(probe)
        assert len(await hand.claim(4)) == 3

    async def test_a_probe_that_fails_shuts_it_again_for_a_minute(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:openai", concurrency=5))
        await bench.add_many(4, limits=("openai",))
        hand = bench.hand()
        await hand.trip(await hand.take(), "limit:openai", 600_000)
        bench.clock.advance(600_000)
        await hand.fail(await hand.take(), delay_ms=3_600_000)
        answer = await hand.ask(4)
        assert (answer.jobs, answer.next_at_ms) == ((), bench.clock.now_ms + 60_000)
        bench.clock.advance(60_000)
        await hand.succeed(await hand.take())
        assert len(await hand.claim(4)) == 2

    async def test_a_person_resets_it_sooner(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:openai", concurrency=5))
        await bench.add_many(4, limits=("openai",))
        hand = bench.hand()
        await hand.trip(await hand.take(), "limit:openai", 60_000)
        await bench.change(GateChange("limit:openai", reset=True))
        assert len(await hand.claim(4)) == 4
