"""Two at once: who sweeps, cancels, retries or prunes meets others half-way through, and nothing is lost or doubled.

A verb is stopped in the middle by somebody who holds what it needs next; the other then meets it there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Iterator
from itertools import count
from typing import Any, TypeVar

import psycopg
import pytest

from holdfast.core.gate import GateChange, GateRule
from holdfast.core.job import Unique
from holdfast.core.lease import Note
from holdfast.core.state import State
from holdfast.core.view import Control, Entry, Retention
from holdfast.stores.open import open_store
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.postgres.wire import in_schema
from holdfast.testing.bench import Bench
from holdfast.testing.harness import Clock
from tests.contract.harnesses import POSTGRES
from tests.servers.installations import PostgresFlavour
from tests.servers.postgres import shared

T = TypeVar("T")

HOUR_MS = 3_600_000
NEW_LEASES = "LOCK TABLE hf.lease IN SHARE MODE"  # written by a claim, after its jobs have left `wait`
LEASES = "SELECT FROM hf.lease FOR UPDATE"  # written by whoever ends a job, after the job has left `running`
GRAPH = "SELECT hf.lock_1(2)"

_number = count()


class Place(Bench):
    """A bench on a namespace of its own, in which transactions can be held open."""

    def __init__(self, flavour: PostgresFlavour) -> None:
        self.server = shared(flavour)
        self.namespace = f"races{next(_number)}"
        super().__init__(self.open_store(), Clock())
        self.others: list[Bench] = []

    def open_store(self) -> PostgresStore:
        store = open_store(self.server.url, self.namespace)
        assert isinstance(store, PostgresStore)
        return store

    async def another(self) -> Bench:
        """Another process."""
        bench = Bench(self.open_store(), self.clock)
        self.others.append(bench)
        await bench.store.open()
        return bench

    def sql(self, text: str) -> bytes:
        return in_schema(text, f"holdfast_{self.namespace}").encode()

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self.server.ask(self.sql(query).decode(), *values)

    @contextlib.contextmanager
    def holding(self, *statements: str) -> Iterator[psycopg.Connection[Any]]:
        """Somebody's transaction, which holds what these statements lock until the block ends."""
        with contextlib.closing(psycopg.connect(self.server.url)) as line:
            for statement in statements:
                line.execute(self.sql(statement))
            yield line
            line.rollback()

    async def until_waiting(self, number: int) -> None:
        """So many wait for locks."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        for _ in range(1_000):
            if self.server.ask(query) == [(number,)]:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"there are never {number} who wait for a lock")


@pytest.fixture(params=POSTGRES)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    place = Place(request.param)
    await place.store.open()
    yield place
    await place.check_books()
    for other in (place, *place.others):
        await other.store.close()
    place.ask(f'DROP SCHEMA "holdfast_{place.namespace}" CASCADE')


def start(what: Awaitable[T]) -> asyncio.Task[T]:
    return asyncio.ensure_future(what)  # type: ignore[return-value]


async def soon(what: Awaitable[T]) -> T:
    """What nobody may have to wait for."""
    return await asyncio.wait_for(what, 3)


async def dead(bench: Bench, **options: Any) -> bytes:
    """A job that has died."""
    id, hand = await bench.add(**options), bench.hand("undertaker")
    await hand.bury(await hand.take())
    return id


# -- beats and sweeps


async def test_a_beat_that_is_under_way_saves_its_session(place: Place) -> None:
    await place.add()
    other = await place.another()
    watcher, silent = place.hand("watcher"), other.hand("silent", ttl_ms=2_000)
    await place.sweep(20_000, watcher)
    job = await silent.take()
    place.clock.advance(2_500)
    with place.holding(f"SELECT FROM hf.running WHERE token = {job.token} FOR UPDATE"):
        # Its note waits for the job: it holds the session meanwhile.
        beat = start(silent.beat([(job.id, job.token, Note("progress", "", b"1"))]))
        await place.until_waiting(1)
        assert await soon(place.store.expire(now_ms=place.clock.now_ms)) == 0
    assert not (await beat).fresh
    assert await place.state(job.id) is State.running
    assert await place.sweep(1_000, watcher) == 0


async def test_a_beat_that_comes_while_its_session_is_swept_opens_a_new_one(place: Place) -> None:
    await place.add()
    other = await place.another()
    watcher, silent = place.hand("watcher"), other.hand("silent", ttl_ms=2_000)
    await place.sweep(20_000, watcher)
    job = await silent.take()
    place.clock.advance(2_500)
    with place.holding(LEASES):
        sweep = start(place.store.expire(now_ms=place.clock.now_ms))
        await place.until_waiting(1)
        beat = start(silent.beat())
        await place.until_waiting(2)
    assert await sweep == 1
    assert (await beat).fresh
    assert await place.store.held("silent") == []
    assert (await place.view(job.id)).lost == 1


async def test_one_who_has_beaten_since_the_look_is_not_silent(place: Place) -> None:
    """The sweep had its list of the silent when the beat was committed."""
    other = await place.another()
    watcher, first, second = place.hand("watcher"), place.hand("a", ttl_ms=1_000), other.hand("b", ttl_ms=2_000)
    await place.add()
    await place.sweep(20_000, watcher)
    await first.beat()
    job = await second.take()
    place.clock.advance(2_500)
    # The first session that is locked takes its time, and meanwhile the second beats.
    slowly = "SELECT pg_sleep(CASE session WHEN ''a'' THEN 0.5 ELSE 0 END) IS NOT NULL"
    place.ask(f"CREATE FUNCTION hf.slowly(session text) RETURNS boolean LANGUAGE sql VOLATILE AS '{slowly}'")
    place.ask("ALTER FUNCTION hf.silent_1(bigint) RENAME TO quick_1")
    ((body,),) = place.ask("SELECT pg_get_functiondef('hf.quick_1(bigint)'::regprocedure)")
    assert "deadline_ms <= p_since" in body
    place.ask(
        body.replace("quick_1", "silent_1").replace(
            "deadline_ms <= p_since", "deadline_ms <= p_since AND hf.slowly(id)"
        )
    )
    sweep = start(place.store.expire(now_ms=place.clock.now_ms))
    await asyncio.sleep(0.2)
    assert not (await second.beat()).fresh
    assert await sweep == 0
    assert await place.state(job.id) is State.running
    assert {session for (session,) in place.ask("SELECT id FROM hf.session")} == {"watcher", "b"}


async def test_two_sweeps_at_once_are_one(place: Place) -> None:
    await place.add()
    other = await place.another()
    watcher, silent = place.hand("watcher"), place.hand("silent", ttl_ms=2_000)
    await place.sweep(20_000, watcher)
    await silent.take()
    place.clock.advance(2_500)
    with place.holding(LEASES):
        sweep = start(place.store.expire(now_ms=place.clock.now_ms))
        await place.until_waiting(1)
        assert await soon(other.store.expire(now_ms=place.clock.now_ms)) == 0
    assert await sweep == 1


async def test_a_sweep_and_a_settlement_of_the_same_job_agree(place: Place) -> None:
    await place.add_many(2)
    other = await place.another()
    watcher, silent = place.hand("watcher"), other.hand("silent", ttl_ms=2_000)
    await place.sweep(20_000, watcher)
    one, two = await silent.claim(2)
    place.clock.advance(2_500)
    with place.holding(LEASES):
        settling = start(silent.succeed(one))
        await place.until_waiting(1)  # one has left `running`, unseen
        sweep = start(place.store.expire(now_ms=place.clock.now_ms))
        await place.until_waiting(2)
    assert [answer.answer for answer in await settling] == ["done"]
    assert await sweep == 1
    assert await place.states([one.id, two.id]) == [State.succeeded, State.ready]
    assert await place.store.held("silent") == []


async def test_what_a_handlers_open_transaction_has_settled_is_left_to_it(place: Place) -> None:
    await place.add_many(2)
    watcher, silent = place.hand("watcher"), place.hand("silent", ttl_ms=2_000)
    await place.sweep(20_000, watcher)
    one, two = await silent.claim(2)
    with place.holding() as line:
        line.execute(place.sql("SELECT hf.settle_on_1(%s, %s, '1', NULL)"), (one.id, one.token))
        assert await soon(place.sweep(3_000, watcher)) == 1
        assert await place.states([one.id, two.id]) == [State.running, State.ready]
        line.commit()
    assert await place.sweep(1_000, watcher) == 0
    assert await place.states([one.id, two.id]) == [State.succeeded, State.ready]
    assert place.ask("SELECT id FROM hf.session") == [("watcher",)]


# -- leaving and claiming


async def test_what_a_claim_in_flight_takes_is_released_by_the_leave_that_waits_for_it(place: Place) -> None:
    id, other = await place.add(), await place.another()
    hand, leaver = place.hand("w1"), other.hand("w1")
    await hand.beat()
    with place.holding(NEW_LEASES):
        claim = start(hand.ask())
        await place.until_waiting(1)
        leave = start(leaver.leave())
        await place.until_waiting(2)
    assert len((await claim).jobs) == 1
    await leave
    assert await place.state(id) is State.ready
    assert place.ask("SELECT (SELECT count(*) FROM hf.session), (SELECT count(*) FROM hf.lease)") == [(0, 0)]


async def test_a_claim_gets_nothing_for_a_session_that_is_leaving(place: Place) -> None:
    id, other = await place.add(), await place.another()
    hand, leaver = place.hand("w1"), other.hand("w1")
    job = await hand.take()
    await place.add()
    with place.holding(LEASES):
        leave = start(leaver.leave())
        await place.until_waiting(1)
        claim = start(hand.ask(5))
        await place.until_waiting(2)
    await leave
    assert (await claim).jobs == ()
    assert job.id == id
    assert await place.state(id) is State.ready
    assert place.ask("SELECT count(*) FROM hf.running") == [(0,)]


async def test_leaving_waits_for_no_open_transaction_of_a_handler(place: Place) -> None:
    await place.add_many(3)
    watcher, hand = place.hand("watcher"), place.hand("w1")
    await place.sweep(20_000, watcher)
    one, two, three = await hand.claim(3)
    with place.holding() as line:
        line.execute(place.sql("SELECT hf.settle_on_1(%s, %s, NULL, NULL)"), (two.id, two.token))
        await soon(hand.leave())
        assert await place.states([one.id, two.id, three.id]) == [State.ready, State.running, State.ready]
        assert (await hand.ask()).jobs == ()  # it is not alive
        line.commit()
    await place.sweep(1_000, watcher)
    assert await place.state(two.id) is State.succeeded
    assert place.ask("SELECT id FROM hf.session") == [("watcher",)]


# -- cancel


async def test_a_job_that_is_claimed_while_it_is_to_be_cancelled_is_asked_to_stop(place: Place) -> None:
    id, other = await place.add(), await place.another()
    hand = place.hand()
    await hand.beat()
    with place.holding(NEW_LEASES):
        claim = start(hand.ask())
        await place.until_waiting(1)  # the job has left `wait`, unseen
        cancel = start(other.cancel(id))
        await place.until_waiting(2)
    (job,) = (await claim).jobs
    assert await cancel == ["cancelling"]
    assert (await hand.beat()).cancels == ((id, job.token),)


@pytest.mark.parametrize("force", [False, True])
async def test_a_job_that_moves_at_every_look_is_cancelled_in_the_end(place: Place, force: bool) -> None:
    """Claimed after the look for those that run; then in somebody's hands when it is looked for again."""
    id, other = await place.add(), await place.another()
    hand = place.hand()
    with place.holding(GRAPH) as graph:
        cancel = start(other.cancel(id, force=force))
        await place.until_waiting(1)
        job = await hand.take()
        with place.holding("SELECT FROM hf.running FOR UPDATE"):
            graph.rollback()
            await place.until_waiting(1)
    assert await cancel == ["cancelled" if force else "cancelling"]
    assert [answer.answer for answer in await hand.succeed(job)] == ["stale" if force else "done"]


@pytest.mark.parametrize(("ending", "answer"), [("succeed", "finished"), ("fail", "cancelled"), ("bury", "finished")])
async def test_a_cancel_follows_a_job_that_is_just_settled(place: Place, ending: str, answer: str) -> None:
    id, other = await place.add(), await place.another()
    hand = place.hand()
    job = await hand.take()
    with place.holding(LEASES):
        settling = start(hand.end(ending, job))
        await place.until_waiting(1)
        cancel = start(other.cancel(id))
        await place.until_waiting(2)
    await settling
    assert await cancel == [answer]


async def test_two_cancels_of_a_parent_and_its_child_end_well(place: Place) -> None:
    parent = await place.add()
    child = await place.add(after=(parent,))
    other = await place.another()
    with place.holding(GRAPH):
        cancels = [start(place.cancel(parent, child)), start(other.cancel(child, parent))]
        await place.until_waiting(2)
    assert sorted(map(tuple, await asyncio.gather(*cancels))) == [("cancelled", "cancelled"), ("finished", "finished")]
    assert (await place.store.count()).cancelled == 2


async def test_force_cannot_take_back_what_a_handler_has_settled_and_says_so(place: Place) -> None:
    id, hand = await place.add(), place.hand()
    job = await hand.take()
    with place.holding() as line:
        line.execute(place.sql("SELECT hf.settle_on_1(%s, %s, '7', NULL)"), (id, job.token))
        assert await soon(place.cancel(id)) == ["cancelling"]
        assert await soon(place.cancel(id, force=True)) == ["cancelling"]
        line.commit()
    assert await place.cancel(id, force=True) == ["finished"]
    view = await place.view(id)
    assert (view.state, view.result) == (State.succeeded, b"7")


# -- retry, discard


async def test_of_a_retry_and_an_enqueue_of_one_key_the_first_has_it(place: Place) -> None:
    key, other = Unique("k"), await place.another()
    id = await dead(place, unique=key)
    job = place.job(unique=key)
    with place.holding("SELECT FROM hf.unique_key FOR UPDATE"):
        retry = start(place.retry(id))
        await place.until_waiting(1)
        enqueue = start(other.put(job))
        await place.until_waiting(2)
    assert await retry == ["retried"]
    assert [(answer.id, answer.existing) for answer in await enqueue] == [(id, True)]


async def test_a_retry_hears_of_the_job_that_took_its_key_meanwhile(place: Place) -> None:
    key, other = Unique("k"), await place.another()
    id = await dead(place, unique=key)
    job = place.job(unique=key)
    with place.holding("SELECT FROM hf.unique_key FOR UPDATE"):
        enqueue = start(other.put(job))
        await place.until_waiting(1)
        retry = start(place.retry(id))
        await place.until_waiting(2)
    assert not (await enqueue)[0].existing
    assert await retry == ["unique_held"]
    assert await place.states([id, job.id]) == [State.dead, State.ready]


async def test_a_dead_job_is_retried_once_by_two(place: Place) -> None:
    id, other = await dead(place), await place.another()
    with place.holding(GRAPH):
        retries = [start(place.retry(id)), start(other.retry(id))]
        await place.until_waiting(2)
    assert sorted(await asyncio.gather(*retries)) == [["not_dead"], ["retried"]]


async def test_a_child_of_a_dead_job_that_is_just_retried_waits_for_it(place: Place) -> None:
    parent, other = await dead(place, task="parent"), await place.another()
    child = place.job(after=(parent,))
    with place.holding(GRAPH):
        retry = start(place.retry(parent))
        await place.until_waiting(1)
        enqueue = start(other.put(child))
        await place.until_waiting(2)
    assert await retry == ["retried"]
    await enqueue
    assert await place.states([parent, child.id]) == [State.ready, State.blocked]


async def test_a_job_is_discarded_or_retried_and_never_both(place: Place) -> None:
    id, other = await dead(place), await place.another()
    with place.holding(GRAPH):
        discard = start(place.store.discard([id], now_ms=place.clock.now_ms))
        await place.until_waiting(1)
        retry = start(other.retry(id))
        await place.until_waiting(2)
    assert await discard == 1
    assert await retry == ["gone"]


# -- prune


async def test_pruning_waits_for_nobody(place: Place) -> None:
    held, free = await dead(place), await dead(place)
    place.clock.advance(HOUR_MS)
    with place.holding(f"SELECT FROM hf.done WHERE id = '\\x{held.hex()}' FOR KEY SHARE", GRAPH):
        assert await soon(place.store.prune(Retention(dead_ms=1), now_ms=place.clock.now_ms)) == 1
    assert await place.states([held, free]) == [State.dead, None]
    assert await place.store.prune(Retention(dead_ms=1), now_ms=place.clock.now_ms) >= 1
    assert await place.states([held]) == [None]


async def test_a_parent_stays_while_somebody_else_is_at_the_graph(place: Place) -> None:
    parent = await place.add(task="parent")
    child = await place.add(after=(parent,), if_parent_fails="wait")
    hand = place.hand()
    await hand.bury(await hand.take())
    place.clock.advance(HOUR_MS)
    with place.holding(GRAPH):
        assert await soon(place.store.prune(Retention(dead_ms=1), now_ms=place.clock.now_ms)) == 0
    assert await place.states([parent, child]) == [State.dead, State.blocked]
    await place.store.prune(Retention(dead_ms=1), now_ms=place.clock.now_ms)
    assert await place.states([parent, child]) == [None, State.cancelled]


async def test_a_dead_parent_is_not_pruned_under_a_child_that_is_just_enqueued(place: Place) -> None:
    parent, other = await dead(place, task="parent"), await place.another()
    place.clock.advance(HOUR_MS)
    child = place.job(after=(parent,), if_parent_fails="wait")
    with place.holding("LOCK TABLE hf.tally IN EXCLUSIVE MODE"):  # an enqueue counts last
        enqueue = start(other.put(child))
        await place.until_waiting(1)
        prune = start(place.store.prune(Retention(dead_ms=1), now_ms=place.clock.now_ms))
        await place.until_waiting(2)
    await enqueue
    await prune
    assert await place.states([parent, child.id]) in ([State.dead, State.blocked], [None, State.cancelled])
    await place.store.prune(Retention(dead_ms=1), now_ms=place.clock.now_ms)
    assert await place.states([parent, child.id]) == [None, State.cancelled]


async def test_two_who_prune_take_turns(place: Place) -> None:
    ids, other = [await dead(place) for _ in range(3)], await place.another()
    place.clock.advance(HOUR_MS)
    with place.holding("LOCK TABLE hf.gone IN EXCLUSIVE MODE"):
        first = start(place.store.prune(Retention(dead_ms=1), now_ms=place.clock.now_ms))
        await place.until_waiting(1)
        assert (
            await soon(other.store.prune(Retention(dead_ms=1, event_ms=None, audit_ms=None), now_ms=place.clock.now_ms))
            == 0
        )
    assert await first >= 3
    assert await place.states(ids) == [None] * 3


async def test_counts_stay_what_they_are_while_they_are_folded(place: Place) -> None:
    await place.add_many(3)
    hand = place.hand()
    await hand.bury(await hand.take())
    before, causes = await place.store.count(), await place.store.causes()
    other = await place.another()
    with place.holding("SELECT hf.lock_1(1)"):
        fold = start(place.store.prune(Retention(), now_ms=place.clock.now_ms))
        await place.until_waiting(1)  # it has folded, and wants to write the lanes' numbers
        assert await other.store.count() == before
        assert await soon(other.store.enqueue([place.job()], now_ms=place.clock.now_ms))
        assert place.ask("SELECT hf.fold_1(10)") == [(0,)]
    await fold
    after = await place.store.count()
    assert (after.enqueued, after.total(State.ready), after.total(State.dead)) == (4, 3, 1)
    assert await place.store.causes() == causes
    assert place.ask("SELECT count(*) FROM hf.cause_tally") == [(0,)]


async def test_a_lane_is_forgotten_and_comes_back_with_the_next_job(place: Place) -> None:
    other = await place.another()
    await place.add(group="g")
    await place.hand().drain()
    place.clock.advance(2 * HOUR_MS)
    job = place.job(group="g")
    with place.holding("LOCK TABLE hf.tally IN EXCLUSIVE MODE") as stop:
        enqueue = start(other.put(job))
        await place.until_waiting(1)  # its post is written, and not yet to be seen
        stop.rollback()
        await enqueue
    for _ in range(5):
        await place.store.prune(Retention(succeeded_ms=1), now_ms=place.clock.now_ms)
    assert place.ask("SELECT count(*) FROM hf.lane_now") == [(1,)]
    assert await place.hand().ids() == [job.id]


async def test_a_lane_dropped_under_an_enqueue_in_flight_is_there_again(place: Place) -> None:
    other = await place.another()
    await place.add(group="g")
    await place.hand().drain()
    place.clock.advance(2 * HOUR_MS)
    job = place.job(group="g")
    with contextlib.closing(psycopg.connect(place.server.url)) as line:
        await other.store.enqueue_on(line, [job], now_ms=place.clock.now_ms)
        for _ in range(5):
            await place.store.prune(Retention(succeeded_ms=1), now_ms=place.clock.now_ms)
        assert place.ask("SELECT (SELECT count(*) FROM hf.lane_now), (SELECT count(*) FROM hf.lane)") == [(0, 0)]
        line.commit()
    assert await place.hand().ids() == [job.id]


async def test_a_limit_forgotten_under_an_enqueue_in_flight_still_limits(place: Place) -> None:
    """The enqueue saw the limit as it should be and declared nothing."""
    rule, other = GateRule("limit:x", concurrency=1), await place.another()
    await place.put(place.job(limits=("x",)), rules=[rule])
    await place.hand().drain()
    place.clock.advance(2 * HOUR_MS)
    jobs = [place.job(limits=("x",)) for _ in range(3)]
    with contextlib.closing(psycopg.connect(place.server.url)) as line:
        await other.store.enqueue_on(line, jobs, [rule], now_ms=place.clock.now_ms)
        for _ in range(5):
            await place.store.prune(Retention(succeeded_ms=1), now_ms=place.clock.now_ms)
        assert await place.gate("limit:x") is None
        line.commit()
    assert len(await place.hand().claim(3)) == 1
    gate = await place.gate("limit:x")
    assert gate is not None
    assert gate.used == 1


async def test_a_forgotten_limit_is_gone_for_good_when_nobody_can_have_seen_it(place: Place) -> None:
    await place.put(place.job(limits=("x",)), rules=[GateRule("limit:x", concurrency=1)])
    await place.hand().drain()
    place.clock.advance(2 * HOUR_MS)
    for _ in range(6):
        await place.store.prune(Retention(succeeded_ms=1), now_ms=place.clock.now_ms)
    assert place.ask("SELECT (SELECT count(*) FROM hf.gate), (SELECT count(*) FROM hf.gate_old)") == [(0, 0)]


# -- records, logs and watchers


async def test_of_two_who_expect_the_same_version_one_writes(place: Place) -> None:
    benches = [place, *[await place.another() for _ in range(3)]]
    for expect in range(3):
        with place.holding("LOCK TABLE hf.control IN EXCLUSIVE MODE"):
            puts = [
                start(bench.store.put_control(Control("tick", "t", str(n).encode()), expect=expect))
                for n, bench in enumerate(benches)
            ]
            await place.until_waiting(len(benches))
        written = [control for control in await asyncio.gather(*puts) if control is not None]
        assert [control.version for control in written] == [expect + 1]
        assert await place.store.controls("tick") == written


async def test_whoever_reads_a_log_to_its_end_has_missed_nothing(place: Place) -> None:
    other = await place.another()
    first = "'{event}', '{1}', '{first}', '{ada}', ARRAY[NULL]::bytea[], '{why}', ARRAY['']::bytea[]"
    with place.holding(f"SELECT hf.append_1(NULL, {first})") as line:
        append = start(other.store.append([Entry("event", 1, "later")]))
        await place.until_waiting(1)
        assert await place.store.read("event") == []
        line.commit()
    await append
    assert [entry.kind for entry in await place.store.read("event")] == ["first", "later"]


async def test_a_watcher_of_a_job_that_is_just_settled_does_not_wait(place: Place) -> None:
    id, other = await place.add(), await place.another()
    hand = place.hand()
    job = await hand.take()
    with place.holding(LEASES):
        settling = start(hand.succeed(job))
        await place.until_waiting(1)
        watching = start(other.store.watch(id, None))
        await place.until_waiting(2)
    await settling
    view = await asyncio.wait_for(watching, 0.7)  # less than it would sleep before it looks again
    assert view is not None
    assert view.state is State.succeeded


# -- answers that got lost


async def test_what_is_asked_again_happened_once(place: Place) -> None:
    buried, other, ready = await dead(place, task="a"), await dead(place, task="b"), await place.add()
    now = place.clock.now_ms
    calls = [
        (f"SELECT answers FROM hf.cancel_1('c', ARRAY['\\x{ready.hex()}']::bytea[], 'r', false, {now})", ([0],)),
        (f"SELECT answers FROM hf.retry_1('r', ARRAY['\\x{buried.hex()}']::bytea[], 0, NULL, {now})", ([0],)),
        (f"SELECT gone FROM hf.discard_1('d', ARRAY['\\x{other.hex()}']::bytea[], {now})", (1,)),
        ("SELECT hf.put_control_1('p', 'tick', 't', '1', 0, NULL)", (1,)),
        (
            "SELECT hf.append_1('a', '{event}', '{1}', '{k}', '{a}', ARRAY[NULL]::bytea[], '{r}', ARRAY['']::bytea[])",
            ("",),
        ),
    ]
    for query, answer in calls:
        assert [place.ask(query), place.ask(query)] == [[answer], [answer]]
    assert len(await place.store.read("event")) == 1
    assert (await place.store.count()).discarded == 1


async def test_a_drained_queue_ends_paused_while_others_enqueue_elsewhere(place: Place) -> None:
    await place.add(queue="q")
    await place.change(GateChange("queue:q", drain=True))
    other = await place.another()
    hand = place.hand()
    await place.sweep(1_000, hand)
    assert (await place.store.gates("queue:q"))[0].paused is None
    await hand.drain()
    with place.holding("LOCK TABLE hf.post IN EXCLUSIVE MODE"):
        enqueue = start(other.add(queue="else"))
        await place.until_waiting(1)
        await soon(place.store.expire(now_ms=place.clock.advance(1_000)))
    await enqueue
    pause = (await place.store.gates("queue:q"))[0].paused
    assert pause is not None
    assert (pause.by, pause.reason) == ("drain", "drained")
