"""A store that stays away, and one that is not there yet: `limpet worker` and `limpet outbox` as people start them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from limpet.app import Limpet
from tests.chaos.conftest import ALL
from tests.chaos.weather import Command, Weather, command, weather_of, worker
from tests.outbox.ground import Ground
from tests.size import in_matrix

SLACK_S = 10.0  # of a busy machine, and far less than the ten minutes of a worker that waits for its store
CUT_OFF = 5  # the exit code


@pytest.fixture
def weather(request: pytest.FixtureRequest) -> Iterator[Weather]:
    with weather_of(request.param) as weather:
        yield weather


on_every_engine = pytest.mark.parametrize("weather", ALL, indirect=True)


def on(*daily: str, why: str) -> pytest.MarkDecorator:
    """Every engine in the matrix, these ones every day, and why they are enough."""
    rest = [engine for engine in ALL if engine not in daily]
    return pytest.mark.parametrize("weather", [*daily, *in_matrix(why, *rest)], indirect=True)


async def put(weather: Weather, task: str, ms: int) -> None:
    async with Limpet(weather.url, enqueue_timeout=30) as app:
        await app.enqueue(task, {"ms": ms})


def until_works(command: Command) -> None:
    command.until("a job has started", lambda: command.started() > 0)


# -- it stays away


@on("redis", "postgres", why="a locked file is tried every five seconds")
async def test_a_worker_whose_store_stays_away_ends_with_exit_code_5(weather: Weather, tmp_path: Path) -> None:
    weather.come()
    await put(weather, "short", 0)
    with worker(tmp_path, weather.url, "--cut-off", "8s", "--grace", "1s") as command:
        until_works(command)
        weather.go()
        assert command.ended(90) == CUT_OFF
        assert command.said().count("cut off from the store") == 1, "the supervisor waited once more, for itself"
        assert "store is away" in command.said()
        assert "store is back" not in command.said()


@on("redis", why="the supervisor's own patience, whatever the engine")
async def test_a_supervisor_that_cannot_settle_for_its_dead_child_ends_with_exit_code_5(
    weather: Weather, tmp_path: Path
) -> None:
    weather.come()
    await put(weather, "short", 0)
    with worker(tmp_path, weather.url, "--cut-off", "4s") as command:
        until_works(command)
        weather.go()
        for pid in command.children():
            os.kill(pid, signal.SIGKILL)
        assert command.ended(90) == CUT_OFF


# -- it is told to stop meanwhile


@on_every_engine
async def test_a_worker_that_is_told_to_stop_while_its_store_is_away_ends_within_grace_and_five_seconds(
    weather: Weather, tmp_path: Path
) -> None:
    weather.come()
    for task in ("in_thread", "short"):  # one that no cancel reaches, and one that is cancelled
        await put(weather, task, 600_000)
    with worker(tmp_path, weather.url, "--grace", "1s") as command:
        command.until("both jobs have started", lambda: command.started() == 2)
        weather.go()
        command.until_said("heartbeat failed")
        code, took_s = command.ended_after()
    assert code == 0
    assert took_s < 1 + 5 + SLACK_S


# -- it is not there yet


@on_every_engine
async def test_a_worker_that_starts_during_an_outage_works_when_the_store_comes(
    weather: Weather, tmp_path: Path
) -> None:
    with worker(tmp_path, weather.url) as command:
        command.until_said("store is away")
        assert "--no-wait" in command.said()
        weather.come()
        await put(weather, "short", 0)
        until_works(command)
        assert "store is back" in command.said()
        assert command.ended_after()[0] == 0


@on("sqlite", why="it happens before any engine is asked again")
async def test_a_worker_that_waits_for_its_store_gives_up_at_the_cut_off_and_ends_when_told(
    weather: Weather, tmp_path: Path
) -> None:
    with worker(tmp_path, weather.url, "--cut-off", "1s") as command:
        assert command.ended() == CUT_OFF
        assert "the store was not reached for" in command.said()
    with worker(tmp_path, weather.url, "--no-wait") as command:
        assert command.ended() == CUT_OFF
        assert "store is away" not in command.said()
    with worker(tmp_path, weather.url) as command:
        command.until_said("store is away")
        code, took_s = command.ended_after()
        assert code == 0
        assert took_s < 5 + SLACK_S


# -- the relay


@on_every_engine
async def test_a_relay_that_starts_while_the_store_is_away_relays_when_it_comes(
    weather: Weather, tmp_path: Path
) -> None:
    ground = Ground(f"sqlite:///{tmp_path}/app.db")
    make_tables(ground)
    (id,) = await ground.add(1)
    with command(tmp_path, weather.url, "outbox", "--outbox", ground.url) as relay:
        relay.until_said("store is away")
        weather.come()
        relay.until_said("relayed jobs=1")
        assert "both sides are back" in relay.said()
        assert relay.ended_after()[0] == 0
    async with Limpet(weather.url) as app:
        assert await app.store.get([id]) != [None]


@pytest.mark.parametrize("weather", ["postgres"], indirect=True)
async def test_a_relay_that_starts_while_the_outbox_is_away_relays_when_it_comes(
    weather: Weather, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    ground = Ground(weather.url.partition("?")[0])
    weather.come()
    make_tables(ground)
    await ground.add(1)
    weather.go()
    with command(tmp_path, store, "outbox", "--outbox", ground.url, "--cut-off", "1s") as relay:
        assert relay.ended() == CUT_OFF
    with command(tmp_path, store, "outbox", "--outbox", ground.url, "--no-wait") as relay:
        assert relay.ended() == CUT_OFF
        assert "outbox is away" not in relay.said()
    with command(tmp_path, store, "outbox", "--outbox", ground.url) as relay:
        relay.until_said("outbox is away")
        code, took_s = relay.ended_after()
        assert code == 0
        assert took_s < 5 + SLACK_S
    with command(tmp_path, store, "outbox", "--outbox", ground.url) as relay:
        relay.until_said("outbox is away")
        weather.come()
        relay.until_said("relayed jobs=1")


def make_tables(ground: Ground) -> None:
    with ground.transaction() as conn:
        for statement in ground.outbox.schema.split(";"):
            conn.execute(statement)
