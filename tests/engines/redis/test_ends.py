"""How jobs end on Redis: in bounded steps, however many depend on one; few are kept, and no id is forgotten early."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from msgspec.structs import replace

from limpet.core.endings.transition import Bury, Drop, Release, Succeed
from limpet.core.errors import StoreFull
from limpet.core.gate import GateRule
from limpet.core.jobs.job import IfParentFails, Unique
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Retention
from limpet_contract.hand import ENDINGS, failure
from tests.engines.redis.place import Place
from tests.servers.redis import RedisServer

MANY = 4_700  # dependents: more than one step touches
STEP = 1_000  # those that it does
ALL = Retention(succeeded_ms=0, cancelled_ms=0, dead_ms=0)


class Ends(Place):
    """A place of jobs with very many dependents, and of sweeps."""

    async def prune(self, retention: Retention = ALL, limit: int = 1_000) -> int:
        return await self.store.prune(retention, limit, now_ms=self.clock.now_ms)

    async def add_children(self, parent: bytes, count: int = MANY, mode: IfParentFails = "cancel") -> list[bytes]:
        ids: list[bytes] = []
        while len(ids) < count:
            ids += await self.add_many(min(1_000, count - len(ids)), after=(parent,), if_parent_fails=mode)
        return ids

    async def go_on(self, state: State = State.blocked, *, most: int = 0, steps: int = 6) -> None:
        """Let sweeps do what was left over, until at most so many jobs are in that state."""
        for _ in range(steps):
            if await self.total(state) <= most:
                return
            before = await self.total(state)
            await self.store.expire(now_ms=self.clock.now_ms)
            assert abs(before - await self.total(state)) <= STEP
        raise AssertionError(f"{await self.total(state)} are still {state}")

    async def total(self, state: State) -> int:
        return (await self.store.count()).total(state)


@pytest.fixture
async def place() -> AsyncIterator[Ends]:
    place = Ends()
    yield place
    await place.store.close()


# -- very many dependents


async def test_a_success_releases_very_many_by_and_by(place: Ends) -> None:
    parent = await place.add(priority=0)
    children = await place.add_children(parent, 1_000)
    hand = place.hand()
    await hand.succeed(await hand.take(), result=b"42")
    assert await place.total(State.ready) == 256
    assert place.sound()
    jobs = await hand.claim(1_000)
    assert [job.id for job in jobs] == children
    assert {job.inputs[parent].result for job in jobs} == {b"42"}
    assert place.sound()


@pytest.mark.parametrize("how", ["cancelled", "dead", "asked to stop"])
async def test_a_cascade_through_more_than_one_step_is_finished_by_the_next(place: Ends, how: str) -> None:
    parent = await place.add(priority=0)
    children = await place.add_children(parent)
    last = await place.add(after=(children[-1],))
    hand = place.hand()
    if how == "cancelled":
        await place.cancel(parent)
    else:
        job = await hand.take()
        await (hand.bury(job) if how == "dead" else place.cancel(parent))
    assert await place.total(State.blocked) == len(children) + 1 - STEP
    assert place.sound()
    if how == "cancelled":
        await place.go_on()  # with nobody to claim, the sweep goes on
    else:
        assert await hand.claim() == []
    assert await place.total(State.blocked) == 0
    assert await place.total(State.cancelled) == len(children) + 1 + (how == "cancelled")
    assert await place.state(last) is State.cancelled
    assert place.sound()


async def test_a_cascade_stops_when_its_parent_is_brought_back_meanwhile(place: Ends) -> None:
    parent = await place.add(priority=0)
    children = await place.add_children(parent)
    hand = place.hand()
    await hand.bury(await hand.take())
    assert await place.total(State.cancelled) == STEP
    await place.retry(parent)
    assert await place.total(State.blocked) == len(children)
    again = await hand.take()
    assert again.id == parent
    assert await place.total(State.blocked) == len(children)
    await hand.succeed(again)
    assert sorted(await hand.drain(1_000)) == children
    assert place.sound()


async def test_a_parent_that_works_before_all_are_revived_releases_them_all(place: Ends) -> None:
    parent = await place.add(priority=0)
    children = await place.add_children(parent)
    last = await place.add(after=(children[-1],))
    hand = place.hand()
    await hand.bury(await hand.take())
    await place.go_on()
    await place.retry(parent)
    assert await place.total(State.blocked) == STEP
    # Without a claim in between, which would go on with the revival.
    place.server.ask("RENAME", place.key("fan"), place.key("fan, later"))
    again = await hand.take()
    assert again.id == parent
    await hand.succeed(again, result=b"1")
    assert await place.total(State.blocked) == STEP
    place.clock.advance(1)
    await place.prune(Retention(succeeded_ms=0, cancelled_ms=None, dead_ms=None))
    assert await place.states([parent]) == [State.succeeded], "it stays until its result is handed on"
    assert place.server.ask("HLEN", place.key("rv")) == 1
    place.server.ask("RENAME", place.key("fan, later"), place.key("fan"))
    ran: list[bytes] = []
    for _ in range(12):
        ran += await hand.drain(1_000)
    assert sorted(ran) == sorted([*children, last])
    assert place.server.ask("EXISTS", place.key("fan"), place.key("rv")) == 0
    assert place.sound()


async def test_a_parent_that_works_although_asked_to_stop_releases_nobody_whom_that_cancels(place: Ends) -> None:
    parent = await place.add(priority=0)
    children = await place.add_children(parent)
    hand = place.hand()
    job = await hand.take()
    assert await place.cancel(parent) == ["cancelling"]
    assert await place.total(State.cancelled) == STEP
    await hand.succeed(job)
    assert place.server.ask("SCARD", place.key("fan")) == 1, "it hands nothing on before all of them are cancelled"
    for _ in range(12):
        assert await hand.drain(1_000) == []
    assert set(await place.states(children)) == {State.cancelled}
    assert place.server.ask("EXISTS", place.key("fan"), place.key("rv")) == 0
    assert place.sound()


async def test_many_ids_are_handled_in_parts(place: Ends) -> None:
    parent = await place.add()
    first = await place.add_many(700)
    child = await place.add(after=(parent,))
    ids = [parent, *first, place.id(), child]
    nobody = place.id()
    await place.cancel(nobody)  # the server knows the scripts from here on
    await place.retry(nobody)
    await place.store.discard([nobody])
    place.reset()
    assert await place.cancel(*ids) == ["cancelled"] * 701 + ["gone", "cancelled"]
    assert place.commands()["evalsha"] == 2
    assert set(await place.cancel(*ids)) == {"finished", "gone"}
    dead = await place.add_many(1_100)
    hand = place.hand()
    jobs = [job for _ in range(2) for job in await hand.claim(1_000)]
    await hand.settle(*(Bury(job.id, job.token, failure()) for job in jobs))
    place.reset()
    assert await place.retry(*dead) == ["retried"] * 1_100
    assert place.commands()["evalsha"] == 3
    jobs = [job for _ in range(2) for job in await hand.claim(1_000)]
    await hand.settle(*(Bury(job.id, job.token, failure()) for job in jobs))
    place.reset()
    assert await place.store.discard(dead, now_ms=place.clock.now_ms) == 1_100
    assert place.commands()["evalsha"] == 3


async def test_very_many_that_run_anyway_are_each_released_once(place: Ends) -> None:
    parent = await place.add(priority=0)
    children = await place.add_children(parent, mode="run")
    hand = place.hand()
    await hand.bury(await hand.take())
    assert sorted(await hand.drain(1_000)) == children
    assert place.sound()


async def test_a_parent_is_not_erased_before_its_result_is_handed_on(place: Ends) -> None:
    parent = await place.add(priority=0)
    await place.add_children(parent)
    hand = place.hand()
    await hand.succeed(await hand.take(), result=b'"kept"')
    place.clock.advance(1)
    await place.prune()
    assert await place.states([parent]) == [State.succeeded]
    assert place.sound()
    await place.go_on()
    while await place.prune():
        pass
    assert await place.states([parent]) == [None]
    assert await place.total(State.ready) == MANY
    jobs = await hand.claim(1_000)
    assert {job.inputs[parent].result for job in jobs} == {b'"kept"'}
    assert place.sound()


async def test_those_who_wait_for_a_discarded_parent_are_all_cancelled(place: Ends) -> None:
    parent = await place.add(priority=0)
    await place.add_children(parent, mode="wait")
    hand = place.hand()
    await hand.bury(await hand.take())
    assert await place.total(State.blocked) == MANY
    assert await place.store.discard([parent], now_ms=place.clock.now_ms) == 1
    assert await place.total(State.blocked) == MANY - STEP
    await place.go_on()
    assert await place.total(State.cancelled) == MANY
    assert place.sound()


# -- what is kept


@pytest.mark.parametrize("batch", [1, 7, 200])
async def test_no_more_succeeded_jobs_are_kept_than_asked_for(batch: int) -> None:
    place = Ends(options="?keep=50")
    ids = await place.add_many(400)
    hand = place.hand()
    ended = 0
    while jobs := await hand.claim(batch):
        await hand.succeed(*jobs, result=b"1" if jobs[0].id < ids[200] else None)
        ended += len(jobs)
        assert ended % 20 or place.sound()  # an audit of every key
    assert place.sound()
    assert 50 <= await place.total(State.succeeded) < 50 + 64
    states = await place.states(ids)
    assert states == sorted(states, key=lambda state: state is not None), "the oldest go first"
    answers = await place.put(*(place.job(id=id) for id in ids))
    assert all(answer.existing for answer in answers)
    assert await hand.claim() == []
    counts = await place.store.count()
    assert (counts.enqueued, counts.succeeded) == (400, 400)
    await place.store.close()


@pytest.mark.parametrize("how", ["cancel", "force", "drop", "expire"])
async def test_no_more_cancelled_jobs_are_kept_than_asked_for(how: str) -> None:
    place = Ends(options="?keep=50")
    hand = place.hand()
    for _ in range(4):
        ids = await place.add_many(30, expires_ms=1_000 if how == "expire" else None)
        if how in ("force", "drop"):
            jobs = await hand.claim(30)
        if how == "drop":
            await hand.settle(*(Drop(job.id, job.token, "unwanted") for job in jobs))
        elif how == "expire":
            place.clock.advance(1_001)
            await place.store.expire(now_ms=place.clock.now_ms)
        else:
            await place.cancel(*ids, force=how == "force")
        assert place.sound()
    assert await place.total(State.cancelled) == 50
    await place.store.close()


async def test_a_prune_that_has_done_enough_reads_no_index(place: Ends) -> None:
    place = Ends(options="?keep=5")
    await place.add_many(40)
    await place.hand().drain(40)
    await place.cancel(*await place.add_many(20))
    place.clock.advance(1)
    place.reset()
    assert await place.prune(Retention(succeeded_ms=0, cancelled_ms=None), limit=1) == 1
    assert place.commands()["zrange"] == 0
    await place.store.close()


async def test_dead_jobs_are_kept_all_and_cancelled_ones_are_pruned_to_the_number() -> None:
    place = Ends(options="?keep=5")
    hand = place.hand()
    await place.add_many(20)
    jobs = await hand.claim(20)
    await hand.settle(*(Bury(job.id, job.token, failure()) for job in jobs))
    await place.cancel(*await place.add_many(20))
    forever = Retention(succeeded_ms=None, cancelled_ms=None)
    while await place.prune(forever):
        assert place.sound()
    assert (await place.total(State.dead), await place.total(State.cancelled)) == (20, 5)
    await place.store.close()


@pytest.mark.parametrize("count", [1, 30])
async def test_an_erased_id_is_known_among_many_of_the_same_moment(place: Ends, count: int) -> None:
    ids = await place.add_many(100)
    await place.hand().drain(100)
    place.clock.advance(1)
    while await place.prune():
        pass
    assert await place.states(ids) == [None] * 100
    new = [place.job() for _ in range(count)]
    old = [place.job(id=id) for id in ids[:count]]
    answers = await place.put(*(job for pair in zip(old, new, strict=True) for job in pair))
    assert [answer.existing for answer in answers] == [True, False] * count
    assert place.sound()


async def test_ids_that_all_begin_alike_are_found_without_reading_them_all(place: Ends) -> None:
    ids = [n.to_bytes(16, "big") for n in range(1 << 20, (1 << 20) + 9_000)]
    await place.put(*(place.job(id=id) for id in ids))
    hand = place.hand()
    while jobs := await hand.claim(1_000):
        await hand.succeed(*jobs)
    place.clock.advance(1)
    while await place.prune():
        pass
    assert await place.states(ids[:10]) == [None] * 10
    sizes = [place.server.ask("STRLEN", key) for key in place.server.ask("KEYS", place.key("G:*"))]
    assert sum(sizes) == 17 * 9_000
    assert max(sizes) < 65_536 + 17
    assert sorted(sizes)[-2] < 1_000
    for id in ids[::1_000]:
        answers = await place.put(place.job(id=id))
        assert answers[0].existing
    new = [n.to_bytes(16, "big") for n in range(1, 21)]
    answers = await place.put(*(place.job(id=id) for pair in zip(ids[-20:], new, strict=True) for id in pair))
    assert [answer.existing for answer in answers] == [True, False] * 20
    assert place.sound()
    await hand.drain()
    await hand.leave()
    place.clock.advance(3_600_000)
    while await place.prune():
        pass
    assert place.server.ask("KEYS", place.key("G*")) == []


async def test_signatures_go_however_many_sessions_there_are_and_a_sleeper_keeps_its_own(place: Ends) -> None:
    gone, sleeper = place.hand("gone", tasks=("a",)), place.hand("sleeper", tasks=("b",))
    await gone.beat()
    await gone.leave()
    words = [word for n in range(2_000) for word in (1, f"s{n}")]
    place.server.ask("ZADD", place.key("S!"), *words)
    assert await sleeper.claim() == []
    assert place.server.ask("HLEN", place.key("sd")) == 2
    await place.prune()
    assert place.server.ask("HLEN", place.key("sd")) == 1
    await place.add(task="b")
    assert (await sleeper.take()).lane.task == "b"


async def test_the_id_of_a_job_that_ended_long_ago_is_not_remembered(place: Ends) -> None:
    await place.add()
    await place.hand().drain()
    place.clock.advance(600_000)
    assert await place.prune() > 0
    assert place.server.ask("EXISTS", place.key("GL")) == 0


async def test_ids_are_forgotten_in_the_end_and_nothing_is_left(place: Ends) -> None:
    await place.add_many(10, unique=None, keys=("k",), tenant="g")
    parent = await place.add(unique=Unique("u", for_ms=60_000))
    await place.add(after=(parent,))
    hand = place.hand()
    for job in await hand.claim(20):
        await hand.save(job, Note("progress", "", b"1"))
        await hand.succeed(job, result=b"1")
    await hand.drain()
    await hand.leave()
    place.clock.advance(3_600_000)
    while await place.prune():
        assert place.sound()
    names = {key.removeprefix(place.key("")) for key in place.server.ask("KEYS", place.key("*"))}
    stays = {b"m", b"n", b"po", b"pm", *(b"run tn ls sl lj ln".split())}
    assert {name for name in names if not name.startswith((b"mb:", b"once:"))} <= stays, names - stays
    for name in ("run", "tn", "ls", "sl", "lj", "ln"):
        assert place.server.ask("HKEYS", place.key(name)) in ([b""], [])


# -- leases and receipts


async def test_a_lease_ends_with_its_last_job(place: Ends) -> None:
    await place.add_many(3)
    hand = place.hand()
    one, two, three = await hand.claim(3)
    for job in (one, two):
        await hand.succeed(job)
        assert place.sound()
        assert place.server.ask("EXISTS", place.key(f"b:{one.token}")) == 1
    await hand.release(three)
    assert place.sound()
    assert place.server.ask("EXISTS", place.key(f"b:{one.token}"), place.key("le"), place.key("H")) == 0


async def test_a_settlement_of_many_kinds_and_tokens_answers_in_order(place: Ends) -> None:
    ids = await place.add_many(6)
    hand = place.hand()
    first, second = await hand.claim(3), await hand.claim(3)
    answers = await hand.settle(
        Succeed(first[0].id, first[0].token, b"1"),
        Succeed(second[0].id, first[0].token),  # another lease's token
        Bury(second[1].id, second[1].token, failure()),
        Bury(first[0].id, first[0].token, failure("permanent", "late")),  # already settled: its body is skipped
        Release(first[1].id, first[1].token, started=True),
        Succeed(second[0].id, second[0].token, b"2"),
        Bury(place.id(), first[0].token, failure("permanent", "nobody")),
        Bury(first[2].id, first[2].token, failure("permanent", "last")),
    )
    assert [(answer.answer, answer.state) for answer in answers] == [
        ("done", State.succeeded),
        ("stale", State.running),
        ("done", State.dead),
        ("stale", State.succeeded),
        ("done", State.ready),
        ("done", State.succeeded),
        ("gone", None),
        ("done", State.dead),
    ]
    assert [view.result for view in await place.store.get([ids[0], ids[3]]) if view] == [b"1", b"2"]
    assert (await place.view(ids[2])).reason == "last"
    assert place.sound()


@pytest.mark.parametrize("ending", ["succeed", "release"])
async def test_a_receipt_is_that_of_its_own_number(place: Ends, ending: str) -> None:
    await place.add_many(2)
    hand = place.hand()
    first, second = await hand.claim(2)
    await hand.settle(ENDINGS[ending](first), seq=11)
    (answer,) = await hand.settle(ENDINGS[ending](second), seq=1)
    assert answer.answer == "done"
    assert await place.total(State.running) == 0


@pytest.mark.parametrize("delay_ms", [0, 5_000])
async def test_a_scheduled_job_that_is_told_to_run_leaves_the_schedule(place: Ends, delay_ms: int) -> None:
    id = await place.add(delay_ms=60_000)
    assert await place.retry(id, delay_ms=delay_ms) == ["retried"]
    assert place.sound()


async def test_force_has_the_last_word_on_the_reason(place: Ends) -> None:
    id = await place.add()
    await place.hand().take()
    await place.cancel(id, reason="please")
    await place.cancel(id, reason="now", force=True)
    assert (await place.view(id)).reason == "now"


async def test_a_job_that_is_replaced_starts_its_attempts_anew(place: Ends) -> None:
    key = Unique("report", on_duplicate="replace")
    id, hand = await place.add(unique=key), place.hand()
    await hand.snooze(await hand.take(), 1_000)
    place.clock.advance(1_000)
    await hand.fail(await hand.take(), delay_ms=60_000)
    await place.put(place.job(unique=key))
    view = await place.view(id)
    assert (view.attempt, view.held) == (0, 0)
    job = await hand.take()
    assert (job.id, job.attempt, job.held, job.held_since_ms) == (id, 1, 0, None)


async def test_a_lane_that_was_passed_through_in_one_call_is_forgotten_too(place: Ends) -> None:
    keys = [Unique("report", on_duplicate="replace") for _ in range(3)]
    jobs = [place.job(unique=key, limits=(f"x{n}",)) for n, key in enumerate(keys)]
    await place.put(*jobs, rules=[GateRule(f"limit:x{n}", concurrency=1) for n in range(3)])
    assert place.sound()
    while await place.prune():
        pass
    assert [gate.key for gate in await place.store.gates("limit:")] == ["limit:x2"]


# -- causes


async def test_when_there_are_too_many_origins_the_kind_of_error_is_still_told(place: Ends) -> None:
    body = msgspec.msgpack.encode([1, "T", "m", 1, 1, "00" * 16])
    words = [word for n in range(10_000) for word in (f"cause{n}\0default\0work".encode(), body)]
    place.server.ask("HSET", place.key("ca"), *words)
    hand = place.hand()
    await place.add()
    await hand.bury(await hand.take(), cause="one more")
    await place.add()
    await hand.bury(await hand.take(), cause="cause7")
    causes = {cause.cause: cause.count for cause in await place.store.causes(limit=20_000)}
    assert (len(causes), causes["builtins.RuntimeError"], causes["cause7"]) == (10_001, 1, 2)
    assert "one more" not in causes


# -- a full server


async def test_a_full_server_lets_jobs_end_and_go(server: RedisServer) -> None:
    """Under maxmemory whatever finishes or removes a job is done; what adds one is refused."""
    place = Ends(server, "?keep=2")
    rule = GateRule("limit:x", concurrency=9)
    await place.put(*(place.job(limits=("x",)) for _ in range(9)), rules=[rule])
    parent = await place.add(task="parent")
    child = await place.add(after=(parent,))
    hand = place.hand()
    jobs = await hand.claim(8)
    server.ask("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(StoreFull):
        await place.add()
    assert await hand.save(jobs[0], Note("step", "one", b"1"))
    assert not await hand.save(replace(jobs[0], token=1), Note("step", "one", b"2"))
    assert (await hand.succeed(jobs[0], result=b"1"))[0].answer == "done"
    assert (await hand.succeed(jobs[0]))[0].answer == "stale"
    assert (await hand.fail(jobs[1])).answer == "done"
    assert (await hand.snooze(jobs[2], 1_000)).answer == "done"
    assert (await hand.bury(jobs[3])).answer == "done"
    assert (await hand.bury(jobs[4])).answer == "done"
    assert await place.cancel(jobs[5].id, jobs[6].id, parent, force=True) == ["cancelled"] * 3
    assert await place.state(child) is State.cancelled
    assert await place.retry(jobs[3].id) == ["retried"]
    assert await place.store.discard([jobs[4].id], now_ms=place.clock.now_ms) == 1
    assert (await hand.release(jobs[7]))[0].answer == "done"
    place.clock.advance(1)
    while await place.prune():
        pass
    assert await place.total(State.cancelled) == 0
    assert place.sound()
    server.ask("CONFIG", "SET", "maxmemory", 0)
    await place.add()
    await place.store.close()
