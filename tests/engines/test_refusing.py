"""Old and new code side by side, on every engine: what one refuses runs with the other, in a few claims."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from limpet.core.endings.refusal import code_of
from limpet.core.jobs.lease import Beat
from limpet.core.jobs.state import State
from limpet.core.jobs.view import AttemptView
from limpet.core.tasks.task import TaskSpec
from limpet.runtime import Parts, Worker, WorkerPlan
from limpet.runtime.settings import WorkerEvents
from limpet.stores.asking import attempts_of
from limpet.stores.base import RetryRequest, Store
from tests.contract.harnesses import HARNESSES, SHARED
from tests.runtime.running import Bench

SOON = {"refer_ms": 20, "sweep_ms": 20, "beat_ms": 50}


class Code(Bench):
    """One version of the code: its tasks, and workers that run until they are told to stop."""

    def __init__(self, store: Store, fn: Callable[..., Any]) -> None:
        super().__init__(store)
        self.spec: TaskSpec = self.task(fn, name="send")
        self.working: list[tuple[Worker, asyncio.Task[Any]]] = []

    async def start(self) -> None:
        """Return when the worker lives."""
        alive = asyncio.Event()
        worker = self.worker(SOON, events=WorkerEvents(on_ready=lambda info: alive.set()))
        self.working.append((worker, asyncio.create_task(worker.run())))
        async with asyncio.timeout(60):
            await alive.wait()

    @property
    def code(self) -> str:
        """The capability of its workers."""
        return code_of({"send": self.spec.signature.fingerprint})

    @asynccontextmanager
    async def present(self) -> AsyncIterator[None]:
        """A worker that lives, and claims nothing."""
        plan = WorkerPlan(store=self.store, parts=Parts(tasks=self.tasks))
        await self.store.beat(Beat(plan.session, 60_000, plan.serves, Worker(plan).info()))
        yield
        await self.store.leave(plan.session)

    async def stop(self) -> None:
        for worker, running in self.working:
            worker.stop()
            await running
        self.working.clear()

    @property
    def claimed(self) -> int:
        return sum(worker.report.claimed for worker, _ in self.working)


class Deployment:
    """The code of before, which takes `to`; that of today, which takes `to` and `cc`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.ran: list[str] = []

        async def send(to: str) -> str:
            self.ran.append("old")
            return to

        async def send_to_both(to: str, cc: str) -> str:
            self.ran.append("new")
            return to + cc

        async def send_to_many(to: list[str]) -> str:
            self.ran.append("many")
            return " ".join(to)

        self.old, self.new, self.many = (Code(store, fn) for fn in (send, send_to_both, send_to_many))

    async def attempts(self, id: bytes) -> list[AttemptView]:
        return list(await attempts_of(self.store, id))

    async def refused(self, id: bytes) -> None:
        """Return when one signature has refused the job."""
        async with asyncio.timeout(60):
            while True:
                if await self.attempts(id):
                    return
                await asyncio.sleep(0.001)

    async def stop(self) -> None:
        for code in (self.old, self.new, self.many):
            await code.stop()


@pytest.fixture(params=SHARED)
async def both(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Deployment]:
    harness = HARNESSES[request.param](tmp_path)
    deployment = Deployment(await harness.open())
    yield deployment
    await deployment.stop()
    await harness.close()


OLD, NEW = {"to": "a"}, {"to": "a", "cc": "b"}


async def test_in_a_rolling_deployment_none_is_dead_and_each_is_claimed_twice_at_most(both: Deployment) -> None:
    await both.old.start()
    await both.new.start()
    ids = []
    for _ in range(20):
        ids += [await both.old.put(both.old.spec, OLD), await both.new.put(both.new.spec, NEW)]
    await both.old.until(ids, State.succeeded)
    assert both.old.claimed + both.new.claimed <= 2 * len(ids)
    assert sorted(both.ran) == ["new"] * 20 + ["old"] * 20
    for id in ids:
        outcomes = [(each.outcome, each.number) for each in await both.attempts(id)]
        assert outcomes in ([], [("refused", 1)])


async def test_a_job_that_nobody_else_may_take_is_dead_and_its_bytes_are_kept(both: Deployment) -> None:
    await both.old.start()
    id = await both.new.put(both.new.spec, NEW)
    await both.old.until([id], State.dead)
    view = await both.old.view(id)
    assert (view.args, view.attempt, view.lane.needs) == (b'{"to":"a","cc":"b"}', 1, ())
    assert "has no parameter 'cc'" in view.reason
    assert both.old.claimed == 1


async def test_each_signature_refuses_a_job_once(both: Deployment) -> None:
    for code in (both.old, both.new, both.many):
        await code.start()
    id = await both.old.put(TaskSpec.named("send"), {"to": 5})
    await both.old.until([id], State.dead)
    attempts = await both.attempts(id)
    assert [each.outcome for each in attempts] == ["refused", "refused", "dead"]
    assert both.old.claimed + both.new.claimed + both.many.claimed == 3
    assert len({each.session for each in attempts}) == 3
    view = await both.old.view(id)
    assert (view.attempt, view.lane.needs) == (1, ())


async def test_a_job_whose_code_has_gone_goes_to_code_that_comes(both: Deployment) -> None:
    await both.old.start()
    async with both.many.present():
        id = await both.new.put(both.new.spec, NEW)
        await both.refused(id)
        await both.new.start()
        assert (await both.new.view(id)).lane.needs == (both.many.code,)
    await both.new.until([id], State.succeeded)
    assert both.ran == ["new"]
    assert [each.outcome for each in await both.attempts(id)] == ["refused", "refused"]
    assert both.old.claimed + both.new.claimed == 2


async def test_a_job_whose_code_has_gone_is_dead_when_nobody_else_may_take_it(both: Deployment) -> None:
    await both.old.start()
    async with both.many.present():
        id = await both.new.put(both.new.spec, NEW)
        await both.refused(id)
    await both.old.until([id], State.dead)
    view = await both.old.view(id)
    assert "has no parameter 'cc'" in view.reason
    assert "no live worker has the code that it waited for" in view.reason
    assert (view.lane.needs, view.args) == ((), b'{"to":"a","cc":"b"}')


async def test_a_person_who_retries_it_lets_every_signature_refuse_it_again(both: Deployment) -> None:
    await both.old.start()
    id = await both.new.put(both.new.spec, NEW)
    await both.old.until([id], State.dead)
    await both.new.start()
    assert await both.store.retry(RetryRequest((id,))) == ["retried"]
    await both.new.until([id], State.succeeded)
