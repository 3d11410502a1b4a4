"""One object introduces the others: it runs what was asked for, lends resources, and lets go cleanly."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from limpet import (
    Inject,
    InvalidArguments,
    InvalidTask,
    JobContext,
    Limpet,
    NotStored,
    StoreUnreachable,
    WrongContext,
    current_job,
)
from limpet.runtime.loading import find_ref


async def test_hooks_resources_and_middleware_wrap_the_jobs_in_order(app: Limpet) -> None:
    seen: list[str] = []

    @app.on_startup
    def starting() -> None:
        seen.append("startup")

    @app.on_shutdown
    async def ending() -> None:
        seen.append("shutdown")

    @app.resource
    async def pool() -> AsyncIterator[list[str]]:
        seen.append("open")
        yield seen
        seen.append("close")

    @app.resource
    def plain() -> Iterator[int]:
        yield 7

    @app.middleware
    async def outer(job: JobContext, run: Callable[[], Awaitable[object]]) -> object:
        seen.append(f"before {job.task}")
        value = await run()
        seen.append("after")
        return value

    @app.task(name="t")
    async def t(word: str, db: list[str] = Inject(pool), number: int = Inject(plain)) -> int:
        db.append(word)
        return number

    job = await t.enqueue("job")
    await app.work(until_empty=True)
    assert await job.result() == 7
    assert seen == ["startup", "open", "before t", "job", "after", "close", "shutdown"]


async def test_a_plain_call_runs_here_and_now_and_stores_nothing(app: Limpet) -> None:
    @app.task
    def double(n: int) -> int:
        """Twice as much."""
        return 2 * n

    @app.task
    async def triple(n: int) -> int:
        return 3 * n

    assert double(2) == 4
    assert await triple(2) == 6
    assert double.__doc__ == "Twice as much."
    assert (await app.store.count()).enqueued == 0


async def test_a_plain_call_gets_resources_where_a_worker_has_them_open(app: Limpet) -> None:
    @app.resource
    async def pool() -> AsyncIterator[str]:
        yield "the pool"

    @app.task(name="inner")
    async def inner(db: str = Inject(pool)) -> str:
        return db

    @app.task(name="inner_sync")
    def inner_sync(db: str = Inject(pool)) -> str:
        return db

    @app.task(name="outer")
    async def outer() -> str:
        return await inner()

    @app.task(name="outer_sync")
    def outer_sync() -> str:
        return inner_sync()

    jobs = [await outer.enqueue(), await outer_sync.enqueue()]
    await app.work(until_empty=True)
    assert [await job.result() for job in jobs] == ["the pool", "the pool"]
    assert await inner(db="mine") == "mine"
    with pytest.raises(InvalidArguments, match="gets db from its worker") as caught:
        await inner()
    assert "db=" in caught.value.fix


def test_a_resource_is_a_generator_function() -> None:
    app = Limpet("sqlite://")
    with pytest.raises(InvalidTask, match="generator"):
        app.resource(lambda: 3)


async def test_work_ends_when_told(app: Limpet) -> None:
    @app.task(name="t")
    async def t() -> None: ...

    stop = asyncio.Event()
    worker = asyncio.create_task(app.work(stop=stop))
    await (await t.enqueue()).result(timeout=60)
    stop.set()
    report = await worker
    assert (report.ending, report.succeeded) == ("stopped", 1)


async def test_cancelling_work_hands_back_what_runs(app: Limpet) -> None:
    running = asyncio.Event()

    @app.task(name="t")
    async def t() -> None:
        running.set()
        await asyncio.Event().wait()

    job = await t.enqueue()
    worker = asyncio.create_task(app.work(grace=0))
    await running.wait()
    worker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await worker
    status = await job.status()
    assert (status.state, status.attempt) == ("ready", 0)


async def test_work_serves_only_the_queues_it_is_given(app: Limpet) -> None:
    @app.task(name="a", queue="a")
    async def a() -> None: ...

    @app.task(name="b", queue="b")
    async def b() -> None: ...

    first, second = await a.enqueue(), await b.enqueue()
    await app.work(["a"], until_empty=True)
    assert [(await job.status()).state for job in (first, second)] == ["succeeded", "ready"]


def test_sync_code_enqueues_works_and_reads_results(tmp_path: Path) -> None:
    app = Limpet(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="t")
    def t(n: int) -> int:
        return n + 1

    before = threading.enumerate()  # of other apps
    job = t.enqueue_sync(1)
    app.run(app.work(until_empty=True))
    assert app.run(job.result(60)) == 2
    app.run(app.close())
    assert app.run(app.get(job.id).result(60)) == 2  # a later use opens it again
    app.run(app.close())
    assert not [each for each in threading.enumerate() if each.name == "limpet-bridge" and each not in before]


async def test_blocking_calls_inside_a_loop_say_what_to_write() -> None:
    app = Limpet("sqlite://")

    @app.task
    def t() -> None: ...

    with pytest.raises(WrongContext) as caught:
        t.enqueue_sync()
    assert caught.value.fix == "await .enqueue()"
    with pytest.raises(WrongContext, match="await it"):
        app.run(t.enqueue())


async def test_a_sync_task_uses_its_workers_loop(app: Limpet) -> None:
    async def loop_of() -> int:
        return id(asyncio.get_running_loop())

    @app.task(name="child")
    def child(n: int) -> int:
        return n

    @app.task(name="parent")
    def parent() -> int:
        assert current_job().attempt == 1
        child.enqueue_sync(1)
        return app.run(loop_of())

    job = await parent.enqueue()
    report = await app.work(until_empty=True)
    assert report.succeeded == 2
    assert await job.result() == id(asyncio.get_running_loop())


def test_two_event_loops_in_one_process_share_the_app(tmp_path: Path) -> None:
    app = Limpet(f"sqlite:///{tmp_path}/jobs.db?sync=normal")
    done: list[int] = []

    @app.task(name="t")
    async def t(n: int) -> int:
        return n

    async def produce_and_work() -> None:
        jobs = await asyncio.gather(*(t.enqueue(n) for n in range(50)))
        await app.work(until_empty=True)
        done.extend(await asyncio.gather(*(job.result(60) for job in jobs)))

    threads = [threading.Thread(target=asyncio.run, args=(produce_and_work(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == sorted(list(range(50)) * 2)
    asyncio.run(app.close())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_enqueues_on_its_own_connection(tmp_path: Path) -> None:
    app = Limpet(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="t")
    def t(n: int) -> None: ...

    first = t.enqueue_sync(0)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = b"failed"
        try:
            answer = t.enqueue_sync(1).id.encode()
        finally:
            os.write(write, answer)
            os._exit(0)
    os.waitpid(pid, 0)
    child = os.read(read, 100).decode()
    os.close(read)
    os.close(write)
    assert child not in ("failed", first.id)
    third = t.enqueue_sync(2)
    states = [app.run(app.get(id).status()).state for id in (first.id, child, third.id)]
    assert states == ["ready", "ready", "ready"]
    app.run(app.close())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_store_in_memory_does_not_follow_a_fork() -> None:
    app = Limpet("sqlite://")

    @app.task(name="t")
    def t() -> None: ...

    t.enqueue_sync()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = b"accepted"
        try:
            t.enqueue_sync()
        except WrongContext as error:
            answer = error.fix.encode()
        finally:
            os.write(write, answer)
            os._exit(0)
    os.waitpid(pid, 0)
    assert b"use a file" in os.read(read, 200)
    os.close(read)
    os.close(write)
    app.run(app.close())


def test_threads_that_race_for_the_first_use_get_one_store() -> None:
    app = Limpet("sqlite://")
    start, stores = threading.Barrier(8), []

    def first_use() -> None:
        start.wait()
        stores.append(app.store)

    threads = [threading.Thread(target=first_use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(store) for store in stores}) == 1


async def test_a_store_that_cannot_be_opened_is_a_typed_error(tmp_path: Path) -> None:
    app = Limpet(f"sqlite:///{tmp_path}/missing/folder/jobs.db")
    with pytest.raises(StoreUnreachable, match="does not exist; nothing was stored"):
        await app.enqueue("t", {})  # its first question, how the task is declared, is not answered

    @app.task
    async def greet() -> None: ...

    with pytest.raises(NotStored, match=r"does not exist; job .* is not stored"):
        await greet.enqueue()
    with pytest.raises(NotStored, match="2 jobs are not stored"):
        await app.enqueue_many([greet.job(), greet.job()])
    with pytest.raises(StoreUnreachable):
        async with app:
            pass
    await app.close()


def test_a_program_that_forgets_to_close_ends_cleanly(tmp_path: Path) -> None:
    program = """
from limpet import Limpet
app = Limpet("sqlite:///jobs.db")
@app.task(name="t")
def t(n: int) -> int:
    return n
job = t.enqueue_sync(5)
app.run(app.work(until_empty=True))
print(app.run(job.result(60)))
"""
    (tmp_path / "program.py").write_text(program)
    run = subprocess.run(
        [sys.executable, "-W", "error", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.stdout, run.stderr, run.returncode) == ("5\n", "", 0)


async def test_rebind_points_the_app_at_another_store(tmp_path: Path) -> None:
    app = Limpet(f"sqlite:///{tmp_path}/jobs.db", namespace="shop")
    app.rebind("sqlite://", namespace="test")
    assert (app.url, app.namespace) == ("sqlite://", "test")
    async with app:
        with pytest.raises(WrongContext, match="open"):
            app.rebind(f"sqlite:///{tmp_path}/other.db")
    app.rebind()
    assert (app.url, app.namespace) == (f"sqlite:///{tmp_path}/jobs.db", "shop")
    assert not (tmp_path / "jobs.db").exists()


def test_the_url_comes_from_the_environment_when_code_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LIMPET_URL", "sqlite:///env.db")
    assert Limpet().url == "sqlite:///env.db"
    assert Limpet("sqlite:///code.db").url == "sqlite:///code.db"
    monkeypatch.delenv("LIMPET_URL")
    assert Limpet().url == "sqlite:///limpet.db"


async def test_namespaces_of_one_file_do_not_see_each_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with Limpet(url, namespace="a") as a, Limpet(url, namespace="b") as b:
        await a.enqueue("t", {})
        assert ((await a.store.count()).enqueued, (await b.store.count()).enqueued) == (1, 0)


module_app = Limpet("sqlite://")


@module_app.task
def in_module() -> None: ...


def test_an_app_is_found_again_by_its_name_in_a_module() -> None:
    assert find_ref(module_app) == f"{__name__}:module_app"
    assert find_ref(Limpet("sqlite://")) is None
