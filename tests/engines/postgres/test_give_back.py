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
    reported_cost,
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
  array_agg(jsonb_populate_record(NULL::lp.fate, f)), array_agg((f -> 'kind')::smallint), array_agg(f -> 'spent'),
  true, %s
) FROM jsonb_array_elements(%s) AS f
"""
EVENTS = "DELETE FROM lp.log RETURNING kind, convert_from(data, 'UTF8')::json, seq"
SUCCEED, HOLD, TRIP = 0, 6, 9  # kinds of lp.outcome
UNFINISHED = (5, HOLD, 8, TRIP)
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


class Fate(Struct):
    """The part of a job's fate that concerns gates, the kind of its outcome, and what it cost in truth."""

    token: int
    verdict: Verdict
    unstarted: bool
    claimed_ms: int
    charged: list[Charge] | None
    hold_gate: str | None = None
    hold_until: int | None = None
    kind: int = SUCCEED
    spent: dict[str, int] | None = None


CHARGES = st.builds(
    Charge, st.sampled_from(KEYS), st.booleans(), st.integers(0, 3), st.sampled_from([False, False, True])
)
FATES = st.builds(
    Fate,
    token=st.sampled_from([PROBE, PROBE + 1]),
    verdict=VERDICTS,
    unstarted=st.sampled_from([False, False, True]),
    claimed_ms=st.sampled_from([T0, T0, T0 - 5]),
    charged=st.none() | st.lists(CHARGES, min_size=1, max_size=3, unique_by=lambda charge: charge.gate),
    kind=st.sampled_from([SUCCEED, 1, 5, 8]),
    spent=st.sampled_from([None, None, {}, {"": 2}, {"usd": 5}, {"": 0, "usd": 0}]),
)
HELD = st.builds(
    replace,
    FATES,
    kind=st.sampled_from([HOLD, TRIP]),
    hold_gate=st.sampled_from(KEYS),
    hold_until=st.integers(T0, T0 + 5_000),
)


def expected(gates: dict[str, Gate], fates: list[Fate], now_ms: int) -> dict[str, Gate]:
    """The gates after these ends, one after the other."""
    gates, returned = dict(gates), dict[str, Counter[int]]()
    for fate in fates:
        if fate.hold_gate is not None and fate.hold_until is not None:
            gate = gates.get(fate.hold_gate, Gate(GateRule(fate.hold_gate)))
            shut = cut_off if fate.kind == TRIP else push_back
            gates[fate.hold_gate] = shut(gate, fate.hold_until, fate.token, now_ms)
        for taken in fate.charged or ():
            if (found := gates.get(taken.gate)) is not None:
                spent, unfinished = fate.spent or {}, fate.kind in UNFINISHED
                actual = 0 if fate.unstarted else reported_cost(found.rule, spent, unfinished=unfinished)
                beside = returned.setdefault(taken.gate, Counter())
                gates[taken.gate] = give_back(
                    found,
                    taken,
                    token=fate.token,
                    verdict=fate.verdict,
                    unstarted=fate.unstarted,
                    now_ms=now_ms,
                    charged_at_ms=fate.claimed_ms,
                    actual_cost=actual,
                    refunded_in_this_batch=beside,
                )
                beside[fate.claimed_ms] += returned_us(found, taken, actual, fate.claimed_ms)
    return gates


@given(
    st.dictionaries(st.sampled_from(KEYS), GATES),
    st.lists(FATES | FATES | HELD, max_size=12),
    st.sets(st.sampled_from(KEYS)),
    st.sampled_from([0, 10, 3_000]),
)
def test_any_ends_leave_the_gates_that_core_says(
    schema: Schema, drawn: dict[str, Gate], fates: list[Fate], waiting: set[str], later_ms: int
) -> None:
    place, now_ms = Place(schema).empty(), T0 + later_ms
    gates = {}
    for key, gate in drawn.items():
        places = sum(charge.slot for fate in fates for charge in fate.charged or () if charge.gate == key)
        gates[key] = replace(gate, rule=replace(gate.rule, key=key), used=gate.used + places)
    schema.ask(STORE, now_ms, json_of([columns(gate) for gate in gates.values()]))
    schema.run("DELETE FROM lp.post")
    place.waiting(*waiting)

    after = {key: marked(gates.get(key), gate, now_ms) for key, gate in expected(gates, fates, now_ms).items()}
    schema.ask(GIVE_BACK, now_ms, json_of(fates))
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
    fates = [Fate(1, verdict, False, T0, [Charge(key) for key in KEYS]) for verdict in verdicts]
    schema.ask(STORE, T0, json_of([columns(gate) for gate in gates]))
    schema.ask(GIVE_BACK, T0, json_of(fates))
    assert place.stored() == expected({gate.key: gate for gate in gates}, fates, T0)


def test_a_slow_ceiling_that_has_a_place_again_is_told(schema: Schema) -> None:
    place, gate = Place(schema).empty(), Gate(GateRule("limit:a", concurrency=4), used=2, pace=500, paced_at_ms=T0)
    schema.ask(STORE, T0, json_of([columns(gate)]))
    schema.ask(GIVE_BACK, T0, json_of([Fate(1, "ok", False, T0, [Charge("limit:a", slot=True)])]))
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
