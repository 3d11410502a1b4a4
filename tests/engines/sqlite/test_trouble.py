"""What the engine says when the disk is full, the file is locked, foreign or spoilt; and that nothing is lost."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from limpet.core.endings.transition import Succeed
from limpet.core.errors import (
    CycleFound,
    InvalidOption,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreTimeout,
    StoreUnreachable,
)
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.core.jobs.lease import Beat, ClaimRequest, Serves
from limpet.core.jobs.state import State
from limpet.stores.asking import attempts_of
from limpet.stores.sqlite import SqliteStore
from limpet.stores.sqlite.connection import connect
from limpet.stores.sqlite.library import library

LANE = Lane("default", "work")


def job(number: int, args: bytes = b"{}") -> Job:
    return Job(number.to_bytes(16, "big"), LANE, Policy(), args)


async def raw(store: SqliteStore, sql: str, *args: object) -> list[tuple[object, ...]]:
    """Run a statement in the engine's own connection."""
    rows: list[tuple[object, ...]] = await store.process.writer.submit(
        "raw", lambda conn: conn.execute(sql, args).fetchall()
    )
    return rows


async def test_a_full_disk_is_an_error_and_work_goes_on_when_there_is_space_again(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"), sync="normal")
    await store.enqueue([job(1)])
    await store.beat(Beat("s", 15_000, Serves()))
    (held,) = (await store.claim(ClaimRequest("s", Serves(), 1, 1, 1))).jobs
    ((pages,),) = await raw(store, "PRAGMA page_count")
    await raw(store, f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreFull, match="the disk is full"):
        await store.enqueue([job(number, b'{"a":"' + b"x" * 2_000 + b'"}') for number in range(10, 200)])
    with pytest.raises(StoreFull):
        await store.settle("s", 1, [Succeed(held.id, held.token, b'"' + b"y" * 100_000 + b'"')])
    counts = await store.count()
    assert (counts.enqueued, counts.total(State.running)) == (1, 1)
    await raw(store, "PRAGMA max_page_count = 1073741823")
    (settled,) = await store.settle("s", 1, [Succeed(held.id, held.token, b'"' + b"y" * 100_000 + b'"')])
    assert settled.answer == "done"
    await store.enqueue([job(2)])
    await store.close()


async def test_a_file_locked_by_a_stranger_is_a_timeout_and_works_again_after(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    store = SqliteStore(path, sync="normal", busy_ms=50)
    await store.open()
    stranger = library.connect(path, isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreTimeout, match="locked by another writer"):
        await store.enqueue([job(1)])
    stranger.execute("COMMIT")
    await store.enqueue([job(1)])
    stranger.close()
    await store.close()


async def test_one_spoilt_operation_does_not_take_its_group_with_it(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"), sync="normal")
    await store.open()

    def spoil(conn: sqlite3.Connection) -> None:
        conn.execute("INSERT INTO limpet_control VALUES ('k', 'n', 'v', 1)")
        raise RuntimeError("spoilt")

    spoilt = asyncio.ensure_future(store.process.writer.submit("spoil", spoil))
    await asyncio.gather(store.enqueue([job(1)]), store.enqueue([job(2)]))
    with pytest.raises(RuntimeError, match="spoilt"):
        await spoilt
    assert (await store.count()).enqueued == 2
    assert await store.controls("k") == []
    await store.close()


async def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.write_bytes(b"this is a shopping list, not a database, and it is long enough" * 20)
    store = SqliteStore(str(path))
    with pytest.raises(StoreCorrupt, match="not a sound database"):
        await store.open()
    await store.close()


async def test_a_folder_that_is_missing_is_named_with_its_fix(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "nowhere" / "jobs.db"))
    with pytest.raises(StoreUnreachable, match=r"mkdir -p .*nowhere"):
        await store.open()
    (tmp_path / "nowhere").mkdir()
    await store.open()
    await store.close()


@pytest.mark.parametrize(
    ("spoil", "args"),
    [
        ("UPDATE limpet_job SET extra = x'c1c1c1'", b'{"a":1}'),
        ("UPDATE limpet_policy SET body = x'00ff'", b'{"a":2}'),
        ("DELETE FROM limpet_policy", b'{"a":3}'),
    ],
)
async def test_a_record_that_cannot_be_read_is_buried_with_its_bytes_and_stops_nobody(
    tmp_path: Path, spoil: str, args: bytes
) -> None:
    path = str(tmp_path / "jobs.db")
    store = SqliteStore(path, sync="normal")
    await store.enqueue([job(1, args)])
    await raw(store, spoil)
    await store.close()
    store = SqliteStore(path, sync="normal")
    good = Job((2).to_bytes(16, "big"), LANE, Policy(attempts=2), b"{}")
    await store.enqueue([good])
    await store.beat(Beat("s", 15_000, Serves()))
    claim = await store.claim(ClaimRequest("s", Serves(), 10, 10, 1))
    assert [each.id for each in claim.jobs] == [good.id]
    (view,) = await store.get([(1).to_bytes(16, "big")])
    assert view is not None
    assert (view.state, view.args) == (State.dead, args)
    assert [attempt.outcome for attempt in await attempts_of(store, view.id)] == ["dead"]
    assert [cause.type for cause in await store.causes()] == ["limpet.Undecodable"]
    await store.close()


async def test_many_handles_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    stores = [SqliteStore(str(tmp_path / "jobs.db")) for _ in range(8)]
    await asyncio.gather(*(store.enqueue([job(number)]) for number, store in enumerate(stores)))
    assert (await stores[0].count()).enqueued == 8
    for store in stores:
        await store.close()


def test_whoever_comes_while_a_new_file_gets_its_log_waits_for_it(tmp_path: Path) -> None:
    for number in range(40):
        path, together = str(tmp_path / f"{number}.db"), threading.Barrier(8)

        def open_one(path: str = path, together: threading.Barrier = together) -> None:
            together.wait()
            connect(path, "normal", "limpet_").close()

        with ThreadPoolExecutor(8) as threads:
            for opened in [threads.submit(open_one) for _ in range(8)]:
                opened.result()


async def test_namespaces_see_nothing_of_each_other(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    stores = [SqliteStore(path, namespace=name, sync="normal") for name in ("default", "shop", "Shop", "shop-2", "a.b")]
    for number, store in enumerate(stores):
        for _ in range(number + 1):
            await store.enqueue([job(number * 10 + _)])
    assert [(await store.count()).enqueued for store in stores] == [1, 2, 3, 4, 5]
    for store in stores:
        await store.close()


def test_a_namespace_that_is_no_name_is_refused() -> None:
    with pytest.raises(InvalidOption, match="not a namespace"):
        SqliteStore(None, namespace="a b; DROP TABLE")


async def test_large_arguments_lie_apart_and_come_back_whole(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"), sync="normal")
    small, large = b'{"a":"' + b"x" * 500 + b'"}', b'{"a":"' + b"x" * 5_000 + b'"}'
    await store.enqueue([job(1, small), job(2, large)])
    assert await raw(store, "SELECT count(*) FROM limpet_body") == [(1,)]
    views = await store.get([job(1).id, job(2).id])
    assert [view.args for view in views if view is not None] == [small, large]
    await store.beat(Beat("s", 15_000, Serves()))
    claim = await store.claim(ClaimRequest("s", Serves(), 10, 10, 1))
    assert [each.args for each in claim.jobs] == [small, large]
    await store.close()


async def test_with_rare_sweeps_a_silent_session_is_taken_back_after_its_lease_time(tmp_path: Path) -> None:
    """Agents without a worker: nobody sweeps for minutes, and each sweep comes after a gap."""
    store = SqliteStore(str(tmp_path / "jobs.db"), sync="normal")
    start = 1_000_000
    await store.enqueue([job(1)], now_ms=start)
    await store.expire(now_ms=start)
    await store.beat(Beat("agent", 15_000, Serves()), now_ms=start)
    await store.claim(ClaimRequest("agent", Serves(), 1, 1, 1), now_ms=start)
    assert await store.expire(now_ms=start + 60_000) == 0, "it may be that the store was away: wait one lease time"
    assert await store.expire(now_ms=start + 120_000) == 1
    await store.close()


async def test_jobs_that_wait_for_each_other_are_refused_and_a_long_chain_in_any_order_is_not() -> None:
    store = SqliteStore(None)
    one, two = (1).to_bytes(16, "big"), (2).to_bytes(16, "big")
    with pytest.raises(CycleFound):
        await store.enqueue(
            [Job(one, LANE, Policy(), b"{}", after=(two,)), Job(two, LANE, Policy(), b"{}", after=(one,))]
        )
    assert (await store.count()).enqueued == 0
    chain = [
        Job(n.to_bytes(16, "big"), LANE, Policy(), b"{}", after=((n - 1).to_bytes(16, "big"),)) for n in range(2, 5_000)
    ]
    answers = await store.enqueue([*reversed(chain), Job(one, LANE, Policy(), b"{}")])
    assert [answer.state for answer in answers[-2:]] == [State.blocked, State.ready]
    assert await store.cancel([one], "all of it") == ["cancelled"]
    assert (await store.count()).total(State.cancelled) == 4_999
    await store.close()


async def test_what_can_never_be_written_is_not_called_an_outage(tmp_path: Path) -> None:
    """An outage is asked again for minutes; a value that no column takes must be seen for what it is."""
    store = SqliteStore(str(tmp_path / "jobs.db"), sync="normal")
    await store.enqueue([job(1)])
    await store.beat(Beat("s", 15_000, Serves()))
    (held,) = (await store.claim(ClaimRequest("s", Serves(), 1, 1, 1))).jobs
    with pytest.raises(OverflowError) as caught:
        await store.enqueue([replace(job(2), due_at_ms=1 << 80)])
    assert not isinstance(caught.value, StoreError)
    (settled,) = await store.settle("s", 2, [Succeed(held.id, held.token)])
    assert settled.answer == "done"
    await store.close()
