"""An operation is broken off at every call of the store, and another process takes over: nothing is lost or doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from limpet.core.errors import StoreUnreachable
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Term
from limpet.core.operations import operation as operation_module
from limpet.core.operations.operation import LEASE_MS
from limpet.ops import Operator
from limpet.ops.operations import Operations
from limpet.stores.base import RetryAnswer, RetryRequest, Store
from limpet_contract.bench import Bench
from limpet_contract.crash import Unreliable
from tests.contract.harnesses import HARNESSES, SHARED

JOBS = 3
CHANGED = {"cancel": "cancelled", "retry": "retried", "rerun": "rerun", "discard": "discarded"}


@pytest.fixture(params=SHARED)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES[request.param](tmp_path)
    yield await Bench.open(harness)
    await harness.close()


async def made(bench: Bench, verb: str, queue: str) -> list[bytes]:
    """Jobs that the verb acts on."""
    ids = await bench.add_many(JOBS, queue=queue)
    hand = bench.hand(queues=(queue,))
    bench.clock.advance(1)
    if verb == "rerun":
        await hand.drain()
    elif verb != "cancel":
        for job in await hand.claim(JOBS):
            await hand.bury(job)
    bench.clock.advance(1)
    return ids


async def broken_off(bench: Bench, verb: str, queue: str, fail_at: int) -> tuple[str, bool]:
    """Run an operation whose process dies right after that call; its id, and whether it lived to the end."""
    started = await Operations(bench.store, "ada", lambda: bench.clock.now_ms).start(
        verb, f"queue:{queue} attempt>=0"
    )  # counted by a walk
    store = cast(Store, Unreliable(bench.store, fail_at, "unheard", "dies"))
    try:
        await Operations(store, "ada", lambda: bench.clock.now_ms).run(started.id)
    except StoreUnreachable:
        return started.id, False
    return started.id, True


async def check(bench: Bench, verb: str, id: str, ids: list[bytes], where: str) -> None:
    """Every job was changed once, and the audit log says so once."""
    one = await Operations(bench.store, "bob", lambda: bench.clock.now_ms).get(id)
    assert (one.state, one.done, one.answers) == ("done", JOBS, {CHANGED[verb]: JOBS}), where
    entries = [each for each in await Operator(bench.store, "bob").audit(limit=1_000) if each.data["operation"] == id]
    lines = [(each.kind, each.actor, each.job) for each in entries[1:]]
    assert sorted(lines) == [(f"job.{verb}", "ada", id_text(each)) for each in ids], where
    expected = {"cancel": State.cancelled, "retry": State.ready, "rerun": State.succeeded, "discard": None}[verb]
    assert await bench.states(ids) == [expected] * JOBS, where
    if verb == "rerun":
        made = await bench.found(Term("queue", f"q{where}"))
        assert len(made) == 2 * JOBS, where


@pytest.mark.parametrize("verb", ["cancel", "retry", "rerun", "discard"])
async def test_what_is_broken_off_at_any_call_is_finished_once(
    bench: Bench, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_module, "CHUNK", 2)
    fail_at, lived = 0, False
    while not lived:
        fail_at += 1
        queue = f"q{fail_at}"
        ids = await made(bench, verb, queue)
        id, lived = await broken_off(bench, verb, queue, fail_at)
        bench.clock.advance(LEASE_MS)
        await Operations(bench.store, "bob", lambda: bench.clock.now_ms).run(id)
        await check(bench, verb, id, ids, str(fail_at))
    assert fail_at > 15, "it was broken off at all of its calls"
    await bench.check_books()


class Raced:
    """A store whose retries another process makes too, a moment earlier."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def retry(self, request: RetryRequest, *, now_ms: int | None = None) -> list[RetryAnswer]:
        await self._store.retry(request, now_ms=now_ms)
        return await self._store.retry(request, now_ms=now_ms)


class Killed:
    """A store whose caller is killed at its first retry, which has reached so many jobs."""

    def __init__(self, store: Store, reached: int) -> None:
        self._store = store
        self._reached = reached

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def retry(self, request: RetryRequest, *, now_ms: int | None = None) -> list[RetryAnswer]:
        await self._store.retry(replace(request, ids=request.ids[: self._reached]), now_ms=now_ms)
        raise StoreUnreachable("the process is killed", verb="retry")


def operations_of(bench: Bench, store: object, actor: str = "ada") -> Operations:
    return Operations(cast(Store, store), actor, lambda: bench.clock.now_ms)


async def begun(bench: Bench, reached: int) -> tuple[str, list[bytes]]:
    """An operation whose first chunk was written down, and has reached so many of its jobs; and all of these."""
    ids = await made(bench, "retry", "mail")
    started = await operations_of(bench, bench.store).start("retry", "queue:mail")
    with pytest.raises(StoreUnreachable):
        await operations_of(bench, Killed(bench.store, reached)).run(started.id)
    bench.clock.advance(LEASE_MS)
    return started.id, ids


async def test_a_runner_that_was_taken_for_dead_and_acts_after_all_is_counted_and_logged(bench: Bench) -> None:
    id, ids = await begun(bench, 0)
    await operations_of(bench, Raced(bench.store)).run(id)
    await check(bench, "retry", id, ids, "raced")


async def test_a_cancelled_operation_touches_nothing_more_but_logs_what_a_dead_runner_did(bench: Bench) -> None:
    id, ids = await begun(bench, 2)
    gone = await operations_of(bench, bench.store, "bob").cancel(id, reason="enough")
    assert (gone.state, gone.answers, gone.runner) == ("cancelled", {"retried": 2}, None)
    lines = [each.job for each in await Operator(bench.store, "bob").audit() if each.kind == "job.retry"]
    assert len(lines) == 2
    assert Counter(await bench.states(ids)) == {State.dead: 1, State.ready: 2}
