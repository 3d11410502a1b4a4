"""Every verb looks up what it needs: however full the tables are, and whatever ANALYZE has made of them meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from limpet.core.endings.hook import QUEUE, Hook
from limpet.core.endings.transition import Succeed
from limpet.core.gate import BreakerRule, GateChange, GateRule, Pause
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Lane, Unique
from limpet.core.jobs.lease import Note, Signal
from limpet.core.jobs.state import FINISHED, State
from limpet.core.jobs.view import Query, Retention, Term
from limpet.stores.asking import attempts_of
from limpet.stores.open import open_store
from limpet_contract.bench import Bench
from limpet_contract.hand import ENDINGS, Hand
from limpet_contract.harness import Clock
from tests.engines.postgres.plans import TELLING, touched
from tests.servers.installations import COMPLETE
from tests.servers.postgres import PostgresServer, own
from tests.size import in_matrix

CROWD = 5_000  # of everything that a verb has no business with
FEW = 1_024  # rows that one statement may touch: the janitor goes in steps of 1,000

# Written by whoever changes anything, read by the janitor and by whoever counts: both as a whole.
WHOLE = ("tally", "cause_tally", "count", "cause")

# Table → what it has of each of the crowd. Nothing of it is due, and nobody serves it.
CROWDS = {
    "lane": "-n, -n, -n, -n, 5, true, 'crowd' || n % 10, 't', NULL, '{}', '{all}', ARRAY['limit:c' || n], '{}'",
    "lane_now (id, class, member, priority, jobs, state, gate)": """
      -n, -n % 5, -n, 5, 1, n % 2 * 2, CASE WHEN n % 2 = 1 THEN 'limit:c' || n END""",
    "lane_gate": "'limit:c' || n, -n",
    "turn": "-n, 0, 1, 1, 'tenant:c' || n",
    "gate (key, concurrency, used, opens_ms)": "'limit:c' || n, 1, 1, 9e15",
    "wait (id, lane, due_ms, expires_ms, state, priority)": """
      id, -n, CASE n % 3 WHEN 1 THEN 9e15 ELSE 1 END, 9e15, n % 3, 5""",
    "running (id, token, lane, due_ms, claimed_ms, attempt, lost, held, cost, priority, flags)": """
      id || '\\x01', n / 8, -n, 0, 0, 1, 0, 0, 1, 5, 0""",
    "done (id, lane, finished_ms, due_ms, attempt, lost, held, cost, state, priority, flags)": """
      id || '\\x02', -n, 9e15, 0, 1, 0, 0, 1, 4 + n % 2 * 2, 5, 0""",
    "job (id, lane, policy, enqueued_ms, args)": "id || decode('0' || n % 3, 'hex'), -n, 0, 0, '{}'",
    "unique_key": "id, id, 0, 9e15",
    "dep": "id, id || '\\x01', n % 3, n % 2 = 0",
    "result": "id, ''",
    "note": "id, 'k', 'n', ''",
    "attempt (job, seq, number, started_ms, finished_ms, outcome, session)": "id, 1, 1, 0, 0, 'lost', ''",
    "gone": "id, 4, 9e15",
    "watch": "id, 'channel'",
    "flow_job": "id, decode(lpad(to_hex(n / 8), 32, '0'), 'hex')",
    "key_job": "decode(lpad(to_hex(n / 8), 8, '0'), 'hex'), id",
    "dep_far": "id, id",
    "cost_job": "id, '{\"usd\": 1}'",
    "receipt": "'crowd' || n, 'c', 1, 9e15",
    "policy": "n, NULL, 1, '{}'",
    "lease": "n, 'crowd' || n / 50, NULL, 8",
}
# Those that are few by nature, and may be looked at as a whole.
LIVE = """
INSERT INTO session SELECT 'crowd' || n, 0, 0, 9e15::bigint, NULL, '{none}', '{}', NULL, '{"tasks":["none"]}', '{}'
FROM generate_series(0, 100) AS n;
INSERT INTO settled SELECT decode(lpad(to_hex(n), 32, '0'), 'hex'), n, 9e15 FROM generate_series(0, 100) AS n
"""


def crowd(server: PostgresServer) -> None:
    """Fill every table with what no verb has business with."""
    ids = f"(SELECT n, decode(lpad(to_hex(n), 32, '0'), 'hex') AS id FROM generate_series(1, {CROWD}) AS n) AS crowd"
    fills = [f"INSERT INTO {table} SELECT {columns} FROM {ids}" for table, columns in CROWDS.items()]
    server.ask("; ".join(("SET search_path = limpet", *fills, LIVE)))


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with own(COMPLETE, **TELLING) as server:
        yield server


async def a_day(bench: Bench) -> None:
    """Every verb, and every way that a job can go."""
    store, hand = bench.store, bench.hand("w1")
    await store.put_control(Hook(Lane(QUEUE, "told"), states=tuple(sorted(FINISHED))).control())
    parent = await bench.add(task="parent", priority=0)
    children = [*await bench.add_many(3, after=(parent,)), await bench.add(after=(parent,), if_parent_fails="run")]
    await bench.declare(GateRule("limit:x", concurrency=1))
    await bench.add_many(4, keys=("x",), tenant="g", breaker="api")
    await bench.add_many(3, delay_ms=500, expires_ms=2_000)
    await bench.put(bench.job(unique=Unique("key", for_ms=1_000)), bench.job(unique=Unique("key")))
    await a_flow(bench, hand)
    await a_budget(bench)
    await a_breaker_by_key(bench)
    for ending in ENDINGS:
        await bench.add(task=ending, priority=0)
        await hand.end(ending, *await hand.claim(1))
    for job in await hand.claim(3):
        await hand.bury(job)
    await hand.succeed(*await hand.claim(3, aged=1, most_urgent=5))
    for _ in range(3):
        bench.clock.advance(1_000)
        await hand.claim(5)
        await bench.sweep(1_000, hand)
    await asked(bench, [parent, *children])
    await bench.cancel(children[0])
    dead = [job.id for job in (await store.find(Query(frozenset({State.dead})), now_ms=bench.clock.now_ms)).jobs]
    await bench.retry(*dead[:2])
    await store.discard(dead[2:], now_ms=bench.clock.now_ms)
    await bench.change(GateChange("queue:c", pause=Pause("ada", "why", bench.clock.now_ms)))
    await bench.change(GateChange("queue:c", resume=True))
    await hand.leave()
    await store.prune(Retention(0, 0, 0), now_ms=bench.clock.now_ms + 10)


async def a_budget(bench: Bench) -> None:
    """Jobs that cost money, some more than is left, and one that has cost less than it reserved."""
    key = bench.id().hex()
    wholly = [bench.job(queue=key, limits=(key,), costs={"usd": 4}) for _ in range(4)]
    lane = [bench.job(queue=key, keys=(key,), costs={"usd": 9}) for _ in range(2)]
    await bench.put(*wholly, *lane, rules=[GateRule(f"limit:{key}", unit="usd", cap=10, period="day")])
    hand = bench.hand("w3", queues=(key,))
    one, two = await hand.claim(5)
    await hand.settle(Succeed(one.id, one.token), spent={one.id: {"usd": 1}})
    await hand.trip(two, f"limit:{key}", 10)
    assert await hand.claim(5) == []
    assert {entry.kind for entry in await bench.store.read("event")} >= {"budget.short", "breaker.opened"}
    await hand.leave()


async def a_breaker_by_key(bench: Bench) -> None:
    """A key that fails is cut off, and probed."""
    name = bench.id().hex()
    rule = GateRule(f"breaker:{name}", breaker=BreakerRule(failures=1, cooldown_ms=1, probe_after_ms=1))
    jobs = [bench.job(queue=name, breaker=name, breaker_key=f"{name}:{key}") for key in ("a", "a", "b")]
    await bench.put(*jobs, rules=[rule])
    hand = bench.hand("w4", queues=(name,))
    first, second = await hand.claim(1), await hand.claim(5)
    await hand.bury(first[0])
    await hand.succeed(*second)
    bench.clock.advance(1)
    await hand.succeed(*await hand.claim(5))
    await hand.leave()


async def a_flow(bench: Bench, hand: Hand) -> None:
    """Jobs that sleep, wait and are signalled to, and one that waits for more of them than one look takes."""
    flow = bench.id()
    parents = [bench.job(priority=0, flow=flow) for _ in range(100)]
    await bench.put(*parents, bench.job(priority=0, flow=flow, after=tuple(job.id for job in parents)))
    jobs = await hand.claim(100)
    for job in jobs[:4]:
        await hand.save(job, Note("step", "one", b"1"))
    await bench.signal(Signal(jobs[0].id, "go", b"1"))
    for job, delay_ms, events in zip(jobs, (None, None, 60_000, 0), (["go"], ["go", "stop"], [], []), strict=False):
        await hand.suspend(job, delay_ms, *events)
    await bench.signal(*(Signal(job.id, "go", b"1") for job in jobs[:4]))
    await bench.retry(jobs[2].id, forget=("*",))
    await hand.end("bury", *jobs[4:6])
    await bench.retry(*(job.id for job in jobs[4:6]))
    jobs = [*jobs[6:], *await hand.claim(6)]
    for job in reversed(jobs[64:]):
        await hand.succeed(job)
    await hand.succeed(*jobs[:64])
    await hand.succeed(*await hand.claim(1))
    for newest_first in (True, False):
        for term in (Term("flow", id_text(flow)), Term("unique", "key")):
            await bench.store.find(Query(terms=(term,), newest_first=newest_first), now_ms=bench.clock.now_ms)
    await bench.store.flows()
    await bench.store.flows([flow])


async def asked(bench: Bench, ids: list[bytes]) -> None:
    """Every question."""
    store, now_ms = bench.store, bench.clock.now_ms
    for states in (None, *(frozenset({state}) for state in State), frozenset({State.ready, State.dead})):
        for newest_first in (True, False):
            await store.find(Query(states, limit=10, newest_first=newest_first), now_ms=now_ms)
    await store.find(Query(terms=(Term("tag", "vip"), Term("args.x", "1")), limit=10), now_ms=now_ms)
    await store.count()
    await store.causes()
    await store.get(ids)
    for id in ids:
        await attempts_of(store, id)
        await store.inspect(id, now_ms=now_ms)


@pytest.mark.parametrize(
    "analysed", ["tiny", *in_matrix("other statistics, which plans must not heed either", "never", "empty")]
)
async def test_what_a_verb_touches_does_not_grow_with_the_tables(server: PostgresServer, analysed: str) -> None:
    """Plans are made while tables are nearly empty, by statistics of that moment, and used when they are full."""
    store = open_store(server.url)
    bench = Bench(store, Clock())
    await store.open()
    if analysed == "empty":
        server.ask("VACUUM ANALYZE")
    await a_day(bench)
    if analysed == "tiny":
        server.ask("VACUUM ANALYZE")
        await a_day(bench)
    crowd(server)
    for _ in range(2):
        begin = len(server.log())
        await a_day(bench)
        found = {
            (rows, where, statement)
            for rows, where, statement in touched(server.log()[begin:])
            if rows > FEW and not any(where.endswith(each) for each in WHOLE)
        }
        assert not found, "\n".join(f"{rows} rows by {where}: {statement[:300]}" for rows, where, statement in found)
        server.ask("VACUUM ANALYZE")  # and by statistics of full ones
    await store.close()
