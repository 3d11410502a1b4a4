"""An operation is broken off at every call of the store, and another process takes over: nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from limpet.core.errors import StoreUnreachable
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Term
from limpet.core.operations import operation as operation_module
from limpet.core.operations.operation import LEASE_MS
from limpet.ops import Operator
from limpet.ops.operations import Operations
from limpet.stores.base import Store
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
