"""An app with an outbox: jobs commit with the caller's rows, and are in the store once they are relayed."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from limpet import InvalidOption, JobNotFound, Limpet, UsageError, WrongContext, chain, chord
from limpet.config import load_config
from limpet.outbox import Outbox
from limpet.outbox.carrier import Carrier
from limpet.outbox.table import open_table
from limpet.stores.sqlite.library import library
from tests.servers.flavours import REDIS
from tests.servers.redis import shared

pytestmark = pytest.mark.redis

NUMBERS = itertools.count(1)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Limpet]:
    """An app on Redis, whose outbox is in a file."""
    app = Limpet(shared(REDIS).url, namespace=f"outbox{next(NUMBERS)}", outbox=f"sqlite:///{tmp_path}/app.db")
    yield app
    await app.close()


@pytest.fixture
async def conn(app: Limpet, tmp_path: Path) -> AsyncIterator[Any]:
    """The user's connection to the file, where the outbox is."""
    with contextlib.closing(library.connect(tmp_path / "app.db")) as conn:
        conn.executescript(outbox_of(app).schema)
        conn.execute("CREATE TABLE orders (id INTEGER)")
        yield conn


def outbox_of(app: Limpet) -> Outbox:
    assert app.outbox is not None
    return app.outbox


async def relay(app: Limpet) -> None:
    table = open_table(outbox_of(app).place, app.namespace)
    carrier = Carrier(app.store, table)
    while await carrier.step() != "idle":
        pass
    await table.close()


async def test_a_job_commits_with_the_callers_rows_and_rolls_back_with_them(app: Limpet, conn: Any) -> None:
    @app.task
    async def receipt(order: int) -> str:
        return f"receipt for order {order}"

    conn.execute("INSERT INTO orders VALUES (1)")
    kept = await receipt.options(conn=conn).enqueue(1)
    conn.commit()
    conn.execute("INSERT INTO orders VALUES (2)")
    undone = await receipt.options(conn=conn).enqueue(2)
    conn.rollback()
    assert not kept.existing
    with pytest.raises(JobNotFound):
        await kept.status()  # it is safe, and not yet in the store
    await relay(app)
    assert (await kept.status()).state == "ready"
    with pytest.raises(JobNotFound):
        await undone.status()
    await app.work(until_empty=True)
    assert await kept.result(timeout=60) == "receipt for order 1"


async def test_many_jobs_join_one_transaction_and_run_in_their_order(app: Limpet, conn: Any) -> None:
    ran: list[int] = []

    @app.task
    async def work(number: int) -> None:
        ran.append(number)

    handles = [await work.options(conn=conn).enqueue(number) for number in range(50)]
    handles += await app.enqueue_many([work.job(number) for number in range(50, 100)], conn=conn)
    handles += [await work.options(conn=conn).enqueue(number) for number in range(100, 150)]
    conn.commit()
    assert [handle.id for handle in handles] == sorted(handle.id for handle in handles)
    await relay(app)
    await app.work(until_empty=True, concurrency=1)
    assert ran == list(range(150))


def test_code_without_a_loop_writes_into_the_outbox_too(tmp_path: Path) -> None:
    app = Limpet("redis://nobody.example", outbox=f"sqlite:///{tmp_path}/app.db")

    @app.task
    def work(number: int) -> None: ...

    with contextlib.closing(library.connect(tmp_path / "app.db")) as conn:
        conn.executescript(outbox_of(app).schema)
        # Nobody listens there: an outbox needs its own database and nothing else.
        handles = [work.options(conn=conn).enqueue_sync(number) for number in range(100)]
        conn.commit()
        assert conn.execute("SELECT id FROM limpet_outbox ORDER BY seq").fetchall() == [(h.id,) for h in handles]
    assert [handle.id for handle in handles] == sorted(handle.id for handle in handles)


async def test_without_an_outbox_redis_says_what_to_do(app: Limpet, conn: Any) -> None:
    bare = Limpet(app.url)

    @bare.task
    async def work() -> None: ...

    with pytest.raises(WrongContext, match=r"Redis cannot enqueue inside a transaction .*outbox="):
        await work.options(conn=conn).enqueue()
    await bare.close()


async def test_limits_reach_the_store_with_the_job(app: Limpet, conn: Any) -> None:
    from limpet import Limit

    @app.task(limits=[Limit("smtp", concurrency=2), Limit("customer:{customer}", rate="10/m")])
    async def send(customer: str) -> None: ...

    await send.options(conn=conn).enqueue("acme")
    conn.commit()
    await relay(app)
    assert [gate.key for gate in await app.store.gates("limit:")] == ["limit:customer:acme", "limit:smtp"]


# -- which outbox


def test_an_outbox_is_found_like_any_other_setting(tmp_path: Path) -> None:
    (tmp_path / "limpet.toml").write_text('outbox = "sqlite:///app.db"\n')
    file = load_config(folder=tmp_path, environ={}).outbox
    assert file is not None
    assert (file.value, file.source) == (f"sqlite:///{tmp_path}/app.db", str(tmp_path / "limpet.toml"))
    env = load_config(folder=tmp_path, environ={"LIMPET_OUTBOX": "postgresql://db/app"}).outbox
    assert env is not None
    assert (env.value, env.source) == ("postgresql://db/app", "LIMPET_OUTBOX")
    code = load_config(folder=tmp_path, environ={"LIMPET_OUTBOX": "x"}, code_outbox="postgresql://db/a").outbox
    assert code is not None
    assert code.source == "code"
    flag = load_config(folder=tmp_path, environ={}, code_outbox="x", flag_outbox="postgresql://db/a").outbox
    assert flag is not None
    assert flag.source == "--outbox"
    assert load_config(folder=Path("/"), environ={}).outbox is None


@pytest.mark.parametrize(
    ("store", "outbox"),
    [
        ("sqlite:///{folder}/app.db", "sqlite:///{folder}/app.db"),
        ("sqlite:///{folder}/app.db?sync=normal", "sqlite:///{folder}/../{name}/app.db"),
        ("postgresql://one@db/app", "postgresql://two:secret@DB:5432/app?sslmode=require"),
        ("postgresql:///app", "postgres://localhost/app"),
    ],
)
def test_an_outbox_in_the_stores_own_database_is_refused(tmp_path: Path, store: str, outbox: str) -> None:
    words = {"folder": tmp_path, "name": tmp_path.name}
    app = Limpet(store.format(**words), outbox=outbox.format(**words))
    with pytest.raises(UsageError, match=r"no outbox is needed \(leave outbox= out") as refused:
        _ = app.outbox
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("store", "outbox"),
    [
        ("sqlite:///jobs.db", "sqlite:///app.db"),
        ("sqlite://", "sqlite:///app.db"),
        ("redis://db/0", "postgresql://db/app"),
        ("postgresql://db/jobs", "postgresql://db/app"),
        ("postgresql://db:5433/app", "postgresql://db/app"),
        ("sqlite:///jobs.db", "postgresql://a.example,b.example:5433/app"),
    ],
)
def test_an_outbox_in_another_database_is_taken(store: str, outbox: str) -> None:
    assert Limpet(store, outbox=outbox).outbox is not None


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://db/app", "is not the URL of an outbox"),
        ("redis://db/0", "is not the URL of an outbox"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("postgresql+asyncpg://me:secret@db/app", r"names a driver.*write postgresql://me:\*\*\*@db/app"),
    ],
)
def test_an_outbox_that_cannot_work_is_refused_by_name(url: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        _ = Limpet("redis://db", outbox=url).outbox
    assert "secret" not in str(refused.value)


def test_an_app_without_an_outbox_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LIMPET_OUTBOX", raising=False)
    monkeypatch.chdir(tmp_path)
    assert Limpet("redis://db").outbox is None


async def test_a_flow_commits_with_the_callers_rows_and_is_relayed_parents_first(app: Limpet, conn: Any) -> None:
    @app.task(name="number")
    async def number(n: int) -> int:
        return n

    @app.task(name="total")
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    conn.execute("INSERT INTO orders VALUES (1)")
    job = await chord([number.job(n) for n in range(700)], total.job()).enqueue(conn=conn)  # more than one batch
    conn.commit()
    await relay(app)
    await app.work(until_empty=True)
    assert await job.result() == sum(range(700))
    assert (await job.flow.status()).total == 701


async def test_a_node_that_others_wait_for_has_no_unique_key_in_an_outbox(app: Limpet, conn: Any) -> None:
    @app.task(name="number")
    async def number(n: int = 0) -> int:
        return n

    keyed = number.options(unique="k")
    with pytest.raises(InvalidOption, match="an outbox cannot tell"):
        await chain(keyed.job(1), number.job()).enqueue(conn=conn)
    job = await chain(number.job(1), keyed.job()).enqueue(conn=conn)
    conn.commit()
    await relay(app)
    assert (await job.status()).state == "blocked"
