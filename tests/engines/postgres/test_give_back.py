"""What jobs took comes back to their gates as core says, in the order of their ends, at a cost that is theirs alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import permutations
from operator import itemgetter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from limpet.core.endings.effect import SUCCEEDED, Effect, actual_cost
from limpet.core.endings.transition import Succeed
from limpet.core.gate import (
    BreakerRule,
    Charge,
    Gate,
    GateRule,
    Verdict,
    cut_off,
    give_back,
    opens_sooner,
    push_back,
    returned_us,
    room,
)
from limpet.core.text.gate_events import marked, news
from limpet_contract.gate_vectors import T0
from tests.engines.postgres.plans import nodes, overheard
from tests.engines.postgres.races import Ground
from tests.engines.postgres.schemas import Schema, fresh_schema
from tests.engines.postgres.test_gate_changes import Place
from tests.engines.postgres.test_gate_vectors import GATES, VERDICTS, columns, json_of
from tests.servers.installations import COMPLETE, POSTGRES

STORE = """
SELECT lp.put_gate(NULL, jsonb_populate_record(lp.gate_new(g ->> 'key'), g), %s) FROM jsonb_array_elements(%s) AS g
"""
GIVE_BACK = """
SELECT lp.give_back(
  array_agg(ROW(
    e.at, jsonb_populate_record(NULL::lp.running, e.said -> 'head'), lp.to_effect(e.said -> 'effect'), NULL,
    e.said -> 'spent'
  )::lp.leaving ORDER BY e.at), true, %s
) FROM jsonb_array_elements(%s) WITH ORDINALITY AS e (said, at)
"""
EVENTS = "DELETE FROM lp.log RETURNING kind, convert_from(data, 'UTF8')::json, seq"
KEYS = ("limit:a", "limit:b", "limit:ö", "breaker:c")
PROBE = T0 * 2048


@pytest.fixture(scope="module")
def schema() -> Iterator[Schema]:
    with fresh_schema(POSTGRES, rooms="99") as schema:
        yield schema


@pytest.fixture(scope="module")
def telling_schema() -> Iterator[Schema]:
    """A schema whose server can tell what it did."""
    with fresh_schema(COMPLETE, rooms="99") as schema:
        yield schema


class Head(Struct):
    """The part of a running job that concerns gates."""

    token: int
    claimed_ms: int
    charged: list[Charge] | None


class End(Struct):
    """A job that has left `running`, with its effect, and what it cost in truth."""

    head: Head
    effect: Effect
    spent: dict[str, int] | None = None


def ended(verdict: Verdict, *charges: Charge) -> End:
    return End(Head(1, T0, list(charges)), Effect(SUCCEEDED, "succeeded", verdict=verdict))


CHARGES = st.builds(
    Charge, st.sampled_from(KEYS), st.booleans(), st.integers(0, 3), st.sampled_from([False, False, True])
)
EFFECTS = st.builds(
    Effect,
    state=st.just(SUCCEEDED),
    word=st.just("succeeded"),
    verdict=VERDICTS,
    refund=st.sampled_from(["nothing", "nothing", "unsaid", "all"]),
)
HOLDING = st.builds(
    replace,
    EFFECTS,
    gate=st.sampled_from(KEYS),
    gate_ms=st.integers(0, 5_000),
    trips=st.booleans(),
)
ENDS = st.builds(
    End,
    st.builds(
        Head,
        token=st.sampled_from([PROBE, PROBE + 1]),
        claimed_ms=st.sampled_from([T0, T0, T0 - 5]),
        charged=st.none() | st.lists(CHARGES, min_size=1, max_size=3, unique_by=lambda charge: charge.gate),
    ),
    EFFECTS | EFFECTS | HOLDING,
    st.sampled_from([None, None, {}, {"": 2}, {"usd": 5}, {"": 0, "usd": 0}]),
)


def expected(gates: dict[str, Gate], ends: list[End], now_ms: int) -> dict[str, Gate]:
    """The gates after these ends, one after the other."""
    gates, returned = dict(gates), dict[str, Counter[int]]()
    for end in ends:
        head, effect = end.head, end.effect
        if effect.gate:
            gate = gates.get(effect.gate, Gate(GateRule(effect.gate)))
            shut = cut_off if effect.trips else push_back
            gates[effect.gate] = shut(gate, now_ms + effect.gate_ms, head.token, now_ms)
        for taken in head.charged or ():
            if (found := gates.get(taken.gate)) is not None:
                actual = actual_cost(effect, found.rule, end.spent or {})
                beside = returned.setdefault(taken.gate, Counter())
                gates[taken.gate] = give_back(
                    found,
                    taken,
                    token=head.token,
                    verdict=effect.verdict,
                    unstarted=effect.refund == "all",
                    now_ms=now_ms,
                    charged_at_ms=head.claimed_ms,
                    actual_cost=actual,
                    refunded_in_this_batch=beside,
                )
                beside[head.claimed_ms] += returned_us(found, taken, actual, head.claimed_ms)
    return gates


@given(
    st.dictionaries(st.sampled_from(KEYS), GATES),
    st.lists(ENDS, max_size=12),
    st.sets(st.sampled_from(KEYS)),
    st.sampled_from([0, 10, 3_000]),
)
def test_any_ends_leave_the_gates_that_core_says(
    schema: Schema, drawn: dict[str, Gate], ends: list[End], waiting: set[str], later_ms: int
) -> None:
    place, now_ms = Place(schema).empty(), T0 + later_ms
    gates = {}
    for key, gate in drawn.items():
        places = sum(charge.slot for end in ends for charge in end.head.charged or () if charge.gate == key)
        gates[key] = replace(gate, rule=replace(gate.rule, key=key), used=gate.used + places)
    schema.ask(STORE, now_ms, json_of([columns(gate) for gate in gates.values()]))
    schema.run("DELETE FROM lp.post")
    place.waiting(*waiting)

    after = {key: marked(gates.get(key), gate, now_ms) for key, gate in expected(gates, ends, now_ms).items()}
    schema.ask(GIVE_BACK, now_ms, json_of(ends))
    assert place.stored() == after
    told = [
        (event.kind, msgspec.json.decode(event.data))
        for key in sorted(after, key=str.encode)
        for event in news(gates.get(key), after[key], now_ms)
    ]
    assert [(kind, facts) for kind, facts, _ in sorted(schema.ask(EVENTS), key=itemgetter(2))] == told

    posted = place.posted()
    opened = {
        key
        for key, gate in gates.items()
        if room(gate, now_ms) <= 0 < room(after[key], now_ms) or opens_sooner(gate, after[key], now_ms)
    }
    changed = {key for key in gates if gates[key] != after[key]}
    assert len(posted) == len(set(posted))
    assert opened | (changed & waiting) <= set(posted) <= opened | waiting


@pytest.mark.parametrize("verdicts", sorted(set(permutations(["ok", "failed", "failed"]))))
def test_a_breaker_learns_from_ends_in_their_order(schema: Schema, verdicts: tuple[Verdict, ...]) -> None:
    place, gates = Place(schema).empty(), [Gate(GateRule(key, breaker=BreakerRule(failures=3))) for key in KEYS]
    ends = [ended(verdict, *(Charge(key) for key in KEYS)) for verdict in verdicts]
    schema.ask(STORE, T0, json_of([columns(gate) for gate in gates]))
    schema.ask(GIVE_BACK, T0, json_of(ends))
    assert place.stored() == expected({gate.key: gate for gate in gates}, ends, T0)


def test_a_slow_ceiling_that_has_a_place_again_is_told(schema: Schema) -> None:
    place, gate = Place(schema).empty(), Gate(GateRule("limit:a", concurrency=4), used=2, pace=500, paced_at_ms=T0)
    schema.ask(STORE, T0, json_of([columns(gate)]))
    schema.ask(GIVE_BACK, T0, json_of([ended("ok", Charge("limit:a", slot=True))]))
    assert place.posted() == ["limit:a"]


def test_the_cost_of_an_end_does_not_grow_with_the_gates_of_others(telling_schema: Schema) -> None:
    schema = telling_schema
    place, ground, costs = Place(schema).empty(), Ground(schema), dict[int, float]()
    with schema.connect(autocommit=True) as line:
        heard = overheard(line)
        for count in (20, 80):
            gates = [f"limit:{count}/{n}" for n in range(count)]
            schema.ask(STORE, T0, json_of([columns(Gate(GateRule(key, concurrency=1), used=1)) for key in gates]))
            jobs = [ground.running(token=count, charged=json_of([Charge(key, slot=True)])) for key in gates]
            heard.clear()
            ground.settle(*(Succeed(*job) for job in jobs), line=line)
            rows = [node["Actual Rows"] * node["Actual Loops"] for _, plan in heard for node in nodes(plan)]
            costs[count] = sum(rows) / count
            assert {gate.used for gate in place.stored().values()} == {0}
    assert costs[80] < costs[20] * 1.1, costs
