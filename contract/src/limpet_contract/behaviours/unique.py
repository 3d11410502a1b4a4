"""Behaviours of unique keys: who holds one, for how long, and what a duplicate does to the job that is there."""

from __future__ import annotations

import pytest

from limpet.core.gate import GateRule, tokens
from limpet.core.jobs.job import OnDuplicate, Unique
from limpet.core.jobs.lease import Note, Signal
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Retention
from limpet_contract.behaviours.housekeeping import prune
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench
from limpet_contract.making import JobOptions, make_job

KEY = Unique("welcome:42")
DAY_MS = 86_400_000
ON_DUPLICATE: tuple[OnDuplicate, ...] = ("existing", "replace", "debounce")


@asynchronous
class TestUnique:
    async def test_a_duplicate_answers_the_job_that_is_there(self, bench: Bench) -> None:
        first = await bench.add(unique=KEY)
        answer = (await bench.put(bench.job(unique=KEY)))[0]
        assert (answer.id, answer.existing, answer.state) == (first, True, State.ready)
        assert (await bench.store.count()).enqueued == 1
        assert (await bench.view(first)).unique == "welcome:42"

    async def test_a_duplicate_within_one_batch_answers_the_first_of_them(self, bench: Bench) -> None:
        jobs = [bench.job(unique=KEY), bench.job(), bench.job(unique=KEY), bench.job(unique=Unique("other"))]
        answers = await bench.put(*jobs)
        assert [answer.existing for answer in answers] == [False, False, True, False]
        assert answers[2].id == jobs[0].id
        assert (await bench.store.get([jobs[2].id])) == [None]

    async def test_a_key_is_scoped_by_task(self, bench: Bench) -> None:
        await bench.add(task="send", unique=KEY)
        assert not (await bench.put(bench.job(task="bill", unique=KEY)))[0].existing

    async def test_a_key_is_the_same_in_every_queue(self, bench: Bench) -> None:
        first = await bench.add(queue="a", unique=KEY)
        assert (await bench.put(bench.job(queue="b", unique=KEY)))[0].id == first

    @pytest.mark.parametrize("on_duplicate", ON_DUPLICATE)
    async def test_a_running_duplicate_always_answers_existing(self, bench: Bench, on_duplicate: OnDuplicate) -> None:
        first = await bench.add(unique=KEY, args=b'{"n":1}')
        claimed = await bench.hand().take()
        again = bench.job(unique=Unique(KEY.key, on_duplicate=on_duplicate), args=b'{"n":2}', delay_ms=5_000)
        answer = (await bench.put(again))[0]
        assert (answer.id, answer.existing, answer.state) == (first, True, State.running)
        view = await bench.view(first)
        assert (view.args, view.token) == (b'{"n":1}', claimed.token)

    async def test_success_frees_a_key_without_a_window(self, bench: Bench) -> None:
        hand = bench.hand()
        await bench.add(unique=KEY)
        await hand.succeed(await hand.take())
        assert not (await bench.put(bench.job(unique=KEY)))[0].existing

    async def test_a_window_outlasts_success_and_then_ends(self, bench: Bench) -> None:
        hand, windowed = bench.hand(), Unique("daily", for_ms=60_000)
        first = await bench.add(unique=windowed)
        await hand.succeed(await hand.take())
        bench.clock.advance(59_000)
        answer = (await bench.put(bench.job(unique=windowed)))[0]
        assert (answer.id, answer.existing, answer.state) == (first, True, State.succeeded)
        bench.clock.advance(1_001)
        assert not (await bench.put(bench.job(unique=windowed)))[0].existing

    async def test_a_window_outlasts_the_job_itself_and_then_ends(self, bench: Bench) -> None:
        hand, windowed = bench.hand(), Unique("weekly", for_ms=7 * DAY_MS)
        first = await bench.add(unique=windowed)
        await hand.succeed(await hand.take())
        bench.clock.advance(2 * DAY_MS)
        await prune(bench, Retention(succeeded_ms=DAY_MS))
        assert await bench.states([first]) == [None]
        for on_duplicate in ON_DUPLICATE:
            again = Unique(windowed.key, windowed.for_ms, on_duplicate=on_duplicate)
            answer = (await bench.put(bench.job(unique=again)))[0]
            assert (answer.id, answer.existing, answer.state) == (first, True, State.succeeded)
        assert await hand.claim() == []
        bench.clock.advance(5 * DAY_MS + 1)
        second = await bench.add(unique=windowed)
        assert (await bench.put(bench.job(unique=windowed)))[0].id == second
        assert await hand.ids(5) == [second]

    async def test_a_pruned_jobs_ended_window_frees_no_key_that_a_younger_job_holds(self, bench: Bench) -> None:
        hand, windowed = bench.hand(), Unique("daily", for_ms=2 * DAY_MS)
        await bench.add(unique=windowed)
        await hand.succeed(await hand.take())
        bench.clock.advance(DAY_MS + 1)
        await prune(bench, Retention(succeeded_ms=DAY_MS))
        bench.clock.advance(DAY_MS)
        second = await bench.add(unique=windowed)
        bench.clock.advance(2 * DAY_MS + 1)
        await prune(bench, Retention(succeeded_ms=DAY_MS))
        assert (await bench.put(bench.job(unique=windowed)))[0].id == second

    async def test_a_job_that_lives_longer_than_its_window_still_holds_its_key(self, bench: Bench) -> None:
        windowed = Unique("daily", for_ms=1_000)
        first = await bench.add(unique=windowed)
        bench.clock.advance(5_000)
        assert (await bench.put(bench.job(unique=windowed)))[0].id == first

    async def test_an_ended_window_frees_no_key_that_a_younger_job_holds(self, bench: Bench) -> None:
        hand, windowed = bench.hand(), Unique("daily", for_ms=1_000)
        await bench.add(unique=windowed)
        old = await hand.take()
        await hand.succeed(old)
        bench.clock.advance(2_000)
        second = await bench.add(unique=windowed)
        bench.clock.advance(2_000)
        assert (await bench.put(bench.job(unique=windowed)))[0].id == second

    @pytest.mark.parametrize("end", ["dead", "cancelled", "dropped", "forced", "expired"])
    async def test_dead_and_cancelled_never_block_a_new_job(self, bench: Bench, end: str) -> None:
        hand, windowed = bench.hand(), Unique("daily", for_ms=3_600_000)
        first = await bench.add(unique=windowed, expires_ms=1_000 if end == "expired" else None)
        if end == "dead":
            await hand.bury(await hand.take())
        elif end == "dropped":
            await hand.drop(await hand.take())
        elif end == "forced":
            await hand.take()
            await bench.cancel(first, force=True)
        elif end == "cancelled":
            await bench.cancel(first)
        else:
            bench.clock.advance(1_001)
            assert await hand.claim() == []
        assert await bench.state(first) is (State.dead if end == "dead" else State.cancelled)
        assert not (await bench.put(bench.job(unique=windowed)))[0].existing

    async def test_a_key_is_held_only_in_the_states_it_names(self, bench: Bench) -> None:
        waiting = Unique("refresh", states=frozenset({State.scheduled, State.ready}))
        first = await bench.add(unique=waiting)
        assert (await bench.put(bench.job(unique=waiting)))[0].id == first
        await bench.hand().take()
        assert not (await bench.put(bench.job(unique=waiting)))[0].existing

    async def test_the_key_stays_held_through_a_retry(self, bench: Bench) -> None:
        hand = bench.hand()
        first = await bench.add(unique=KEY)
        await hand.fail(await hand.take(), delay_ms=5_000)
        answer = (await bench.put(bench.job(unique=KEY)))[0]
        assert (answer.id, answer.state) == (first, State.scheduled)


@asynchronous
class TestReplace:
    REPLACE = Unique("report", on_duplicate="replace")
    DEBOUNCE = Unique("report", on_duplicate="debounce")

    async def test_replace_gives_the_waiting_job_new_arguments_and_keeps_its_id(self, bench: Bench) -> None:
        first = await bench.add(unique=self.REPLACE, args=b'{"n":1}')
        answer = (await bench.put(bench.job(unique=self.REPLACE, args=b'{"n":2}', tags=("new",))))[0]
        assert (answer.id, answer.existing, answer.state) == (first, True, State.ready)
        claimed = await bench.hand().claim(5)
        assert [(job.id, job.args) for job in claimed] == [(first, b'{"n":2}')]
        assert (await bench.store.count()).enqueued == 1

    @pytest.mark.parametrize("costs", [{"usd": 7, "tokens": 1}, {}])
    async def test_replace_takes_what_the_new_one_costs_and_carries(self, bench: Bench, costs: dict[str, int]) -> None:
        first = await bench.add(unique=self.REPLACE, cost=2, costs={"usd": 3}, tags=("old",), meta=b'{"request":"1"}')
        await bench.put(bench.job(unique=self.REPLACE, cost=5, costs=costs, tags=("new",), meta=b'{"request":"2"}'))
        view = await bench.view(first)
        assert (view.cost, view.costs, view.tags, view.unique) == (5, costs, ("new",), "report")
        assert view.meta == b'{"request":"2"}'
        await bench.declare(GateRule("limit:usd", unit="usd", cap=10, period="day"))
        await bench.declare(GateRule("limit:r", interval_us=1_000_000, burst=9))
        await bench.put(bench.job(unique=self.REPLACE, limits=("usd", "r"), cost=4, costs=costs))
        (job,) = await bench.hand().claim(5)
        assert (job.id, job.cost, job.costs) == (first, 4, costs)
        usd, rate = await bench.gate("limit:usd"), await bench.gate("limit:r")
        assert usd is not None
        assert rate is not None
        assert (usd.spent, tokens(rate, bench.clock.now_ms)) == (costs.get("usd", 0), 5)

    @pytest.mark.parametrize("which", ["old in a flow", "new in a flow", "old waits"])
    async def test_what_is_part_of_a_flow_stays_so_and_costs_what_it_did(self, bench: Bench, which: str) -> None:
        parent, flow = await bench.add(task="parent"), b"f" * 16
        old: JobOptions = {"old in a flow": {"flow": flow}, "old waits": {"after": (parent,)}}.get(which, {})  # type: ignore[assignment]
        new: JobOptions = {"flow": flow} if which == "new in a flow" else {}
        old = {**old, "unique": self.REPLACE, "costs": {"usd": 3}, "tags": ("old",)}
        (first,) = await bench.put(make_job(bench.id(), old))
        await bench.put(make_job(bench.id(), {**new, "unique": self.REPLACE, "costs": {"usd": 9}, "args": b'{"n":2}'}))
        view = await bench.view(first.id)
        assert (view.args, view.costs, view.tags) == (b'{"n":2}', {"usd": 3}, ("old",))
        assert (view.flow, view.after) == (old.get("flow"), old.get("after", ()))

    async def test_replace_takes_the_new_priority(self, bench: Bench) -> None:
        before = await bench.add(priority=5)
        first = await bench.add(unique=self.REPLACE, priority=8)
        await bench.put(bench.job(unique=self.REPLACE, priority=0))
        assert (await bench.view(first)).lane.priority == 0
        assert await bench.hand().ids(5) == [first, before]

    async def test_replace_takes_the_new_time(self, bench: Bench) -> None:
        first = await bench.add(unique=self.REPLACE, delay_ms=60_000)
        sooner = bench.clock.now_ms + 1_000
        answer = (await bench.put(bench.job(unique=self.REPLACE, due_at_ms=sooner)))[0]
        assert (answer.id, answer.state) == (first, State.scheduled)
        assert (await bench.view(first)).due_at_ms == sooner
        bench.clock.advance(1_000)
        assert await bench.hand().ids(5) == [first]

    @pytest.mark.parametrize("away", ["later", "more urgent", "another task's queue"])
    async def test_a_job_replaced_there_and_back_is_handed_out_once(self, bench: Bench, away: str) -> None:
        before, first = await bench.add(), await bench.add(unique=self.REPLACE)
        elsewhere: dict[str, JobOptions] = {
            "later": {"delay_ms": 60_000},
            "more urgent": {"priority": 3},
            "another task's queue": {"queue": "other"},
        }
        for options in (elsewhere[away], JobOptions(), elsewhere[away], JobOptions()):
            await bench.put(make_job(bench.id(), {**options, "unique": self.REPLACE}))
        hand = bench.hand()
        jobs = await hand.claim(10)
        assert [job.id for job in jobs] == [before, first]
        await bench.check_books()
        await hand.succeed(*jobs)
        await bench.check_books()
        assert await hand.claim(10) == []

    async def test_replace_within_one_batch_leaves_one_job_with_the_last_arguments(self, bench: Bench) -> None:
        jobs = [bench.job(unique=self.REPLACE, args=b'{"n":%d}' % n) for n in range(3)]
        answers = await bench.put(*jobs)
        assert [(answer.id, answer.existing) for answer in answers] == [
            (jobs[0].id, False),
            (jobs[0].id, True),
            (jobs[0].id, True),
        ]
        assert [(job.id, job.args) for job in await bench.hand().claim(5)] == [(jobs[0].id, b'{"n":2}')]

    async def test_a_replaced_job_that_waits_for_parents_goes_on_waiting(self, bench: Bench) -> None:
        hand, parent = bench.hand(), await bench.add(task="parent")
        first = await bench.add(unique=self.REPLACE, after=(parent,), args=b'{"n":1}')
        answer = (await bench.put(bench.job(unique=self.REPLACE, args=b'{"n":2}', after=(parent,))))[0]
        assert (answer.id, answer.state) == (first, State.blocked)
        await hand.succeed(await hand.take())
        assert [(job.id, job.args) for job in await hand.claim(5)] == [(first, b'{"n":2}')]

    @pytest.mark.parametrize("on_duplicate", ["replace", "debounce"])
    @pytest.mark.parametrize("kind", ["step", "checkpoint"])
    async def test_a_job_that_remembers_what_it_has_done_is_not_replaced(
        self, bench: Bench, on_duplicate: OnDuplicate, kind: str
    ) -> None:
        key, hand = Unique("report", on_duplicate=on_duplicate), bench.hand()
        id = await bench.add(unique=key, args=b'{"n":1}')
        job = await hand.take()
        assert await hand.save(job, Note(kind, "", b"1"))
        await hand.suspend(job, 60_000, "paid")
        before = await bench.view(id)
        answer = (await bench.put(bench.job(unique=key, args=b'{"n":2}', priority=0, queue="other")))[0]
        assert (answer.id, answer.existing, answer.state) == (id, True, State.scheduled)
        assert await bench.view(id) == before
        assert await bench.signal(Signal(id, "paid", b"1")) == ["woken"]
        assert (await hand.take()).args == b'{"n":1}'
        await bench.check_books()

    async def test_a_job_that_begins_anew_is_replaced_before_its_next_attempt(self, bench: Bench) -> None:
        hand = bench.hand()
        id = await bench.add(unique=self.REPLACE, args=b'{"n":1}')
        job = await hand.take()
        for kind in ("log", "progress"):
            assert await hand.save(job, Note(kind, "", b"1"))
        await bench.signal(Signal(id, "paid", b"1"))
        await hand.fail(job, delay_ms=60_000)
        (answer,) = await bench.put(bench.job(unique=self.REPLACE, args=b'{"n":2}'))
        assert (answer.id, answer.state) == (id, State.ready)
        assert (await hand.take()).args == b'{"n":2}'

    async def test_debounce_restarts_the_delay(self, bench: Bench) -> None:
        first = await bench.add(unique=self.DEBOUNCE, delay_ms=10_000, args=b'{"n":1}')
        bench.clock.advance(9_000)
        await bench.put(bench.job(unique=self.DEBOUNCE, delay_ms=10_000, args=b'{"n":2}'))
        assert (await bench.view(first)).due_at_ms == bench.clock.now_ms + 10_000
        bench.clock.advance(9_999)
        hand = bench.hand()
        assert await hand.claim() == []
        bench.clock.advance(1)
        assert [(job.id, job.args) for job in await hand.claim(5)] == [(first, b'{"n":2}')]

    async def test_debounce_puts_a_ready_job_back_to_sleep(self, bench: Bench) -> None:
        first = await bench.add(unique=self.DEBOUNCE)
        answer = (await bench.put(bench.job(unique=self.DEBOUNCE, delay_ms=5_000)))[0]
        assert (answer.id, answer.state) == (first, State.scheduled)
        assert await bench.hand().claim() == []
