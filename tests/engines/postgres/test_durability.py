"""What a claim took from limits and budgets outlives the server, although a claim that took nothing need not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from limpet.core.endings.transition import Succeed
from limpet.core.gate import GateRule, budget_left, tokens
from limpet.core.jobs.state import State
from limpet.stores.open import open_store
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.servers.installations import POSTGRES
from tests.servers.postgres import PostgresServer, fresh_database, own

RULES = {
    "slots": GateRule("limit:slots", concurrency=2),
    "rate": GateRule("limit:rate", interval_us=60_000_000, burst=5),
    "budget": GateRule("limit:budget", unit="usd", cap=100, period="day"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """What need not be on disk is not, for as long as can be."""
    with own(POSTGRES, wal_writer_delay="10s") as server:
        yield server


@pytest.fixture
async def bench(server: PostgresServer) -> AsyncIterator[Bench]:
    bench = Bench(open_store(fresh_database(server)), Clock())
    yield bench
    await bench.store.close()


@pytest.mark.parametrize("what", RULES)
async def test_what_a_claim_took_from_a_limit_is_known_after_a_crash_of_the_server(
    server: PostgresServer, bench: Bench, what: str
) -> None:
    rule = RULES[what]
    await bench.put(*(bench.job(limits=(what,), costs={"usd": 40}) for _ in range(2)), rules=[rule])
    hand = bench.hand()
    await hand.beat()
    job = await hand.take()
    server.kill()
    server.start()
    gate = await bench.gate(rule.key)
    assert gate is not None
    assert (gate.used, tokens(gate, bench.clock.now_ms), budget_left(gate, bench.clock.now_ms)) == {
        "slots": (1, 1 << 30, 1 << 30),
        "rate": (0, 4, 1 << 30),
        "budget": (0, 1 << 30, 60),
    }[what]
    assert (await bench.view(job.id)).state is State.running
    (settled,) = await hand.settle(Succeed(job.id, job.token))
    assert settled.answer == "done"
    await bench.check_books()


async def test_a_claim_of_what_nothing_limits_waits_for_no_disk(server: PostgresServer, bench: Bench) -> None:
    id = await bench.add()
    hand = bench.hand()
    await hand.beat()
    await hand.take()
    server.kill()
    server.start()
    assert await bench.state(id) is State.ready, "taken back, which at-least-once allows"
    assert (await hand.take()).id == id
