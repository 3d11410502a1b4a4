"""A worker that is cut off for longer than its lease, under a limit of one: never are two inside."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

from limpet.core.jobs.state import State
from tests.chaos.conftest import on_every_engine
from tests.chaos.field import Field, WorkerProcess
from tests.chaos.test_chaos import sessions
from tests.chaos.test_limits import check_alone, put
from tests.servers.proxy import proxy

APP = "tests.chaos.limit_jobs:app"
TTL_MS = 3_500  # the store waits for a lease time after a pause of its sweeps of over 5 s, and then takes nothing back
LOCK = """import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


def hire(field: Field) -> WorkerProcess:
    return field.start(app=APP, ttl_ms=TTL_MS, beat_ms=300, sweep_ms=200, job_processes=1)


@asynccontextmanager
async def cut_network(field: Field) -> AsyncIterator[Callable[[], Any]]:
    """The first worker reaches the store through a proxy alone."""
    direct = field.url
    port = urlsplit(direct).port
    assert port is not None
    async with proxy(port) as network:
        field.url = direct.replace(f":{port}", f":{network.port}")
        hire(field)
        field.url = direct

        async def cut() -> None:
            network.cut()
            await field.until("another has entered", partial(entered, field, 4))
            network.heal()

        yield cut


@asynccontextmanager
async def cut_file(field: Field) -> AsyncIterator[Callable[[], Any]]:
    """A stranger's lock on the file cuts off everybody; then the sweep may come before the first worker's beat."""
    hire(field)

    async def cut() -> None:
        path = field.url.removeprefix("sqlite:///").partition("?")[0]
        lock = await asyncio.create_subprocess_exec(
            sys.executable, "-c", LOCK, path, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert lock.stdout is not None
        await lock.stdout.readline()
        await asyncio.sleep(TTL_MS / 1000 + 0.2)
        await lock.communicate(b"\n")
        await field.until("somebody has entered again", partial(entered, field, 4))

    yield cut


def entered(field: Field, count: int) -> bool:
    return len(field.trace("enters")) >= count


@on_every_engine
@pytest.mark.timeout(900)
async def test_two_are_never_inside_while_a_worker_is_cut_off(field: Field) -> None:
    await field.look_after()
    ids = [*await put(field, "inside", [{}]), *await put(field, "inside_a_process", [{}])]
    partition = cut_file if field.url.startswith("sqlite") else cut_network
    async with partition(field) as cut:
        await field.until("both are inside", partial(entered, field, 2))
        hire(field)
        await field.until("another worker is there", partial(sessions, field, 2))
        await cut()
        for _, id, *_ in field.trace("enters")[:2]:
            field.trace_file.with_name(f"{field.trace_file.name}.{id}").touch()
        await field.finished(2)
    lines = field.trace()
    asynchronous = {line[1] for line in lines if line[0] == "leaves"}
    check_alone([line for line in lines if line[1] in asynchronous], {})
    assert [line[1] for line in lines if line[0] == "stops:lease"] == list(asynchronous)
    assert not field.trace("beside")
    assert {(view.state, view.attempt) for view in await field.views(ids)} == {(State.succeeded, 1)}
