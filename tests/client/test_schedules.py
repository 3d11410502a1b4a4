"""Schedules in an app: declared above tasks, stored by its workers, and changed while they run."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from limpet import (
    Cron,
    Every,
    InvalidArguments,
    InvalidOption,
    InvalidTask,
    Limpet,
    Once,
    UnknownQueue,
    current_job,
)
from limpet.core.jobs.lease import Beat, Serves
from limpet.core.schedules.declared import FIELD
from limpet.core.schedules.schedule import KIND

HOUR = timedelta(hours=1)


def tidy() -> None: ...


@pytest.fixture
def app() -> Limpet:
    return Limpet("sqlite://")


async def test_a_schedule_runs_the_task_that_it_stands_above(app: Limpet) -> None:
    stop = asyncio.Event()
    seen: list[tuple[str, datetime | None]] = []

    @app.schedule(Every(1), {"name": "Ada"}, priority="high")
    @app.task(name="greet")
    async def greet(name: str) -> None:
        seen.append((name, current_job().tick))
        stop.set()

    assert greet.name == "greet"
    async with app:
        await app.work(stop=stop)
        name, tick = seen[0]
        assert name == "Ada"
        assert tick is not None
        assert tick.timestamp() % 1 == 0
        view = await app.schedules.get("greet")
        assert (view.when, view.source, view.options) == ("every second", "code", {"priority": "high"})
        states = {each.at: each.state for each in view.ticks}  # a slow machine may be at the next one by now
        assert states[tick] == "succeeded"


async def test_a_schedule_that_is_added_while_a_worker_runs_is_noticed(app: Limpet) -> None:
    ran = asyncio.Event()

    @app.task(name="greet")
    def greet(name: str) -> None:
        ran.set()

    async with app:
        stop = asyncio.Event()
        work = asyncio.create_task(app.work(stop=stop))
        await app.schedules.add(Every(1), greet, {"name": "Ada"})
        async with asyncio.timeout(30):
            await ran.wait()
        await app.schedules.remove("greet")
        stop.set()
        await work


async def test_a_run_now_answers_a_handle(app: Limpet) -> None:
    @app.schedule(Cron("@yearly"), name="yearly")
    @app.task(name="total")
    async def total(n: int = 2) -> int:
        return 2 * n

    async with app:
        await app.work(until_empty=True)
        job = await app.schedules.run_now("yearly")
        await app.work(until_empty=True)
        assert await job.result(timeout=60) == 4
        report = await app.schedules.backfill(
            "yearly", datetime(2020, 6, 1, tzinfo=UTC), datetime(2022, 6, 1, tzinfo=UTC)
        )
        assert report.enqueued == 2


async def test_arguments_are_stored_as_enqueue_stores_them(app: Limpet) -> None:
    @app.task(name="remind")
    async def remind(at: datetime) -> None: ...

    async with app:
        view = await app.schedules.add(Every(60), remind, {"at": datetime(2030, 1, 1, tzinfo=UTC)})
        assert view.args == {"at": "2030-01-01T00:00:00Z"}


async def test_one_task_may_have_several_schedules(app: Limpet) -> None:
    @app.schedule(Cron("0 8 * * *"))
    @app.schedule(Cron("0 20 * * *"), name="evening")
    @app.task(name="digest")
    async def digest() -> None: ...

    assert sorted(schedule.name for schedule in app.parts().schedules) == ["digest", "evening"]
    async with app:
        await app.work(until_empty=True)
        assert [control.name for control in await app.store.controls(KIND)] == ["digest", "evening"]


def declare(app: Limpet, when: Any = None, **given: Any) -> None:
    @app.schedule(Every(60) if when is None else when, **given)
    @app.task(name="greet", queue="mail")
    async def greet(name: str = "Ada") -> None: ...


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"when": "@daily"}, InvalidOption, "does not say when"),
        ({"args": {"nane": "Bob"}}, InvalidArguments, "did you mean 'name'"),
        ({"args": {"name": 7}}, InvalidArguments, "name of"),
        ({"prioritty": 3}, InvalidOption, "did you mean 'priority'"),
        ({"overlap": "allow"}, InvalidOption, "belongs to the times"),
        ({"name": "two words"}, InvalidOption, "is not a name"),
        ({"queue": "elsewhere"}, UnknownQueue, "no queue 'elsewhere'"),
    ],
)
def test_what_cannot_work_is_refused_at_declaration(given: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error) as caught:
        declare(Limpet("sqlite://", queues=["mail"]), **given)
    assert said in str(caught.value)


def test_a_schedule_stands_above_a_task_of_its_app(app: Limpet) -> None:
    async def plain() -> None: ...

    with pytest.raises(InvalidTask, match=r"put it above @app\.task"):
        app.schedule(Every(60))(plain)  # type: ignore[type-var]  # the type checker says so too

    other = Limpet("sqlite://")

    @other.task(name="elsewhere")
    async def elsewhere() -> None: ...

    with pytest.raises(InvalidTask):
        app.schedule(Every(60))(elsewhere)


def test_a_name_is_taken_once(app: Limpet) -> None:
    declare(app)
    task = app.tasks["greet"]
    with pytest.raises(InvalidTask, match="already"):
        app.schedule(Every(5))(task)
    app.schedule(Once(datetime.now(UTC) + HOUR), name="later")(task)


async def test_publishing_replaces_nothing_that_live_workers_declare(tmp_path: Path) -> None:
    async def published(interval: str) -> Limpet:
        app = Limpet(f"sqlite:///{tmp_path}/jobs.db")
        app.schedule(Every(interval))(app.task(name="tidy")(tidy))
        await app.publish()
        return app

    async with await published("1h") as old:
        (schedule,) = old.parts().schedules
        said = msgspec.json.encode({FIELD: {"tidy": schedule.fingerprint}})
        await old.store.beat(Beat("old", 60_000, Serves((), ("tidy",)), said))
        async with await published("2h") as new:
            assert (await new.schedules.get("tidy")).when == "every hour"
