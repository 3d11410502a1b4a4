"""A ticker: what it fires and drops, by whose clock, and what it does about runs, changes and other tickers."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import msgspec
import pytest

from limpet.core.gate import GateChange, GateRule
from limpet.core.jobs.lease import Beat, Serves
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Control
from limpet.core.schedules.declared import FIELD
from limpet.core.schedules.history import Tick
from limpet.core.schedules.plan import tick_job
from limpet.core.schedules.schedule import KIND, Schedule, removal
from limpet.core.schedules.when import Cron, Every, Once
from limpet.core.tasks.task import TaskSpec
from limpet.runtime.patient_store import PatientStore
from limpet.runtime.ticker import Ticker, Ticks
from limpet.runtime.timetable import Timetable
from limpet.stores.base import MARK, Store
from limpet.stores.sqlite import SqliteStore
from tests.runtime.ticking import HOUR, MINUTE, NOON, SECOND, TASKS, Stage, declared

HOURLY = declared(Every("1h"))
BESIDE = declared(Every("1h", overlap="allow"))


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    store = SqliteStore(str(tmp_path / "jobs.db"), sync="normal")
    yield Stage(store, NOON - 1)
    await store.close()


# Firing


async def test_a_tick_fires_when_it_is_due_and_once(stage: Stage) -> None:
    ticker = stage.ticker(HOURLY)
    assert await ticker.look() == 1.0
    assert await stage.fired() == []
    stage.clock.advance(1)
    for _ in range(3):
        assert await ticker.look() >= 750
    assert await stage.fired() == [NOON]
    view = await stage.run(NOON)
    assert view is not None
    assert (view.state, view.due_at_ms, view.enqueued_at_ms, view.lane.task) == (State.ready, NOON, NOON, "work")
    assert msgspec.json.decode(view.meta) == {"schedule": "hourly", "tick": "2026-12-13T12:00:00.000Z"}
    assert await stage.mark() == NOON
    assert await stage.ticks() == [Tick(NOON, NOON)]


async def test_a_tick_fires_into_a_full_queue(stage: Stage) -> None:
    rule = GateRule("queue:default", depth=1)
    await stage.store.change_gates([GateChange(rule.key, rule=rule)], now_ms=stage.clock.now_ms)
    ticker = stage.ticker(BESIDE)
    await ticker.look()
    stage.clock.advance(1)
    await ticker.look()
    stage.clock.advance(HOUR)
    await ticker.look()
    assert await stage.fired() == [NOON, NOON + HOUR]


async def test_ticks_before_a_schedule_was_stored_never_fire(stage: Stage) -> None:
    stage.clock.advance(30 * SECOND)
    ticker = stage.ticker(declared(Every("1h", catch_up="all")))
    await ticker.look()
    assert await stage.fired() == []
    stage.clock.advance(HOUR)
    await ticker.look()
    assert await stage.fired() == [NOON + HOUR]


async def test_a_ticker_sleeps_until_the_next_tick_and_never_longer_than_a_look(stage: Stage) -> None:
    stage.clock.now_ms = NOON + HOUR - 200
    ticker = stage.ticker(HOURLY)
    assert await ticker.look() == 200
    stage.clock.advance(200)
    assert 750 <= await ticker.look() <= 1_250
    assert 750 <= await stage.ticker().look() <= 1_250


async def test_a_run_carries_the_options_of_its_schedule(stage: Stage) -> None:
    when = Every("1h", jitter=600, expires_in=60)
    ticker = stage.ticker(declared(when, args=b'{"n":7}', options={"queue": "night", "priority": "low"}))
    await ticker.look()
    stage.clock.advance(11 * MINUTE)
    await ticker.look()
    view = await stage.run(NOON)
    assert view is None, "it was due up to ten minutes later, and a minute later it had expired"
    stage.clock.now_ms = NOON + HOUR - 1
    while not await stage.fired():
        await ticker.look()
        stage.clock.advance(SECOND)
    view = await stage.run(NOON + HOUR)
    assert view is not None
    assert NOON + HOUR <= view.due_at_ms <= NOON + HOUR + 10 * MINUTE
    assert view.expires_at_ms is not None
    assert abs(view.expires_at_ms - view.due_at_ms - MINUTE) <= SECOND
    assert (view.lane.queue, view.lane.priority, view.args) == ("night", 8, b'{"n":7}')


async def test_once_means_once(stage: Stage) -> None:
    ticker = stage.ticker(declared(Once(datetime.fromtimestamp(NOON / 1000, UTC))))
    await ticker.look()
    stage.clock.advance(1)
    await ticker.look()
    stage.clock.advance(24 * HOUR)
    await ticker.look()
    assert await stage.fired() == [NOON]


# Missed ticks


async def test_of_missed_ticks_the_last_fires_and_the_rest_is_told(stage: Stage) -> None:
    await stage.ticker(HOURLY).look()
    stage.clock.now_ms = NOON + 5 * HOUR + 10 * MINUTE
    await stage.ticker(HOURLY).look()
    assert await stage.fired() == [NOON + 5 * HOUR]
    now = stage.clock.now_ms
    assert await stage.ticks() == [Tick(NOON + 4 * HOUR, now, "missed", 5), Tick(NOON + 5 * HOUR, now)]


async def test_missed_ticks_may_all_be_dropped(stage: Stage) -> None:
    schedule = declared(Every("1h", catch_up="skip"))
    await stage.ticker(schedule).look()
    stage.clock.now_ms = NOON + 5 * HOUR + 10 * MINUTE
    await stage.ticker(schedule).look()
    assert await stage.fired() == []
    assert await stage.mark() == NOON + 5 * HOUR
    assert await stage.ticks() == [Tick(NOON + 5 * HOUR, stage.clock.now_ms, "missed", 6)]


async def test_missed_ticks_that_fire_late_run_one_after_the_other(stage: Stage) -> None:
    schedule = declared(Every("1h", catch_up=3))
    await stage.ticker(schedule).look()
    stage.clock.now_ms = NOON + 5 * HOUR + 10 * MINUTE
    await stage.ticker(schedule).look()
    ticks = [NOON + hours * HOUR for hours in (3, 4, 5)]
    assert await stage.fired() == ticks
    order = [tick_job("hourly", tick) for tick in ticks]
    assert await stage.bench.states(order) == [State.ready, State.blocked, State.blocked]
    for id in order:
        job = await stage.hand.take()
        assert job.id == id
        await stage.hand.bury(job)  # however the one before ends


async def test_ticks_that_fire_late_side_by_side_may(stage: Stage) -> None:
    schedule = declared(Every("1h", catch_up=3, overlap="allow"))
    await stage.ticker(schedule).look()
    stage.clock.now_ms = NOON + 5 * HOUR + 10 * MINUTE
    await stage.ticker(schedule).look()
    assert len(await stage.hand.claim(5)) == 3


async def test_expired_ticks_are_told_apart_from_missed_ones(stage: Stage) -> None:
    schedule = declared(Every("1h", catch_up="all", expires_in="90m"))
    await stage.ticker(schedule).look()
    stage.clock.now_ms = NOON + 5 * HOUR + 10 * MINUTE
    await stage.ticker(schedule).look()
    assert await stage.fired() == [NOON + 4 * HOUR, NOON + 5 * HOUR]
    assert (await stage.ticks())[0] == Tick(NOON + 3 * HOUR, stage.clock.now_ms, "expired", 4)


# Overlap


async def tick(stage: Stage, schedule: Schedule, *hours: int) -> None:
    """Let ticks pass, with a ticker that lives only for each."""
    for hour in hours:
        stage.clock.now_ms = NOON + hour * HOUR
        await stage.ticker(schedule).look()


async def test_skip_drops_ticks_during_a_run(stage: Stage) -> None:
    await stage.ticker(HOURLY).look()
    await tick(stage, HOURLY, 0)
    job = await stage.hand.take()
    await tick(stage, HOURLY, 1, 2)
    assert await stage.fired() == [NOON]
    assert [(each.at_ms, each.why) for each in await stage.ticks()] == [
        (NOON, ""),
        (NOON + HOUR, "overlap"),
        (NOON + 2 * HOUR, "overlap"),
    ]
    await stage.hand.succeed(job)
    await tick(stage, HOURLY, 3)
    assert await stage.fired() == [NOON, NOON + 3 * HOUR]


async def test_skip_counts_a_run_that_waits_for_its_retry(stage: Stage) -> None:
    await stage.ticker(HOURLY).look()
    await tick(stage, HOURLY, 0)
    await stage.hand.fail(await stage.hand.take(), delay_ms=2 * HOUR)
    await tick(stage, HOURLY, 1)
    assert await stage.fired() == [NOON]


async def test_skip_holds_while_ticks_that_were_caught_up_run(stage: Stage) -> None:
    schedule = declared(Every("1h", catch_up=3))
    await stage.ticker(schedule).look()
    await tick(stage, schedule, 5)  # three ticks, one after the other
    assert len(await stage.fired()) == 4, "one on time and three late"
    for hour in (6, 7, 8):
        await stage.hand.succeed(await stage.hand.take())
        await tick(stage, schedule, hour)
        assert len(await stage.fired()) == 4
    await stage.hand.succeed(await stage.hand.take())
    await tick(stage, schedule, 9)
    assert len(await stage.fired()) == 5


async def test_ticks_to_catch_up_wait_behind_a_part_of_them_that_a_dead_ticker_fired(stage: Stage) -> None:
    """The first of three fired, and the ticker died: its run holds no key yet, and nothing may run beside it."""
    schedule = declared(Every("1h", catch_up=3))
    await stage.ticker(schedule).look()
    stage.clock.now_ms = NOON + 5 * HOUR + 10 * MINUTE
    dying = stage.ticker(schedule, store=Mortal(stage.store, "relay", 2))  # type: ignore[arg-type]  # a store
    with pytest.raises(Killed):
        await dying.look()
    assert await stage.fired() == [NOON + 3 * HOUR]
    await stage.ticker(schedule).look()
    assert await stage.fired() == [NOON + hours * HOUR for hours in (3, 4, 5)]
    assert len(await stage.hand.claim(5)) == 1


async def test_queue_one_lets_one_run_wait_behind_the_one_that_is_not_finished(stage: Stage) -> None:
    schedule = declared(Every("1h", overlap="queue_one"))
    await stage.ticker(schedule).look()
    await tick(stage, schedule, 0)
    first = await stage.hand.take()
    await tick(stage, schedule, 1, 2)
    assert await stage.fired() == [NOON, NOON + HOUR]
    assert await stage.hand.claim(5) == []
    await stage.hand.fail(first)
    again = await stage.hand.take()
    assert again.id == first.id, "a retry is still the same run"
    await stage.hand.bury(again)
    await tick(stage, schedule, 3)
    assert await stage.fired() == [NOON, NOON + HOUR, NOON + 3 * HOUR]
    assert [job.id for job in await stage.hand.claim(5)] == [tick_job("hourly", NOON + HOUR)]


async def test_allow_runs_side_by_side(stage: Stage) -> None:
    schedule = declared(Every("1h", overlap="allow"))
    await stage.ticker(schedule).look()
    await tick(stage, schedule, 0, 1, 2)
    assert len(await stage.hand.claim(5)) == 3


async def test_cancel_running_cancels_what_runs_and_starts_when_that_has_stopped(stage: Stage) -> None:
    schedule = declared(Every("1h", overlap="cancel_running"))
    await stage.ticker(schedule).look()
    await tick(stage, schedule, 0)
    first = await stage.hand.take()
    await tick(stage, schedule, 1)
    view = await stage.run(NOON)
    assert view is not None
    assert (view.state, view.cancel_requested) == (State.running, True)
    assert await stage.hand.claim(5) == []
    await tick(stage, schedule, 2)
    assert await stage.bench.state(tick_job("hourly", NOON + HOUR)) is State.cancelled
    assert await stage.hand.claim(5) == []
    await stage.hand.drop(first)
    assert [job.id for job in await stage.hand.claim(5)] == [tick_job("hourly", NOON + 2 * HOUR)]


async def test_of_ticks_that_would_cancel_each_other_the_last_fires(stage: Stage) -> None:
    schedule = declared(Every("1h", overlap="cancel_running", catch_up=3))
    await stage.ticker(schedule).look()
    await tick(stage, schedule, 5)
    assert await stage.fired() == [NOON + 5 * HOUR]
    assert [each.why for each in await stage.ticks()] == ["missed", "overlap", "overlap", "overlap", ""]


async def test_a_ticker_that_died_between_cancelling_and_firing_is_made_up_for(stage: Stage) -> None:
    schedule = declared(Every("1h", overlap="cancel_running"))
    await stage.ticker(schedule).look()
    await tick(stage, schedule, 0)
    first = await stage.hand.take()
    stage.clock.now_ms = NOON + HOUR
    dying = stage.ticker(schedule, store=Mortal(stage.store, "relay", 1))  # type: ignore[arg-type]  # a store
    with pytest.raises(Killed):
        await dying.look()
    await stage.ticker(schedule).look()
    await stage.hand.drop(first)
    assert [job.id for job in await stage.hand.claim(5)] == [tick_job("hourly", NOON + HOUR)]


async def test_a_late_ticker_does_not_cancel_the_run_that_another_has_just_started(stage: Stage) -> None:
    schedule = declared(Every("1h", overlap="cancel_running"))
    late = stage.ticker(schedule)
    await late.look()
    await tick(stage, schedule, 0, 1)
    await stage.hand.take()
    await late.look()
    view = await stage.run(NOON + HOUR)
    assert view is not None
    assert (view.state, view.cancel_requested) == (State.running, False)


async def test_a_ticker_that_was_asleep_with_its_plan_cancels_no_later_run(stage: Stage) -> None:
    schedule = declared(Every("1h", overlap="cancel_running"))
    await stage.ticker(schedule).look()
    plan = (await stage.stored()).plan(None, NOON)
    await tick(stage, schedule, 0, 1)
    await stage.hand.claim(5)
    asleep = Ticks(stage.store, lambda: stage.clock.now_ms)
    assert not await asleep.carry_out(schedule, TASKS["work"], plan, NOON)
    view = await stage.run(NOON + HOUR)
    assert view is not None
    assert (view.state, view.cancel_requested) == (State.running, False)


async def test_a_task_with_a_key_of_its_own_keeps_it(stage: Stage) -> None:
    def sync(customer: int) -> None: ...

    spec = TaskSpec.declare(sync, name="sync", unique="sync:{customer}")
    schedule = declared(Every("1h", overlap="allow"), task="sync", args=b'{"customer":7}')
    ticker = stage.ticker(schedule, tasks={"sync": spec})
    await ticker.look()
    stage.clock.advance(1)
    await ticker.look()
    stage.clock.advance(HOUR)
    await ticker.look()
    assert await stage.fired() == [NOON]
    assert [each.why for each in await stage.ticks()] == ["", "unique"]


# Refusals


async def test_ticks_of_a_draining_queue_are_caught_up_when_it_takes_jobs_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    other = declared(Every("1h"), name="other", options={"queue": "other"})
    ticker = stage.ticker(HOURLY, other)
    await ticker.look()
    await stage.bench.change(GateChange("queue:default", drain=True))
    stage.clock.advance(1)
    with caplog.at_level(logging.WARNING, "limpet.worker"):
        for _ in range(5):
            await ticker.look()
            stage.clock.advance(2 * SECOND)
    assert len([record for record in caplog.records if "refused" in record.message]) == 1
    assert await stage.fired("other") == [NOON], "no other schedule suffers"
    assert (await stage.fired(), await stage.mark()) == ([], None)
    await stage.bench.change(GateChange("queue:default", resume=True))
    stage.clock.advance(5 * SECOND)
    await ticker.look()
    assert await stage.fired() == [NOON]


async def test_nothing_is_cancelled_for_a_run_that_is_refused(stage: Stage) -> None:
    schedule = declared(Every("1h", overlap="cancel_running"))
    ticker = stage.ticker(schedule)
    await ticker.look()
    await tick(stage, schedule, 0)
    first = await stage.hand.take()
    await stage.bench.change(GateChange("queue:default", drain=True))
    stage.clock.advance(HOUR)
    await ticker.look()
    assert not (await stage.bench.view(first.id)).cancel_requested
    await stage.bench.change(GateChange("queue:default", resume=True))
    stage.clock.advance(5 * SECOND)
    await ticker.look()
    assert (await stage.bench.view(first.id)).cancel_requested


async def test_a_function_of_the_task_that_fails_is_told_and_stops_nothing_else(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(n: int = 1) -> None: ...

    def tenant(args: object) -> str:
        raise KeyError("customer")

    spec = TaskSpec.declare(broken, name="broken", tenant=tenant)
    bad = declared(Every("1h"), name="a", task="broken")
    ticker = stage.ticker(bad, HOURLY, tasks={"broken": spec, "work": TaskSpec.named("work")})
    await ticker.look()
    stage.clock.advance(1)
    with caplog.at_level(logging.WARNING, "limpet.worker"):
        await ticker.look()
    assert "KeyError in a function of task broken" in caplog.text
    assert await stage.fired() == [NOON]


# Several tickers


class Killed(BaseException):
    """The process is no more."""


class Mortal:
    """A store whose owner dies just before its n-th call of a verb."""

    def __init__(self, store: object, verb: str, number: int) -> None:
        self._store, self._verb, self._left = store, verb, number

    def __getattr__(self, name: str) -> object:
        if name == self._verb:
            self._left -= 1
            if not self._left:
                raise Killed
        return getattr(self._store, name)


async def test_of_many_tickers_one_fires(stage: Stage) -> None:
    tickers = [stage.ticker(HOURLY) for _ in range(8)]
    for ticker in tickers:
        await ticker.look()
    stage.clock.advance(1)
    await asyncio.gather(*(ticker.look() for ticker in tickers))
    assert await stage.fired() == [NOON]
    assert (await stage.bench.store.count()).enqueued == 1


class Counting:
    """A store that counts how often its records of one kind are read."""

    def __init__(self, store: Store, kind: str) -> None:
        self._store, self._kind = store, kind
        self.reads = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def controls(self, kind: str) -> list[Control]:
        self.reads += kind == self._kind
        return await self._store.controls(kind)


async def test_many_schedules_that_are_due_at_once_are_shared_out(stage: Stage) -> None:
    code = [declared(Every("1h"), name=f"s{number}") for number in range(40)]
    counting = Counting(stage.store, MARK)
    tickers = [
        Ticker(PatientStore(cast(Store, counting), rng), code, TASKS, rng, clock=lambda: stage.clock.now_ms)
        for rng in map(random.Random, range(3))
    ]
    for ticker in tickers:
        await ticker.look()
    stage.clock.advance(1)
    counting.reads = 0
    await asyncio.gather(*(ticker.look() for ticker in tickers))
    assert len(await stage.bench.everything()) == 40
    assert counting.reads < 40, "a lost race shows what has been done of all of them"


async def test_who_lost_a_race_looks_later_and_fires_when_nobody_else_did(stage: Stage) -> None:
    winner, loser = stage.ticker(BESIDE), stage.ticker(BESIDE)
    await winner.look()
    await loser.look()
    stage.clock.advance(1)
    await winner.look()
    await loser.look()
    stage.clock.now_ms = NOON + HOUR
    assert 50 <= await loser.look() <= 250
    assert await stage.fired() == [NOON]
    stage.clock.advance(250)
    await loser.look()
    assert await stage.fired() == [NOON, NOON + HOUR]
    assert await loser.look() > 250
    stage.clock.now_ms = NOON + 2 * HOUR
    await loser.look()
    assert len(await stage.fired()) == 3, "who won is quick again"


async def test_a_ticker_of_a_worker_without_the_tasks_code_leaves_its_ticks_to_others(stage: Stage) -> None:
    await stage.add(HOURLY)
    stranger = stage.ticker(tasks={})
    await stranger.look()
    stage.clock.now_ms = NOON + 1_999
    await stranger.look()
    assert await stage.fired() == []
    stage.clock.advance(1)
    await stranger.look()
    assert await stage.fired() == [NOON]


# Changes at run time


async def test_a_schedule_that_is_added_paused_resumed_or_removed_is_noticed(stage: Stage) -> None:
    ticker = stage.ticker()
    await ticker.look()
    await stage.add(BESIDE)
    await ticker.look()
    stage.clock.advance(1)
    await ticker.look()
    assert await stage.fired() == [NOON]
    await stage.change((await stage.stored()).pause("ann", "why"))
    stage.clock.advance(HOUR)
    await ticker.look()
    assert await stage.fired() == [NOON]
    stage.clock.advance(30 * MINUTE)
    await stage.change((await stage.stored()).resume(stage.clock.now_ms))
    assert await ticker.look() == 1.0
    stage.clock.advance(30 * MINUTE)
    await ticker.look()
    assert await stage.fired() == [NOON, NOON + 2 * HOUR]
    await stage.store.put_control(removal("hourly"))
    await stage.change(declared(Every("1h"), name="other"))
    stage.clock.advance(HOUR)
    await ticker.look()
    assert await stage.fired() == [NOON, NOON + 2 * HOUR]


async def test_what_has_not_changed_is_not_worked_out_again(stage: Stage) -> None:
    timetable = Timetable(stage.store, [HOURLY, declared(Every("2h"), name="other")], TASKS)
    await timetable.read(stage.clock.now_ms)
    entries = dict(timetable.entries)
    await stage.change((await stage.stored()).pause())
    await timetable.read(stage.clock.now_ms)
    assert timetable.entries["other"] is entries["other"]
    assert timetable.entries["hourly"].schedule.paused


async def test_a_schedule_that_cannot_be_read_here_is_told_and_stops_nothing_else(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.store.put_control(Control(KIND, "odd", b'{"name":"odd","task":"t","rule":{"type":"moon"}}'))
    ticker = stage.ticker(HOURLY)
    with caplog.at_level(logging.WARNING, "limpet.worker"):
        await ticker.look()
    assert "schedule cannot be read here schedule=odd" in caplog.text
    stage.clock.advance(1)
    await ticker.look()
    assert await stage.fired() == [NOON]


# What code declares


async def test_what_code_declares_is_stored_once(stage: Stage) -> None:
    await asyncio.gather(*(stage.ticker(HOURLY).look() for _ in range(4)))
    stored = await stage.stored()
    assert (stored.source, stored.since_at_ms, stored.declared) == ("code", NOON - 1, HOURLY.fingerprint)
    (control,) = await stage.store.controls(KIND)
    assert control.version == 1
    await stage.ticker(HOURLY).look()
    assert (await stage.store.controls(KIND))[0].version == 1


async def test_two_versions_of_the_code_do_not_fight(stage: Stage) -> None:
    old, new = HOURLY, declared(Every("5h"))
    await alive(stage, "old", old)
    await stage.ticker(old).look()
    await Timetable(stage.store, [new], TASKS).declare(stage.clock.now_ms, lives=False)
    await stage.ticker(old).look()  # it cannot tell a worker that is starting from one that was rolled back
    await alive(stage, "new", new)
    await stage.ticker(new).look()
    version = (await stage.store.controls(KIND))[0].version
    for schedule in (old, new, old):
        await stage.ticker(schedule).look()
    assert (await stage.store.controls(KIND))[0].version == version
    assert (await stage.stored()).rule == new.rule
    stage.clock.now_ms = NOON + HOUR
    await stage.ticker(old).look()
    assert await stage.fired() == [], "old workers go by what is stored"
    await stage.store.leave("new")
    await stage.ticker(old).look()
    assert (await stage.stored()).rule == old.rule, "rolled back"


async def test_code_that_replaces_what_a_person_added_says_so(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    await stage.add(declared(Every("5h")))
    await Timetable(stage.store, [HOURLY], TASKS).declare(stage.clock.now_ms, lives=False)
    assert (await stage.stored()).source == "runtime", "who is still starting has no log yet"
    with caplog.at_level(logging.WARNING, "limpet.worker"):
        await stage.ticker(HOURLY).look()
    assert (await stage.stored()).rule == HOURLY.rule
    assert 'replaces one added at run time schedule=hourly was="every 5 hours"' in caplog.text


async def test_nobody_fires_by_a_rule_that_was_just_replaced(stage: Stage) -> None:
    old = stage.ticker(HOURLY)
    await old.look()
    stage.clock.now_ms = NOON + 5 * SECOND
    await stage.ticker(declared(Every("7h"))).look()
    assert await stage.mark() == stage.clock.now_ms, "so a ticker that planned before comes too late"


async def test_a_worker_fires_only_what_its_own_code_declares(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    await stage.ticker(HOURLY).look()
    stage.clock.advance(1)
    other = stage.ticker(declared(Cron("@daily"), name="daily"))
    with caplog.at_level(logging.WARNING, "limpet.worker"):
        await other.look()
    assert await stage.fired() == []
    assert "schedule hourly is no longer in the code of any live worker, so it does not run" in caplog.text
    assert 'remove="limpet schedules remove hourly"' in caplog.text
    await stage.ticker(HOURLY).look()
    assert await stage.fired() == [NOON]


async def test_a_renamed_schedule_is_told_as_such_and_one_that_another_worker_declares_is_not_told(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.ticker(HOURLY).look()
    await alive(stage, "w2", HOURLY)
    renamed = declared(Every("1h"), name="renamed")
    caplog.clear()
    with caplog.at_level(logging.WARNING, "limpet.worker"):
        await stage.ticker(renamed).look()
        assert caplog.text == ""
        await stage.store.leave("w2")
        await stage.ticker(renamed).look()
    assert "(renamed to renamed?)" in caplog.text


async def alive(stage: Stage, session: str, schedule: Schedule) -> None:
    """A live worker of the code that declares this schedule; sessions live by the engine's own clock."""
    info = msgspec.json.encode({FIELD: {schedule.name: schedule.fingerprint}})
    await stage.store.beat(Beat(session, 60_000, Serves((), ()), info))
