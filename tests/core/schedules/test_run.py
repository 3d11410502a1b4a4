"""Runs: what job a tick becomes, and what it does about earlier runs that are not finished."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from limpet.core.errors import InvalidArguments, InvalidOption
from limpet.core.jobs.job import Lane, Policy, Unique
from limpet.core.jobs.state import LIVE, State
from limpet.core.jobs.view import JobView
from limpet.core.limits.budget import Budget
from limpet.core.limits.limit import Limit
from limpet.core.schedules.policy import Overlap
from limpet.core.schedules.run import Run, Verdict, check_fits, job_of, live_runs, verdict
from limpet.core.schedules.schedule import Schedule
from limpet.core.schedules.when import Every
from limpet.core.tasks.task import TaskSpec

TICK = 1_800_000_000_000
RUN = Run(id=b"r" * 16, tick_at_ms=TICK)


def send(to: str, count: int = 1) -> None: ...


def spec(**options: Any) -> TaskSpec:
    return TaskSpec.declare(send, name="send", **options)


BUDGETED = spec(limits=[Budget("mail", usd=1)], cost=lambda count, **_: {"usd": count * 5})


def schedule(args: bytes = b'{"to":"a@b.c"}', overlap: str = "skip", **options: Any) -> Schedule:
    return Schedule.declare(Every(60, overlap=overlap), task="send", name="hello", args=args, options=options)


def view(number: int, state: State = State.running, after: tuple[int, ...] = ()) -> JobView:
    parents = tuple(bytes([parent]) * 16 for parent in after)
    return JobView(bytes([number]) * 16, state, Lane("q", "send"), Policy(), b"{}", 1, 0, 0, 0, after=parents)


def ids(*numbers: int) -> tuple[bytes, ...]:
    return tuple(bytes([number]) * 16 for number in numbers)


ONE = [view(1)]
ROW = [view(1), view(2, State.blocked, after=(1,))]
LONE = [view(1), view(2)]


@pytest.mark.parametrize(
    ("overlap", "live", "expected"),
    [
        *((overlap, [], Verdict()) for overlap in Overlap),
        (Overlap.allow, ONE, Verdict()),
        (Overlap.skip, ONE, Verdict(after=ids(1))),  # the key decides; what holds none is waited for
        (Overlap.skip, ROW, Verdict(after=ids(2))),
        (Overlap.queue_one, ONE, Verdict(after=ids(1))),
        (Overlap.queue_one, ROW, Verdict(fires=False, after=ids(2))),
        (Overlap.queue_one, LONE, Verdict(fires=False, after=ids(1, 2))),
        (Overlap.cancel_running, ONE, Verdict(after=ids(1), cancels=ids(1))),
        (Overlap.cancel_running, ROW, Verdict(after=ids(1), cancels=ids(1, 2))),
        (Overlap.cancel_running, [view(1, State.ready)], Verdict(cancels=ids(1))),
    ],
)
def test_what_a_tick_does_about_runs_that_are_not_finished(
    overlap: Overlap, live: list[JobView], expected: Verdict
) -> None:
    assert verdict(overlap, live) == expected


def test_a_run_is_a_job_of_the_task_as_declared() -> None:
    job, _ = job_of(schedule(priority="low", tags=["daily"]), spec(queue="mail", tags=["mail"]), RUN)
    assert (job.id, job.lane.queue, job.lane.task, job.lane.priority) == (RUN.id, "mail", "send", 8)
    assert job.args == b'{"to":"a@b.c"}'
    assert job.tags == ("mail", "daily", "schedule:hello")
    assert msgspec.json.decode(job.meta) == {"schedule": "hello", "tick": "2027-01-15T08:00:00.000Z"}
    assert (job.after, job.if_parent_fails, job.due_at_ms, job.expires_ms) == ((), "cancel", None, None)


def test_a_run_behind_others_runs_however_they_end() -> None:
    asked = Run(id=RUN.id, tick_at_ms=TICK, due_at_ms=TICK + 5, expires_ms=60_000, after=ids(1))
    job, _ = job_of(schedule(), spec(), asked)
    assert (job.after, job.if_parent_fails, job.due_at_ms, job.expires_ms) == (ids(1), "run", TICK + 5, 60_000)


@pytest.mark.parametrize(
    ("overlap", "holds", "states"),
    [
        ("skip", True, LIVE),
        ("skip", False, frozenset()),
        ("queue_one", True, frozenset()),
        ("cancel_running", True, frozenset()),
        ("allow", True, frozenset()),
    ],
)
def test_the_key_of_a_schedule_stops_ticks_where_it_should(overlap: str, holds: bool, states: frozenset[State]) -> None:
    asked = Run(id=RUN.id, tick_at_ms=TICK, holds_key=holds)
    job, _ = job_of(schedule(overlap=overlap), spec(), asked)
    assert job.unique == Unique("schedule:hello", states=states)
    (term,) = live_runs(schedule()).terms
    assert (term.field, term.value) == ("unique", "schedule:hello")


def test_a_task_with_a_key_of_its_own_keeps_it() -> None:
    job, _ = job_of(schedule(), spec(unique="to:{to}", unique_for=60, on_duplicate="replace"), RUN)
    assert job.unique == Unique("to:a@b.c", 60_000)


def test_arguments_that_do_not_fit_are_stored_as_they_are() -> None:
    job, _ = job_of(schedule(b'{"to":7}'), spec(), RUN)
    assert job.args == b'{"to":7}'


def test_what_fits_is_accepted() -> None:
    check_fits(schedule(), spec())
    check_fits(schedule(), spec(unique=True))
    check_fits(schedule(overlap="allow"), spec(unique=True, unique_states=["ready"]))
    check_fits(schedule(b'{"to":"a","count":0}'), BUDGETED)
    check_fits(schedule(), dataclasses.replace(BUDGETED, cost=None))  # only code that is elsewhere knows


@pytest.mark.parametrize(
    ("given", "task", "error", "said"),
    [
        (schedule(b"{}"), spec(), InvalidArguments, "schedule hello: send() misses 'to'"),
        (schedule(b'{"to":7}'), spec(), InvalidArguments, "to of send() does not fit"),
        (schedule(b'{"too":"a"}'), spec(), InvalidArguments, "did you mean 'to'"),
        (schedule(overlap="queue_one"), spec(unique=True), InvalidOption, "needs two jobs"),
        (schedule(overlap="cancel_running"), spec(unique=True), InvalidOption, "needs two jobs"),
        (schedule(), spec(unique=True, unique_states=["ready"]), InvalidOption, "overlap='allow'"),
        (schedule(), BUDGETED, InvalidArguments, "schedule hello: it needs $5, and Budget('mail') is $1 a day"),
        (schedule(b'{"to":"a","count":0}', cost={"usd": 2}), BUDGETED, InvalidArguments, "it needs $2"),
        (schedule(), spec(limits=[Limit("to:{to.name}", rate="1/s")]), InvalidArguments, "has no 'name'"),
    ],
)
def test_what_cannot_work_with_its_task_is_refused(
    given: Schedule, task: TaskSpec, error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as caught:
        check_fits(given, task)
    assert said in str(caught.value)
