"""Jobs that are handed off on Redis: the script leaves what an enqueue and a claim leave, and messages may be lost."""

from __future__ import annotations

import pytest

from limpet.core.gate import GateChange, GateRule
from limpet.core.jobs.job import Policy, Unique
from limpet.core.jobs.lease import Takes
from limpet.core.jobs.state import State
from limpet.stores.base import Store
from limpet.stores.open import open_store
from limpet.stores.redis.scripts import script, source
from limpet.stores.waiters import HANDED
from limpet_contract.bench import Bench
from limpet_contract.hand import Hand
from limpet_contract.harness import Clock
from limpet_contract.making import JobOptions
from tests.engines.redis.audit import Audit, everything
from tests.engines.redis.place import Numbers
from tests.servers.redis import RedisServer

T0 = 1_900_000_000_000
LANES: list[JobOptions] = [
    {},
    {"tenant": "acme", "tags": ("red",), "cost": 3},
    {"priority": 0, "policy": Policy(hard_timeout_ms=None)},
]
TEN = Takes(10, 10)
OTHERWISE = (b"mb:", b"once:", b"idle:", b"nx", b"tn", b"rc:", b"le")
SLEEP = ("idle", "asked", "slots", "takes", "takes_urgent", "slept", "mailbox", "opened", "handed")


async def asleep(bench: Bench, *known: JobOptions, takes: Takes = TEN) -> Hand:
    """A worker that sleeps in a store which knows these lanes."""
    for options in known:
        await bench.add(**options)
    before = bench.hand("before")
    await before.drain()
    await before.leave()
    hand = bench.hand(takes=takes)
    assert await hand.claim() == []
    return hand


@pytest.mark.parametrize("number", range(len(LANES)))
async def test_a_handed_job_is_stored_like_one_that_was_claimed(server: RedisServer, number: int) -> None:
    left = []
    for way in ("handed", "claimed"):
        store = open_store(server.url, way)
        bench = Bench(store, Clock(T0))
        bench.ids = Numbers()  # type: ignore[assignment]  # the same ids both times
        hand = await asleep(bench, LANES[number], takes=TEN if way == "handed" else Takes())
        (answer,) = await bench.put(bench.job(**LANES[number]))
        assert (answer.state is State.running) == (way == "handed")
        (job,) = [each.job for each in await hand.handed()] if way == "handed" else await hand.claim(5)
        assert Audit(server, way).look() == []
        left.append((job, _comparable(everything(server, way))))
        await hand.succeed(job)
        assert Audit(server, way).look() == []
        await store.close()
    (handed, in_one), (claimed, in_two) = left
    assert handed == claimed
    keys = in_one.keys() | in_two.keys()
    assert {key: (in_one.get(key), in_two.get(key)) for key in keys if in_one.get(key) != in_two.get(key)} == {}


def _comparable(found: dict[bytes, object]) -> dict[bytes, object]:
    """All but who sleeps, whose turn it was, what a lease says beside, and what differs in every store."""
    kept: dict[bytes, object] = {}
    own = {b"store", b"turn", *(field.encode() for field in SLEEP)}
    for key, value in found.items():
        if isinstance(value, dict):
            kept[key] = {name: content for name, content in value.items() if name not in own}
        else:
            kept[key] = sorted(value) if isinstance(value, list) else value
    return {key: value for key, value in kept.items() if not key.startswith(OTHERWISE)}


async def test_what_a_gate_holds_back_lets_jobs_take_the_ordinary_way(store: Store) -> None:
    bench = Bench(store, Clock())
    hand = await asleep(bench, {})
    await bench.declare(GateRule("limit:x", interval_us=10_000_000))
    await bench.add_many(2, task="limited", limits=("x",))
    assert len(await hand.claim(10)) == 1
    assert await hand.claim(10) == []
    assert await bench.state(await bench.add()) is State.ready


async def test_the_first_job_of_a_lane_takes_the_ordinary_way(store: Store) -> None:
    bench = Bench(store, Clock())
    hand = await asleep(bench, {})
    assert await bench.state(await bench.add(task="new")) is State.ready
    assert len(await hand.claim()) == 1


async def test_a_message_that_the_server_has_forgotten_is_found_by_what_the_session_holds(
    server: RedisServer, store: Store
) -> None:
    bench = Bench(store, Clock())
    hand = await asleep(bench, {})
    await hand.wait(1)
    id = await bench.add()
    assert await bench.state(id) is State.running
    pulse, held = await hand.beat(), await store.held("w1")
    assert [(one.id, one.handed) for one in held] == [(id, pulse.handed)]
    await hand.release((await hand.handed())[0].job)
    await bench.change(GateChange("queue:default", hold_ms=1))
    await bench.add(unique=Unique("u"))
    assert Audit(server, "default").look() == []


def test_the_fast_path_stands_before_that_of_an_ordinary_enqueue() -> None:
    text = script("enqueue").text
    assert text.index(source("lib/hand_off.lua").splitlines()[-4]) < text.index("local function is_odd")
    assert HANDED == b"h"
