"""A process runs what operations wait for it in the background, and lets go of them when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest

from limpet.core.errors import StoreUnreachable
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from limpet.ops import Operator
from limpet.ops.names import UnknownName
from limpet.ops.operation_runner import OperationRunner
from limpet.ops.scope import ScopedStore
from limpet.records import OperationRecord
from limpet.stores.base import Store
from tests.contract.harnesses import HARNESSES, SHARED
from tests.ops.making import job, kill

PATIENCE_S = 60


@pytest.fixture(params=SHARED)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    harness = HARNESSES[request.param](tmp_path)
    yield await harness.open()
    await harness.close()


@pytest.fixture
async def runner(store: Store) -> AsyncIterator[OperationRunner]:
    runner = OperationRunner(store, every_s=0.01)
    yield runner
    await runner.stop()


async def until(operator: Operator, id: str, is_so: Callable[[OperationRecord], bool]) -> OperationRecord:
    """The operation, once it is so."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            one = await operator.operations.get(id)
            if is_so(one):
                return one
            await asyncio.sleep(0.01)


async def test_it_runs_what_waits_and_what_comes_later(store: Store, runner: OperationRunner) -> None:
    operator = Operator(store, "ada")
    await kill(store, job(), job())
    first = await operator.operations.start("retry", "state:dead")
    runner.start()
    runner.start()
    ended = await until(operator, first.id, lambda one: one.state == "done")
    assert (ended.answers, ended.runner) == ({"retried": 2}, None)
    second = await operator.operations.start("cancel", "queue:mail")
    assert (await until(operator, second.id, lambda one: one.state == "done")).answers == {"cancelled": 2}


async def test_stopping_lets_go_of_an_operation_and_another_process_goes_on_at_once(
    store: Store, runner: OperationRunner
) -> None:
    operator = Operator(store, "ada")
    await kill(store, *(job() for _ in range(3)))
    slow = await operator.operations.start("retry", "state:dead", per_second=0.001)
    runner.start()
    await until(operator, slow.id, lambda one: one.done == 1)
    await runner.stop()
    await runner.stop()
    left = await operator.operations.get(slow.id)
    assert (left.state, left.runner, left.done) == ("waiting", None, 1)
    runner.start()
    await until(operator, slow.id, lambda one: one.runner is not None)
    await operator.operations.cancel(slow.id)
    assert (await store.count()).total(State.dead) == 2


async def test_what_cannot_be_done_ends_as_failed_and_can_be_continued(store: Store, runner: OperationRunner) -> None:
    operator = Operator(store, "ada")
    (dead,) = await kill(store, job(args={"text": "x" * 262_000}))
    runner.start()
    one = await operator.operations.start("retry", "state:dead", patch={"to": "y" * 1_000})
    failed = await until(operator, one.id, lambda one: one.state == "failed")
    assert "the arguments" in (failed.why or "")
    assert failed.finished_at is not None
    await store.discard([dead])
    assert (await operator.operations.resume(one.id)).why is None
    done = await until(operator, one.id, lambda one: one.state == "done")
    assert (done.matched, done.answers) == (0, {})


class Away:
    """A store that cannot be reached at first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked = 0

    def __getattr__(self, name: str) -> object:
        self.asked += 1
        if self.asked <= 3:
            raise StoreUnreachable("the line is dead", verb=name)
        return getattr(self._store, name)


async def test_a_store_that_is_away_is_asked_again(store: Store) -> None:
    operator = Operator(store, "ada")
    one = await operator.operations.start("cancel", "queue:mail")
    away = Away(store)
    runner = OperationRunner(cast(Store, away), every_s=0.01)
    runner.start()
    await until(operator, one.id, lambda one: one.state == "done")
    assert away.asked > 3
    await runner.stop()


class TestScope:
    """What a token for some queues begins acts within them, whichever process runs it."""

    async def test_an_operation_acts_within_the_queues_of_the_token_that_began_it(
        self, store: Store, runner: OperationRunner
    ) -> None:
        mail, pdf, late = await kill(store, job(), job(queue="pdf"), job())
        scope = Operator(ScopedStore(store, frozenset({"mail", "post"})), "token:m")
        begun = await scope.operations.start("retry", "state:dead", reason="why", per_second=1000)
        assert (begun.queues, begun.matched) == (("mail", "post"), 2)
        runner.start()
        ended = await until(scope, begun.id, lambda one: one.state == "done")
        assert ended.answers == {"retried": 2}
        states = [view.state for view in await store.get([mail, late, pdf]) if view is not None]
        assert states == [State.ready, State.ready, State.dead]
        named = await scope.operations.start("discard", [id_text(pdf)])
        assert (await until(scope, named.id, lambda one: one.state == "done")).answers == {"gone": 1}
        assert await store.get([pdf]) != [None]
        lines = [line.kind for line in await scope.audit() if line.kind.startswith("operation.")]
        assert lines == ["operation.start"] * 2

    async def test_operations_of_other_scopes_are_not_there(self, store: Store) -> None:
        await kill(store, job(), job(queue="pdf"))
        whole = Operator(store, "ada")
        scopes = (["mail"], ["pdf"], ["mail", "pdf"])
        mail, pdf, both = (Operator(ScopedStore(store, frozenset(queues)), "token:t") for queues in scopes)
        begun = [await each.operations.start("retry", "state:dead", per_second=1) for each in (whole, mail, pdf, both)]
        ids = [one.id for one in begun]

        async def seen(operator: Operator) -> set[int]:
            return {ids.index(one.id) for one in await operator.operations.list()}

        assert [await seen(each) for each in (whole, mail, pdf, both)] == [{0, 1, 2, 3}, {1}, {2}, {1, 2, 3}]
        for id in (ids[0], ids[2], ids[3]):
            with pytest.raises(UnknownName):
                await mail.operations.cancel(id)
        assert (await both.operations.cancel(ids[1])).state == "cancelled"
        assert {line.kind for line in await mail.audit()} >= {"operation.start", "operation.cancel"}

    async def test_each_scope_has_slots_of_its_own(self, store: Store) -> None:
        """Slots that a caller does not see must not be taken for free ones."""
        whole, mail = Operator(store, "ada"), Operator(ScopedStore(store, frozenset({"mail"})), "token:t")
        for operator in (whole, mail, whole, mail):
            one = await operator.operations.start("cancel", "queue:mail", per_second=1)
            await operator.operations.cancel(one.id)
        assert len({control.name for control in await store.controls("operation")}) == 4
