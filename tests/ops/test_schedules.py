"""What people do to schedules: look, add, change, pause, run now, backfill; and what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from limpet.core.errors import InvalidArguments, InvalidOption, QueueDraining
from limpet.core.gate import GateChange
from limpet.core.jobs.job import Enqueued
from limpet.core.jobs.lease import Beat, Serves
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Control, Finding
from limpet.core.schedules.declared import FIELD
from limpet.core.schedules.history import kind_of
from limpet.core.schedules.plan import tick_job
from limpet.core.schedules.rule import EveryRule
from limpet.core.schedules.schedule import KIND, Schedule
from limpet.core.schedules.when import Cron, Every, Once
from limpet.ops.names import UnknownName
from limpet.ops.schedule_runs import CHUNK, ScheduleBusy
from limpet.ops.schedules import ScheduleDeclared, ScheduleExists, Schedules
from limpet.stores.sqlite import SqliteStore
from tests.runtime.ticking import DAY, HOUR, MINUTE, NOON, TASKS, Stage, declared


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    store = SqliteStore(str(tmp_path / "jobs.db"), sync="normal")
    yield Stage(store, NOON - 1)
    await store.close()


@pytest.fixture
def schedules(stage: Stage) -> Schedules[Enqueued]:
    return Schedules(
        stage.store, "ada", handle=lambda answer, task: answer, tasks=TASKS, clock=lambda: stage.clock.now_ms
    )


async def worker(stage: Stage, *code: Schedule, session: str = "w1") -> None:
    """A live worker that declares these; sessions live by the engine's own clock."""
    said = {FIELD: {schedule.name: schedule.fingerprint for schedule in code}}
    await stage.store.beat(Beat(session, 60_000, Serves((), ("work",)), msgspec.json.encode(said)))


async def audit(stage: Stage) -> list[tuple[str, str, str, Any]]:
    entries = await stage.store.read("audit")
    return [(each.kind, each.actor, each.reason, msgspec.json.decode(each.data)) for each in entries]


# Adding and changing


async def test_a_schedule_is_added_and_runs_from_now_on(stage: Stage, schedules: Schedules[Enqueued]) -> None:
    await worker(stage)
    view = await schedules.add(Every("1h", jitter=5), "work", {"n": 2}, name="hourly", priority="low", reason="why not")
    assert (view.state, view.task, view.when, view.source) == ("on", "work", "every hour", "runtime")
    assert (view.args, view.options, view.overlap, view.catch_up) == ({"n": 2}, {"priority": "low"}, "skip", "last")
    assert (view.jitter_s, view.expires_in_s, view.last_at) == (5, None, None)
    assert view.next_at == tuple(at(NOON + hours * HOUR) for hours in range(5))
    assert view.next_in_words(at(NOON - 1))[0] == "Sun 2026-12-13 12:00 UTC, in 1ms"
    assert await audit(stage) == [
        ("schedule.add", "ada", "why not", {"schedule": "hourly", "task": "work", "when": "every hour"})
    ]
    stage.clock.advance(5 * MINUTE)
    await stage.tick()
    job = await stage.run(NOON)
    assert job is not None
    assert (job.args, job.lane.priority) == (b'{"n":2}', 8)


async def test_the_name_is_the_tasks_unless_given_and_is_taken_once(schedules: Schedules[Enqueued]) -> None:
    assert (await schedules.add(Every(60), "work")).name == "work"
    with pytest.raises(ScheduleExists):
        await schedules.add(Every(60), "work")
    made = await asyncio.gather(
        *(schedules.add(Every(60), "work", name="race") for _ in range(5)), return_exceptions=True
    )
    assert sum(isinstance(each, ScheduleExists) for each in made) == 4


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"args": {"m": 1}}, InvalidArguments, "no parameter 'm'"),
        ({"args": {"n": "x"}}, InvalidArguments, "n of work() does not fit"),
        ({"when": Once(at(NOON - HOUR))}, InvalidOption, "would never run"),
        ({"when": "0 8 * * *"}, InvalidOption, "does not say when"),
        ({"delay": 5}, InvalidOption, "no option 'delay'"),
    ],
)
async def test_what_cannot_work_is_refused_and_nothing_is_stored(
    schedules: Schedules[Enqueued], given: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as caught:
        await schedules.add(**{"when": Every(60), "task": "work", **given})
    assert said in str(caught.value)
    assert await schedules.list() == []


async def test_a_change_leaves_the_rest_as_it_was(stage: Stage, schedules: Schedules[Enqueued]) -> None:
    await schedules.add(Every("1h", jitter=5, expires_in=60), "work", {"n": 2}, name="hourly", priority="low")
    stage.clock.advance(HOUR)
    view = await schedules.change("hourly", overlap="allow", catch_up="all", queue="night")
    assert (view.overlap, view.catch_up, view.jitter_s, view.expires_in_s) == ("allow", "all up to 1000", 5, 60)
    assert (view.args, view.options, view.when) == ({"n": 2}, {"priority": "low", "queue": "night"}, "every hour")
    assert (await stage.stored()).since_at_ms == NOON - 1, "the same rule has missed what it has missed"
    view = await schedules.change("hourly", args={"n": 3}, jitter=0, expires_in=None)
    assert (view.args, view.jitter_s, view.expires_in_s) == ({"n": 3}, 0, None)
    with pytest.raises(InvalidArguments):
        await schedules.change("hourly", args={"n": "x"})


async def test_another_rule_ticks_from_now_on_and_nobody_fires_by_the_old_one(
    stage: Stage, schedules: Schedules[Enqueued]
) -> None:
    await schedules.add(Every("1h", catch_up="all"), "work", name="hourly")
    asleep = (await stage.stored()).plan(None, NOON)
    stage.clock.now_ms = NOON + 5
    view = await schedules.change("hourly", Cron("30 * * * *"))
    assert view.next_at[0] == at(NOON + 30 * MINUTE)
    assert asleep.decided_at_ms is not None
    assert await stage.mark() == NOON + 5 > asleep.decided_at_ms, "who planned before this comes too late"


async def test_who_changes_what_others_change_too_loses_nothing(stage: Stage, schedules: Schedules[Enqueued]) -> None:
    await schedules.add(Every(60), "work", name="hourly")
    await asyncio.gather(
        schedules.pause("hourly", reason="why"),
        schedules.change("hourly", jitter=5),
        schedules.change("hourly", queue="night"),
    )
    view = await schedules.get("hourly")
    assert (view.paused_by, view.jitter_s, view.options) == ("ada", 5, {"queue": "night"})


@pytest.mark.parametrize("verb", ["get", "change", "remove", "pause", "resume", "reset", "run_now"])
async def test_an_unknown_name_is_told_with_the_nearest_one(schedules: Schedules[Enqueued], verb: str) -> None:
    await schedules.add(Every(60), "work", name="hourly")
    with pytest.raises(UnknownName, match="did you mean 'hourly'"):
        await getattr(schedules, verb)("hourli")


# Pausing and removing


async def test_a_pause_stops_ticks_once_it_is_answered(stage: Stage, schedules: Schedules[Enqueued]) -> None:
    await schedules.add(Every("1h", overlap="allow"), "work", name="hourly")
    stage.clock.now_ms = NOON + 5
    asleep = (await stage.stored()).plan(None, NOON + 5)
    view = await schedules.pause("hourly", reason="too many mails")
    assert (view.state, view.note, view.next_at) == ("paused", "paused by ada: too many mails", ())
    mark = await stage.mark()
    assert mark is not None
    assert asleep.decided_at_ms is not None
    assert mark >= asleep.decided_at_ms
    assert (await schedules.pause("hourly")).paused_reason == "too many mails"
    stage.clock.now_ms = NOON + 3 * HOUR + 5
    view = await schedules.resume("hourly")
    assert (view.state, view.next_at[0]) == ("on", at(NOON + 4 * HOUR))
    stage.clock.now_ms = NOON + 4 * HOUR
    await stage.tick()
    assert await stage.fired() == [NOON + 4 * HOUR]


async def test_a_removed_schedule_is_gone_and_its_name_is_free(stage: Stage, schedules: Schedules[Enqueued]) -> None:
    await schedules.add(Every("1h", catch_up="all"), "work", name="hourly")
    stage.clock.now_ms = NOON
    await stage.tick()
    assert len(await stage.ticks()) == 1
    stage.clock.now_ms = NOON + HOUR
    await schedules.remove("hourly", reason="done")
    assert await schedules.list() == []
    assert await stage.ticks() == []
    await stage.tick()
    assert await stage.fired() == [NOON]
    stage.clock.now_ms = NOON + 3 * HOUR
    await schedules.add(Every("1h", catch_up="all"), "work", name="hourly")
    await stage.tick()
    assert await stage.fired() == [NOON], "what is added anew has missed nothing"


async def test_what_live_code_declares_cannot_be_removed(stage: Stage, schedules: Schedules[Enqueued]) -> None:
    hourly = declared(Every("1h"))
    await worker(stage, hourly)
    await stage.ticker(hourly).look()
    with pytest.raises(ScheduleDeclared, match="pause"):
        await schedules.remove("hourly")
    await stage.store.leave("w1")
    await schedules.remove("hourly")
    assert await schedules.list() == []


# Code and people


async def test_a_change_of_what_code_declares_is_told_and_can_be_given_back(
    stage: Stage, schedules: Schedules[Enqueued]
) -> None:
    hourly = declared(Every("1h"))
    await worker(stage, hourly)
    ticker = stage.ticker(hourly)
    await ticker.look()
    view = await schedules.change("hourly", overlap="skip")
    assert view.changed_by is None, "it says so already"
    view = await schedules.change("hourly", Every("2h"))
    assert (view.note, view.when) == ("changed by ada; the code says otherwise", "every 2 hours")
    await ticker.look()
    assert (await schedules.get("hourly")).when == "every 2 hours"
    await schedules.reset("hourly")
    await ticker.look()
    view = await schedules.get("hourly")
    assert (view.when, view.changed_by, view.note) == ("every hour", None, None)
    await schedules.add(Every(60), "work", name="mine")
    with pytest.raises(InvalidOption, match="not declared by code"):
        await schedules.reset("mine")


async def test_what_the_code_has_dropped_is_reported(stage: Stage, schedules: Schedules[Enqueued]) -> None:
    await stage.ticker(declared(Every("1h"))).look()
    view = await schedules.get("hourly")
    assert (view.state, view.note) == ("on", "no worker is alive, so it does not run")
    await worker(stage, declared(Every("1h"), name="renamed"))
    view = await schedules.get("hourly")
    assert (view.state, view.fix) == ("absent", "limpet schedules remove hourly")
    assert "renamed to renamed?" in (view.note or "")
    assert await schedules.next() == []


# Looking


async def test_a_list_says_how_each_stands(stage: Stage, schedules: Schedules[Enqueued]) -> None:
    await worker(stage)
    await schedules.add(Once(at(NOON)), "work", name="once")
    await schedules.add(Every(60), "work", name="paused", paused=True, reason="later")
    await schedules.add(Cron("0 9 * * *", tz="Europe/Berlin"), "work", name="daily")
    await stage.store.put_control(Control(KIND, "odd", b"{"))
    stage.clock.now_ms = NOON + HOUR
    assert [(view.name, view.state) for view in await schedules.list()] == [
        ("daily", "on"),
        ("odd", "unreadable"),
        ("once", "ended"),
        ("paused", "paused"),
    ]
    daily = await schedules.get("daily")
    assert daily.next_at[0].isoformat() == "2026-12-14T09:00:00+01:00"
    assert daily.rule == {"type": "cron", "expr": "0 9 * * *", "tz": "Europe/Berlin"}
    assert "cannot read" in ((await schedules.get("odd")).note or "")


async def test_the_next_runs_of_all_schedules_come_in_order(stage: Stage, schedules: Schedules[Enqueued]) -> None:
    await worker(stage)
    await schedules.add(Every("1h"), "work", name="hourly")
    await schedules.add(Every("40m"), "work", name="often")
    await schedules.add(Every("1m"), "work", name="paused", paused=True)
    runs = await schedules.next(4)
    assert [(run.schedule, run.at) for run in runs] == [
        ("hourly", at(NOON)),
        ("often", at(NOON)),
        ("often", at(NOON + 40 * MINUTE)),
        ("hourly", at(NOON + HOUR)),
    ]
    assert runs[2].in_words == "Sun 2026-12-13 12:40 UTC, in 40m"
    assert [run.schedule for run in await schedules.next(2, name="often")] == ["often", "often"]


async def test_no_more_ticks_are_worked_out_than_are_told(
    stage: Stage, schedules: Schedules[Enqueued], monkeypatch: pytest.MonkeyPatch
) -> None:
    await worker(stage)
    for number in range(5):
        await schedules.add(Every("1h"), "work", name=f"s{number}")
    asked: list[int] = []
    after = EveryRule._after

    def counted(rule: EveryRule, at_ms: int) -> int | None:
        asked.append(at_ms)
        return after(rule, at_ms)

    monkeypatch.setattr(EveryRule, "_after", counted)
    assert len(await schedules.next(100)) == 100
    assert len(asked) < 150


async def test_what_became_of_ticks_is_told_newest_first(stage: Stage, schedules: Schedules[Enqueued]) -> None:
    await schedules.add(Every("1h"), "work", name="hourly")
    for hour in (0, 1, 5):
        stage.clock.now_ms = NOON + hour * HOUR
        await stage.tick()
        if hour == 1:
            await stage.hand.succeed(await stage.hand.take())
    view = await schedules.get("hourly")
    assert view.last_at == at(NOON + 5 * HOUR)
    assert [(tick.at, tick.fired, tick.why, tick.count, tick.state) for tick in view.ticks] == [
        (at(NOON + 5 * HOUR), True, None, 1, "blocked"),
        (at(NOON + 4 * HOUR), True, None, 1, "ready"),
        (at(NOON + 3 * HOUR), False, "missed", 2, None),
        (at(NOON + HOUR), False, "overlap", 1, None),
        (at(NOON), True, None, 1, "succeeded"),
    ]
    assert view.ticks[3].job == view.ticks[4].job, "the run that was in its way"
    assert [tick.late_s for tick in view.ticks] == [0, 3600, 7200, 0, 0]


async def test_ticks_that_nobody_wrote_down_are_known_by_their_jobs(
    stage: Stage, schedules: Schedules[Enqueued]
) -> None:
    await schedules.add(Every("1h"), "work", name="hourly")
    stage.clock.now_ms = NOON
    await stage.tick()
    await stage.store.put_control(Control(kind_of("hourly"), "recent", b"[]"))
    (tick,) = (await schedules.get("hourly")).ticks
    assert (tick.at, tick.fired, tick.state) == (at(NOON), True, "ready")


# Running


async def test_a_run_now_is_a_run_of_the_schedule(stage: Stage, schedules: Schedules[Enqueued]) -> None:
    await schedules.add(Every("1h"), "work", {"n": 2}, name="hourly", paused=True)
    answer = await schedules.run_now("hourly", reason="at once")
    view = await stage.bench.view(answer.id)
    assert (view.state, view.args, view.tags) == (State.ready, b'{"n":2}', ("schedule:hourly",))
    assert msgspec.json.decode(view.meta) == {"schedule": "hourly", "tick": "2026-12-13T11:59:59.999Z"}
    again = await schedules.run_now("hourly")
    assert (again.id, again.existing) == (answer.id, True)
    assert [(kind, data["existing"]) for kind, _, _, data in (await audit(stage))[1:]] == [
        ("schedule.run", False),
        ("schedule.run", True),
    ]
    assert await stage.mark() is None or await stage.mark() == NOON - 1


async def test_a_tick_heeds_a_run_that_was_asked_for(stage: Stage, schedules: Schedules[Enqueued]) -> None:
    await schedules.add(Every("1h"), "work", name="hourly")
    await schedules.run_now("hourly")
    stage.clock.now_ms = NOON
    await stage.tick()
    assert [tick.why for tick in await stage.ticks()] == ["overlap"]


@pytest.mark.parametrize("overlap", ["allow", "queue_one", "cancel_running"])
async def test_a_run_now_heeds_the_overlap(stage: Stage, schedules: Schedules[Enqueued], overlap: str) -> None:
    await schedules.add(Every("1h", overlap=overlap), "work", name="hourly")
    first = await schedules.run_now("hourly")
    await stage.hand.take()
    stage.clock.advance(5)
    await stage.bench.change(GateChange("queue:default", drain=True))
    with pytest.raises(QueueDraining):
        await schedules.run_now("hourly")
    assert not (await stage.bench.view(first.id)).cancel_requested, "nothing is cancelled for a run that is refused"
    await stage.bench.change(GateChange("queue:default", resume=True))
    second = await schedules.run_now("hourly")
    assert not second.existing
    state = {"allow": State.ready, "queue_one": State.blocked, "cancel_running": State.blocked}[overlap]
    assert await stage.bench.state(second.id) is state
    view = await stage.bench.view(first.id)
    assert view.cancel_requested == (overlap == "cancel_running")
    if overlap == "queue_one":
        with pytest.raises(ScheduleBusy):
            await schedules.run_now("hourly")


async def test_a_backfill_runs_every_tick_of_a_range_one_after_the_other(
    stage: Stage, schedules: Schedules[Enqueued]
) -> None:
    await schedules.add(Every("1h"), "work", name="hourly")
    start, end = at(NOON - 3 * HOUR), at(NOON + DAY)
    dry = await schedules.backfill("hourly", start, end, dry_run=True)
    assert (dry.ticks, dry.first_at, dry.last_at) == (3, at(NOON - 3 * HOUR), at(NOON - HOUR))
    assert (await stage.store.count()).enqueued == 0
    seen: list[tuple[int, int]] = []
    report = await schedules.backfill(
        "hourly", start, end, reason="fixed", progress=lambda done, total: seen.append((done, total))
    )
    assert (report.enqueued, report.existing, seen) == (3, 0, [(3, 3)])
    for hours in (3, 2, 1):
        (job,) = await stage.hand.claim(5)
        assert job.id == tick_job("hourly", NOON - hours * HOUR)
        assert msgspec.json.decode(job.meta)["tick"].startswith(f"2026-12-13T{12 - hours:02}:00")
        await stage.hand.bury(job)
    kinds = [(kind, data) for kind, _, _, data in await audit(stage)]
    assert kinds[-1] == (
        "schedule.backfill",
        {
            "schedule": "hourly",
            "first": "2026-12-13T09:00:00.000Z",
            "last": "2026-12-13T11:00:00.000Z",
            "enqueued": 3,
        },
    )


async def test_a_backfill_that_is_repeated_leaves_out_what_is_stored_unless_asked(
    stage: Stage, schedules: Schedules[Enqueued]
) -> None:
    await schedules.add(Every("1h"), "work", name="hourly")
    await schedules.backfill("hourly", at(NOON - 3 * HOUR), at(NOON - 2 * HOUR))
    report = await schedules.backfill("hourly", at(NOON - 3 * HOUR))
    assert (report.ticks, report.enqueued, report.existing) == (3, 1, 2)
    again = await schedules.backfill("hourly", at(NOON - 3 * HOUR), again=True)
    assert (again.enqueued, again.existing) == (3, 0)


async def test_ticks_of_the_present_do_not_wait_for_a_backfill(stage: Stage, schedules: Schedules[Enqueued]) -> None:
    await schedules.add(Every("1h"), "work", name="hourly")
    await schedules.backfill("hourly", at(NOON - 3 * HOUR))
    stage.clock.now_ms = NOON
    await stage.tick()
    assert await stage.bench.state(tick_job("hourly", NOON)) is State.ready


async def test_a_large_backfill_goes_chunk_by_chunk_and_side_by_side_where_it_may(
    stage: Stage, schedules: Schedules[Enqueued]
) -> None:
    await schedules.add(Every("1m", overlap="allow"), "work", name="often")
    await schedules.add(Every("1m"), "work", name="hourly")
    start, seen = at(NOON - (2 * CHUNK + 1) * MINUTE), []
    report = await schedules.backfill("often", start, progress=lambda done, total: seen.append(done))
    assert (report.enqueued, seen) == (2 * CHUNK + 1, [CHUNK, 2 * CHUNK, 2 * CHUNK + 1])
    await schedules.backfill("hourly", start)
    jobs = [job for job in await stage.bench.everything() if job.tags == ("schedule:hourly",)]
    assert [job.state for job in jobs].count(State.ready) == 1
    with pytest.raises(InvalidOption, match="more than 100,000 ticks"):
        await schedules.backfill("often", at(NOON) - timedelta(days=365))
    assert (await schedules.backfill("often", at(NOON + DAY))).ticks == 0


# The doctor


async def test_the_doctor_names_what_does_not_run(stage: Stage, schedules: Schedules[Enqueued]) -> None:
    await schedules.add(Every("1h"), "work", name="mine")
    hourly = declared(Every("1h"))
    await stage.ticker(hourly).look()
    await worker(stage, hourly)
    await worker(stage, declared(Every("2h")), session="w2")
    await stage.store.put_control(Control(KIND, "odd", b"{"))
    await stage.ticker(declared(Every("1h"), name="dropped")).look()
    stage.clock.now_ms = NOON + 2 * HOUR

    async def findings() -> dict[str, Finding]:
        return {each.code: each for each in (await schedules.calendar()).findings()}

    found = await findings()
    assert set(found) == {"schedule_absent", "schedule_unreadable", "schedule_versions", "schedule_overdue"}
    assert found["schedule_absent"].fix == "limpet schedules remove dropped"
    assert found["schedule_overdue"].text == "schedule mine should have fired 2h ago, and did not"
    for name in ("odd", "dropped"):
        await schedules.remove(name)
    await stage.store.leave("w2")
    await stage.tick(hourly)
    assert {code: each.text for code, each in (await findings()).items()} == {"schedules": "2 schedules in order"}
    await schedules.add(Every("1h"), "wrok", name="typo")
    found = await findings()
    assert found["schedule_unserved"].text == "schedule typo: no live worker knows task wrok, so its jobs wait"
    assert "schedules remove typo" in found["schedule_unserved"].fix
    stage.clock.now_ms = NOON - DAY
    found = await findings()
    assert "clock was put back, and ticks until Sun 2026-12-13 14:00 UTC are decided" in found["schedule_ahead"].text
