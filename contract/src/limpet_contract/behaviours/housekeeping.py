"""Behaviours of housekeeping: what is old goes in small steps, counts and memory of ids stay, logs are in order."""

from __future__ import annotations

import pytest

from limpet.core.errors import WrongContext
from limpet.core.gate import GateRule
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Entry, Retention
from limpet.stores.asking import attempts_of, examined, joining
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench

HOUR_MS = 3_600_000
NOTHING = Retention(succeeded_ms=None, cancelled_ms=None, dead_ms=None, audit_ms=None, event_ms=None)


async def prune(bench: Bench, retention: Retention, limit: int = 1_000) -> int:
    """Prune until the store says that all is done."""
    removed = 0
    for _ in range(200):
        step = await bench.store.prune(retention, limit, now_ms=bench.clock.now_ms)
        removed += step
        if step == 0:
            return removed
    raise AssertionError("pruning never says that it is done")


@asynchronous
class TestPrune:
    async def test_succeeded_jobs_go_after_their_retention_and_stay_counted(self, bench: Bench) -> None:
        old, hand = await bench.add(), bench.hand()
        await hand.succeed(await hand.take())
        bench.clock.advance(HOUR_MS)
        young = await bench.add()
        await hand.succeed(await hand.take())
        bench.clock.advance(HOUR_MS // 2)
        await prune(bench, Retention(succeeded_ms=HOUR_MS))
        assert await bench.states([old, young]) == [None, State.succeeded]
        counts = await bench.store.count()
        assert (counts.enqueued, counts.succeeded, counts.total(State.succeeded)) == (2, 2, 1)

    async def test_cancelled_jobs_have_a_retention_of_their_own(self, bench: Bench) -> None:
        succeeded, hand = await bench.add(), bench.hand()
        await hand.succeed(await hand.take())
        cancelled = await bench.add()
        await bench.cancel(cancelled)
        bench.clock.advance(HOUR_MS + 1)
        await prune(bench, Retention(succeeded_ms=2 * HOUR_MS, cancelled_ms=HOUR_MS))
        assert await bench.states([succeeded, cancelled]) == [State.succeeded, None]
        assert (await bench.store.count()).cancelled == 1

    async def test_a_queue_has_a_retention_of_its_own_for_each_state(self, bench: Bench) -> None:
        hand, ids = bench.hand(), {}
        for queue in ("short", "usual", "long"):
            for how in ("succeed", "bury", "drop"):
                ids[queue, how] = await bench.add(queue=queue)
                await hand.end(how, await hand.take())
        bench.clock.advance(HOUR_MS + 1)
        keep = Retention(
            succeeded_ms=2 * HOUR_MS,
            cancelled_ms=2 * HOUR_MS,
            queues={
                "short": {State.succeeded: HOUR_MS, State.dead: HOUR_MS},
                "long": {State.succeeded: None, State.cancelled: 4 * HOUR_MS},
            },
        )
        gone = {("short", "succeed"), ("short", "bury")}
        await prune(bench, keep)
        assert {key for key, id in ids.items() if await bench.states([id]) == [None]} == gone
        bench.clock.advance(HOUR_MS)
        gone |= {("usual", "succeed"), ("usual", "drop"), ("short", "drop")}
        await prune(bench, keep)
        assert {key for key, id in ids.items() if await bench.states([id]) == [None]} == gone
        bench.clock.advance(2 * HOUR_MS)
        gone |= {("long", "drop")}
        await prune(bench, keep)
        assert {key for key, id in ids.items() if await bench.states([id]) == [None]} == gone
        counts = await bench.store.count()
        assert (counts.enqueued, counts.succeeded, counts.cancelled, counts.discarded) == (9, 3, 3, 1)
        await bench.check_books()
        await prune(bench, Retention(succeeded_ms=HOUR_MS))  # without retentions of single queues
        assert await bench.states([ids["long", "succeed"]]) == [None]

    async def test_what_one_queue_keeps_does_not_stop_the_others_from_going(self, bench: Bench) -> None:
        kept = await bench.add_many(30, queue="long")
        going = await bench.add_many(30, queue="usual")
        await bench.hand().drain()
        more = await bench.add_many(10, queue="usual")
        bench.clock.advance(HOUR_MS + 1)
        keep = Retention(succeeded_ms=HOUR_MS, queues={"long": {State.succeeded: None}})
        assert 1 <= await bench.store.prune(keep, 3, now_ms=bench.clock.now_ms) <= 3
        await prune(bench, keep, 3)
        assert await bench.states([*kept, *going]) == [State.succeeded] * 30 + [None] * 30
        await bench.hand().drain()
        bench.clock.advance(HOUR_MS + 1)
        await prune(bench, keep, 3)
        assert await bench.states([kept[0], *more]) == [State.succeeded, *[None] * 10]
        await bench.check_books()

    async def test_dead_jobs_stay_unless_asked(self, bench: Bench) -> None:
        id, hand = await bench.add(), bench.hand()
        await hand.bury(await hand.take())
        bench.clock.advance(10_000 * HOUR_MS)
        await prune(bench, Retention())
        assert await bench.state(id) is State.dead
        await prune(bench, Retention(dead_ms=HOUR_MS))
        assert await bench.states([id]) == [None]
        assert await bench.store.causes() == []

    async def test_jobs_that_are_not_finished_are_never_pruned(self, bench: Bench) -> None:
        parent = await bench.add(task="parent")
        ids = [parent, await bench.add(delay_ms=90_000 * HOUR_MS), await bench.add(after=(parent,))]
        running = await bench.add(task="running")
        await bench.hand(tasks=("running",)).take()
        bench.clock.advance(20_000 * HOUR_MS)
        zero = Retention(succeeded_ms=0, cancelled_ms=0, dead_ms=0, audit_ms=0, event_ms=0)
        await prune(bench, zero)
        assert await bench.states([*ids, running]) == [State.ready, State.scheduled, State.blocked, State.running]

    async def test_nothing_is_removed_when_all_is_kept_for_ever(self, bench: Bench) -> None:
        id, hand = await bench.add(), bench.hand()
        await hand.succeed(await hand.take())
        bench.clock.advance(10_000 * HOUR_MS)
        await prune(bench, NOTHING)
        assert await bench.state(id) is State.succeeded

    async def test_pruning_goes_in_small_steps(self, bench: Bench) -> None:
        ids, hand = await bench.add_many(50), bench.hand()
        await hand.drain(50)
        bench.clock.advance(HOUR_MS)
        await bench.store.prune(Retention(succeeded_ms=1), 10, now_ms=bench.clock.now_ms)
        assert sum(1 for state in await bench.states(ids) if state is None) <= 10
        await prune(bench, Retention(succeeded_ms=1), 10)
        assert set(await bench.states(ids)) == {None}

    @pytest.mark.parametrize("end", ["succeed", "drop"])
    async def test_a_pruned_id_is_remembered_for_ten_minutes(self, bench: Bench, end: str) -> None:
        job, hand = bench.job(), bench.hand()
        await bench.put(job)
        await hand.end(end, await hand.take())
        bench.clock.advance(1_000)
        retention = Retention(succeeded_ms=0, cancelled_ms=0)
        await prune(bench, retention)
        for _ in range(9):
            bench.clock.advance(60_000)
            await prune(bench, retention)
            answer = (await bench.put(job))[0]
            assert (answer.id, answer.existing) == (job.id, True)
        assert await hand.claim() == []
        assert (await bench.store.count()).enqueued == 1

    async def test_attempts_go_with_their_job(self, bench: Bench) -> None:
        id, hand = await bench.add(), bench.hand()
        await hand.fail(await hand.take())
        await hand.succeed(await hand.take())
        bench.clock.advance(HOUR_MS)
        await prune(bench, Retention(succeeded_ms=1))
        assert await attempts_of(bench.store, id) == ()

    async def test_a_child_keeps_its_inputs_when_the_parent_is_pruned(self, bench: Bench) -> None:
        parent, hand = await bench.add(), bench.hand()
        await bench.add(after=(parent,), delay_ms=2 * HOUR_MS)
        await hand.succeed(await hand.take(), result=b"42")
        bench.clock.advance(2 * HOUR_MS)
        await prune(bench, Retention(succeeded_ms=1))
        assert (await hand.take()).inputs[parent].result == b"42"

    @pytest.mark.parametrize("end", ["bury", "drop"])
    async def test_those_who_wait_for_a_pruned_parent_are_cancelled(self, bench: Bench, end: str) -> None:
        parent, hand = await bench.add(), bench.hand()
        child = await bench.add(after=(parent,), if_parent_fails="wait")
        await hand.end(end, await hand.take())
        assert await bench.state(child) is State.blocked
        bench.clock.advance(HOUR_MS)
        await prune(bench, Retention(dead_ms=1, cancelled_ms=1))
        assert await bench.states([parent, child]) == [None, State.cancelled]

    async def test_limits_work_after_idle_ones_were_forgotten(self, bench: Bench) -> None:
        rule = GateRule("limit:x", concurrency=1)
        await bench.put(bench.job(limits=("x",)), rules=[rule])
        hand = bench.hand()
        await hand.drain()
        bench.clock.advance(100 * HOUR_MS)
        await prune(bench, Retention())
        await bench.put(*(bench.job(limits=("x",)) for _ in range(3)), rules=[rule])
        assert len(await hand.claim(5)) == 1


@asynchronous
class TestLogs:
    async def test_lines_are_read_back_in_order(self, bench: Bench) -> None:
        job = bench.id()
        entries = [
            Entry("audit", bench.clock.now_ms, "retry", "ada", job, "fixed the address", b'{"n":1}'),
            Entry("audit", bench.clock.now_ms + 1, "pause", "bob"),
        ]
        await bench.store.append(entries)
        read = await bench.store.read("audit")
        assert [(e.kind, e.actor, e.job, e.reason, e.data, e.at_ms) for e in read] == [
            (e.kind, e.actor, e.job, e.reason, e.data, e.at_ms) for e in entries
        ]
        assert 0 < read[0].seq < read[1].seq

    async def test_reading_goes_on_where_it_stopped(self, bench: Bench) -> None:
        await bench.store.append([Entry("event", bench.clock.now_ms, f"k{n}") for n in range(7)])
        first = await bench.store.read("event", limit=4)
        second = await bench.store.read("event", after=first[-1].seq, limit=4)
        assert [entry.kind for entry in (*first, *second)] == [f"k{n}" for n in range(7)]
        assert await bench.store.read("event", after=second[-1].seq) == []
        every = await bench.store.read("event")
        assert await bench.store.read("event", limit=3, newest=True) == every[-3:]
        assert await bench.store.read("event", after=every[-3].seq, limit=3, newest=True) == every[-2:]
        assert await bench.store.read("audit", limit=1, newest=True) == []

    async def test_the_two_logs_are_apart(self, bench: Bench) -> None:
        await bench.store.append([Entry("event", bench.clock.now_ms, "e"), Entry("audit", bench.clock.now_ms, "a")])
        assert [entry.kind for entry in await bench.store.read("event")] == ["e"]
        assert [entry.kind for entry in await bench.store.read("audit")] == ["a"]

    async def test_old_lines_go_and_events_are_bounded(self, bench: Bench) -> None:
        await bench.store.append([Entry("event", bench.clock.now_ms, "old"), Entry("audit", bench.clock.now_ms, "old")])
        bench.clock.advance(2 * HOUR_MS)
        await bench.store.append([Entry("event", bench.clock.now_ms, f"new{n}") for n in range(5)])
        await prune(bench, Retention(event_ms=HOUR_MS, events=3))
        assert [entry.kind for entry in await bench.store.read("event")] == ["new2", "new3", "new4"]
        assert [entry.kind for entry in await bench.store.read("audit")] == ["old"]


@asynchronous
class TestLife:
    async def test_open_and_close_may_be_repeated(self, bench: Bench) -> None:
        await bench.store.open()
        await bench.store.open()
        assert bench.store.features.name

    async def test_a_transaction_that_cannot_be_joined_is_refused_with_the_fix(self, bench: Bench) -> None:
        with pytest.raises(WrongContext) as enqueue:
            await joining(bench.store, "enqueue").enqueue_on("no connection", [bench.job()], now_ms=bench.clock.now_ms)
        with pytest.raises(WrongContext) as settle:
            await joining(bench.store, "complete a job").settle_on(
                "no connection", bench.id(), 1, now_ms=bench.clock.now_ms
            )
        assert enqueue.value.fix
        assert settle.value.fix

    async def test_the_check_speaks_in_findings(self, bench: Bench) -> None:
        assert all(finding.code and finding.text for finding in await examined(bench.store).check())
