"""Many worker commands on a server with few connections: an idle one holds one, and a start waits its turn."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest

from limpet.app import Limpet
from tests.chaos.weather import Command, worker
from tests.servers import postgres
from tests.servers.installations import POSTGRES

COMMANDS = 5
MANY = 50  # on a server as it comes, which has 100 connections and keeps three of them for its owner
CONNECTIONS = COMMANDS + 2  # one for the eyes of this test, and one for whoever has more to do
HELD = """SELECT count(*) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name = 'limpet'"""

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(900)]


class Eyes:
    """A connection that sees who else has one."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)

    def held(self) -> int:
        """How many connections commands hold."""
        row = self._connection.execute(HELD.encode()).fetchone()
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        self._connection.close()


def is_ready(command: Command) -> bool:
    return "child ready" in command.said()


@contextlib.contextmanager
def crowd(folder: Path, url: str, count: int) -> Iterator[list[Command]]:
    with contextlib.ExitStack() as stack:
        commands = []
        for number in range(count):
            (folder / str(number)).mkdir()
            commands.append(stack.enter_context(worker(folder / str(number), url)))
        yield commands


async def test_idle_commands_hold_one_connection_each_and_a_start_waits_its_turn(tmp_path: Path) -> None:
    with postgres.own(POSTGRES, max_connections=CONNECTIONS, superuser_reserved_connections=0) as server:
        async with Limpet(server.url) as app:
            await app.store.open()
        url = f"{server.url}?timeout=1"
        with contextlib.closing(Eyes(server.url)) as eyes:
            others = [psycopg.connect(server.url) for _ in range(CONNECTIONS - 1)]
            with crowd(tmp_path, url, COMMANDS) as commands:
                for command in commands:
                    command.until_said("has no connection left for us")
                    assert "the start waits" in command.said()
                for other in others:
                    other.close()
                for command in commands:
                    command.until("it is ready", partial(is_ready, command), within_s=120)
                commands[0].until("each holds one connection", lambda: eyes.held() == COMMANDS)
                async with Limpet(url) as app:
                    await app.enqueue("short", {"ms": 0})
                commands[0].until("a job has started", lambda: sum(each.started() for each in commands) == 1)
                for command in commands:
                    assert command.ended_after()[0] == 0
            assert eyes.held() == 0


@pytest.mark.matrix("fifty commands that start at once take minutes on a small machine")
@pytest.mark.timeout(1_500)
async def test_fifty_commands_that_start_at_once_come_up_on_a_server_as_it_comes(tmp_path: Path) -> None:
    settings = {"max_connections": 100, "superuser_reserved_connections": 3}
    with postgres.own(POSTGRES, **settings) as server, contextlib.closing(Eyes(server.url)) as eyes:
        with crowd(tmp_path, server.url, MANY) as commands:
            for command in commands:
                command.until("it is ready", partial(is_ready, command), within_s=600)
            commands[0].until("each holds one connection", lambda: eyes.held() == MANY, within_s=300)
            for command in commands:
                command.process.send_signal(signal.SIGTERM)
            assert [command.ended(within_s=300) for command in commands] == [0] * MANY
        assert eyes.held() == 0
