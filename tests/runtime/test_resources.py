"""What jobs share in a process: opened once, injected, closed after the last job; and what wraps each attempt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from limpet.core.errors import InvalidTask
from limpet.core.jobs.state import State
from limpet.core.tasks.task import Inject
from limpet.runtime import JobContext, current_job
from tests.runtime.running import Bench


async def test_a_resource_is_opened_once_and_closed_after_the_last_job(bench: Bench) -> None:
    seen: list[str] = []

    async def hook() -> AsyncIterator[None]:
        seen.append("hook in")
        yield
        seen.append("hook out")

    async def pool() -> AsyncIterator[str]:
        seen.append("pool in")
        yield "the pool"
        seen.append("pool out")

    def setting() -> Iterator[int]:
        yield 7

    async def uses(n: int, db: str = Inject(pool), size: int = Inject(setting)) -> None:
        seen.append(f"job {n} {db} {size}")

    def uses_in_thread(db: str = Inject(pool)) -> None:
        seen.append(f"thread {db}")

    spec = bench.task(uses)
    await bench.put(spec, {"n": 1})
    await bench.put(spec, {"n": 2})
    await bench.drain({"concurrency": 1}, hooks=[hook], resources=[pool, setting])
    assert seen == ["hook in", "pool in", "job 1 the pool 7", "job 2 the pool 7", "pool out", "hook out"]
    seen.clear()
    await bench.put(bench.task(uses_in_thread))
    await bench.drain(resources=[pool, setting])
    assert seen == ["pool in", "thread the pool", "pool out"]


async def test_an_undeclared_resource_is_named_at_start(bench: Bench) -> None:
    async def pool() -> AsyncIterator[str]:
        yield "never"

    async def uses(db: str = Inject(pool)) -> None: ...

    bench.task(uses)
    with pytest.raises(InvalidTask, match="uses"):
        await bench.drain()
    assert await bench.store.sessions() == []


async def test_a_resource_that_fails_to_open_closes_those_before_it(bench: Bench) -> None:
    seen: list[str] = []

    async def first() -> AsyncIterator[None]:
        try:
            yield
        finally:
            seen.append("first out")

    async def second() -> None:
        raise ConnectionError("no database")

    with pytest.raises(ConnectionError, match="no database"):
        await bench.drain(resources=[first, second])
    assert seen == ["first out"]


async def test_middleware_wraps_the_attempt_outermost_first(bench: Bench) -> None:
    seen: list[str] = []

    def layer(name: str) -> Callable[[JobContext, Callable[[], Awaitable[object]]], Awaitable[object]]:
        async def around(job: JobContext, call_next: Callable[[], Awaitable[object]]) -> object:
            seen.append(f"{name} in {job.task}")
            try:
                return await call_next()
            finally:
                seen.append(f"{name} out")

        return around

    async def in_loop() -> str:
        await asyncio.sleep(0)
        seen.append("loop")
        return current_job().task

    def in_thread() -> str:
        seen.append("thread")
        return current_job().task

    middleware = [layer("outer"), layer("inner")]
    first = await bench.put(bench.task(in_loop))
    await bench.drain(middleware=middleware)
    assert seen == ["outer in in_loop", "inner in in_loop", "loop", "inner out", "outer out"]
    second = await bench.put(bench.task(in_thread))
    await bench.drain(middleware=middleware)
    assert [(await bench.view(id)).result for id in (first, second)] == [b'"in_loop"', b'"in_thread"']


async def test_middleware_may_turn_an_error_into_a_result(bench: Bench) -> None:
    async def forgiving(job: JobContext, call_next: Callable[[], Awaitable[object]]) -> object:
        try:
            return await call_next()
        except ValueError:
            return "forgiven"

    async def fails() -> None:
        raise ValueError

    id = await bench.put(bench.task(fails))
    await bench.drain(middleware=[forgiving])
    view = await bench.view(id)
    assert (view.state, view.result) == (State.succeeded, b'"forgiven"')


async def test_classifiers_of_app_and_task_are_asked(bench: Bench) -> None:
    class Odd(Exception):
        pass

    async def odd() -> None:
        raise Odd

    async def odder() -> None:
        raise Odd

    first = await bench.put(bench.task(odd, retry=[3600]))
    second = await bench.put(bench.task(odder, retry=[3600], classify={Odd: "transient"}))
    await bench.drain(classifiers=[lambda error: "permanent" if isinstance(error, Odd) else None])
    assert (await bench.view(first)).state is State.dead
    assert (await bench.view(second)).state is State.scheduled
