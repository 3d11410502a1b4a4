"""A file that is removed or replaced while processes have it open: nothing is acknowledged into what lost its name."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from limpet.core.endings.transition import Succeed
from limpet.core.errors import StoreUnreachable, WrongContext
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.core.jobs.lease import Beat, ClaimRequest, Serves
from limpet.core.jobs.state import State
from limpet.core.jobs.witness import Sight, change
from limpet.stores.sqlite import SqliteStore
from limpet.stores.sqlite.library import library

LANE = Lane("default", "work")
SOON_S = 60

PRODUCER = """
import asyncio, sys
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.stores.sqlite import SqliteStore

async def main(path, first, count):
    store, lane = SqliteStore(path, sync="normal"), Lane("default", "work")
    for number in range(int(first), int(first) + int(count)):
        await store.enqueue([Job(number.to_bytes(16, "big"), lane, Policy(), b"{}")])
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


def job(number: int) -> Job:
    return Job(number.to_bytes(16, "big"), LANE, Policy(), b"{}")


def remove(path: Path, *names: str) -> None:
    """What `rm jobs.db*` removes, but for the folder of the wake-ups."""
    for name in names or ("", "-wal", "-shm", "-lock"):
        Path(f"{path}{name}").unlink(missing_ok=True)


async def by_another_process(path: Path, first: int, count: int = 1) -> None:
    """Another process opens the store, or makes it, and enqueues."""
    words = [sys.executable, "-c", PRODUCER, str(path), str(first), str(count)]
    await asyncio.to_thread(subprocess.run, words, check=True, timeout=SOON_S)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(path), sync="normal")
    yield store
    await store.close()


async def names(path: Path) -> list[int]:
    """What a process that comes later finds at the path."""
    late = SqliteStore(str(path), sync="normal")
    found = [number for number in range(20) if (await late.get([job(number).id]))[0] is not None]
    await late.close()
    return found


async def test_an_enqueue_goes_to_the_file_that_was_made_anew_not_to_the_one_without_a_name(
    store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await store.enqueue([job(1)])
    remove(path)
    await by_another_process(path, 2)
    await asyncio.gather(store.enqueue([job(3)]), store.enqueue([job(4)]))
    await store.enqueue([job(5)])
    assert await names(path) == [2, 3, 4, 5]
    told = [line for line in caplog.records if line.levelno == logging.ERROR]
    assert len(told) == 1, "it is said once, however many threads notice"
    assert f"the file {path} was replaced" in told[0].getMessage()


async def test_a_file_that_is_replaced_during_the_commit_gets_no_answer(store: SqliteStore, path: Path) -> None:
    await store.enqueue([job(1)])

    def replace(verb: str, when: str) -> None:
        store.process.writer.intercept = None
        remove(path)
        subprocess.run([sys.executable, "-c", PRODUCER, str(path), "2", "1"], check=True, timeout=SOON_S)

    store.process.writer.intercept = replace  # before the commit, after every look
    await store.enqueue([job(3)])
    assert await names(path) == [2, 3]


async def test_a_removed_file_is_not_made_anew_by_chance_and_may_be_put_back(store: SqliteStore, path: Path) -> None:
    await store.enqueue([job(1)])
    aside = path.with_name("aside.db")
    os.rename(path, aside)
    with pytest.raises(StoreUnreachable, match="was removed while this process used it") as caught:
        await store.enqueue([job(2)])
    assert caught.value.retryable
    assert "put it back" in caught.value.fix
    with pytest.raises(StoreUnreachable, match="was removed"):
        await asyncio.wait_for(_fails(store), SOON_S)
    assert os.listdir(path.parent).count(path.name) == 0
    os.rename(aside, path)
    await store.enqueue([job(3)])
    assert {1, 3} <= set(await names(path))


async def _fails(store: SqliteStore) -> None:
    """Reads fail too, as soon as they look."""
    while True:
        await store.count()


async def test_a_backup_that_takes_the_name_is_noticed_by_readers_too(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    await store.enqueue([job(1)])
    backup = tmp_path / "backup.db"
    await asyncio.to_thread(_copy, path, backup)
    await store.enqueue([job(2)])
    assert (await store.count()).enqueued == 2
    remove(path, "-wal", "-shm")
    os.replace(backup, path)
    assert (await store.get([job(2).id])) == [None]
    assert (await store.count()).enqueued == 1
    await store.enqueue([job(3)])
    assert await names(path) == [1, 3]


def _copy(path: Path, backup: Path) -> None:
    code = "import sqlite3, sys; a, b = map(sqlite3.connect, sys.argv[1:]); a.backup(b); b.close(); a.close()"
    subprocess.run([sys.executable, "-c", code, str(path), str(backup)], check=True, timeout=SOON_S)


async def test_the_log_of_the_old_file_is_not_written_into_the_one_that_takes_its_name(
    store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await store.enqueue([job(1)])
    log = os.stat(f"{path}-wal").st_ino
    await by_another_process(path.with_name("new.db"), 2)
    os.replace(path.with_name("new.db"), path)
    assert (await store.get([job(1).id, job(2).id]))[0] is None
    await store.enqueue([job(3)])
    assert await names(path) == [2, 3]
    assert "is put aside" in caplog.text
    assert os.stat(f"{path}-wal-{log}").st_ino == log, "whoever wants it back has it"


async def test_a_callers_connection_to_the_old_file_is_refused(store: SqliteStore, path: Path) -> None:
    await store.enqueue([job(1)])
    guest = library.connect(str(path), isolation_level=None)
    guest.execute("BEGIN IMMEDIATE")
    await store.enqueue_on(guest, [job(2)])
    guest.execute("COMMIT")
    await by_another_process(path.with_name("new.db"), 3)
    os.replace(path.with_name("new.db"), path)
    guest.execute("BEGIN IMMEDIATE")
    with pytest.raises(WrongContext, match="has been replaced") as caught:
        await store.enqueue_on(guest, [job(4)])
    assert "open a new connection" in caught.value.fix
    guest.execute("ROLLBACK")
    guest.close()
    guest = library.connect(str(path), isolation_level=None)
    guest.execute("BEGIN IMMEDIATE")
    await store.enqueue_on(guest, [job(5)])
    guest.execute("COMMIT")
    guest.close()
    (view,) = await store.get([job(5).id])
    assert view is not None, "with all that it needs: its policy was known to be stored in the old file only"


async def test_a_log_that_lost_its_name_takes_no_commit(store: SqliteStore, path: Path) -> None:
    # The beat says that live events have no reader. Else a look for one might make the log anew at the wrong moment.
    await store.beat(Beat("s", 15_000, Serves()))
    await store.enqueue([job(1)])
    remove(path, "-wal", "-shm")
    await store.enqueue([job(2)])
    assert 2 in await names(path)


@pytest.mark.parametrize("readers", [False, True], ids=["the writer alone", "readers too"])
async def test_logs_that_another_process_made_anew_are_opened_by_the_next_write(
    store: SqliteStore, path: Path, readers: bool
) -> None:
    """All connections of a process share one index of the log: while one has the old index open, all have it."""
    await store.beat(Beat("s", 15_000, Serves()))
    await store.enqueue([job(1)])
    if readers:
        await store.count()
        assert store.process.sentry is not None
        store.process.sentry.changed("s")
    remove(path, "-wal", "-shm")
    await by_another_process(path, 2)
    await store.enqueue([job(3)])
    assert (await store.get([job(2).id, job(3).id])).count(None) == 0
    assert {2, 3} <= set(await names(path))


async def test_a_write_in_the_middle_of_which_the_log_is_made_anew_is_done_again(
    store: SqliteStore, path: Path
) -> None:
    await store.enqueue([job(1)])
    code = f"import sys, {library.__name__} as sql; sql.connect(sys.argv[1]).execute('CREATE TABLE theirs (x)')"

    def renew(verb: str, when: str) -> None:
        store.process.writer.intercept = None
        remove(path, "-wal", "-shm")
        subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=SOON_S)
        raise library.OperationalError("disk I/O error")  # what SQLite says when it reads the new log by the old index

    store.process.writer.intercept = renew
    await store.enqueue([job(3)])
    assert 3 in await names(path)


async def test_a_connection_of_the_caller_that_keeps_the_old_log_open_is_named_and_spoils_nothing(
    store: SqliteStore, path: Path
) -> None:
    await store.enqueue([job(1)])
    guest = library.connect(str(path), isolation_level=None)
    guest.execute("SELECT count(*) FROM limpet_clock").fetchone()
    remove(path, "-wal", "-shm")
    await by_another_process(path, 2)
    with pytest.raises(StoreUnreachable, match="a connection of your own") as caught:
        await store.enqueue([job(3)])
    assert caught.value.retryable
    assert caught.value.fix == "close that connection"
    guest.execute("PRAGMA wal_autocheckpoint = 0")
    guest.interrupt()  # no copy of the old log at its end
    guest.close()
    await store.enqueue([job(3)])
    assert {2, 3} <= set(await names(path))


async def test_what_ran_for_the_old_file_counts_no_more_and_work_goes_on_with_the_new_one(
    store: SqliteStore, path: Path
) -> None:
    await store.enqueue([job(1)])
    await store.beat(Beat("s", 15_000, Serves()))
    (held,) = (await store.claim(ClaimRequest("s", Serves(), 1, 1, 1))).jobs
    remove(path)
    await by_another_process(path, 1)
    pulse = await store.beat(Beat("s", 15_000, Serves()))
    assert pulse.fresh, "the new file does not know the session"
    (settled,) = await store.settle("s", 1, [Succeed(held.id, held.token)])
    assert settled.answer in ("stale", "gone")
    (view,) = await store.get([held.id])
    assert view is not None
    assert view.state is State.ready
    (again,) = (await store.claim(ClaimRequest("s", Serves(), 1, 1, 2))).jobs
    assert again.token > held.token
    (settled,) = await store.settle("s", 2, [Succeed(again.id, again.token)])
    assert settled.answer == "done"


async def test_an_older_backup_is_the_same_store_set_back(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    await store.enqueue([job(1), job(2)])
    first = await store.beat(Beat("s", 15_000, Serves()))
    await asyncio.to_thread(_copy, path, tmp_path / "backup.db")
    (held,) = (await store.claim(ClaimRequest("s", Serves(), 1, 1, 1))).jobs
    before = await store.beat(Beat("s", 15_000, Serves()))
    os.replace(tmp_path / "backup.db", path)
    after = await store.beat(Beat("s", 15_000, Serves()))
    assert (first.store, before.store, after.store) == (first.store,) * 3
    found = change(Sight(before.store, before.token), Sight(after.store, after.token))
    assert found is not None
    assert found.kind == "older"
    (settled,) = await store.settle("s", 1, [Succeed(held.id, held.token)])
    assert settled.answer in ("stale", "gone")
    claimed = (await store.claim(ClaimRequest("s", Serves(), 2, 2, 2))).jobs
    assert [each.id for each in claimed] == [job(1).id, job(2).id]
    assert min(each.token for each in claimed) > held.token


async def test_a_callers_connection_to_a_removed_file_is_an_outage(store: SqliteStore, path: Path) -> None:
    await store.enqueue([job(1)])
    guest = library.connect(str(path), isolation_level=None)
    guest.execute("BEGIN")
    guest.execute("SELECT 1 FROM limpet_clock").fetchone()
    remove(path)
    with pytest.raises(StoreUnreachable, match="was removed"):
        await store.enqueue_on(guest, [job(2)])
    guest.close()


async def test_policies_of_the_old_file_are_stored_in_the_new_one(store: SqliteStore, path: Path) -> None:
    mine = Policy(attempts=7)
    await store.enqueue([Job(bytes(15) + b"\x01", LANE, mine, b"{}")])
    remove(path)
    await by_another_process(path, 2)
    await store.enqueue([Job(bytes(15) + b"\x03", LANE, mine, b"{}")])
    (view,) = await store.get([bytes(15) + b"\x03"])
    assert view is not None
    assert view.policy == mine


async def test_who_waits_for_a_job_of_the_old_file_hears_that_it_is_gone(store: SqliteStore, path: Path) -> None:
    await store.enqueue([job(1)])
    waiting = asyncio.create_task(store.watch(job(1).id, SOON_S * 1_000))
    await asyncio.sleep(0)
    await store.held("s")  # what was asked before is done
    await by_another_process(path.with_name("new.db"), 2)
    os.replace(path.with_name("new.db"), path)
    assert await asyncio.wait_for(waiting, SOON_S) is None


async def test_a_sleeping_worker_is_woken_after_everything_of_the_store_was_removed(
    store: SqliteStore, path: Path
) -> None:
    await store.beat(Beat("s", 15_000, Serves()))
    assert not (await store.claim(ClaimRequest("s", Serves(), 1, 1, 1))).jobs
    remove(path)
    shutil.rmtree(f"{path}-wake")
    await by_another_process(path, 1, 0)
    await by_another_process(path, 9, 1)
    await store.beat(Beat("s", 15_000, Serves()))
    claim = await store.claim(ClaimRequest("s", Serves(), 1, 1, 2))
    assert [each.id for each in claim.jobs] == [job(9).id]
    assert not (await store.claim(ClaimRequest("s", Serves(), 1, 1, 3))).jobs
    sleeping = asyncio.create_task(store.wait("s", SOON_S * 1_000))
    await by_another_process(path, 10, 1)
    assert (await asyncio.wait_for(sleeping, SOON_S)).work
