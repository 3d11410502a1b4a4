"""Operators' changes and declarations leave the gates that core says they leave, also when several speak at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.gate import FOREVER_MS, BreakerRule, Gate, GateChange, GateRule, Pause, apply_change
from limpet.stores.open import open_store
from limpet_contract.gate_vectors import PAUSE, T0
from tests.engines.postgres.schemas import Schema, fresh_schema
from tests.servers.installations import POSTGRES
from tests.servers.postgres import shared

CHANGE = "SELECT gates, w_gates FROM lp.change_gates_1(%s, %s, %s)"
DECLARE = "SELECT lp.declare(%s, %s)"

_number = count()


def json_of(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class Place:
    """A schema whose gates are changed and read, over any connection."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def empty(self) -> Place:
        self.schema.run("DELETE FROM lp.gate; DELETE FROM lp.post; DELETE FROM lp.lane_now; DELETE FROM lp.receipt")
        self.schema.run("DELETE FROM lp.log")
        return self

    def change(self, *changes: GateChange, now_ms: int = T0, on: psycopg.Connection[Any] | None = None) -> list[Gate]:
        return self.call(f"call{next(_number)}", *changes, now_ms=now_ms, on=on)[0]

    def call(
        self, name: str, *changes: GateChange, now_ms: int = T0, on: psycopg.Connection[Any] | None = None
    ) -> tuple[list[Gate], list[str] | None]:
        """The gates after each change, and those that were posted."""
        values = (json_of(changes), name, now_ms)
        row = (on or self.schema.line).execute(self.schema.sql(CHANGE), values).fetchone()
        assert row is not None
        return msgspec.json.decode(row[0], type=list[Gate]), row[1]

    def declare(self, *rules: GateRule, on: psycopg.Connection[Any] | None = None) -> None:
        (on or self.schema.line).execute(self.schema.sql(DECLARE), (json_of(rules), T0))

    def stored(self, prefix: str = "") -> dict[str, Gate]:
        [(answer,)] = self.schema.ask("SELECT lp.gates_1(%s)", prefix)
        return {gate.key: gate for gate in msgspec.json.decode(answer, type=list[Gate])}

    def posted(self) -> list[str]:
        return [key for (key,) in self.schema.ask("SELECT gate FROM lp.post WHERE kind = 1 ORDER BY seq")]

    def waiting(self, *keys: str) -> None:
        """Lanes that wait at these gates."""
        for lane, key in enumerate(keys):
            columns = "id, class, member, priority, state, gate"
            self.schema.line.execute(
                self.schema.sql(f"INSERT INTO lp.lane_now ({columns}) VALUES (%s, 1, 1, 5, 2, %s)"), (lane, key)
            )


@pytest.fixture(scope="module")
def schema() -> Iterator[Schema]:
    with fresh_schema(POSTGRES, rooms="22") as schema:
        yield schema


@pytest.fixture
def place(schema: Schema) -> Place:
    return Place(schema).empty()


@pytest.fixture
def other(schema: Schema) -> Iterator[psycopg.Connection[Any]]:
    """A second connection, in a transaction of its own from its first statement on."""
    with schema.connect() as line:
        yield line


KEYS = st.sampled_from(["all", "queue:q", "task:t", "limit:k", "breaker:b"])
BREAKERS = st.builds(
    BreakerRule,
    failures=st.sampled_from([1, 5]),
    within_ms=st.sampled_from([1_000, 60_000]),
    rate=st.sampled_from([None, 0.0, 0.5, 1 / 3, 1.0]),
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
def test_any_changes_leave_what_core_says(schema: Schema, calls: list[list[GateChange]], step_ms: int) -> None:
    place, expected, now_ms = Place(schema).empty(), dict[str, Gate](), T0
    for call in calls:
        after = []
        for change in call:
            expected[change.key] = apply_change(expected.get(change.key), change, now_ms)
            after.append(expected[change.key])
        assert place.change(*call, now_ms=now_ms) == after
        assert place.stored() == expected
        now_ms += step_ms


@given(st.lists(st.tuples(rules("limit:k"), st.none() | changes("limit:k")), min_size=1, max_size=6))
def test_a_declaration_counts_until_an_operator_has_spoken(
    schema: Schema, story: list[tuple[GateRule, GateChange | None]]
) -> None:
    place, gate = Place(schema).empty(), None
    for rule, change in story:
        place.declare(rule)
        if gate is None or (gate.declared and gate.rule != rule):
            gate = apply_change(gate, GateChange(rule.key, rule=rule, declared=True), T0)
        assert place.stored() == {rule.key: gate}
        if change is not None:
            place.change(change)
            gate = apply_change(gate, change, T0)


def test_the_last_of_two_declarations_counts(place: Place) -> None:
    one, two = GateRule("limit:k", concurrency=1), GateRule("limit:k", concurrency=2)
    place.declare(one, two)
    assert place.stored()["limit:k"].rule == two
    place.declare(one, two)
    assert place.stored()["limit:k"].rule == two


def test_a_rule_that_changes_nothing_writes_and_locks_nothing(place: Place, other: psycopg.Connection[Any]) -> None:
    rule = GateRule("limit:k", concurrency=2, breaker=BreakerRule(rate=0.1 + 0.2))
    place.declare(rule)
    place.change(GateChange("limit:o", rule=GateRule("limit:o", concurrency=1)))
    place.schema.run("BEGIN; SELECT FROM lp.gate FOR UPDATE")
    place.declare(rule, GateRule("limit:k", concurrency=2, breaker=BreakerRule(rate=0.1 + 0.2)), on=other)
    place.declare(GateRule("limit:o", concurrency=9), on=other)  # an operator has said otherwise
    assert other.execute("SELECT pg_current_xact_id_if_assigned()").fetchone() == (None,)
    other.execute("SET LOCAL lock_timeout = '30s'")
    place.declare(rule, GateRule("limit:new"), on=other)  # of two, the one that differs
    place.schema.run("COMMIT")


def test_gates_are_listed_by_key_and_prefix(place: Place) -> None:
    keys = ["limit:é", "limit:a", "limit:B", "limit:a%", "limit:_", "all", "queue:a", "limit"]
    place.change(*(GateChange(key, drain=False) for key in keys))
    assert list(place.stored()) == sorted(keys)
    assert list(place.stored("limit:")) == sorted(key for key in keys if key.startswith("limit:"))
    assert list(place.stored("limit:a%")) == ["limit:a%"]
    assert place.stored("zzz") == {}


def test_at_most_ten_thousand_gates_are_listed(place: Place) -> None:
    place.schema.run("INSERT INTO lp.gate (key) SELECT 'limit:' || n FROM generate_series(1, 10500) AS n")
    found = list(place.stored("limit:"))
    assert found == sorted(f"limit:{n}" for n in range(1, 10_501))[:10_000]


# -- who hears of it


def test_a_gate_is_posted_when_it_has_room_again(place: Place) -> None:
    key = "queue:q"
    assert place.call("1", GateChange(key, pause=PAUSE))[1] is None
    assert place.call("2", GateChange(key, drain=True))[1] is None
    assert place.call("3", GateChange(key, resume=True))[1] == [key]
    assert place.call("4", GateChange(key, pause=PAUSE), GateChange(key, resume=True))[1] is None
    assert place.posted() == [key]


def test_a_gate_that_lanes_wait_at_is_posted_whenever_it_changes(place: Place) -> None:
    place.change(GateChange("limit:k", rule=GateRule("limit:k", interval_us=1_000_000)))
    place.waiting("limit:k")
    # Shut before and after, but it opens at another time: whoever waits there must know when to look.
    assert place.call("1", GateChange("limit:k", hold_ms=10))[1] == ["limit:k"]
    assert place.call("2", GateChange("limit:k", hold_ms=20), GateChange("limit:o", hold_ms=1))[1] == ["limit:k"]


def test_putting_a_gate_leaves_the_time_at_which_it_opens(place: Place) -> None:
    place.schema.run("INSERT INTO lp.gate (key, opens_ms) VALUES ('limit:k', 77)")
    place.change(GateChange("limit:k", hold_ms=10))
    assert place.schema.ask("SELECT opens_ms, held_until_ms FROM lp.gate") == [(77, T0 + 10)]


def test_a_call_that_is_made_again_happens_once(place: Place) -> None:
    trip, hold = GateChange("breaker:b", trip_ms=60_000), GateChange("limit:k", hold_ms=5)
    first, posted = place.call("same", trip, hold, trip)
    assert (first[2].opened, posted) == (2, None)
    assert place.call("same", trip, hold, trip, now_ms=T0 + 99) == ([first[2], first[1], first[2]], None)
    place.schema.run("DELETE FROM lp.gate WHERE key = 'limit:k'")
    assert place.call("same", hold)[0] == [Gate(GateRule("limit:k"))]


# -- several at once


def blocked(schema: Schema, work: Callable[[psycopg.Connection[Any]], object]) -> Future[Any]:
    """Do it in another thread on a connection of its own, and come back when the server says that it waits."""
    line, done = schema.connect(autocommit=True), Future[Any]()

    def run() -> None:
        with line:
            try:
                done.set_result(work(line))
            except psycopg.Error as error:
                done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    deadline_s = time.monotonic() + 60
    while schema.ask("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %s", line.info.backend_pid) == [(0,)]:
        assert not done.done(), f"it did not wait: {done.result()}"
        assert time.monotonic() < deadline_s
        time.sleep(0.002)
    return done


@pytest.mark.parametrize("known", [True, False], ids=["a stored gate", "a new gate"])
def test_of_two_changes_at_once_none_is_lost(place: Place, other: psycopg.Connection[Any], known: bool) -> None:
    if known:
        place.change(GateChange("limit:k", drain=True))
    place.change(GateChange("limit:k", pause=PAUSE), on=other)
    rule = GateRule("limit:k", concurrency=3)
    doing = blocked(place.schema, lambda line: place.change(GateChange("limit:k", rule=rule), on=line))
    other.commit()
    assert doing.result(10) == [Gate(rule, declared=False, paused=PAUSE, draining=known)]


def test_a_change_of_a_gate_that_is_being_forgotten_makes_it_anew(place: Place, other: psycopg.Connection[Any]) -> None:
    place.change(GateChange("limit:k", hold_ms=9))
    other.execute(place.schema.sql("DELETE FROM lp.gate"))
    doing = blocked(place.schema, lambda line: place.change(GateChange("limit:k", drain=True), on=line))
    other.commit()
    assert doing.result(10) == [Gate(GateRule("limit:k"), draining=True)]
    assert list(place.stored()) == ["limit:k"]


def test_of_two_who_make_a_gate_the_second_does_its_step_again(place: Place, other: psycopg.Connection[Any]) -> None:
    put = place.schema.sql("SELECT lp.put_gate(NULL, lp.gate_hold(lp.gate_new('limit:k'), %s), %s)")
    other.execute(put, (T0 + 5, T0))
    doing = blocked(place.schema, lambda line: line.execute(put, (T0 + 9, T0)))
    other.commit()
    with pytest.raises(psycopg.errors.SerializationFailure):
        doing.result(10)
    with pytest.raises(psycopg.errors.SerializationFailure):  # it saw no row, and now there is one
        place.schema.line.execute(put, (T0 + 9, T0))
    assert place.stored()["limit:k"].held_until_ms == T0 + 5


def test_a_lane_that_comes_to_wait_is_seen_by_whoever_changes_the_gate_next(
    place: Place, other: psycopg.Connection[Any]
) -> None:
    place.change(GateChange("limit:k", rule=GateRule("limit:k", concurrency=1)))
    sql = place.schema.sql
    other.execute(sql("SELECT FROM lp.gate_lock(ARRAY['limit:k'])"))  # a claim that parks a lane
    doing = blocked(place.schema, lambda line: place.call("1", GateChange("limit:k", drain=False), on=line))
    columns = "id, class, member, priority, state, gate"
    other.execute(sql(f"INSERT INTO lp.lane_now ({columns}) VALUES (1, 1, 1, 5, 2, 'limit:k')"))
    other.commit()
    assert doing.result(10)[1] == ["limit:k"]


def test_slots_are_counted_exactly_while_many_take_and_return_them(place: Place) -> None:
    place.schema.run(TAKE_AND_RETURN)
    keys = ["limit:a", "limit:b", "limit:c"]
    for key in keys:
        place.change(GateChange(key, rule=GateRule(key, concurrency=1_000)))
    start = threading.Barrier(4)

    def work(number: int) -> None:
        with place.schema.connect(autocommit=True) as line:
            start.wait()
            for turn in range(50):
                mine = keys[turn % 3 :] + keys[: turn % 3]  # each in another order: locks are taken in one order
                line.execute(place.schema.sql("SELECT lp.take_and_return(%s, %s)"), (mine, turn % 2))
                if turn % 10 == number:
                    mixed = [GateChange(key, drain=turn % 4 == 0) for key in reversed(mine)]
                    place.change(*mixed, on=line)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert {gate.used for gate in place.stored().values()} == {100}  # 4 · 25 · (2 - 1)


# Takes three slots of each gate and returns one, or takes two and returns three.
TAKE_AND_RETURN = """
CREATE FUNCTION lp.take_and_return(p_keys text[], p_odd integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_n integer := cardinality(p_keys);
  v_gate lp.gate;
  v_charge jsonb;
BEGIN
  PERFORM FROM lp.gate_lock(p_keys);
  PERFORM lp.charge_gates(
    p_keys, array_fill(3 - p_odd, ARRAY[v_n]), array_fill(0::bigint, ARRAY[v_n]), array_fill(1::bigint, ARRAY[v_n]), 0
  );
  FOR v_gate IN SELECT * FROM lp.gate_lock(p_keys) LOOP
    v_charge := lp.gate_taken(v_gate, 1, 0);
    FOR i IN 1 .. 1 + 2 * p_odd LOOP
      v_gate := lp.gate_give_back(v_gate, v_charge, 1, 'ok', NULL, 0, 0, 0);
    END LOOP;
    PERFORM lp.put_gate(v_gate, v_gate, 0);
  END LOOP;
END $$;
"""


# -- through the store


async def test_texts_that_the_server_cannot_keep_are_kept_as_well_as_it_can() -> None:
    server, namespace = shared(POSTGRES), f"gates{next(_number)}"
    store = open_store(server.url, namespace)
    try:
        pause = Pause("a\x00nn", 'half\x00 and "\\u0000"', T0)
        (gate,) = await store.change_gates([GateChange("queue:q", pause=pause)], now_ms=T0)
        assert gate.paused == Pause("a\ufffdnn", 'half\ufffd and "\\u0000"', T0)
        assert await store.gates("queue:") == [gate]
        assert await store.gates("queue:\x00") == []
        assert await store.change_gates([]) == []
    finally:
        await store.close()
        server.ask(f"DROP SCHEMA IF EXISTS limpet_{namespace} CASCADE")
