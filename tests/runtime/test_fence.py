"""A worker that is cut off: what must not run beside another stops in time, all else goes on, a slot stays taken."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from limpet.core.endings.transition import Lose, Settled, Transition
from limpet.core.errors import InvalidOption, StoreUnreachable
from limpet.core.gate import GateChange, GateRule
from limpet.core.jobs.lease import Beat, Claim, ClaimRequest, Pulse
from limpet.core.jobs.state import State
from limpet.core.limits.limit import Limit
from limpet.core.tasks.task import TaskSpec
from limpet.runtime import Worker, current_job
from limpet.runtime.attempt import Attempt
from limpet.runtime.context import JobChannel
from limpet.runtime.fence import Fence
from limpet.runtime.process_group import gone
from limpet.runtime.roster import Roster, kept_ms
from limpet.stores.asking import attempts_of
from limpet.stores.base import NOTHING_SPENT
from limpet.stores.sqlite import SqliteStore
from tests.runtime.isolated_jobs import app, number
from tests.runtime.running import Bench
from tests.runtime.test_isolation import REF, appears

SHORT = {"ttl_ms": 3_000, "beat_ms": 100}  # for what is cut off
CALM = {"ttl_ms": 60_000, "beat_ms": 100}  # for what keeps its lease, however busy the machine is
ONE = [Limit("door", concurrency=1)]


class Partition(SqliteStore):
    """The real engine, in memory; cut off, it answers nobody."""

    def __init__(self) -> None:
        super().__init__(None)
        self.cut = False

    def _reached(self) -> None:
        if self.cut:
            raise StoreUnreachable("cut off")

    async def beat(self, beat: Beat, *, now_ms: int | None = None) -> Pulse:
        self._reached()
        return await super().beat(beat, now_ms=now_ms)

    async def claim(self, request: ClaimRequest, *, now_ms: int | None = None) -> Claim:
        self._reached()
        return await super().claim(request, now_ms=now_ms)

    async def settle(
        self,
        session: str,
        seq: int,
        transitions: Sequence[Transition],
        *,
        spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT,
        now_ms: int | None = None,
    ) -> list[Settled]:
        self._reached()
        return await super().settle(session, seq, transitions, spent=spent, now_ms=now_ms)

    async def expire(self, limit: int = 1_000, *, now_ms: int | None = None) -> int:
        self._reached()
        return await super().expire(limit, now_ms=now_ms)


class Cut:
    """A worker on a store from which it can be cut off."""

    def __init__(self) -> None:
        self.store = Partition()
        self.bench = Bench(self.store)
        self.stop = asyncio.Event()
        self.work: asyncio.Task[Any] | None = None

    def start(self, settings: dict[str, int] = SHORT, **options: Any) -> Worker:
        worker = self.bench.worker(settings, **options)
        self.work = asyncio.create_task(worker.run(self.stop))
        return worker

    async def until_heard(self, *stopped: asyncio.Event) -> None:
        """Cut it off until all of these have heard that they must stop."""
        self.store.cut = True
        for event in stopped:
            await asyncio.wait_for(event.wait(), 60)
        self.store.cut = False

    async def end(self) -> Any:
        self.stop.set()
        assert self.work is not None
        report = await self.work
        await self.store.close()
        return report


def stuck(worker: Worker) -> int:
    found: int = msgspec.json.decode(worker.info())["stuck"]
    return found


async def until(true: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while True:
            answer = true()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("ends", ["raises", "lets it pass"])
async def test_a_handler_under_a_limit_of_one_is_stopped_and_handed_back_unspent(ends: str) -> None:
    cut = Cut()
    started, stopped = asyncio.Event(), asyncio.Event()
    reasons: list[str | None] = []

    async def alone() -> str:
        if reasons:
            return "the second time"
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            reasons.append(current_job().stop_reason)
            assert current_job().cancelled
            stopped.set()
            if ends == "raises":
                raise ValueError("it could not clean up") from None
            raise
        return "never"

    id = await cut.bench.put(cut.bench.task(alone, limits=ONE))
    cut.start()
    await started.wait()
    await cut.until_heard(stopped)
    await cut.bench.until([id], State.succeeded)
    view = await cut.bench.view(id)
    assert (view.result, view.attempt, view.lost, reasons) == (b'"the second time"', 1, 0, ["lease"])
    assert (await cut.end()).released >= 1


async def test_a_success_counts_also_after_the_handler_was_told_to_stop() -> None:
    cut = Cut()
    started, stopped = asyncio.Event(), asyncio.Event()

    async def alone() -> str:
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        stopped.set()
        return "done"

    id = await cut.bench.put(cut.bench.task(alone, limits=ONE))
    cut.start()
    await started.wait()
    await cut.until_heard(stopped)
    await cut.bench.until([id], State.succeeded)
    assert (await cut.bench.view(id)).result == b'"done"'
    await cut.end()


async def test_all_others_go_on_and_a_task_may_choose() -> None:
    cut = Cut()
    stopped: dict[str, asyncio.Event] = {}
    running: set[str] = set()
    go_on = asyncio.Event()

    def handler(name: str) -> Callable[[], Awaitable[None]]:
        stopped[name] = asyncio.Event()

        async def run() -> None:
            running.add(name)
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                stopped[name].set()
                raise

        run.__name__ = name
        return run

    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "one_of_two": {"limits": [Limit("two", concurrency=2)]},
        "goes_on": {"limits": [Limit("other", concurrency=1)], "on_lost_lease": "go_on"},
        "stops": {"on_lost_lease": "stop"},
        "alone": {"limits": ONE},
    }
    specs = [cut.bench.task(handler(name), **chosen) for name, chosen in options.items()]
    ids = [await cut.bench.put(spec) for spec in specs]
    cut.start()
    await until(lambda: len(running) == len(options))
    await cut.until_heard(stopped["stops"], stopped["alone"])
    go_on.set()
    await cut.bench.until(ids, State.succeeded)
    assert {name for name, event in stopped.items() if event.is_set()} == {"stops", "alone"}
    await cut.end()


async def test_a_process_that_does_not_stop_is_killed_with_its_group(tmp_path: Path) -> None:
    cut, marker = Cut(), tmp_path / "helper"
    forks = TaskSpec.declare(app.tasks["forks"].fn, name="forks", executor="process", retry=None, limits=ONE)
    cut.bench.tasks = {**app.tasks, "forks": forks}
    id = await cut.bench.put(forks, {"how": "hangs", "marker": str(marker)})
    cut.start(app_ref=REF, resources=[number])
    await appears(marker)
    group = int(marker.read_text().split()[1])
    cut.store.cut = True
    assert await gone(group, 60)
    await cut.store.cancel([id], "it would hang again")
    cut.store.cut = False
    await cut.bench.until([id], State.cancelled)
    view = await cut.bench.view(id)
    assert view.lost == 0
    await cut.end()


async def test_a_limit_that_an_operator_set_counts_too() -> None:
    cut = Cut()
    started, stopped = asyncio.Event(), asyncio.Event()

    async def plain() -> None:
        started.set()
        try:
            if not stopped.is_set():
                await asyncio.Event().wait()
        finally:
            stopped.set()

    spec = cut.bench.task(plain)
    await cut.store.change_gates([GateChange("task:plain", rule=GateRule("task:plain", concurrency=1))])
    id = await cut.bench.put(spec)
    cut.start()
    await started.wait()
    await cut.until_heard(stopped)
    await cut.bench.until([id], State.succeeded)
    await cut.end()


@pytest.mark.parametrize("kind", ["thread", "async"])
async def test_a_handler_that_was_given_up_keeps_its_slot_until_it_ends(kind: str) -> None:
    cut = Cut()
    let_go, entered = threading.Event(), []

    def stubborn_thread(first: bool) -> None:
        entered.append(first)
        if first:
            let_go.wait(90)

    async def stubborn(first: bool) -> None:
        entered.append(first)
        while first and not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError, TimeoutError):
                await asyncio.sleep(0.005)

    fn = stubborn_thread if kind == "thread" else stubborn
    spec = cut.bench.task(fn, limits=ONE, timeout=0.02, hard_timeout=0.1)
    first = await cut.bench.put(spec, {"first": True})
    second = await cut.bench.put(spec, {"first": False})
    worker = cut.start(CALM)
    try:
        await until(lambda: stuck(worker) == 1)
        assert (await cut.bench.view(first)).state is State.running
        assert (await cut.bench.view(second)).state is State.ready
        assert entered == [True]
    finally:
        let_go.set()
    await cut.bench.until([first], State.dead)
    await cut.bench.until([second], State.succeeded)
    assert (await attempts_of(cut.store, first))[0].kind == "timeout"
    await until(lambda: stuck(worker) == 0)
    await cut.end()


async def test_the_supervisors_beats_count_and_a_late_start_is_refused(bench: Bench) -> None:
    async def plain() -> None:
        return None

    spec, stopped = bench.task(plain), asyncio.Event()
    await bench.put(spec)
    (job,) = await bench.claim_as("w")
    attempt = Attempt(job, spec, cast(JobChannel, None), asyncio.get_running_loop())
    attempt.stopper = lambda cause: stopped.set()
    with tempfile.TemporaryFile() as file:
        file.truncate(Roster.size(1))
        roster = Roster(file.fileno(), 1)
        fence = Fence(15_000, roster)
        fence._sent_ms = kept_ms() - 11_001
        assert not fence.guard(attempt)
        roster.beat_for(kept_ms() - 1_000)
        assert fence.guard(attempt)
        roster.beat_for(kept_ms() - 10_950)
        await asyncio.wait_for(stopped.wait(), 60)
        assert attempt.cause == "lease"
        fence.close()
        roster.close()


def test_an_unknown_word_is_refused() -> None:
    async def plain() -> None:
        return None

    with pytest.raises(InvalidOption, match="on_lost_lease='stopp'") as refused:
        TaskSpec.declare(plain, name="plain", on_lost_lease="stopp")  # type: ignore[arg-type]  # what is tested
    assert "stop" in refused.value.fix


async def test_a_worker_is_not_empty_while_a_handler_that_was_given_up_holds_a_slot(bench: Bench) -> None:
    """Jobs behind it were left in the store."""
    ran: list[bool] = []

    def slow(first: bool) -> None:
        ran.append(first)
        if first:
            asyncio.run_coroutine_threadsafe(given_up(), loop).result(90)

    async def given_up() -> None:
        await until(lambda: stuck(worker) == 1)

    loop = asyncio.get_running_loop()
    spec = bench.task(slow, limits=ONE, timeout=0.02, hard_timeout=0.1)
    ids = [await bench.put(spec, {"first": first}) for first in (True, False)]
    worker = bench.worker(CALM)
    report = await worker.run(until_empty=True)
    assert (report.ending, ran) == ("empty", [True, False])
    assert [(await bench.view(id)).state for id in ids] == [State.dead, State.succeeded]


async def test_a_suspect_that_could_not_be_isolated_keeps_its_slot_too(bench: Bench) -> None:
    inside, together = 0, list[int]()

    def slow() -> None:
        nonlocal inside
        inside += 1
        together.append(inside)
        asyncio.run_coroutine_threadsafe(given_up(), loop).result(90)
        inside -= 1

    async def given_up() -> None:
        await until(lambda: stuck(worker) == 1)

    loop = asyncio.get_running_loop()
    spec = bench.task(slow, limits=ONE, timeout=0.02, hard_timeout=0.1)
    await bench.put(spec)
    for _ in range(2):
        (job,) = await bench.claim_as("earlier")
        await bench.store.settle("earlier", job.token, [Lose(job.id, job.token, reason="a crash")])
        await bench.store.leave("earlier")
    await bench.put(spec)
    worker = bench.worker(CALM, app_ref="tests.nowhere:app")
    report = await worker.run(until_empty=True)
    assert (report.dead, together) == (2, [1, 1])


async def test_a_thread_that_comes_back_while_the_loop_is_blocked_gives_its_slot_back(bench: Bench) -> None:
    """The loop hears of its hard timeout before it hears of its end: nobody would come back from it any more."""
    blocked = threading.Event()

    def in_time(first: bool) -> None:
        if first:
            loop.call_soon_threadsafe(block)
            blocked.wait(60)

    def block() -> None:
        blocked.set()
        time.sleep(0.3)  # past the hard timeout

    loop = asyncio.get_running_loop()
    spec = bench.task(in_time, limits=ONE, timeout=None, hard_timeout=0.1)
    ids = [await bench.put(spec, {"first": first}) for first in (True, False)]
    report = await asyncio.wait_for(bench.worker(CALM).run(until_empty=True), 60)
    assert (report.succeeded, report.ending) == (2, "empty")
    assert [(await bench.view(id)).state for id in ids] == [State.succeeded] * 2
