"""Behaviours of what operators do at run time: pause, resume, drain, hold, and named records."""

from __future__ import annotations

import pytest

from limpet.core.errors import QueueDraining
from limpet.core.gate import GateChange, GateRule, Pause
from limpet.core.jobs.job import Unique
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Control
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench

PLACES = ["queue:default", "task:work", "all"]


def pause(bench: Bench, key: str) -> GateChange:
    return GateChange(key, pause=Pause("ada", "maintenance", bench.clock.now_ms))


@asynchronous
class TestPause:
    @pytest.mark.parametrize("key", PLACES)
    async def test_nothing_is_given_while_paused_and_all_of_it_after(self, bench: Bench, key: str) -> None:
        ids = await bench.add_many(3)
        gate = (await bench.change(pause(bench, key)))[0]
        assert gate.paused is not None
        assert (gate.paused.by, gate.paused.reason) == ("ada", "maintenance")
        hand = bench.hand()
        assert await hand.claim(5) == []
        bench.clock.advance(86_400_000)
        assert await hand.claim(5) == []
        await bench.change(GateChange(key, resume=True))
        assert await hand.ids(5) == ids

    @pytest.mark.parametrize("key", PLACES)
    async def test_a_pause_set_after_an_empty_claim_still_stops(self, bench: Bench, key: str) -> None:
        hand = bench.hand()
        assert await hand.claim() == []
        await bench.change(pause(bench, key))
        await bench.add()
        assert await hand.claim() == []

    @pytest.mark.parametrize(("key", "runs"), [("queue:default", "other queue"), ("task:work", "other task")])
    async def test_a_pause_stops_nothing_else(self, bench: Bench, key: str, runs: str) -> None:
        await bench.change(pause(bench, key))
        await bench.add(priority=0)
        other = await (bench.add(queue="other", task="other") if runs == "other queue" else bench.add(task="other"))
        assert await bench.hand().ids(5) == [other]

    async def test_running_jobs_finish_under_a_pause(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        await bench.change(pause(bench, "queue:default"))
        assert (await hand.succeed(job))[0].answer == "done"
        assert await bench.state(id) is State.succeeded

    async def test_a_paused_queue_takes_new_jobs(self, bench: Bench) -> None:
        await bench.change(pause(bench, "queue:default"))
        id = await bench.add()
        assert await bench.state(id) is State.ready

    async def test_jobs_that_become_due_under_a_pause_wait_for_its_end(self, bench: Bench) -> None:
        id = await bench.add(delay_ms=1_000)
        await bench.change(pause(bench, "queue:default"))
        bench.clock.advance(2_000)
        hand = bench.hand()
        assert await hand.claim() == []
        await bench.change(GateChange("queue:default", resume=True))
        assert await hand.ids() == [id]

    async def test_two_pauses_must_both_end(self, bench: Bench) -> None:
        id = await bench.add()
        await bench.change(pause(bench, "queue:default"), pause(bench, "task:work"))
        hand = bench.hand()
        assert await hand.claim() == []
        await bench.change(GateChange("queue:default", resume=True))
        assert await hand.claim() == []
        await bench.change(GateChange("task:work", resume=True))
        assert await hand.ids() == [id]

    async def test_another_handle_keeps_the_pause(self, bench: Bench) -> None:
        await bench.add()
        await bench.change(pause(bench, "all"))
        assert await (await bench.other()).hand().claim() == []

    async def test_a_limit_may_be_paused_too(self, bench: Bench) -> None:
        id = await bench.add(limits=("smtp",))
        await bench.change(pause(bench, "limit:smtp"))
        hand = bench.hand()
        assert await hand.claim() == []
        await bench.change(GateChange("limit:smtp", resume=True))
        assert await hand.ids() == [id]


@asynchronous
class TestDrain:
    @pytest.mark.parametrize("key", PLACES)
    async def test_a_draining_place_refuses_new_jobs_and_works_off_the_rest(self, bench: Bench, key: str) -> None:
        id = await bench.add()
        await bench.change(GateChange(key, drain=True))
        with pytest.raises(QueueDraining) as refused:
            await bench.put(bench.job())
        what = "everything" if key == "all" else key.replace(":", " ", 1)
        assert refused.value.message == f"{what} is draining and takes no new jobs"
        assert refused.value.fix.startswith("limpet resume ")
        assert await bench.hand().drain() == [id]
        await bench.change(GateChange(key, resume=True))
        await bench.add()

    async def test_a_repeated_enqueue_is_answered_while_its_queue_drains(self, bench: Bench) -> None:
        job, key = bench.job(), Unique("k")
        holder = bench.job(unique=key)
        await bench.put(job, holder)
        await bench.change(GateChange("queue:default", drain=True))
        assert (await bench.put(job))[0].existing
        assert (await bench.put(bench.job(unique=key)))[0].id == holder.id

    async def test_a_drain_refuses_nothing_elsewhere(self, bench: Bench) -> None:
        await bench.change(GateChange("queue:old", drain=True))
        await bench.add(queue="new")


@asynchronous
class TestHold:
    async def test_a_held_gate_admits_nobody_until_the_hold_is_over(self, bench: Bench) -> None:
        ids = await bench.add_many(3, limits=("openai",))
        other = await bench.add(task="other")
        hand = bench.hand()
        answer = await hand.hold(await hand.take(), "limit:openai", 12_000)
        assert (answer.answer, answer.state) == ("done", State.ready)
        assert await hand.ids(5) == [other]
        bench.clock.advance(11_999)
        assert await hand.claim(5) == []
        bench.clock.advance(1)
        assert [*await hand.ids(5), *await hand.ids(5)] == ids[:1]
        bench.clock.advance(10_000)
        assert await hand.ids(5) == ids[1:]

    async def test_a_hold_gives_the_attempt_back_and_counts_itself(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        for number in (1, 2, 3):
            job = await hand.take()
            assert (job.attempt, job.held) == (1, number - 1)
            await hand.hold(job, "task:work", 1_000)
            view = await bench.view(id)
            assert (view.state, view.attempt, view.held) == (State.ready, 0, number)
            bench.clock.advance(1_000)
        job = await hand.take()
        assert job.held_since_ms == bench.clock.now_ms - 3_000

    async def test_a_hold_on_a_gate_that_does_not_rule_the_job_puts_the_job_off(self, bench: Bench) -> None:
        id, ruled = await bench.add(), await bench.add(task="other", limits=("elsewhere",), priority=8)
        hand = bench.hand()
        answer = await hand.hold(await hand.take(), "limit:elsewhere", 60_000)
        assert answer.answer == "done"
        view = await bench.view(id)
        assert (view.attempt, view.held) == (0, 1)
        assert await hand.claim(5) == []
        assert (await hand.ask()).next_at_ms == bench.clock.now_ms + 60_000
        bench.clock.advance(59_999)
        assert await hand.claim(5) == []
        bench.clock.advance(1)
        assert await hand.ids(5) == [id, ruled]

    async def test_a_longer_hold_stays(self, bench: Bench) -> None:
        await bench.add_many(2, limits=("openai",))
        hand = bench.hand()
        one, two = await hand.claim(2)
        await hand.hold(one, "limit:openai", 10_000)
        await hand.hold(two, "limit:openai", 1_000)
        bench.clock.advance(9_999)
        assert await hand.claim(2) == []
        bench.clock.advance(1)
        assert len(await hand.claim(2)) == 1

    async def test_an_empty_claim_says_when_the_hold_ends(self, bench: Bench) -> None:
        await bench.add()
        hand = bench.hand()
        await hand.hold(await hand.take(), "task:work", 5_000)
        assert (await hand.ask()).next_at_ms == bench.clock.now_ms + 5_000

    async def test_an_operator_may_hold_a_gate_and_let_it_go(self, bench: Bench) -> None:
        id = await bench.add()
        await bench.change(GateChange("queue:default", hold_ms=60_000))
        hand = bench.hand()
        assert await hand.claim() == []
        await bench.change(GateChange("queue:default", reset=True))
        assert await hand.ids() == [id]

    async def test_gates_are_listed_by_prefix(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:b", concurrency=1), GateRule("limit:a", concurrency=1))
        await bench.change(pause(bench, "queue:q"))
        assert [gate.key for gate in await bench.store.gates("limit:")] == ["limit:a", "limit:b"]
        assert {"limit:a", "limit:b", "queue:q"} <= {gate.key for gate in await bench.store.gates()}

    async def test_gates_are_asked_for_by_their_keys(self, bench: Bench) -> None:
        await bench.declare(*(GateRule(f"limit:{n}", concurrency=1) for n in range(600)))
        wanted = [
            *(f"limit:{n}" for n in range(500, 700)),
            "limit:5",
            "limit:5",
            "limit:",
            "limit:x",
            "limit:é\U0001f600",
        ]
        found = await bench.store.gates(keys=wanted)
        assert [gate.key for gate in found] == sorted(["limit:5", *(f"limit:{n}" for n in range(500, 600))])
        assert await bench.store.gates(keys=[]) == []


@asynchronous
class TestControls:
    async def test_a_record_is_written_and_read_back(self, bench: Bench) -> None:
        written = await bench.store.put_control(Control("schedule", "digest", b'{"cron":"0 8 * * *"}'))
        assert written is not None
        assert await bench.store.controls("schedule") == [written]
        assert (written.name, written.value) == ("digest", b'{"cron":"0 8 * * *"}')
        assert written.version > 0

    async def test_every_write_is_a_new_version(self, bench: Bench) -> None:
        first = await bench.store.put_control(Control("task", "send", b"1"))
        second = await bench.store.put_control(Control("task", "send", b"2"))
        assert first is not None
        assert second is not None
        assert second.version > first.version
        assert await bench.store.controls("task") == [second]

    async def test_a_write_that_expects_another_version_changes_nothing(self, bench: Bench) -> None:
        first = await bench.store.put_control(Control("tick", "digest", b"1"), expect=0)
        assert first is not None
        assert await bench.store.put_control(Control("tick", "digest", b"2"), expect=0) is None
        assert await bench.store.put_control(Control("tick", "digest", b"2"), expect=first.version + 7) is None
        assert await bench.store.controls("tick") == [first]
        second = await bench.store.put_control(Control("tick", "digest", b"2"), expect=first.version)
        assert second is not None
        assert second.value == b"2"

    async def test_a_write_that_expects_a_version_of_nothing_is_refused(self, bench: Bench) -> None:
        assert await bench.store.put_control(Control("tick", "digest", b"1"), expect=3) is None
        assert await bench.store.controls("tick") == []

    async def test_records_come_by_name_and_kind(self, bench: Bench) -> None:
        for kind, name in (("a", "z"), ("a", "b"), ("b", "c"), ("a", "m")):
            await bench.store.put_control(Control(kind, name, b"{}"))
        assert [control.name for control in await bench.store.controls("a")] == ["b", "m", "z"]
