"""What sessions and sweeps promise on Redis alone: they leave no trace, nothing stands in their way, memory or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from limpet.core.endings.transition import Release
from limpet.core.errors import StoreFull
from limpet.core.gate import Gate, GateChange, GateRule, Pause
from limpet.core.jobs.job import Policy
from limpet.core.jobs.state import State
from limpet.stores.asking import examined
from limpet.stores.open import open_store
from limpet.stores.redis.gates import MOST_GATES
from limpet.stores.redis.store import RedisStore
from limpet.stores.waiters import LOOK_S
from limpet_contract.bench import Bench
from tests.engines.redis.place import Place
from tests.servers.flavours import REDIS
from tests.servers.redis import RedisServer, shared


class Sessions(Place):
    """A place whose keys can be listed."""

    def names(self) -> set[str]:
        """The keys that are there, without what all have in common."""
        found = self.server.ask("KEYS", self.key("*"))
        return {key.removeprefix(self.key("")).decode(errors="replace") for key in found}


@pytest.fixture
async def place() -> AsyncIterator[Sessions]:
    place = Sessions()
    yield place
    await place.store.close()


async def test_a_session_that_leaves_leaves_no_trace(place: Sessions) -> None:
    await place.add_many(3)
    hand = place.hand("gone", tasks=("work",))
    await hand.claim(2)
    await hand.succeed(*await hand.claim(1))
    assert await hand.claim() == []
    before = place.names()
    assert {"s:gone", "st:gone", "rc:gone", "S!"} <= before
    await hand.leave()
    after = place.names()
    assert not [key for key in after if "gone" in key or key.startswith(("idle:", "b:", "st:"))]
    assert after.isdisjoint({"S!", "H", "le"})
    assert place.server.ask("HKEYS", place.key("run")) == [b""]
    await place.check_books()


async def test_a_session_that_went_silent_leaves_no_trace(place: Sessions) -> None:
    id = await place.add()
    hand = place.hand("gone", tasks=("work",))
    await hand.take()
    assert await hand.claim() == []
    await place.lose(id)
    assert not [key for key in place.names() if "gone" in key or key.startswith(("idle:", "b:", "st:"))]
    assert place.names().isdisjoint({"S!", "H", "le"})
    assert place.server.ask("HKEYS", place.key("run")) == [b""]


@pytest.mark.parametrize("how", ["leaves", "goes silent"])
async def test_what_a_sleeper_held_wakes_another_and_not_the_one_that_is_gone(place: Sessions, how: str) -> None:
    id = await place.add()
    gone, other = place.hand("a"), place.hand("b")
    await gone.take()
    assert await gone.claim() == []
    assert await other.claim() == []
    await (gone.leave() if how == "leaves" else place.lose(id, other))
    assert (await other.wait(60_000)).work


async def test_more_silent_sessions_than_one_sweep_takes_are_all_taken(place: Sessions) -> None:
    await place.sweep(20_000)
    await place.add_many(150)
    for number in range(150):
        await place.hand(f"w{number}", ttl_ms=2_000).take()
    taken = [await place.sweep(1_000) for _ in range(6)]
    assert sum(taken) == 150
    assert max(taken) == 64
    assert await place.store.sessions() == []


async def test_rare_sweeps_take_back_from_those_who_were_silent_at_the_last_one(place: Sessions) -> None:
    """Agents only and no worker: nobody sweeps every second, and yet nothing is held for ever."""
    assert await place.store.expire(now_ms=place.clock.now_ms) == 0
    await place.add()
    await place.hand().take()
    taken = [await place.store.expire(now_ms=place.clock.advance(60_000)) for _ in range(2)]
    assert taken == [0, 1]


async def test_one_limit_holds_for_silent_sessions_and_overdue_leases_together(place: Sessions) -> None:
    await place.add_many(2, policy=Policy(timeout_ms=5_000, hard_timeout_ms=10_000))
    beating, silent = place.hand("beating"), place.hand("silent", ttl_ms=1_000)
    await place.sweep(1_000, beating)
    await beating.take()
    await place.sweep(39_000, beating)
    await silent.take()
    place.clock.advance(2_000)
    taken = [await place.store.expire(1, now_ms=place.clock.now_ms) for _ in range(3)]
    assert taken == [1, 1, 0]


async def test_a_job_that_went_on_to_another_session_is_no_longer_held(place: Sessions) -> None:
    await place.add_many(2)
    first, second = place.hand("first"), place.hand("second")
    one, two = await first.claim(2)
    assert one.token == two.token
    await first.fail(one)
    again = await second.take()
    assert again.id == one.id
    assert [each.id for each in await place.store.held("first")] == [two.id]
    await first.leave()
    assert [(each.id, each.token) for each in await place.store.held("second")] == [(again.id, again.token)]
    await place.check_books()


async def test_a_beat_names_only_those_that_shall_stop(place: Sessions) -> None:
    await place.add_many(3)
    hand = place.hand()
    jobs = await hand.claim(3)
    await place.cancel(jobs[1].id)
    assert (await hand.beat()).cancels == ((jobs[1].id, jobs[1].token),)


async def test_a_worker_that_has_only_beaten_hears_of_urgent_jobs(place: Sessions) -> None:
    hand = place.hand(tasks=("rush", "work"))
    await hand.beat()
    await place.hand("other", tasks=("work",)).claim()
    await place.add(task="rush", priority=0)
    assert (await hand.wait(60_000)).urgent


async def test_a_session_past_its_deadline_is_not_listed(place: Sessions) -> None:
    place.clock.advance(-60_000)
    await place.hand("late").beat()
    place.clock.advance(60_000)
    await place.hand("b").beat()
    await place.hand("a").beat()
    assert [view.session for view in await place.store.sessions()] == ["a", "b"]


async def test_a_lease_without_jobs_does_not_stand_before_others(place: Sessions) -> None:
    """As after a restored backup: the index of deadlines names leases that are no more."""
    await place.sweep(20_000)
    for token in range(300):
        place.server.ask("ZADD", place.key("H"), 1, token)
    hand = place.hand()
    await place.add()
    await hand.take()
    await place.sweep(3_000, hand)
    assert place.server.ask("ZCARD", place.key("H")) == 1


async def test_who_was_not_started_in_time_is_cancelled_once_it_is_handed_back(place: Sessions) -> None:
    id, hand = await place.add(expires_ms=2_000), place.hand()
    job = await hand.take()
    await place.sweep(5_000, hand)
    assert await place.state(id) is State.running
    await hand.settle(Release(job.id, job.token))
    await place.sweep(1_000, hand)
    view = await place.view(id)
    assert (view.state, view.reason) == (State.cancelled, "expired")
    assert "E" not in place.names()


async def test_the_time_to_start_is_over_at_its_very_instant(place: Sessions) -> None:
    id = await place.add(expires_ms=2_000)
    await place.store.expire(now_ms=place.clock.advance(1_999))
    assert await place.state(id) is State.ready
    await place.store.expire(now_ms=place.clock.advance(1))
    assert await place.state(id) is State.cancelled


async def test_running_jobs_do_not_stand_before_those_that_expire(place: Sessions) -> None:
    await place.add(expires_ms=1_000)
    hand = place.hand()
    job = await hand.take()
    waiting = await place.add(expires_ms=2_000)
    place.clock.advance(3_000)
    for _ in range(2):
        await place.store.expire(1, now_ms=place.clock.now_ms)
    assert await place.state(waiting) is State.cancelled
    await hand.succeed(job)


@pytest.mark.parametrize("key", ["queue:default", "task:work", "all"])
async def test_a_place_that_has_drained_ends_paused(place: Sessions, key: str) -> None:
    await place.add()
    await place.add(queue="other", task="else")
    hand = place.hand(tasks=("work",))
    job = await hand.take()
    await place.change(GateChange(key, drain=True), GateChange("limit:k", drain=True))
    await place.sweep(1_000, hand)
    assert (await place.store.gates(key))[0].paused is None
    await hand.succeed(job)
    await place.hand("w2").drain()
    await place.sweep(1_000, hand)
    assert (await place.store.gates(key))[0].paused == Pause("drain", "drained", place.clock.now_ms)
    assert (await place.store.gates("limit:"))[0].paused is None
    await place.change(GateChange(key, resume=True))
    await place.add()


async def test_a_pause_of_a_draining_place_stays_as_it_was_said(place: Sessions) -> None:
    pause = Pause("ada", "maintenance", place.clock.now_ms)
    await place.change(GateChange("queue:default", drain=True, pause=pause))
    await place.sweep(2_000)
    assert (await place.store.gates("queue:"))[0].paused == pause


async def test_a_beat_does_not_move_the_ear_of_a_loop_that_waits(place: Sessions) -> None:
    hand = place.hand()
    await hand.claim()
    mailbox = place.server.ask("HGET", place.key("s:w1"), "mailbox")
    other = open_store(place.server.url, place.namespace)
    await Bench(other, place.clock).hand("w1").beat()
    await other.close()
    assert place.server.ask("HGET", place.key("s:w1"), "mailbox") == mailbox != b""


def test_a_loop_that_is_open_but_does_not_run_swallows_nobody_elses_wake_up() -> None:
    server = shared(REDIS)
    place = Sessions(server)
    hand = place.hand()

    async def nothing() -> None:
        assert await hand.claim() == []
        assert not (await hand.wait(50)).work

    async def something() -> bool:
        assert await hand.claim() == []
        waiting = asyncio.create_task(hand.wait(60_000))
        await asyncio.sleep(0.2)  # the loop that stands still has waited longer, and would be served first
        other = open_store(server.url, place.namespace)
        await Bench(other, place.clock).add()
        await other.close()
        async with asyncio.timeout(30):
            return (await waiting).work

    still = asyncio.new_event_loop()
    still.run_until_complete(nothing())
    assert asyncio.run(something())
    still.run_until_complete(place.store.close())
    still.run_until_complete(still.shutdown_asyncgens())
    still.close()


async def test_a_session_that_claims_in_one_loop_and_waits_in_another_is_woken(place: Sessions) -> None:
    hand = place.hand()
    assert await hand.claim() == []
    waiting = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(hand.wait(60_000))))
    await asyncio.sleep(0.1)
    await place.add()
    async with asyncio.timeout(30):
        assert (await waiting).work


async def test_what_is_told_between_claim_and_wait_is_kept_and_nothing_after_leave(place: Sessions) -> None:
    first, second = place.hand("first"), place.hand("second")
    assert await first.claim() == []
    assert await second.claim() == []
    sleeping = asyncio.create_task(second.wait(60_000))  # somebody hears for both
    await place.add_many(2)
    assert (await sleeping).work
    assert (await first.wait(60_000)).work
    await first.leave()
    await second.leave()
    store = place.store
    assert isinstance(store, RedisStore)
    assert store._waiters._waiters == {}
    address = store._receivers.here().address
    place.server.ask("RPUSH", place.key(f"mb:{address}"), b"wfirst")
    await place.hand("third").claim()
    await place.hand("third").wait(100)
    assert set(store._waiters._waiters) == {b"third"}


async def test_a_watcher_is_told_and_does_not_have_to_look(place: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limpet.stores.waiters.LOOK_S", 600.0)
    id = await place.add()
    assert await place.store.watch(place.id(), 0) is None  # the server knows the script now
    watching = asyncio.ensure_future(place.store.watch(id, 600_000))
    await asyncio.sleep(0)  # it is sent before the cancel, over the same connection
    await place.cancel(id)
    async with asyncio.timeout(30):
        await watching


async def test_who_watches_is_forgotten_in_time(place: Sessions) -> None:
    id = await place.add()
    with pytest.raises(Exception, match="is ready"):
        await place.store.watch(id, 1)
    (key,) = (key for key in place.server.ask("KEYS", place.key("wa:*")))
    assert 0 < place.server.ask("PTTL", key) <= 86_400_000


async def test_gates_are_listed_by_key_and_no_more_than_the_most(place: Sessions) -> None:
    body, many = msgspec.msgpack.encode(Gate(GateRule("x"))), MOST_GATES + 5
    words = [word for number in range(many) for word in (f"limit:{many - number:06}".encode(), body)]
    place.server.ask("HSET", place.key("g"), *words)
    place.server.ask("HSET", place.key("g"), "queue:q", b"\xc1")
    assert len(await place.store.gates()) == MOST_GATES
    assert len(await examined(place.store).accounts()) == MOST_GATES
    assert [gate.key for gate in await place.store.gates("queue:")] == ["queue:q"]
    assert (await place.store.gates("queue:"))[0].paused is not None
    place.server.ask("DEL", place.key("g"))


async def test_a_watcher_whom_a_full_server_cannot_note_looks_by_itself(server: RedisServer) -> None:
    place = Sessions(server)
    await place.add()
    hand = place.hand()
    job = await hand.take()
    server.ask("CONFIG", "SET", "maxmemory", 1)
    assert await place.store.watch(place.id(), 0) is None
    watching = asyncio.create_task(place.store.watch(job.id, 20_000))
    await asyncio.sleep(0.1)
    await hand.succeed(job)
    async with asyncio.timeout(30 * LOOK_S):
        view = await watching
    assert view is not None
    assert view.state is State.succeeded
    await place.store.close()


async def test_a_full_server_still_works_off_what_it_has(server: RedisServer) -> None:
    """Under maxmemory enqueue is refused; whatever makes room, or leads to it, is not."""
    place = Sessions(server)
    ids = await place.add_many(8)
    hand, silent = place.hand(), place.hand("silent", ttl_ms=2_000)
    await place.sweep(20_000, hand)
    jobs = await hand.claim(4)
    await silent.claim(1)
    server.ask("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(StoreFull):
        await place.add()
    assert not (await hand.beat()).fresh
    assert {each.answer for each in await hand.succeed(*jobs[:2])} == {"done"}
    assert await place.sweep(5_000, hand) == 1
    (gate,) = await place.change(GateChange("queue:default", pause=Pause("ada", "full", place.clock.now_ms)))
    assert gate.paused is not None
    await place.change(GateChange("queue:default", resume=True))
    await hand.leave()
    assert await place.states(ids) == [State.succeeded] * 2 + [State.ready] * 6
    assert len(await place.hand("w2").drain()) == 6
    await place.check_books()
    server.ask("CONFIG", "SET", "maxmemory", 0)
    await place.add()
    await place.store.close()
