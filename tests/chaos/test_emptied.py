"""The store is emptied under workers that live: they say so, let go of what they ran, and go on with the new one."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg
import pytest

from limpet.core.jobs.state import State
from limpet.stores.base import Migrates
from limpet.stores.open import open_store
from tests.chaos.conftest import on_every_engine
from tests.chaos.field import Field
from tests.servers.redis import RedisServer

SAID = ("another store answers here than before", "a part of the worker died")


@on_every_engine
async def test_workers_go_on_with_a_store_that_was_emptied(
    field: Field, url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    field.errors = tmp_path / "errors"
    (old,) = await field.put("short", {"ms": 60_000})
    worker = field.start(ttl_ms=15_000, beat_ms=500)
    await field.until("it works", lambda: len(field.trace("start")) == 1)
    before = worker.tree()
    await empty(url, request)
    new = await field.put("short", {"ms": 1}, 20)
    counts = await field.finished(20)
    assert {view.state for view in await field.views(new)} == {State.succeeded}
    assert await field.views([old]) == []
    assert counts.enqueued == 20
    await field.until("it is said", lambda: any(words in (tmp_path / "errors").read_text() for words in SAID))
    # On PostgreSQL a call that is under way while its schema is dropped may end a child, which is replaced.
    assert worker.tree()[0] == before[0]
    assert worker.tree() == before or url.startswith("postgresql"), "a process has ended"
    worker.process.terminate()
    assert await worker.ended() == 0, "what ran for the old store does not hold it up"
    assert field.trace("end") != []


async def empty(url: str, request: pytest.FixtureRequest) -> None:
    """As people do it, with nobody stopped."""
    if url.startswith("redis"):
        server: RedisServer = request.getfixturevalue("server")
        server.ask("FLUSHALL")
    elif url.startswith("postgresql"):
        with psycopg.connect(url) as conn:
            conn.execute("DROP SCHEMA limpet CASCADE")
            conn.execute(await script(url))
    else:
        path = url.removeprefix("sqlite:///").partition("?")[0]
        for name in ("", "-wal", "-shm", "-lock"):
            os.unlink(f"{path}{name}")
        store = open_store(url)
        await store.open()
        await store.close()


async def script(url: str) -> str:
    """What makes the schema, for a database that does not have it."""
    name = "template_of_script"
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}")
    store = open_store(url.rpartition("/")[0] + f"/{name}")
    assert isinstance(store, Migrates)
    plan = await store.plan()
    await store.close()
    return plan.script
