"""Gates that count something else than what running jobs hold are told to people, on every engine."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from limpet.core.gate import BreakerRule, GateChange, GateRule
from limpet.core.jobs.view import Finding
from limpet.ops.doctor import doctor
from limpet.stores.postgres import PostgresStore
from limpet.stores.redis import RedisStore
from limpet.stores.sqlite import SqliteStore
from limpet_contract.bench import Bench
from tests.contract.harnesses import HARNESSES, SHARED
from tests.servers.flavours import REDIS
from tests.servers.installations import POSTGRES
from tests.servers.postgres import shared as postgres
from tests.servers.redis import shared as redis

SLOTS = GateRule("limit:smtp", concurrency=5)
USD = GateRule("limit:usd/day:llm:acme", unit="usd", cap=2_000_000, period="day")
BREAKER = GateRule("breaker:api", breaker=BreakerRule())


@pytest.fixture(params=SHARED)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """Two jobs run under every rule; the breaker is half-open, and one of them is its probe."""
    harness = HARNESSES[request.param](tmp_path)
    bench = await Bench.open(harness)
    jobs = [bench.job(limits=("smtp",), keys=("usd/day:llm:acme",), costs={"usd": 500_000}) for _ in range(2)]
    await bench.put(*jobs, bench.job(breaker="api"), rules=[SLOTS, USD, BREAKER])
    await bench.change(GateChange("breaker:api", trip_ms=0))
    assert len(await bench.hand().claim(3)) == 3
    yield bench
    await harness.close()


async def damage(bench: Bench, key: str, **levels: int) -> None:
    """Overwrite what a stored gate counts."""
    found = await bench.gate(key)
    assert found is not None
    gate, store = replace(found, **levels), bench.store
    if isinstance(store, SqliteStore):
        assert store.path is not None
        with sqlite3.connect(store.path) as conn:
            conn.execute("UPDATE limpet_gate SET body = ? WHERE key = ?", (msgspec.json.encode(gate), key))
        conn.close()
    elif isinstance(store, RedisStore):
        redis(REDIS).ask("HSET", f"{{limpet:{store.namespace}}}:g", key, msgspec.msgpack.encode(gate))
    else:
        assert isinstance(store, PostgresStore)
        sets = ", ".join(f"{name} = {level}" for name, level in levels.items())
        postgres(POSTGRES).ask(f"UPDATE \"{store.schema}\".gate SET {sets} WHERE key = '{key}'")


async def findings(bench: Bench) -> list[Finding]:
    """What the doctor says of what gates count."""
    codes = ("accounts", "slots", "reservations", "probe")
    return [each for each in await doctor(bench.store, now_ms=bench.clock.now_ms) if each.code in codes]


async def test_a_sound_store_is_said_to_be_sound(bench: Bench) -> None:
    assert await findings(bench) == [Finding("ok", "accounts", "every limit counts what running jobs hold of it")]


DAMAGE: dict[str, tuple[str, dict[str, int], str, str, str]] = {
    "a slot that nobody holds": (
        "limit:smtp",
        {"used": 3},
        "slots",
        "limit smtp counts 3 slots as taken, and running jobs hold 2",
        "limpet doctor --repair",
    ),
    "a slot that is not counted": (
        "limit:smtp",
        {"used": 1},
        "slots",
        "limit smtp counts 1 slots as taken, and running jobs hold 2",
        "limpet doctor --repair",
    ),
    "money that is not counted": (
        "limit:usd/day:llm:acme",
        {"spent": 600_000},
        "reservations",
        "the budget 'llm:acme' counts $0.60 as spent, and running jobs have reserved $1",
        "report this; until then: limpet limits set llm:acme --budget usd=1.6/day",
    ),
    "a probe that nobody runs": (
        "breaker:api",
        {"probe_token": 7},
        "probe",
        "breaker api waits for a probe that does not run, and admits no job",
        "limpet doctor --repair",
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
async def test_damage_is_told_with_its_numbers_and_what_to_do(bench: Bench, what: str) -> None:
    key, levels, code, text, fix = DAMAGE[what]
    await damage(bench, key, **levels)
    assert await findings(bench) == [Finding("error", code, text, fix)]
    with pytest.raises(AssertionError, match=key):
        await bench.check_books()
