"""Operators' changes and declarations on a real server leave the gates that core says they leave."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.gate import FOREVER_MS, BreakerRule, Gate, GateChange, GateRule, Pause, apply_change
from limpet.stores.redis.gates import gate_or_shut
from limpet.stores.redis.scripts import call_name, source, uses
from limpet_contract.gate_vectors import PAUSE, T0
from tests.servers.flavours import REDIS
from tests.servers.redis import RedisServer, shared

DECLARE = """
tx.begin()
for _, rule in ipairs(cmsgpack.unpack(ARGV[2])) do
  gates_change.declare(rule)
end
tx.finish()
"""

_pack = msgspec.msgpack.encode
_number = count()


@pytest.fixture(scope="module")
def server() -> RedisServer:
    return shared(REDIS)


class Place:
    """A namespace of its own."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.prefix = f"{{limpet:changes-{next(_number)}}}:"

    def run(self, ending: str, now_ms: int, *words: bytes) -> Any:
        libraries = (source(f"lib/{name}.lua") for name in uses(source("gates_change.lua")))
        return self.server.ask("EVAL", "\n".join([*libraries, ending]), 1, f"{self.prefix}m", now_ms, *words)

    def change(self, *changes: GateChange, now_ms: int = T0) -> list[Gate]:
        answer = self.run(source("gates_change.lua"), now_ms, call_name(), _pack(changes))
        return [msgspec.msgpack.decode(body, type=Gate) for body in answer]

    def declare(self, *rules: GateRule, now_ms: int = T0) -> None:
        self.run(DECLARE, now_ms, _pack(rules))

    def stored(self) -> dict[str, Gate]:
        flat = self.server.ask("HGETALL", f"{self.prefix}g")
        return {key.decode(): gate_or_shut(key.decode(), body) for key, body in zip(flat[::2], flat[1::2], strict=True)}

    def draining(self) -> set[str]:
        return {key.decode() for key in self.server.ask("SMEMBERS", f"{self.prefix}dr")}


KEYS = st.sampled_from(["all", "queue:q", "task:t", "limit:k", "breaker:b"])
BREAKERS = st.builds(
    BreakerRule,
    failures=st.sampled_from([1, 5]),
    within_ms=st.sampled_from([1_000, 60_000]),
    rate=st.sampled_from([None, 0.0, 0.5, 1.0]),
    min_calls=st.sampled_from([0, 20]),
)


def rules(key: str) -> st.SearchStrategy[GateRule]:
    return st.builds(
        GateRule,
        st.just(key),
        concurrency=st.sampled_from([None, 1, 3]),
        interval_us=st.sampled_from([None, 1, 250_000]),
        burst=st.sampled_from([1, 7]),
        breaker=st.none() | BREAKERS,
        default_for_429=st.booleans(),
        floor=st.sampled_from([None, 1, 500]),
        climb_ms=st.sampled_from([60_000, 1_000]),
    )


def changes(key: str) -> st.SearchStrategy[GateChange]:
    return st.builds(
        GateChange,
        st.just(key),
        rule=st.none() | rules(key),
        declared=st.booleans(),
        clear=st.booleans(),
        pause=st.sampled_from([None, None, PAUSE, Pause("ädä", "", 0)]),
        resume=st.booleans(),
        drain=st.sampled_from([None, None, True, False]),
        hold_ms=st.sampled_from([None, 0, 10, 5_000]),
        ceiling=st.sampled_from([None, 0, 500, 1_000, 2_000]),
        trip_ms=st.sampled_from([None, None, 0, 5_000, FOREVER_MS]),
        reset=st.booleans(),
    )


@given(st.lists(st.lists(KEYS.flatmap(changes), max_size=4), max_size=6), st.integers(0, 20_000))
def test_any_changes_leave_what_core_says(server: RedisServer, calls: list[list[GateChange]], step_ms: int) -> None:
    place, expected, now_ms = Place(server), dict[str, Gate](), T0
    for call in calls:
        after = []
        for change in call:
            expected[change.key] = apply_change(expected.get(change.key), change, now_ms)
            after.append(expected[change.key])
        assert place.change(*call, now_ms=now_ms) == after
        assert place.stored() == expected
        assert place.draining() == {key for key, gate in expected.items() if gate.draining}
        now_ms += step_ms


@given(st.lists(st.tuples(rules("limit:k"), st.none() | changes("limit:k")), min_size=1, max_size=6))
def test_a_declaration_counts_until_an_operator_has_spoken(
    server: RedisServer, story: list[tuple[GateRule, GateChange | None]]
) -> None:
    place, gate = Place(server), None
    for rule, change in story:
        place.declare(rule)
        if gate is None or (gate.declared and gate.rule != rule):
            gate = apply_change(gate, GateChange(rule.key, rule=rule, declared=True), T0)
        assert place.stored() == {rule.key: gate}
        if change is not None:
            place.change(change)
            gate = apply_change(gate, change, T0)


def test_a_rule_that_changes_nothing_writes_nothing(server: RedisServer) -> None:
    place, rule = Place(server), GateRule("limit:k", concurrency=2, breaker=BreakerRule(rate=0.5))
    place.declare(rule)
    place.change(GateChange("limit:o", rule=GateRule("limit:o", concurrency=1)))
    before = changes_of(server)
    place.declare(rule, GateRule("limit:k", concurrency=2, burst=1, breaker=BreakerRule(failures=5, rate=0.5)))
    place.declare(GateRule("limit:o", concurrency=9))  # an operator has said otherwise
    assert changes_of(server) == before


def changes_of(server: RedisServer) -> int:
    """How many changes the server has made since it was started."""
    return int(server.ask("INFO", "persistence").split(b"rdb_changes_since_last_save:")[1].split(b"\r")[0])


def test_a_gate_that_cannot_be_read_is_mended_by_an_operator(server: RedisServer) -> None:
    place = Place(server)
    server.ask("HSET", f"{place.prefix}g", "limit:k", b"\xc1")
    assert place.stored()["limit:k"].paused is not None
    rule = GateRule("limit:k", concurrency=3)
    (gate,) = place.change(GateChange("limit:k", rule=rule, resume=True))
    assert gate == Gate(rule, declared=False) == place.stored()["limit:k"]
