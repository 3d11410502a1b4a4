"""A store outage is weather: nothing is lost, nothing is done twice, and only what cannot heal ends the worker."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from limpet.core.endings.transition import Bury, Drop, RetryAfter, Settled, Succeed, Transition
from limpet.core.errors import StoreCorrupt, StoreTimeout, StoreUnreachable
from limpet.core.jobs.lease import Beat, Claim, ClaimRequest
from limpet.core.jobs.state import State
from limpet.core.limits.budget import Budget
from limpet.runtime import WorkerFailed, current_job
from limpet.runtime.patient_store import PatientStore
from limpet.runtime.roster import Roster
from limpet.stores.base import NOTHING_SPENT
from limpet.stores.sqlite import SqliteStore
from tests.runtime.running import Bench


class Weather(SqliteStore):
    """The real engine in bad weather: refuses some calls, and does others without being heard."""

    def __init__(self) -> None:
        super().__init__(None)
        self.refuse_claims = 0
        self.unheard_claims = 0
        self.refuse_settles = 0
        self.unheard_settles = 0
        self.corrupt = False
        self.claims: list[int] = []
        self.settles: list[tuple[int, int]] = []

    async def claim(self, request: ClaimRequest, *, now_ms: int | None = None) -> Claim:
        self.claims.append(request.seq)
        if self.corrupt:
            raise StoreCorrupt("bad page", verb="claim")
        if self.refuse_claims:
            self.refuse_claims -= 1
            raise StoreUnreachable("away", verb="claim")
        claim = await super().claim(request, now_ms=now_ms)
        if self.unheard_claims and claim.jobs:
            self.unheard_claims -= 1
            raise StoreTimeout("no answer", verb="claim")
        return claim

    async def settle(
        self,
        session: str,
        seq: int,
        transitions: Sequence[Transition],
        *,
        spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT,
        now_ms: int | None = None,
    ) -> list[Settled]:
        self.settles.append((seq, len(transitions)))
        if self.refuse_settles:
            self.refuse_settles -= 1
            raise StoreUnreachable("away", verb="settle")
        settled = await super().settle(session, seq, transitions, spent=spent, now_ms=now_ms)
        if self.unheard_settles:
            self.unheard_settles -= 1
            raise StoreTimeout("no answer", verb="settle")
        return settled


class Choosy(SqliteStore):
    """The real engine, which cannot write the ends of one task's jobs: what it is given breaks its encoder."""

    def __init__(self, *cannot: type) -> None:
        super().__init__(None)
        self.cannot = cannot
        self.cannot_spend = False
        self.seqs: list[int] = []

    async def settle(
        self,
        session: str,
        seq: int,
        transitions: Sequence[Transition],
        *,
        spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT,
        now_ms: int | None = None,
    ) -> list[Settled]:
        self.seqs.append(seq)
        if any(isinstance(transition, self.cannot) for transition in transitions) or (spent and self.cannot_spend):
            raise OverflowError("int too large")
        return await super().settle(session, seq, transitions, spent=spent, now_ms=now_ms)


async def test_an_end_that_cannot_be_written_costs_only_its_own_job(caplog: pytest.LogCaptureFixture) -> None:
    store = Choosy(RetryAfter)
    bench = Bench(store)
    runs: list[int] = []

    async def fails() -> None:
        raise ConnectionError

    async def works(n: int) -> None:
        runs.append(n)

    poison, good = bench.task(fails, retry=[60]), bench.task(works)
    ids = [await bench.put(good, {"n": n}) for n in range(3)]
    bad = await bench.put(poison)
    ids += [await bench.put(good, {"n": n}) for n in range(3, 6)]
    report = await bench.drain()
    assert (report.succeeded, report.dead, report.retried, report.stale) == (6, 1, 0, 0)
    assert sorted(runs) == [0, 1, 2, 3, 4, 5]
    assert {(await bench.view(id)).state for id in ids} == {State.succeeded}
    view = await bench.view(bad)
    assert (view.state, view.error_type) == (State.dead, "limpet.Unwritable")
    assert sum("the job is dead now" in line for line in caplog.messages) == 1
    assert len(store.seqs) == len(set(store.seqs))
    await store.close()


async def test_costs_that_cannot_be_written_cost_only_their_own_job() -> None:
    store = Choosy()
    store.cannot_spend = True
    bench = Bench(store)

    async def spends() -> None:
        current_job().spent(usd=1)

    async def works() -> None: ...

    ids = [await bench.put(bench.task(spends)), await bench.put(bench.task(works))]
    report = await bench.drain()
    assert (report.succeeded, report.dead) == (1, 1)
    assert [(await bench.view(id)).state for id in ids] == [State.dead, State.succeeded]
    await store.close()


async def test_an_engine_that_cannot_write_at_all_ends_the_worker_loudly() -> None:
    store = Choosy(Succeed, Bury)
    bench = Bench(store)

    async def works() -> None: ...

    id = await bench.put(bench.task(works))
    with pytest.raises(WorkerFailed, match="settler died"):
        await bench.drain()
    # It ran, and nobody has written how it ended: not handed back as if it had not, but lost when its lease runs out.
    assert (await bench.view(id)).state is State.running
    await store.close()


@pytest.mark.parametrize("trouble", ["refuse_claims", "unheard_claims", "refuse_settles", "unheard_settles"])
async def test_the_same_call_is_made_again_and_every_job_runs_once(trouble: str) -> None:
    store = Weather()
    bench = Bench(store)
    runs: list[int] = []

    async def once(n: int) -> None:
        runs.append(n)
        if n < 2:
            current_job().spent(usd=0.25)

    spec = bench.task(once, limits=[Budget("llm", usd=9, per="month")], cost={"usd": 1})
    for n in range(5):
        await bench.put(spec, {"n": n})
    setattr(store, trouble, 2)
    report = await bench.drain()
    assert sorted(runs) == [0, 1, 2, 3, 4]
    assert (report.succeeded, report.stale) == (5, 0)
    calls = store.claims if "claims" in trouble else [seq for seq, _ in store.settles]
    assert calls[:3] == [1, 1, 1]
    (gate,) = await store.gates("limit:usd/month:llm")
    assert gate.spent == 2 * 250_000 + 3 * 1_000_000
    await store.close()


async def test_what_no_waiting_can_heal_takes_the_worker_down_and_hands_back() -> None:
    store = Weather()
    bench = Bench(store)
    started = asyncio.Event()

    async def endless() -> None:
        started.set()
        store.corrupt = True
        await asyncio.Event().wait()

    id = await bench.put(bench.task(endless))
    work = asyncio.create_task(bench.worker({"grace_ms": 10, "beat_ms": 20}).run())
    with pytest.raises(WorkerFailed, match=r"the worker's \w+ died: StoreCorrupt\('bad page'\)"):
        await work
    view = await bench.view(id)
    assert (view.state, view.attempt) == (State.ready, 0)
    await store.close()


async def test_jobs_that_end_during_a_write_go_into_the_next_one() -> None:
    store = Weather()
    bench = Bench(store)

    async def noop() -> None: ...

    spec = bench.task(noop)
    for _ in range(200):
        await bench.put(spec)
    await bench.drain()
    assert sum(count for _, count in store.settles) == 200
    assert len(store.settles) < 50
    await store.close()


async def test_a_refused_settlement_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    store = Weather()
    bench = Bench(store)
    started, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        started.set()
        await go_on.wait()

    id = await bench.put(bench.task(slow))
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker().run(stop))
    await started.wait()
    token = (await bench.view(id)).token
    assert token is not None
    await store.settle("its supervisor", 1, [Drop(id, token, "taken for dead")])
    go_on.set()
    stop.set()
    report = await work
    assert (report.succeeded, report.stale) == (0, 1)
    assert sum("late end refused" in line for line in caplog.messages) == 1
    await store.close()


async def test_a_job_stays_on_the_roster_until_its_end_is_written() -> None:
    """Its handler has returned and its effects are out: a supervisor must not take it for never started."""
    store = Weather()
    bench = Bench(store)

    async def quick() -> None: ...

    id = await bench.put(bench.task(quick))
    store.refuse_settles = 1
    seen: list[list[bytes]] = []
    with tempfile.TemporaryFile() as file:
        file.truncate(Roster.size(4))
        roster = Roster(file.fileno(), 4)

        async def settle(*args: Any, **named: Any) -> list[Settled]:
            seen.append([started.id for started in roster.started()])
            return await Weather.settle(store, *args, **named)

        store.settle = settle  # type: ignore[method-assign]  # only to look at the roster when it matters
        await bench.drain(roster=roster)
        assert seen[:2] == [[id], [id]]
        assert list(roster.started()) == []
        roster.close()
    await store.close()


async def test_only_a_call_that_failed_says_that_the_store_is_back(caplog: pytest.LogCaptureFixture) -> None:
    """A wait for wake-ups ends by the clock of this process, whatever the store does."""
    store, failed, back = PatientStore(SqliteStore(None), random.Random(1)), asyncio.Event(), asyncio.Event()

    async def claim() -> str:
        if not back.is_set():
            failed.set()
            raise StoreUnreachable("away", verb="claim")
        return "a job"

    async def wait() -> None: ...

    claiming = asyncio.create_task(store.ask("claim", claim))
    await failed.wait()
    await store.ask("wait", wait)
    assert "store is back" not in caplog.text
    back.set()
    assert await claiming == "a job"
    assert "store is back" in caplog.text


class Forgetful(Weather):
    """While it was away the session of the worker has run out."""

    async def claim(self, request: ClaimRequest, *, now_ms: int | None = None) -> Claim:
        if self.refuse_claims:
            await self.leave(request.session)
        return await super().claim(request, now_ms=now_ms)


async def test_a_session_that_ran_out_in_an_outage_is_open_again_before_the_next_regular_beat() -> None:
    store = Forgetful()
    bench, ran = Bench(store), asyncio.Event()

    async def work() -> None:
        ran.set()

    await bench.put(bench.task(work))
    store.refuse_claims = 1
    stop = asyncio.Event()
    worker = asyncio.create_task(bench.worker({"beat_ms": 600_000, "ttl_ms": 1_800_000}).run(stop))
    await asyncio.wait_for(ran.wait(), 60)
    stop.set()
    await worker
    await store.close()


class Reopened(Weather):
    """While it was away the session of the worker has run out, and a beat has opened it again whose answer was lost."""

    async def claim(self, request: ClaimRequest, *, now_ms: int | None = None) -> Claim:
        away = self.refuse_claims
        if away:
            await self.leave(request.session)
            self.lost = True
        claim = await super().claim(request, now_ms=now_ms)
        if self.lost:
            self.lost = False
            await self.beat(Beat(request.session, 1_800_000, request.serves))
        return claim

    lost = False


async def test_a_session_that_was_open_again_before_the_worker_knew_asks_once_more() -> None:
    store = Reopened()
    bench, ran = Bench(store), asyncio.Event()

    async def work() -> None:
        ran.set()

    await bench.put(bench.task(work))
    store.refuse_claims = 1
    stop = asyncio.Event()
    worker = asyncio.create_task(bench.worker({"beat_ms": 600_000, "ttl_ms": 1_800_000}).run(stop))
    await asyncio.wait_for(ran.wait(), 60)
    stop.set()
    await worker
    await store.close()
