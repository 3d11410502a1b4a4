"""The log is copied into the database beside the writer, whose commits then do not wait for it."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest

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
        checkpointer.look(writer.total_changes)
        writer.execute("UPDATE limpet_clock SET turn = turn + 1")
        checkpointer.close()
        assert path.stat().st_size > before
        assert writer.execute("SELECT count(*) FROM limpet_gone").fetchone()[0] == EVERY


def test_a_process_that_writes_little_has_no_such_thread(tmp_path: Path) -> None:
    checkpointer = Checkpointer(Link(lambda: connect(str(tmp_path / "jobs.db"), "normal", "limpet_")))
    checkpointer.look(EVERY - 1)
    assert "limpet-checkpoint" not in {thread.name for thread in threading.enumerate()}
    checkpointer.close()
