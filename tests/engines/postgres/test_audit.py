"""Every place, index and counter of a schema says the same, after any history; and damage to any of them is seen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from limpet.core.endings.transition import Suspend
from limpet.core.gate import BreakerRule, GateRule
from limpet.core.jobs.job import Unique
from limpet.core.jobs.lease import Note
from limpet_contract.hand import ENDINGS
from limpet_contract.seeds import chance_of
from limpet_contract.stroll import STEPS, Stroll
from limpet_contract.walk import StoreWalk
from tests.engines.postgres.audit import FAULTS, faults_on
from tests.engines.postgres.namespace import Namespace
from tests.servers.installations import POSTGRES
from tests.servers.postgres import PostgresServer, shared
from tests.size import in_matrix

LOOK_EVERY = 5


@pytest.fixture(scope="module")
def server() -> PostgresServer:
    return shared(POSTGRES)


@pytest.mark.parametrize("seed", [100, *in_matrix("further seeds of the same way", 101, 102)])
def test_everything_agrees_on_a_long_way(server: PostgresServer, seed: int) -> None:
    namespace = Namespace(server)
    walk, rng = StoreWalk(namespace), chance_of(seed)
    went = Stroll(walk, rng)
    kinds, weights = list(STEPS), list(STEPS.values())
    try:
        went.begin()
        for number in range(200):
            step = rng.choices(kinds, weights)[0]
            step(went)
            if number % LOOK_EVERY == 0:
                found = namespace.faults(walk.tandem.now_ms)
                assert not found, f"after step {number} ({step.__name__}): {found}"
        walk.run(walk.tandem.heal())
        assert not namespace.faults(walk.tandem.now_ms)
    finally:
        walk.abandon()
        namespace.drop()


# -- damage, and what the audit says to it


LONE = "(SELECT id FROM lp.wait WHERE state = 2 ORDER BY id LIMIT 1)"
HELD = "(SELECT id FROM lp.running WHERE charged IS NULL LIMIT 1)"
LANE = "(SELECT lane FROM lp.wait WHERE state = 2 ORDER BY id LIMIT 1)"

DAMAGE = {
    "a job is in more than one place": (
        "INSERT INTO lp.done SELECT id, lane, 1, due_ms, 1, NULL, 1, 0, 0, 1, 4, priority, flags "
        f"FROM lp.wait WHERE id = {LONE}"
    ),
    "a job is nowhere": f"DELETE FROM lp.wait WHERE id = {LONE}",
    "a place is of no job": f"DELETE FROM lp.job WHERE id = {LONE}",
    "a job is in a place of another lane": f"UPDATE lp.job SET lane = lane + 1 WHERE id = {LONE}",
    "a job that is stored counts as gone": f"INSERT INTO lp.gone VALUES ({LONE}, 4, 9000000000000)",
    "something is kept of a job that is not stored": "INSERT INTO lp.result VALUES ('\\x01', 'null')",
    "notes are there without the flag that says so": f"INSERT INTO lp.note VALUES ({LONE}, 'step', '', '')",
    "notes are left of a wait before": (
        "INSERT INTO lp.note SELECT id, 'waiting', n, n::bytea FROM lp.running, (VALUES ('a'), ('b')) AS v (n)"
    ),
    "a job waits for an event that has come": (
        "INSERT INTO lp.note SELECT id, 'event', 'go', '' FROM lp.wait WHERE due_ms > 1::bigint << 51"
    ),
    "somebody watches a job that has ended": "INSERT INTO lp.watch SELECT id, 'channel' FROM lp.done LIMIT 1",
    "a lane is not known": f"DELETE FROM lp.lane WHERE id = {LANE}",
    "a policy is not known": "DELETE FROM lp.policy",
    "a lane is half stored": f"UPDATE lp.lane_now SET member = member + 1 WHERE id = {LANE}",
    "a job waits at another priority than its lane": f"UPDATE lp.wait SET priority = 9 WHERE id = {LONE}",
    "the gates of a lane are not those it names": "DELETE FROM lp.lane_gate",
    "a post counts as filed": (
        "INSERT INTO lp.post (xid, kind) VALUES ('1', 0); UPDATE lp.floor SET filed = pg_current_snapshot()"
    ),
    "a lane has ready jobs and is idle": f"UPDATE lp.lane_now SET state = 0, gate = NULL WHERE id = {LANE}",
    "a ready job lies before its lane's floor": f"UPDATE lp.lane_now SET floor_ms = 9000000000000 WHERE id = {LANE}",
    "a lane waits at a gate that is not there": "DELETE FROM lp.gate WHERE key = 'limit:k1'",
    "a lane waits at a gate that will not call it": (
        "UPDATE lp.gate SET used = 0, concurrency = NULL, held_until_ms = 9000000000000 WHERE key = 'limit:k1'"
    ),
    "a lane waits at a gate that has room for it": "UPDATE lp.gate SET concurrency = 9 WHERE key = 'limit:k1'",
    "an active lane has no seat": "DELETE FROM lp.seat",
    "a seat is of no active lane": "UPDATE lp.lane_now SET state = 0 WHERE state = 1",
    "a seat names a lane that is not of its class": "UPDATE lp.seat SET lane = 1",
    "a seat and the turn of its member differ": "UPDATE lp.seat SET turn = turn + 1",
    "a ring takes no turns": "DELETE FROM lp.turn",
    "a turn that has no end": "UPDATE lp.turn SET left_n = 0",
    "a lease does not count what it holds": "UPDATE lp.lease SET left_n = left_n + 1",
    "a lease is of nobody": "DELETE FROM lp.session",
    "a token was given that may be given again": "UPDATE lp.lease SET token = token * 2",
    "a session that is gone sleeps": "INSERT INTO lp.sleeper VALUES ('nobody', NULL, 1, NULL, NULL, '{}', NULL)",
    "a success is noted under no lease": f"INSERT INTO lp.settled VALUES ({HELD}, 1, 1, NULL)",
    "a gate does not count its slots": "UPDATE lp.gate SET used = used + 1 WHERE key = 'limit:k1'",
    "slots are taken of a gate that is not there": "DELETE FROM lp.gate",
    "a budget does not count what is reserved of it": "UPDATE lp.gate SET spent = spent - 1 WHERE cap IS NOT NULL",
    "a breaker waits for a probe that nobody runs": "UPDATE lp.gate SET probe_token = 7 WHERE key LIKE 'breaker:%'",
    "a key is held by a job that is not its own": f"UPDATE lp.unique_key SET job = {LONE}",
    "a job that lives does not hold its key": "DELETE FROM lp.unique_key",
    "a job is found by a key that is not its own": "UPDATE lp.key_job SET key = 'v'",
    "a job is not found by its key": "DELETE FROM lp.key_job",
    "a job is blocked by nobody": "DELETE FROM lp.dep",
    "a job goes on though a parent has not ended": "UPDATE lp.wait SET state = 2 WHERE state = 0",
    "a job waits for a parent that will not release it": "UPDATE lp.dep SET parent = '\\x01'",
    "a job waits for a parent that it does not look for any more": (
        "INSERT INTO lp.dep_far SELECT child, parent FROM lp.dep WHERE NOT done"
    ),
    "counts differ from what is stored": "DELETE FROM lp.tally WHERE ctid = (SELECT min(ctid) FROM lp.tally)",
    "a tenant does not count its jobs": "INSERT INTO lp.count (queue, task, what, n) VALUES ('default', 'acme', 22, 1)",
    "not all that was enqueued is accounted for": (
        "INSERT INTO lp.tally (lane, whats, ns) VALUES (0, '{11}', '{1}')"
    ),
    "a lane does not count its jobs": "UPDATE lp.lane_now SET jobs = jobs + 1",
    "causes differ from the dead": "DELETE FROM lp.cause_tally",
}  # fmt: skip


@pytest.fixture(scope="module")
def full(server: PostgresServer) -> Iterator[Namespace]:
    """A namespace with something in each of its places."""
    namespace = Namespace(server)
    asyncio.run(fill(namespace))
    namespace.ask("DELETE FROM lp.post")  # what is posted would excuse some of the damage
    assert not namespace.faults()
    yield namespace
    namespace.drop()


async def fill(namespace: Namespace) -> None:
    bench = await namespace.bench()
    rules = [
        GateRule("limit:k1", concurrency=1),
        GateRule("limit:usd", unit="usd", cap=10, period="day"),
        GateRule("breaker:b", breaker=BreakerRule()),
    ]
    keyed = [bench.job(keys=("k1",), tenant=tenant) for tenant in ("a", "b")]
    ending = [bench.job(task="ending") for _ in range(3)]
    paid = bench.job(breaker="b", limits=("usd",), costs={"usd": 3})
    await bench.put(*keyed, paid, *ending, rules=rules)
    hand = bench.hand()
    jobs = {job.id: job for job in await hand.claim(10)}
    assert len(jobs) == 5, "all but one of those with one key"
    await hand.settle(
        *(ENDINGS[how](jobs[job.id]) for how, job in zip(("succeed", "bury", "drop"), ending, strict=True))
    )
    held = jobs[keyed[0].id]
    assert await bench.store.save(held.id, held.token, Note("step", "one", b"1"))
    assert await hand.claim() == []
    parent = bench.job(task="plain", unique=Unique("u"))
    await bench.put(parent, *(bench.job(task="plain") for _ in range(3)), bench.job(after=(parent.id,)))
    await bench.add(delay_ms=60_000)
    await bench.add(task="asleep", flow=bench.id())
    sleeper = bench.hand("w3", tasks=("asleep",))
    job = await sleeper.take()
    await sleeper.settle(Suspend(job.id, job.token, None, ("go",)))
    assert (await bench.hand("w2", tasks=("plain",)).take()).id == parent.id
    await namespace.close()


@pytest.mark.parametrize("what", FAULTS)
def test_damage_is_seen(full: Namespace, what: str) -> None:
    with contextlib.closing(full.connect()) as line:
        line.execute(full.sql(DAMAGE[what]))
        found = faults_on(line, full.schema, full.clock.now_ms)
        line.rollback()
    assert what in [each.split(":")[0] for each in found]
