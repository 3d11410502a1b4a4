"""People cancel, retry, discard and watch what others have in their hands: each answer is true."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import psycopg
import pytest

from limpet.core.errors import StoreUnreachable
from limpet.core.gate import BreakerRule, GateChange, GateRule
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Unique
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Control, Entry
from tests.engines.postgres.places import GRAPH, LEASES, NEW_LEASES, NEW_RUNNING, Place, a_place, dead, soon, start
from tests.servers.installations import POSTGRES


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with a_place(POSTGRES) as place:
        yield place


# -- gates


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("task:work", GateChange("task:work", rule=GateRule("task:work", concurrency=5))),
        ("limit:api", GateChange("limit:api", rule=GateRule("limit:api", unit="usd", cap=5, period="day"))),
    ],
)
async def test_what_changes_about_a_gate_while_jobs_pass_it_takes_nothing_for_them(
    place: Place, key: str, change: GateChange
) -> None:
    """They were charged by what the gate was, and give back no more than that: a probe or a slot would never return."""
    await place.declare(
        GateRule("breaker:api", breaker=BreakerRule()),
        GateRule("limit:api", default_for_429=True),
        GateRule("limit:usd", unit="usd", cap=5, period="day"),
    )
    await place.change(GateChange("task:work", resume=True))
    ids = await place.add_many(2, limits=("api", "usd"), breaker="api", costs={"usd": 2})
    other, hand = await place.another(), place.hand()
    await hand.beat()
    with place.holding(NEW_RUNNING):
        claim = start(hand.ask(1))
        await place.until_waiting(1)  # it has seen the gates
        await other.change(change)
    (job,) = (await claim).jobs
    gate = await place.gate(key)
    assert gate is not None
    assert (gate.probe_token, gate.used, gate.spent) == (0, 0, 0)
    await place.check_books()
    await hand.succeed(job)
    place.clock.advance(1_000)
    assert await hand.ids() == ids[1:]


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
async def test_a_job_that_begins_to_run_after_the_look_for_those_that_run_is_found(place: Place, force: bool) -> None:
    id, hand, now = await place.add(), place.hand(), place.clock.now_ms
    query = f"SELECT answers FROM lp.cancel_1(NULL, ARRAY['\\x{id.hex()}']::bytea[], 'enough', {force}, {now})"
    with place.holding(GRAPH) as graph:
        cancel = start(asyncio.to_thread(place.ask, query))  # without a client, which would ask again by itself
        await place.until_waiting(1)
        job = await hand.take()
        with place.holding("SELECT FROM lp.running FOR UPDATE"):
            graph.rollback()
            await place.until_waiting(1)
    assert await cancel == [([0],) if force else ([1],)]
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
        line.execute(place.sql("SELECT lp.settle_on_1(%s, %s, '7', NULL)"), (id, job.token))
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
    with place.holding("SELECT FROM lp.unique_key FOR UPDATE"):
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
    with place.holding("SELECT FROM lp.unique_key FOR UPDATE"):
        enqueue = start(other.put(job))
        await place.until_waiting(1)
        retry = start(place.retry(id))
        await place.until_waiting(2)
    assert not (await enqueue)[0].existing
    assert await retry == ["unique_held"]
    assert await place.states([id, job.id]) == [State.dead, State.ready]


async def test_a_retry_takes_the_key_before_the_graph_as_an_enqueue_does(place: Place) -> None:
    key, other = Unique("k"), await place.another()
    parent = await place.add(task="parent", delay_ms=60_000)
    id = await dead(place, unique=key)
    now = place.clock.now_ms
    query = f"SELECT answers FROM lp.retry_1(NULL, ARRAY['\\x{id.hex()}']::bytea[], 0, NULL, '{{}}', {now})"
    with place.holding(GRAPH):
        retry = start(asyncio.to_thread(place.ask, query))  # without a client, which would ask again after a deadlock
        await place.until_waiting(1)
        enqueue = start(other.put(place.job(after=(parent,), unique=key)))
        await place.until_waiting(2)
    assert await retry == [([0],)]
    assert [(answer.id, answer.existing) for answer in await enqueue] == [(id, True)]


async def test_who_waits_for_somebodys_transaction_does_not_keep_the_graph(place: Place) -> None:
    """An enqueue in a caller's own transaction is about to replace the job that shall be cancelled."""
    key, other = Unique("k", on_duplicate="replace"), await place.another()
    id = await place.add(unique=key, delay_ms=60_000)
    parent, hand = await place.add(task="parent"), place.hand()
    child = await place.add(after=(parent,), task="child")
    job = await hand.take()
    with contextlib.closing(psycopg.connect(place.server.url)) as line:
        await other.joined.enqueue_on(line, [place.job(unique=key, args=b"2")], now_ms=place.clock.now_ms)
        cancel = start(other.cancel(id))
        await place.until_waiting(1)
        assert place.ask("SELECT lp.try_lock(:GRAPH)") == [(True,)]
        await soon(hand.bury(job))
        assert await place.state(child) is State.cancelled
        line.commit()
    assert await cancel == ["cancelled"]
    assert (await place.view(id)).args == b"2"


async def test_who_has_waited_long_enough_for_somebodys_transaction_is_told_for_which_job(place: Place) -> None:
    key, other = Unique("k", on_duplicate="replace"), await place.another()
    id, free = await place.add(unique=key, delay_ms=60_000), await place.add()
    place.ask("ALTER FUNCTION lp.wait_for_release SET lock_timeout = '10ms'")
    with contextlib.closing(psycopg.connect(place.server.url)) as line:
        await other.joined.enqueue_on(line, [place.job(unique=key, args=b"2")], now_ms=place.clock.now_ms)
        with pytest.raises(StoreUnreachable, match=f"job {id_text(id)} was replaced") as caught:
            await soon(other.cancel(free, id))
        assert "let that transaction end" in caught.value.fix
        assert caught.value.retryable
        assert await place.state(free) is State.ready
        line.commit()
    assert await other.cancel(free, id) == ["cancelled", "cancelled"]


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


# -- records, logs and watchers


async def test_of_two_who_expect_the_same_version_one_writes(place: Place) -> None:
    benches = [place, *[await place.another() for _ in range(3)]]
    for expect in range(3):
        with place.holding("LOCK TABLE lp.control IN EXCLUSIVE MODE"):
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
    with place.holding(f"SELECT lp.append_1(NULL, {first})") as line:
        append = start(other.store.append([Entry("event", 1, "later")]))
        await place.until_waiting(1)
        assert await place.store.read("event") == []
        line.commit()
    await append
    assert [entry.kind for entry in await place.store.read("event")] == ["first", "later"]


async def test_a_watcher_of_a_job_that_is_just_settled_does_not_wait(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limpet.stores.waiters.LOOK_S", 600)  # before it would look again
    id, other = await place.add(), await place.another()
    hand = place.hand()
    job = await hand.take()
    with place.holding(LEASES):
        settling = start(hand.succeed(job))
        await place.until_waiting(1)
        watching = start(other.store.watch(id, None))
        await place.until_waiting(2)
    await settling
    view = await soon(watching)
    assert view is not None
    assert view.state is State.succeeded


# -- answers that got lost


async def test_what_is_asked_again_happened_once(place: Place) -> None:
    buried, other, waiting = [await dead(place, task=task) for task in ("a", "b", "c")]
    ready, now = await place.add(), place.clock.now_ms
    calls = [
        (f"SELECT answers FROM lp.cancel_1('c', ARRAY['\\x{ready.hex()}']::bytea[], 'r', false, {now})", ([0],)),
        (f"SELECT answers FROM lp.retry_1('r', ARRAY['\\x{buried.hex()}']::bytea[], 0, NULL, '{{}}', {now})", ([0],)),
        (f"SELECT answers FROM lp.retry_1('s', ARRAY['\\x{waiting.hex()}']::bytea[], 9, NULL, '{{*}}', {now})", ([0],)),
        (
            f"SELECT answers FROM lp.signal_1('e', ARRAY['\\x{waiting.hex()}']::bytea[], '{{go}}', '{{1}}', {now})",
            ([1],),
        ),
        (f"SELECT gone FROM lp.discard_1('d', ARRAY['\\x{other.hex()}']::bytea[], {now})", (1,)),
        ("SELECT lp.put_control_1('p', 'tick', 't', '1', 0, NULL, NULL)", (1,)),
        (
            "SELECT lp.append_1('a', '{event}', '{1}', '{k}', '{a}', ARRAY[NULL]::bytea[], '{r}', ARRAY['']::bytea[])",
            ("",),
        ),
    ]
    for query, answer in calls:
        assert [place.ask(query), place.ask(query)] == [[answer], [answer]]
    assert len(await place.store.read("event")) == 1
    assert (await place.store.count()).discarded == 1
