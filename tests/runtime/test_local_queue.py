"""Which held job starts next, and for whom places are kept."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from limpet.core.jobs.job import URGENT, Lane, Policy
from limpet.core.jobs.lease import Claimed
from limpet.core.limits.limit import Limit
from limpet.core.tasks.task import TaskSpec
from limpet.runtime.local_queue import Demand, LocalQueue, Pace, Slots
from limpet.runtime.settings import Reserve, WorkerSettings


async def in_loop() -> None: ...


def in_thread() -> None: ...


TASKS = {spec.name: spec for spec in (TaskSpec.declare(fn, name=fn.__name__) for fn in (in_loop, in_thread))}


def queue(slots: int = 9, threads: int = 3, reserve: int = 1) -> LocalQueue:
    demand = Demand()
    return LocalQueue(TASKS, Slots(slots, reserve), Slots(threads, reserve), Slots(1), isolates=True, demand=demand)


def job(number: int, priority: int = 5, *, task: str = "in_loop", lost: int = 0, limit: str | None = None) -> Claimed:
    lane = Lane("q", task, priority, limits=() if limit is None else (limit,))
    return Claimed(number.to_bytes(16, "big"), 1, 1, lost, lane, Policy(), b"{}", 0, 0, 0)


def numbers(rack: LocalQueue) -> list[int]:
    """Start everything that may start."""
    found = []
    while (taken := rack.pop()) is not None:
        found.append(int.from_bytes(taken[0].id, "big"))
    return found


@pytest.mark.parametrize("asked", [1, 2, 9, 10, 16, 100])
@pytest.mark.parametrize("urgent", [(), ("async",), ("thread",), ("process",)], ids=str)
def test_places_are_those_asked_for_and_a_tenth_on_top_where_a_task_is_urgent(asked: int, urgent: tuple[str]) -> None:
    reserve = Reserve.of(WorkerSettings(concurrency=asked, threads=asked), urgent)
    tenth = {1: 0, 2: 1, 9: 1, 10: 1, 16: 1, 100: 10}[asked]
    assert reserve == Reserve(tenth if urgent else 0, tenth if "thread" in urgent else 0)
    places = Slots(asked, reserve.slots)
    assert (places.free(5), places.free(3), places.free(0)) == (asked, asked + reserve.slots, asked + reserve.slots)


@pytest.mark.parametrize("reserve", [0, 3])
def test_a_reserve_that_is_asked_for_is_what_there_is(reserve: int) -> None:
    for urgent in ((), ("thread",)):
        assert Reserve.of(WorkerSettings(concurrency=1, reserve=reserve), urgent) == Reserve(reserve, reserve)


def test_urgent_jobs_that_run_leave_ordinary_ones_the_places_that_were_asked_for() -> None:
    held = queue(slots=2, reserve=1)
    held.push(job(0, priority=0))
    for number in range(1, 5):
        held.push(job(number))
    assert numbers(held) == [0, 1, 2]
    held.done(job(1), "async")
    held.push(job(9, priority=0))
    assert numbers(held) == [9]  # and urgent ones take those, too, when they are first
    held.done(job(0, priority=0), "async")
    assert numbers(held) == [3]


def test_the_most_urgent_starts_first_and_equals_in_order_of_arrival() -> None:
    held = queue(slots=100)
    for number, priority in enumerate([5, 8, 0, 5, 3]):
        held.push(job(number, priority))
    assert numbers(held) == [2, 4, 0, 3, 1]


def test_ordinary_jobs_leave_the_reserve_free_and_urgent_ones_take_it() -> None:
    held = queue(slots=9)
    for number in range(12):
        held.push(job(number))
    assert numbers(held) == list(range(9))
    held.push(job(99, priority=3))
    assert numbers(held) == [99]
    held.push(job(98, priority=0))
    assert numbers(held) == []
    held.done(job(0), "async")
    assert numbers(held) == [98]


def test_suspects_and_limited_jobs_start_before_any_that_were_held() -> None:
    held = queue()
    held.push(job(1, priority=0))
    held.push(job(2, priority=8, lost=1))
    held.push(job(3, priority=8, limit="smtp"))
    assert numbers(held) == [2, 3, 1]


def test_an_aged_job_starts_before_all_that_are_held_and_is_shed_after_them() -> None:
    held = queue()
    for number, priority in enumerate([0, 5]):
        held.push(job(number, priority))
    held.push(job(2, priority=5, limit="smtp"))
    held.push(job(3, priority=8), aged=True)
    assert [int.from_bytes(each.id, "big") for each in held.trim(2)] == [0, 1]
    assert numbers(held) == [3, 2]


@pytest.mark.parametrize("task", ["in_loop", "in_thread"])
def test_an_aged_job_takes_no_place_of_urgent_ones_and_stops_none(task: str) -> None:
    held = queue(slots=3, threads=3)
    for number in range(3):
        held.push(job(number, task=task))
    assert numbers(held) == [0, 1, 2]
    held.push(job(10, priority=8, task=task), aged=True)
    assert numbers(held) == []
    held.push(job(11, priority=0, task=task))
    assert numbers(held) == [11]
    held.push(job(12, priority=3, task=task))
    assert [int.from_bytes(each.id, "big") for each in held.take_excess(ahead=0)] == (
        [10, 12] if task == "in_thread" else []
    )
    held.push(job(13, priority=8, task=task), aged=True)
    held.done(job(0), "async" if task == "in_loop" else "thread")
    assert numbers(held) == [13 if task == "in_thread" else 10]


def test_a_job_lost_twice_runs_in_a_process() -> None:
    held = queue()
    assert [held.executor_of(job(1, lost=lost)) for lost in (0, 1, 2)] == ["async", "async", "process"]


def test_busy_threads_do_not_stop_jobs_of_the_loop() -> None:
    held = queue(threads=1)
    for number in range(3):
        held.push(job(number, priority=4, task="in_thread"))
    held.push(job(10))
    assert numbers(held) == [0, 10]
    assert held.held == 2


def test_what_a_saturated_executor_cannot_start_is_surplus() -> None:
    held = queue(threads=1)
    for number in range(5):
        held.push(job(number, task="in_thread"))
    assert numbers(held) == [0]
    assert [int.from_bytes(each.id, "big") for each in held.take_excess(ahead=1)] == [2, 3, 4]
    assert held.held == 1


def test_no_more_limited_jobs_are_asked_for_than_can_start_in_any_executor_that_has_a_place() -> None:
    limited = TaskSpec.declare(in_thread, name="in_thread", limits=[Limit("model", rate="10/s")])
    tasks = {"in_loop": TASKS["in_loop"], "in_thread": limited}
    held = LocalQueue(tasks, Slots(9, 1), Slots(3, 1), Slots(1), isolates=True, demand=Demand())
    assert (held.startable(), held.startable(URGENT)) == (3, 4)
    held.promised = 2
    assert held.startable() == 1
    held.promised = 0
    for number in range(3):
        held.push(job(number, priority=0, task="in_thread", limit="model"))
    assert held.startable(URGENT) == 1  # they have not started yet, but will
    held.push(job(3, priority=0, task="in_thread", limit="model"))
    assert held.startable(URGENT) == 6  # those of threads are not asked for any more
    poked = held.demand.all.event
    for left in (3, 2, 1, 0):  # once all of them have started, claimers are told
        assert not poked.is_set()
        assert held.pop() is not None
        assert held.held == left
    assert poked.is_set()
    assert held.startable() == 6


def test_a_place_that_a_held_job_will_take_is_not_free_for_others() -> None:
    held = queue(threads=1)
    held.push(job(1, priority=3, task="in_thread"))
    assert [held.idle("thread", priority) for priority in (3, 5)] == [True, False]
    held.push(job(2, priority=3, task="in_thread"))
    assert not held.idle("thread", 3)


def test_shedding_takes_the_least_urgent() -> None:
    held = queue()
    for number, priority in enumerate([8, 0, 5, 3]):
        held.push(job(number, priority, task="in_thread" if number % 2 else "in_loop"))
    assert [int.from_bytes(each.id, "big") for each in held.trim(2)] == [2, 0]
    assert held.held == 2


def test_a_held_job_can_be_taken_out_by_id() -> None:
    held = queue()
    for number in range(5):
        held.push(job(number))
    assert held.remove(job(2).id, 1)
    assert not held.remove(job(2).id, 1)
    assert not held.remove(job(3).id, 99)
    assert numbers(held) == [0, 1, 3, 4]


def test_what_was_claimed_up_to_a_token_can_be_dropped() -> None:
    held = queue()
    for number in range(4):
        held.push(replace(job(number), token=number))
    held.drop(1)
    assert numbers(held) == [2, 3]


def test_claim_ahead_follows_the_observed_speed() -> None:
    now_s = 0.0
    pace = Pace(10, lambda: now_s)
    assert pace.ahead() == 0  # nothing observed yet

    def window(ended: int, each_s: float) -> int:
        nonlocal now_s
        now_s += 1.0
        pace.ended, pace.busy_s = ended, ended * each_s
        return pace.ahead()

    assert window(50_000, 0.000_01) == 500
    assert window(1_000_000, 0) == 1_024  # clamped
    pace.stall()
    assert window(20, 0.001) == 2  # few but quick: one is there when one ends
    pace.stall()
    assert window(20, 0.5) == 0  # slow: hold none


def test_jobs_of_a_barred_gate_lie_aside_and_are_still_known() -> None:
    held = queue()
    for number in range(4):
        held.push(job(number, limit="api" if number % 2 else None))
    held.bar("limit:api", at_once=True)
    held.push(job(5, limit="api"))
    assert numbers(held) == [0, 2]
    assert (held.held, held.aside) == (0, 3)
    known = held.keys()
    assert {int.from_bytes(id, "big") for id, _ in known} == {1, 3, 5}
    assert held.remove(job(3).id, 1)
    assert held.lift(["limit:api"]) == []
    assert numbers(held) == [1, 5]


def test_what_was_claimed_for_a_free_place_keeps_it_when_another_fails() -> None:
    held = queue()
    held.push(job(1, limit="api"))
    held.push(job(2))
    held.bar("limit:api", at_once=False)
    held.bar("task:in_loop", at_once=False)
    assert numbers(held) == [1]


def test_what_finds_no_place_when_the_bar_is_lifted_is_taken_out() -> None:
    held = queue(slots=2, reserve=0)
    held.bar("limit:api", at_once=True)
    for number in range(3):
        held.push(job(number, limit="api"))
    held.push(job(9))
    assert numbers(held) == [9]
    assert [int.from_bytes(each.id, "big") for each in held.lift(["limit:api"])] == [1, 2]
    assert numbers(held) == [0]


def test_a_shut_gate_takes_out_what_is_held_there_and_the_end_takes_out_all() -> None:
    held = queue()
    held.bar("limit:api", at_once=True)
    for number in range(3):
        held.push(job(number, limit="api" if number else None))
    held.push(job(7, limit="other"))
    assert [int.from_bytes(each.id, "big") for each in held.withdraw({"limit:other"})] == [7]
    assert [int.from_bytes(each.id, "big") for each in held.clear()] == [0, 1, 2]
    assert (held.held, held.aside) == (0, 0)
