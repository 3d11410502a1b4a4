"""The gates of the PostgreSQL functions are those of core: by the shared vectors, and for any history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.gate import (
    FOREVER_MS,
    FULL_PACE,
    MOST,
    BreakerRule,
    Charge,
    Gate,
    GateChange,
    GateRule,
    Verdict,
    admits,
    apply_change,
    charge,
    cut_off,
    falls_short,
    give_back,
    is_blank,
    opens_at_ms,
    push_back,
    room,
    tokens,
)
from limpet.core.limits.period import DAY_MS, HOUR_MS, PERIODS, Period, began_ms, ends_ms
from limpet.core.text.gate_events import marked, news
from limpet_contract.budget_vectors import BUDGETS
from limpet_contract.gate_vectors import PAUSE, T0, VECTORS, Ask, Change, CutOff, End, PushBack, Vector
from limpet_contract.pace_vectors import PACES
from limpet_contract.seeds import chance_of
from tests.engines import gate_corners
from tests.engines.postgres.schemas import Schema, fresh_schema
from tests.servers.installations import POSTGRES

# Runs steps on one gate, storing it after each as a claim would; answers what it said, how it looks, and what is news.
STEPS = """
CREATE FUNCTION lp.try_steps(p_gate jsonb, p_steps jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  v_gate lp.gate := jsonb_populate_record(lp.gate_new(p_gate ->> 'key'), p_gate);
  v_step jsonb;
  v_now bigint;
  v_costs bigint[];
  v_rate_room bigint;
  v_budget_room bigint;
  v_passed integer;
  v_sum bigint;
  v_reserved_for bigint;
  v_actual_cost bigint;
  v_charged_at bigint;
  v_before lp.gate;
  v_said json;
  v_answers json[] := '{}';
BEGIN
  PERFORM lp.put_gate(NULL, v_gate, 0);
  FOR v_step IN SELECT s FROM jsonb_array_elements(p_steps) AS s LOOP
    SELECT * INTO v_gate FROM lp.gate_lock(ARRAY[v_gate.key]);
    v_now := (v_step ->> 1)::bigint;
    v_before := v_gate;
    v_said := '[]';
    IF v_step ->> 0 = 'ask' THEN
      v_costs := ARRAY(SELECT c::bigint FROM jsonb_array_elements_text(v_step -> 2) AS c);
      v_rate_room := CASE WHEN v_gate.interval_us IS NOT NULL THEN lp.gate_rate_room(v_gate, v_now) END;
      v_budget_room := CASE WHEN v_gate.cap IS NOT NULL THEN lp.gate_budget_room(v_gate, v_now) END;
      v_passed := lp.admitted(lp.gate_places(v_gate, v_now), v_rate_room, v_budget_room, v_costs);
      v_sum := (SELECT coalesce(sum(c), 0) FROM unnest(v_costs[1 : v_passed]) AS c);
      v_reserved_for := CASE WHEN v_gate.cap IS NOT NULL AND v_passed < cardinality(v_costs) THEN
        lp.falls_short(lp.gate_budget_left(v_gate, v_now) - v_sum, v_costs[v_passed + 1])
      END;
      v_costs := v_costs[1 : v_passed];
      PERFORM lp.charge_gates(
        ARRAY[v_gate.key], ARRAY[v_passed], ARRAY[v_sum], ARRAY[(v_step ->> 3)::bigint], v_now
      );
      PERFORM lp.reserve_budgets(ARRAY[v_gate.key], ARRAY[v_passed], ARRAY[v_sum], ARRAY[v_reserved_for], v_now);
      SELECT * INTO v_gate FROM lp.gate_lock(ARRAY[v_gate.key]);
      v_said := json_build_array(
        lp.gate_room(v_before, v_now), lp.gate_tokens(v_before, v_now), v_passed,
        lp.gate_is_blank(v_before, v_now),
        array_to_json(
          array_remove(ARRAY(SELECT (lp.gate_taken(v_before, c::int, v_now) - 5 - 4) FROM unnest(v_costs) AS c), NULL)
        ),
        lp.gate_opens_at(v_gate, v_now)
      );
    ELSIF v_step ->> 0 = 'end' THEN
      v_actual_cost := CASE WHEN (v_step ->> 5)::boolean THEN 0 ELSE (v_step ->> 7)::bigint END;
      v_charged_at := v_step ->> 6;
      v_gate := lp.gate_give_back(
        v_gate, v_step -> 2, (v_step ->> 3)::bigint, v_step ->> 4, v_actual_cost, v_now, v_charged_at,
        lp.refundable_us(
          ARRAY[v_charged_at], ARRAY[lp.gate_returned(v_gate, v_step -> 2, v_actual_cost, v_charged_at)], v_now
        )
      );
      PERFORM lp.log_gate_events(v_before, v_gate, true, v_now);
    ELSIF v_step ->> 0 = 'push_back' THEN
      v_gate := lp.gate_push_back(v_gate, (v_step ->> 2)::bigint, (v_step ->> 3)::bigint, v_now);
      PERFORM lp.log_gate_events(v_before, v_gate, true, v_now);
    ELSIF v_step ->> 0 = 'cut_off' THEN
      v_gate := lp.gate_cut_off(v_gate, (v_step ->> 2)::bigint, (v_step ->> 3)::bigint, v_now);
      PERFORM lp.log_gate_events(v_before, v_gate, true, v_now);
    ELSE
      v_gate := lp.gate_apply(v_gate, v_step -> 2, v_now);
      PERFORM lp.log_gate_events(v_before, v_gate, false, v_now);
    END IF;
    PERFORM lp.put_gate(v_before, v_gate, v_now);
    SELECT * INTO v_gate FROM lp.gate_lock(ARRAY[v_gate.key]);
    v_answers := v_answers || json_build_array(v_said, lp.gate_json(v_gate), array_to_json(ARRAY(
      SELECT json_build_array(e.at_ms, e.kind, convert_from(e.data, 'UTF8')::json) FROM lp.log AS e ORDER BY e.seq
    )));
    DELETE FROM lp.log;
  END LOOP;
  DELETE FROM lp.gate;
  RETURN array_to_json(v_answers);
END $$;
"""


@pytest.fixture(scope="module")
def schema() -> Iterator[Schema]:
    with fresh_schema(POSTGRES, rooms="22") as schema:
        schema.run(STEPS)
        yield schema


def columns(gate: Gate) -> dict[str, Any]:
    """The gate as the table's columns name its parts."""
    row: dict[str, Any] = msgspec.structs.asdict(gate)
    rule: GateRule = row.pop("rule")
    pause = row.pop("paused")
    row |= {name: value for name, value in msgspec.structs.asdict(rule).items() if name != "breaker"}
    if rule.breaker is not None:
        row |= {f"breaker_{name}": value for name, value in msgspec.structs.asdict(rule.breaker).items()}
    if pause is not None:
        row |= {f"paused_{name}": value for name, value in msgspec.structs.asdict(pause).items()}
    return row


def json_of(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def run_steps(schema: Schema, gate: Gate, steps: list[Any]) -> list[tuple[Any, Gate, Any]]:
    """What the server's gate answers to each step, what it is after it, and what is news about that."""
    [(answer,)] = schema.ask("SELECT lp.try_steps(%s, %s)", json_of(columns(gate)), json_of(steps))
    return msgspec.json.decode(answer, type=list[tuple[Any, Gate, Any]])


REFUSALS = {PushBack: ("push_back", push_back), CutOff: ("cut_off", cut_off)}


class Story:
    """One gate of core, and the steps that are to be taken again on the server."""

    def __init__(self, gate: Gate) -> None:
        self.first = self.gate = gate
        self.jobs: list[tuple[int, int | None, Charge | None]] = []  # (token, when, what it was charged)
        self.steps: list[Any] = []
        self.expected: list[tuple[Any, Gate, Any]] = []

    def ask(self, at_ms: int, costs: tuple[int, ...]) -> None:
        before, token, count = self.gate, at_ms * 2048 + len(self.steps), admits(self.gate, list(costs), at_ms)
        said: list[Any] = [room(self.gate, at_ms), tokens(self.gate, at_ms), count, is_blank(self.gate, at_ms)]
        self.gate, charges = charge(self.gate, list(costs[:count]), token, at_ms)
        self.jobs += [(token, at_ms, charges[n] if charges else None) for n in range(count)]
        if count < len(costs):
            self.gate = falls_short(self.gate, costs[count], at_ms)
        said += [[[c.gate, c.slot, c.cost, c.probe] for c in charges], opens_at_ms(self.gate, at_ms)]
        self._note(["ask", at_ms, costs, token], said, before)

    def end(self, step: End) -> None:
        token, charged_at_ms, taken = self.jobs[step.job]
        if taken is None:
            return
        before = self.gate
        self.gate = give_back(
            self.gate,
            taken,
            token=token,
            verdict=step.verdict,
            unstarted=step.unstarted,
            now_ms=step.at_ms,
            charged_at_ms=charged_at_ms,
            actual_cost=step.actual_cost,
        )
        charged = [taken, token, step.verdict, step.unstarted, charged_at_ms, step.actual_cost]
        self._note(["end", step.at_ms, *charged], [], before)

    def refuse(self, step: PushBack | CutOff) -> None:
        token, _, _ = self.jobs[step.job]
        before, (name, refused) = self.gate, REFUSALS[type(step)]
        self.gate = refused(before, step.until_ms, token, step.at_ms)
        self._note([name, step.at_ms, step.until_ms, token], [], before)

    def change(self, step: Change) -> None:
        before = self.gate
        self.gate = apply_change(self.gate, step.change, step.at_ms)
        self._note(["change", step.at_ms, step.change], [], before)

    def _note(self, step: list[Any], said: list[Any], before: Gate) -> None:
        told = [[each.at_ms, each.kind, msgspec.json.decode(each.data)] for each in news(before, self.gate, step[1])]
        self.gate = marked(before, self.gate, step[1])
        self.steps.append(step)
        self.expected.append((said, self.gate, told))

    def check(self, schema: Schema) -> None:
        found = run_steps(schema, self.first, self.steps)
        for step, (said, gate, told), (expected, after, events) in zip(self.steps, found, self.expected, strict=True):
            assert said == expected, step
            assert gate == after, step
            assert told == events, step


@pytest.mark.parametrize("vector", [*VECTORS, *BUDGETS, *PACES], ids=lambda vector: vector.name)
def test_the_vectors(schema: Schema, vector: Vector) -> None:
    story, admitted = Story(Gate(vector.rule)), []
    for step in vector.steps:
        match step:
            case Ask():
                story.ask(step.at_ms, step.costs)
                admitted.append((step, len(story.steps) - 1))
            case End():
                story.end(step)
            case PushBack() | CutOff():
                story.refuse(step)
                story.end(End(step.at_ms, step.job))
            case Change():
                story.change(step)
    found = run_steps(schema, story.first, story.steps)
    for ask, number in admitted:
        _, _, count, _, charges, opens = found[number][0]
        assert count == ask.admitted, ask
        assert any(charge[3] for charge in charges) == ask.probe, ask
        if count < len(ask.costs):
            assert opens == ask.opens_at_ms, ask
    story.check(schema)


def some(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


ALL_PERIODS: tuple[Period, ...] = get_args(Period)
COSTS = st.lists(st.integers(0, 9) | st.integers(0, 100_000), max_size=6).map(tuple) | st.integers(0, 6).map(
    lambda count: (1,) * count
)
WAITS = st.integers(0, 5) | st.integers(0, 3_000) | st.sampled_from([600_000, HOUR_MS, DAY_MS, 31 * DAY_MS])
RATES = st.sampled_from([0.0, 1.0, 0.5, 0.1, 0.07, 1 / 3, 2 / 3, 0.1 + 0.2]) | st.floats(0, 1)
BREAKERS = st.builds(
    BreakerRule,
    failures=st.integers(0, 5),
    within_ms=st.sampled_from([0, 1, 1_000, 60_000]),
    cooldown_ms=st.sampled_from([100, 60_000]),
    probe_after_ms=st.sampled_from([10, 60_000]),
    rate=some(RATES),
    min_calls=st.integers(0, 6) | st.just(20),
)
RULES = st.builds(
    GateRule,
    st.just("limit:k"),
    concurrency=some(st.integers(1, 12) | st.just(1 << 40)),
    interval_us=some(st.integers(1, 100) | st.integers(1, 3_000_000) | st.integers(1, gate_corners.YEAR_US)),
    burst=st.integers(1, 20) | st.integers(1, 1 << 40) | st.just(100_000),
    breaker=some(BREAKERS),
    default_for_429=st.booleans(),
    unit=st.sampled_from(["", "usd"]),
    floor=some(st.integers(1, 1_000)),
    climb_ms=st.sampled_from([1, 1_000, 60_000, DAY_MS]) | st.integers(1, 100_000),
    cap=some(st.integers(0, 20) | st.integers(0, MOST)),
    period=some(st.sampled_from(PERIODS)),
)
INSTANTS = st.just(0) | st.integers(T0 - 3_000, T0 + 3_000) | st.just(FOREVER_MS)
GATES = st.builds(
    Gate,
    RULES,
    declared=st.booleans(),
    paused=st.sampled_from([None, None, None, PAUSE]),
    draining=st.booleans(),
    used=st.integers(0, 6),
    full_at_us=st.sampled_from([0, T0 * 1000])
    | st.integers((T0 - 1_000) * 1000, (T0 + 20_000) * 1000)
    | st.integers(T0 * 1000, MOST),
    held_until_ms=INSTANTS,
    failed_at_ms=st.lists(st.integers(T0 - 3_000, T0), max_size=4).map(lambda at: tuple(sorted(at))),
    calls=st.just((0, 0, 0, 0))
    | st.tuples(
        st.integers(T0 // 500 - 2, T0 // 500 + 1),
        st.integers(0, 9) | st.integers(0, 1 << 24),
        st.integers(0, 9) | st.integers(0, 1 << 22),
        st.integers(0, 1 << 44),
    ),
    open_until_ms=INSTANTS,
    probe_token=st.sampled_from([0, 0, T0 * 2048]),
    opened=st.integers(0, 1 << 33),
    pace=st.sampled_from([0, 1, 999, FULL_PACE, FULL_PACE]) | st.integers(0, FULL_PACE),
    paced_at_ms=INSTANTS,
    ceiling=st.just(FULL_PACE) | st.integers(1, FULL_PACE),
    last_cut_token=st.sampled_from([0, 0, (T0 + 1) * 2048 - 1]),
    period_ms=st.just(0) | st.sampled_from([began_ms(period, T0) for period in ALL_PERIODS]),
    spent=st.integers(0, 25) | st.integers(0, MOST),
    reserved_for=st.integers(0, 12),
)
VERDICTS: st.SearchStrategy[Verdict] = st.sampled_from(["ok", "failed", "failed", "neutral"])
MILLISECONDS = st.sampled_from([0, 10, 5_000, FOREVER_MS])
CHANGES = st.builds(
    GateChange,
    st.just("limit:k"),
    rule=some(RULES),
    declared=st.booleans(),
    clear=st.booleans(),
    pause=st.sampled_from([None, None, PAUSE]),
    resume=st.booleans(),
    drain=some(st.booleans()),
    hold_ms=some(MILLISECONDS),
    ceiling=some(st.sampled_from([0, 500, FULL_PACE, 2_000])),
    trip_ms=some(MILLISECONDS),
    reset=st.booleans(),
)


@given(st.data())
def test_any_history_of_a_gate_is_that_of_core(schema: Schema, data: st.DataObject) -> None:
    story, now_ms = Story(data.draw(GATES)), T0
    for _ in range(data.draw(st.integers(1, 20))):
        now_ms += data.draw(WAITS)
        what = data.draw(st.sampled_from(["ask", "ask", "end", "end", "end", PushBack, CutOff, "change"]))
        if what == "ask":
            story.ask(now_ms, data.draw(COSTS))
        elif what == "change":
            story.change(Change(now_ms, data.draw(CHANGES)))
        elif story.jobs:
            job, verdict = data.draw(st.integers(0, len(story.jobs) - 1)), data.draw(VERDICTS)
            if what in (PushBack, CutOff):
                story.refuse(what(now_ms, job, now_ms + data.draw(WAITS)))
            actual = data.draw(some(st.integers(0, 30) | st.integers(0, 1 << 40)))
            story.end(End(now_ms, job, verdict, unstarted=data.draw(st.booleans()), actual_cost=actual))
    story.check(schema)


@pytest.mark.parametrize("interval_us", gate_corners.INTERVALS)
def test_rates_at_the_ends_of_what_can_be_stored_are_those_of_core(schema: Schema, interval_us: int) -> None:
    chance = chance_of(interval_us)
    for before, after in gate_corners.pairs():
        if before[0] == interval_us:
            story = Story(gate_corners.gate_at(*before, chance))
            gate_corners.live(story, *after, chance)
            story.check(schema)


def test_more_calls_than_a_breaker_remembers_are_counted_as_in_core(schema: Schema) -> None:
    for gate in gate_corners.counted_much():
        story = Story(gate)
        gate_corners.fail(story)
        story.check(schema)


@pytest.mark.parametrize("beside_us", [-1, 0, 1])
def test_a_bucket_is_full_at_its_very_instant(schema: Schema, beside_us: int) -> None:
    story = Story(Gate(GateRule("limit:k", interval_us=100_000, burst=3), full_at_us=T0 * 1000 + beside_us))
    story.ask(T0, (1, 1, 1, 1))
    story.check(schema)


def test_a_pace_that_is_cut_under_a_longer_hold_is_news(schema: Schema) -> None:
    story = Story(Gate(GateRule("limit:k", concurrency=8, floor=100), held_until_ms=T0 + 5_000))
    story.jobs.append((1, T0, None))
    story.refuse(PushBack(T0, 0, T0 + 1_000))
    story.check(schema)


COUNTED = GateRule("limit:k", concurrency=2, interval_us=1_000_000, breaker=BreakerRule(failures=3, within_ms=1_000))
RARE_ENDS: dict[str, tuple[Gate, int | None, Charge]] = {  # the gate, when the job was charged, what
    "a slot when none is taken": (Gate(COUNTED), T0, Charge("limit:k", slot=True)),
    "a token, charged nobody knows when": (Gate(COUNTED, full_at_us=T0 * 1000), None, Charge("limit:k", cost=2)),
    "a token, charged by a clock ahead": (Gate(COUNTED, full_at_us=T0 * 1000), T0 + 5, Charge("limit:k", cost=2)),
    "no probe, by the token of one": (Gate(COUNTED, open_until_ms=T0, probe_token=1), T0, Charge("limit:k")),
    "a probe, by the token of none": (Gate(COUNTED, open_until_ms=T0), 0, Charge("limit:k", probe=True)),
}


@pytest.mark.parametrize("verdict", ["ok", "failed", "neutral"])
@pytest.mark.parametrize("rare", RARE_ENDS)
def test_ends_that_histories_seldom_meet(schema: Schema, rare: str, verdict: Verdict) -> None:
    gate, charged_at_ms, charge = RARE_ENDS[rare]
    story = Story(gate)
    story.jobs.append((1, charged_at_ms, charge))
    story.end(End(T0, 0, verdict, unstarted=True))
    story.check(schema)


RATED = GateRule("limit:k", breaker=BreakerRule(within_ms=1_000, rate=0.5))


@pytest.mark.parametrize("at_ms", [T0 + 999, T0 + 1_000, T0 + 1_001, T0 + 1_500])
@pytest.mark.parametrize(
    "gate",
    [
        Gate(COUNTED, failed_at_ms=(T0 - 1, T0)),
        Gate(RATED, calls=(T0 // 500, 1, 0, 0)),
        Gate(RATED, calls=(T0 // 500, 0, 0, 0)),
        Gate(COUNTED, held_until_ms=T0 + 1_000),
        Gate(COUNTED, full_at_us=(T0 + 1_000) * 1000),
    ],
)
def test_a_gate_is_blank_from_the_instant_at_which_it_remembers_nothing(schema: Schema, gate: Gate, at_ms: int) -> None:
    story = Story(gate)
    story.ask(at_ms, ())
    story.check(schema)


@given(RATES, st.integers(1, 1 << 24), st.integers(-2, 2))
def test_a_share_is_compared_as_core_compares_it(schema: Schema, rate: float, all_calls: int, beside: int) -> None:
    failures = min(all_calls, max(1, round(rate * all_calls) + beside))
    window = T0 // 500
    rule = GateRule("limit:k", breaker=BreakerRule(within_ms=1_000, rate=rate, min_calls=1))
    story = Story(Gate(rule, calls=(window, all_calls - 1, failures - 1, 0)))
    story.jobs.append((1, T0, Charge("limit:k")))
    story.end(End(T0, 0, "failed"))
    story.check(schema)


def test_a_change_to_an_unknown_gate_makes_one_that_allows_all(schema: Schema) -> None:
    change = GateChange("queue:q", drain=True)
    [(stored,)] = schema.ask("SELECT lp.gate_json(lp.gate_apply(NULL, %s, %s))::text", json_of(change), T0)
    assert msgspec.json.decode(stored, type=Gate) == apply_change(None, change, T0)


def test_a_change_may_leave_out_what_it_does_not_mean(schema: Schema) -> None:
    change = '{"key": "limit:k", "rule": {"key": "limit:k", "breaker": {}}}'
    [(stored,)] = schema.ask("SELECT lp.gate_json(lp.gate_apply(NULL, %s, %s))::text", change, T0)
    rule = GateRule("limit:k", breaker=BreakerRule())
    assert msgspec.json.decode(stored, type=Gate) == Gate(rule, declared=False)


WILD = [(1 << 62, 1 << 62), (6 * 10**18, 2), (1, 1 << 62), (1 << 62, 1)]  # interval, burst


@pytest.mark.parametrize("cost", [1, 2**31 - 1])
@pytest.mark.parametrize(("interval_us", "burst"), WILD)
def test_a_wild_rule_stops_nobody_who_claims(schema: Schema, interval_us: int, burst: int, cost: int) -> None:
    gate = Gate(GateRule("limit:k", interval_us=interval_us, burst=burst, cap=(1 << 63) - 1, period="day"))
    ask: list[Any] = ["ask", T0, [cost], 1]
    end = ["end", T0, ["limit:k", False, cost, False], 1, "neutral", True, T0, 1 << 53]
    change = ["change", T0, GateChange("limit:k", rule=GateRule("limit:k", interval_us=1))]
    more = ["end", T0, ["limit:k", False, cost, False], 1, "neutral", False, T0, 1 << 53]
    first, *_, last = run_steps(
        schema, gate, [ask, ask, end, more, change, ask]
    )  # no number is too large for the server
    assert first[0][2] == 1
    assert last[1].full_at_us < 1 << 63


def test_a_row_of_defaults_is_a_new_gate(schema: Schema) -> None:
    schema.run("INSERT INTO lp.gate (key) VALUES ('k')")
    found = schema.ask("DELETE FROM lp.gate AS g WHERE key = 'k' RETURNING g IS NOT DISTINCT FROM lp.gate_new('k')")
    assert found == [(True,)]


@given(st.lists(st.integers(0, 1 << 46), min_size=1), st.sampled_from(ALL_PERIODS))
def test_periods_begin_and_end_as_in_core(schema: Schema, instants: list[int], period: Period) -> None:
    begins = "SELECT lp.period_began(%s, n), lp.period_ends(%s, n) FROM unnest(%s::bigint[]) AS n"
    instants += [edge for at_ms in instants[:1] for edge in (began_ms(period, at_ms), ends_ms(period, at_ms) - 1)]
    expected = [(began_ms(period, at_ms), ends_ms(period, at_ms)) for at_ms in instants]
    assert schema.ask(begins, period, period, instants) == expected
