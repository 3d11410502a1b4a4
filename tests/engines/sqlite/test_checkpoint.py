"""The log is copied into the database beside the writer, whose commits then do not wait for it."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from limpet.core.jobs.job import Job, Lane, Policy
from limpet.stores.sqlite import SqliteStore
from limpet.stores.sqlite.checkpoint import EVERY, Checkpointer
from limpet.stores.sqlite.connection import connect
from limpet.stores.sqlite.library import FIXED_VERSION, version
from limpet.stores.sqlite.link import Link

pytestmark = pytest.mark.skipif(version() < FIXED_VERSION, reason="only the writer copies with this SQLite")


def test_enough_changes_are_copied_while_the_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with closing(connect(str(path), "normal", "limpet_")) as writer:
        checkpointer = Checkpointer(Link(lambda: connect(str(path), "normal", "limpet_")))
        writer.execute("BEGIN IMMEDIATE")
        writer.executemany("INSERT INTO limpet_gone VALUES (?, 4, 0)", [(n.to_bytes(16, "big"),) for n in range(EVERY)])
        writer.execute("COMMIT")
        before = path.stat().st_size
        assert writer.total_changes >= checkpointer.due_at
        checkpointer.copy(writer.total_changes)
        writer.execute("UPDATE limpet_clock SET turn = turn + 1")
        checkpointer.close()
        assert path.stat().st_size > before
        assert writer.execute("SELECT count(*) FROM limpet_gone").fetchone()[0] == EVERY


def job(number: int) -> Job:
    return Job(number.to_bytes(16, "big"), Lane("q", "t"), Policy(), b"{}")


async def test_a_process_has_such_a_thread_once_it_has_written_much(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"), sync="normal")
    await store.enqueue([job(number) for number in range(10)])
    assert not copies()
    while not copies():
        due_at = cast(Checkpointer, store.process.checkpointer).due_at
        assert store.process.writer.changes < due_at
        await store.enqueue([job(number) for number in range(store.process.writer.changes, due_at)])
    await store.close()
    assert not copies()


def copies() -> bool:
    return "limpet-checkpoint" in {thread.name for thread in threading.enumerate()}
