"""A claim asks all lanes that gates rule at once, and takes what core says it may take of one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from limpet.core.gate import BreakerRule, Charge, Gate, GateRule, admits, charge, falls_short, room
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.core.limits.period import began_ms
from limpet.core.text.gate_events import marked
from limpet_contract.gate_vectors import T0
from tests.engines.postgres.plans import overheard
from tests.engines.postgres.races import Ground
from tests.engines.postgres.schemas import Schema, fresh_schema
from tests.engines.postgres.test_gate_changes import Place
from tests.engines.postgres.test_gate_vectors import columns, json_of
from tests.engines.postgres.test_give_back import STORE
from tests.servers.installations import COMPLETE, POSTGRES

EMPTY = "; ".join(
    f"DELETE FROM lp.{table}"
    for table in (
        *("job", "cost_job", "wait", "running", "lane", "lane_now", "lane_gate"),
        *("gate", "post", "seat", "turn", "receipt"),
    )
)
# Takes from these lanes as a claim with so many slots does; how many slots it has left.
TAKE = """
CREATE FUNCTION lp.try_take(p_lanes bigint[], p_counts integer[], p_slots integer, p_now bigint) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  t lp.taking := lp.begin_taking(1024, p_slots, NULL, NULL, '{}', '{}', 0, p_now);
  v_got record;
BEGIN
  SELECT * INTO v_got FROM lp.take_gated(t, p_lanes, p_counts);
  t := v_got.t;
  RETURN t.slots;
END $$;
"""
RUNNING = "SELECT r.id, r.token, r.charged FROM lp.running AS r"
# Lanes that wait where they need not, or rest while they have jobs.
ASTRAY = """
SELECT n.id FROM lp.lane_now AS n JOIN lp.lane AS l ON l.id = n.id LEFT JOIN lp.gate AS g ON g.key = n.gate
WHERE CASE n.state
  WHEN 0 THEN EXISTS (SELECT FROM lp.wait AS w WHERE w.lane = n.id)
  WHEN 2 THEN NOT g.key = ANY (l.lane_gates) OR lp.gate_room(g, %s) > 0
END
"""
CLAIM = """
SELECT ARRAY[coalesce(cardinality((c.jobs).ids), 0), c.again::integer]
FROM lp.claim_1('w', 'c', %s, %s, 1000, NULL, NULL, '{}', '{}', %s) AS c
"""


class Floor:
    """Lanes with jobs, filed as a claim finds them."""

    def __init__(self, schema: Schema) -> None:
        schema.run(TAKE)
        schema.run("INSERT INTO lp.session VALUES ('w', 0, 0, 9e15, NULL, NULL, '{}', NULL, '{}', '{}')")
        self.schema = schema
        self.ground = Ground(schema)

    def empty(self) -> None:
        self.schema.run(EMPTY)

    def store(self, *gates: Gate) -> None:
        self.schema.ask(STORE, T0, json_of([columns(gate) for gate in gates]))

    def put(self, *jobs: Job) -> None:
        self.ground.enqueue(*jobs)
        self.schema.ask("SELECT lp.apply_posts(1000, %s)", T0)

    def claim(self, line: psycopg.Connection[Any], limit: int) -> tuple[int, bool]:
        """How many it gets, and whether it should ask again."""
        taken, again = self.ground.one(CLAIM, limit, limit, T0, line=line)
        return taken, bool(again)


@pytest.fixture(scope="module")
def floor() -> Iterator[Floor]:
    with fresh_schema(POSTGRES, rooms="99") as schema:
        yield Floor(schema)


@pytest.fixture(scope="module")
def telling_floor() -> Iterator[Floor]:
    """A floor whose server can tell what it did."""
    with fresh_schema(COMPLETE, rooms="99") as schema:
        yield Floor(schema)


class Model(Struct):
    """What core lets a claim take, lane by lane."""

    gates: dict[str, Gate]
    slots: int
    running: dict[bytes, tuple[int, list[Charge]]]  # token and charges
    tokens: dict[int | None, int]  # by what ends together

    def gates_of(self, lane: Lane) -> list[Gate]:
        return [self.gates[key] for key in (*lane.class_gates, *lane.lane_gates) if key in self.gates]

    def must(self, lane: Lane) -> bool:
        rules = [gate.rule for gate in self.gates_of(lane)]
        return lane.limited or any(
            rule.concurrency is not None or rule.interval_us is not None or rule.cap is not None for rule in rules
        )

    def room(self, lane: Lane) -> int:
        return min([room(gate, T0) for gate in self.gates_of(lane)] + [self.slots] * self.must(lane), default=1 << 30)

    def take(self, lane: Lane, jobs: list[Job]) -> None:
        """Take what may start of the first jobs of a lane, as many as it was asked for."""
        gates, must = self.gates_of(lane), self.must(lane)
        if not jobs or self.room(lane) <= 0:
            return
        costs = {gate.key: [job.cost_in(gate.rule.unit) for job in jobs] for gate in gates}
        counts = {gate.key: admits(gate, costs[gate.key], T0) for gate in gates}
        count = min([*counts.values(), len(jobs)] + [self.slots] * must)
        for job in jobs[:count]:
            token = self.tokens.setdefault(job.policy.hard_timeout_ms, T0 * 2048 + len(self.tokens))
            self.running[job.id] = (token, [])
        for gate in gates if count else ():
            first, _ = self.running[jobs[0].id]
            self.gates[gate.key], charges = charge(gate, costs[gate.key][:count], first, T0)
            for job, charged in zip(jobs[:count], charges, strict=bool(charges)):
                self.running[job.id][1].append(charged)
        self.slots -= count if must else 0
        stopping = [self.gates[key] for key, passed in counts.items() if passed == count < len(jobs)]
        shut = [falls_short(gate, costs[gate.key][count], T0) for gate in stopping]
        if all(after is not before for before, after in zip(stopping, shut, strict=True)):
            self.gates |= {gate.key: gate for gate in shut}


KEYS = ("a", "b", "ö")
LANES = st.builds(
    Lane,
    st.just("q"),
    st.just("t"),
    keys=st.lists(st.sampled_from(KEYS), max_size=2, unique=True).map(tuple),
    limits=st.sampled_from([(), ("c",)]),
    breaker=st.sampled_from([None, "d"]),
)
LIMITS = st.builds(
    lambda concurrency, interval_us, burst, used, floor, pace: Gate(
        GateRule("", concurrency, interval_us, burst, floor=floor), used=used, pace=pace, paced_at_ms=T0
    ),
    st.sampled_from([None, 1, 2, 3, 5]),
    st.sampled_from([None, None, 1_000_000]),
    st.sampled_from([1, 2, 4, 9]),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([None, None, 1]),
    st.sampled_from([1_000, 1_000, 700, 333]),
)
BUDGETS = st.builds(
    lambda limit, unit, cap, spent, reserved_for: replace(
        limit,
        rule=replace(limit.rule, unit=unit, cap=cap, period="day"),
        period_ms=began_ms("day", T0),
        spent=spent,
        reserved_for=reserved_for,
    ),
    st.just(Gate(GateRule(""))) | LIMITS,
    st.sampled_from(["", "usd", "usd"]),
    st.sampled_from([None, 5, 10, 10]),
    st.sampled_from([0, 0, 3]),
    st.sampled_from([0, 0, 0, 6, 9]),
)
BREAKERS = st.sampled_from([0, T0 - 1, T0 - 1, T0 + 1]).map(
    lambda until_ms: Gate(GateRule("", breaker=BreakerRule()), open_until_ms=until_ms)
)
HOLDS = st.sampled_from([0, 0, 0, T0 + 1]).map(lambda until_ms: Gate(GateRule(""), held_until_ms=until_ms))
GATES = st.fixed_dictionaries(
    {
        **{f"limit:{key}": st.none() | LIMITS | BUDGETS for key in (*KEYS, "c")},
        "breaker:d": st.none() | BREAKERS,
        "task:t": HOLDS,
    }
)
POLICIES = st.sampled_from([Policy(), Policy(hard_timeout_ms=60_000)])
COSTS = st.sampled_from([1, 1, 1, 0, 2, 5])
PRICES: st.SearchStrategy[dict[str, int]] = st.sampled_from([{}, {"usd": 1}, {"usd": 4}, {"usd": 7}, {"eur": 9}])


@given(st.data())
def test_what_all_lanes_give_at_once_is_what_core_lets_them_give_in_order(floor: Floor, data: st.DataObject) -> None:
    floor.empty()
    drawn = data.draw(GATES).items()
    gates = {key: replace(gate, rule=replace(gate.rule, key=key)) for key, gate in drawn if gate is not None}
    lanes = [replace(lane, tenant=str(n)) for n, lane in enumerate(data.draw(st.lists(LANES, min_size=2, max_size=6)))]
    jobs = [
        Job(floor.ground.id(), lane, policy, b"{}", cost=cost, costs=costs)
        for lane, policy, cost, costs in data.draw(
            st.lists(st.tuples(st.sampled_from(lanes), POLICIES, COSTS, PRICES), min_size=5, max_size=20)
        )
    ]
    counts = {lane: data.draw(st.sampled_from([1, 3, 10])) for lane in dict.fromkeys(job.lane for job in jobs)}
    slots = data.draw(st.sampled_from([0, 1, 4, 100]))

    agree(floor, gates, jobs, counts, slots)


def test_a_breaker_remembers_the_token_of_its_own_probe(floor: Floor) -> None:
    floor.empty()
    gates = {
        "limit:a": Gate(GateRule("limit:a", concurrency=1)),
        "breaker:d": Gate(GateRule("breaker:d", breaker=BreakerRule()), open_until_ms=T0 - 1),
    }
    first, second = Lane("q", "t", keys=("a",)), Lane("q", "t", breaker="d", keys=("b",))
    jobs = [
        Job(floor.ground.id(), first, Policy(), b"{}"),
        Job(floor.ground.id(), second, Policy(hard_timeout_ms=1), b"{}"),
    ]
    agree(floor, gates, jobs, {first: 1, second: 1}, 2)
    assert Place(floor.schema).stored()["breaker:d"].probe_token == T0 * 2048 + 1


@pytest.mark.parametrize(("shut", "probed"), [("c", "d"), ("d", "c")])  # one of them comes before the other
def test_a_gate_that_lets_nobody_through_does_not_move_the_tokens_of_the_others(
    floor: Floor, shut: str, probed: str
) -> None:
    floor.empty()
    gates = {
        f"breaker:{name}": Gate(GateRule(f"breaker:{name}", breaker=BreakerRule()), open_until_ms=until_ms)
        for name, until_ms in ((shut, T0 + 1), (probed, T0 - 1))
    }
    lanes = [Lane("q", "t", tenant=name, breaker=name) for name in (shut, probed)]
    agree(floor, gates, [Job(floor.ground.id(), lane, Policy(), b"{}") for lane in lanes], dict.fromkeys(lanes, 1), 2)
    assert Place(floor.schema).stored()[f"breaker:{probed}"].probe_token == T0 * 2048


def test_a_costly_job_leaves_a_debt_to_the_lanes_behind_it(floor: Floor) -> None:
    floor.empty()
    gates = {"limit:a": Gate(GateRule("limit:a", interval_us=1_000_000, burst=3))}
    first, second = Lane("q", "t", keys=("a",)), Lane("q", "t", keys=("a", "b"))
    jobs = [Job(floor.ground.id(), lane, Policy(), b"{}", cost=2) for lane in (first, first, first, second)]
    agree(floor, gates, jobs, {first: 3, second: 1}, 9)
    assert floor.ground.one("SELECT count(*) FROM lp.running") == 2


DAILY = Gate(GateRule("limit:c", unit="usd", cap=10, period="day"))
RATED = Gate(GateRule("limit:a", interval_us=1_000_000, burst=2))
WIDE, NARROW = Lane("q", "t", limits=("c",), tenant="wide"), Lane("q", "t", limits=("c",), keys=("a",), tenant="narrow")
FREE = Lane("q", "t")


@pytest.mark.parametrize(
    ("gates", "lanes", "cost", "prices", "slots", "taken"),
    [
        pytest.param([DAILY], [WIDE, WIDE, NARROW], 1, [7, 7, 1], 9, 1, id="nobody passes a job that falls short"),
        pytest.param([DAILY, RATED], [NARROW, NARROW, WIDE], 2, [6, 6, 4], 9, 2, id="unless a rate stops it, too"),
        pytest.param([DAILY], [WIDE, NARROW], 1, [6, 6], 1, 1, id="or there is no slot for it"),
        pytest.param(
            [Gate(GateRule("task:t", unit="usd", cap=10, period="day"))], [FREE] * 3, 1, [1] * 3, 2, 2, id="a task"
        ),
    ],
)
def test_budgets_among_others(
    floor: Floor, gates: list[Gate], lanes: list[Lane], cost: int, prices: list[int], slots: int, taken: int
) -> None:
    floor.empty()
    jobs = [
        Job(floor.ground.id(), lane, Policy(), b"{}", cost=cost, costs={"usd": price})
        for lane, price in zip(lanes, prices, strict=True)
    ]
    agree(floor, {gate.key: gate for gate in gates}, jobs, Counter(lanes), slots)
    assert floor.ground.one("SELECT count(*) FROM lp.running") == taken


@pytest.mark.parametrize(("counts", "taken"), [((1, 2), 2), ((4, 0), 3)])
def test_what_is_left_of_a_slow_rate_is_counted_in_parts_of_tokens(
    floor: Floor, counts: tuple[int, int], taken: int
) -> None:
    floor.empty()
    gates = {"limit:a": Gate(GateRule("limit:a", interval_us=1_000_000, burst=4, floor=1), pace=700, paced_at_ms=T0)}
    lanes = {Lane("q", "t", keys=("a",)): counts[0], Lane("q", "t", keys=("a", "b")): counts[1]}
    jobs = [Job(floor.ground.id(), lane, Policy(), b"{}") for lane, count in lanes.items() for _ in range(count)]
    agree(floor, gates, jobs, {lane: count for lane, count in lanes.items() if count}, 9)
    assert floor.ground.one("SELECT count(*) FROM lp.running") == taken


def agree(floor: Floor, gates: dict[str, Gate], jobs: list[Job], counts: dict[Lane, int], slots: int) -> None:
    """Take up to so many of each of these lanes, and compare what that leaves with what core says."""
    model = Model(dict(gates), slots, {}, {})
    asked = {lane: min(count, max(0, model.room(lane))) for lane, count in counts.items()}
    for lane, count in asked.items():
        model.take(lane, [job for job in jobs if job.lane == lane][:count])
    floor.store(*gates.values())
    floor.put(*jobs)
    left = floor.ground.one(
        "SELECT lp.try_take(%s, %s, %s, %s)", [lane.id for lane in counts], list(counts.values()), slots, T0
    )
    assert Place(floor.schema).stored() == {key: marked(gates[key], gate, T0) for key, gate in model.gates.items()}
    assert left == model.slots
    running = {id: (token, sorted(each[:4] for each in taken or [])) for id, token, taken in floor.schema.ask(RUNNING)}
    expected = {id: (token, sorted(map(_listed, charged))) for id, (token, charged) in model.running.items()}
    assert running == expected
    assert not floor.schema.ask(ASTRAY, T0)


def test_a_gate_that_somebody_holds_stops_its_own_lanes_alone_and_nobody_waits(floor: Floor) -> None:
    floor.empty()
    floor.store(*(Gate(GateRule(f"limit:{key}", concurrency=9)) for key in "abc"))
    lanes = [Lane("q", "t", tenant=keys, keys=tuple(keys)) for keys in ("a", "ab", "b", "c")]
    floor.put(*(Job(floor.ground.id(), lane, Policy(), b"{}") for lane in lanes))
    with floor.ground.open() as other, floor.schema.connect(autocommit=True) as line:
        other.execute(floor.schema.sql("SELECT FROM lp.gate WHERE key = 'limit:a' FOR UPDATE"))
        assert floor.claim(line, 4) == (2, True)
        other.rollback()
        assert floor.claim(line, 5) == (2, False)


def _listed(charge: Charge) -> list[Any]:
    return [charge.gate, charge.slot, charge.cost, charge.probe]


@pytest.mark.parametrize("room", [1, 0], ids=["open", "shut"])
def test_a_claim_makes_as_many_looks_for_many_lanes_as_for_few(telling_floor: Floor, room: int) -> None:
    floor = telling_floor
    schema, looks = floor.schema, dict[int, int]()
    with schema.connect(autocommit=True) as line:
        heard = overheard(line)
        for count in (4, 40):
            floor.empty()
            floor.store(*(Gate(GateRule(f"limit:{n}", concurrency=1), used=1 - room) for n in range(count)))
            lanes = [Lane("q", "t", tenant=str(n), keys=(str(n),)) for n in range(count)]
            floor.put(*(Job(floor.ground.id(), lane, Policy(), b"{}") for lane in lanes))
            line.execute("SELECT setseed(0)")  # floors are looked at by chance
            heard.clear()
            assert floor.claim(line, count) == (count * room, False)
            looks[count] = len(heard)
            assert not schema.ask("SELECT 1 FROM lp.lane_now WHERE state = 1"), "they rest, or wait"
    assert looks[4] == looks[40]
