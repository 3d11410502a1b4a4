"""The gates and the sharing of the Redis scripts are those of core: by the shared vectors, and for any history."""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from limpet.core.gate import (
    FOREVER_MS,
    MOST,
    BreakerRule,
    Charge,
    Gate,
    GateChange,
    GateRule,
    Pause,
    Verdict,
    admits,
    apply_change,
    budget_left,
    charge,
    cut_off,
    falls_short,
    give_back,
    is_blank,
    opens_at_ms,
    pace,
    push_back,
    reported_cost,
    room,
    slots,
    tokens,
)
from limpet.core.limits.fair import Turn, places, share
from limpet.core.limits.period import DAY_MS, Period, began_ms, ends_ms
from limpet.core.text.gate_events import marked, news
from limpet.stores.redis.scripts import source
from limpet_contract.budget_vectors import BUDGETS
from limpet_contract.gate_vectors import PAUSE, T0, VECTORS, Ask, Change, CutOff, End, PushBack, Vector
from limpet_contract.pace_vectors import PACES
from limpet_contract.seeds import chance_of
from tests.engines import gate_corners
from tests.servers.flavours import REDIS
from tests.servers.redis import RedisServer, shared

UNREADABLE = Pause("limpet", "its record cannot be decoded", 0)

# Runs steps on one gate, storing it after each as a claim would, and answers what it said and how it looks.
STEPS = """
local stored, answers = ARGV[1], {}
for _, step in ipairs(cmsgpack.unpack(ARGV[2])) do
  local g, what, now, said, told = gates_math.decode(stored, "limit:k"), step[1], step[2], {}, {}
  if what == "ask" then
    local costs, passed = step[3], gates_math.admits(gates_math.decode(stored, "limit:k"), step[3], now)
    said = {gates_math.room(g, now), gates_math.tokens(g, now), passed, gates_math.is_blank(g, now)}
    for n = #costs, passed + 1, -1 do costs[n] = nil end
    said[5] = (gates_math.charge(g, costs, step[4], now))
    said[6] = step[5] >= 0 and gates_math.falls_short(g, step[5], now)
    said[7] = gates_math.opens_at(g, now) or -1
    said[8], said[9], said[10] = gates_math.budget_left(g, now), gates_math.pace(g, now), gates_math.slots(g, now)
  elseif what == "end" then
    said = {gates_math.give_back(g, step[3], step[4], step[5], step[6], now, step[7], step[8])}
  elseif what == "push_back" or what == "cut_off" then
    gates_math[what](g, step[3], step[4], now)
  else
    g = gates_math.change(g, step[3], now)
  end
  for _, event in ipairs(gates_events.of(gates_math.decode(stored, "limit:k"), g, now)) do
    told[#told + 1] = event[1]
    told[#told + 1] = event[2]
  end
  stored = gates_math.encode(g)
  answers[#answers + 1] = cmsgpack.pack(said)
  answers[#answers + 1] = cmsgpack.pack(told)
  answers[#answers + 1] = stored
end
return answers
"""
SHARES = """
local ring = cmsgpack.unpack(ARGV[1])
local given = turns_fair.share(tonumber(ARGV[2]), ring)
return {cmsgpack.pack(given), cmsgpack.pack(turns_fair.places(ring, cmsgpack.unpack(ARGV[3])))}
"""


@pytest.fixture(scope="module")
def server() -> RedisServer:
    return shared(REDIS)


def run(server: RedisServer, text: str, *words: bytes | int) -> Any:
    """What a script answers that has the modules of gates and of sharing."""
    modules = [
        source(f"lib/{name}.lua") for name in ("base", "gates_period", "gates_math", "gates_events", "turns_fair")
    ]
    return server.ask("EVAL", "\n".join([*modules, text]), 1, "m", *words)


class Answer(NamedTuple):
    """What the scripts' gate says to one step, what of it is news, and what the gate is after it."""

    said: list[Any]
    events: list[tuple[str, dict[str, Any]]]
    gate: Gate


def run_steps(server: RedisServer, stored: bytes, steps: list[Any]) -> list[Answer]:
    answers = run(server, STEPS, stored, msgspec.msgpack.encode(steps))
    said, told = (list(map(msgspec.msgpack.decode, answers[at::3])) for at in (0, 1))
    events = [list(zip(flat[::2], map(msgspec.json.decode, flat[1::2]), strict=True)) for flat in told]
    gates = [msgspec.msgpack.decode(body, type=Gate) for body in answers[2::3]]
    return list(map(Answer, said, events, gates))


class Story:
    """One gate of core, and the steps that are to be taken again on the server."""

    def __init__(self, gate: Gate) -> None:
        self.first = self.gate = gate
        self.jobs: list[tuple[int, int, Charge | None]] = []  # (token, when, what it was charged)
        self.steps: list[Any] = []
        self.expected: list[Answer] = []

    def ask(self, at_ms: int, costs: tuple[int, ...]) -> None:
        token, count = at_ms * 2048 + len(self.steps), admits(self.gate, list(costs), at_ms)
        said: list[Any] = [room(self.gate, at_ms), tokens(self.gate, at_ms), count, is_blank(self.gate, at_ms)]
        before, next_cost = self.gate, costs[count] if count < len(costs) else -1
        gate, charges = charge(before, list(costs[:count]), token, at_ms)
        self.jobs += [(token, at_ms, charges[n] if charges else None) for n in range(count)]
        after = gate if next_cost < 0 else falls_short(gate, next_cost, at_ms)
        opens = opens_at_ms(after, at_ms)
        said += [[[c.gate, c.slot, c.cost, c.probe] for c in charges], after is not gate]
        said += [-1 if opens is None else opens, budget_left(after, at_ms), pace(after, at_ms), slots(after, at_ms)]
        self._note(["ask", at_ms, costs, token, next_cost], said, after)

    def end(self, step: End) -> None:
        token, charged_at_ms, taken = self.jobs[step.job]
        if taken is None:
            return
        after = give_back(
            self.gate,
            taken,
            token=token,
            verdict=step.verdict,
            unstarted=step.unstarted,
            now_ms=step.at_ms,
            charged_at_ms=charged_at_ms,
            actual_cost=step.actual_cost,
        )
        again = ["end", step.at_ms, taken, token, step.verdict, step.unstarted, charged_at_ms, step.actual_cost]
        self._note(again, [after != self.gate], after)

    def push_back(self, step: PushBack) -> None:
        token, _, _ = self.jobs[step.job]
        after = push_back(self.gate, step.until_ms, token, step.at_ms)
        self._note(["push_back", step.at_ms, step.until_ms, token], [], after)

    def cut_off(self, step: CutOff) -> None:
        token, _, _ = self.jobs[step.job]
        after = cut_off(self.gate, step.until_ms, token, step.at_ms)
        self._note(["cut_off", step.at_ms, step.until_ms, token], [], after)

    def refuse(self, step: PushBack | CutOff) -> None:
        if isinstance(step, PushBack):
            self.push_back(step)
        else:
            self.cut_off(step)

    def change(self, step: Change) -> None:
        self._note(["change", step.at_ms, step.change], [], apply_change(self.gate, step.change, step.at_ms))

    def _note(self, step: list[Any], said: list[Any], after: Gate) -> None:
        told = [(entry.kind, msgspec.json.decode(entry.data)) for entry in news(self.gate, after, step[1])]
        after = marked(self.gate, after, step[1])
        self.steps.append(step)
        self.expected.append(Answer(said, told, after))
        self.gate = after

    def check(self, server: RedisServer) -> None:
        found = run_steps(server, msgspec.msgpack.encode(self.first), self.steps)
        for step, answer, expected in zip(self.steps, found, self.expected, strict=True):
            if step[0] == "end":  # a write that changes nothing is allowed, a change that is not written is not
                assert answer.said[0] >= expected.said[0], step
            else:
                assert answer.said == expected.said, step
            assert answer.gate == expected.gate, step
            assert answer.events == expected.events, step


@pytest.mark.parametrize("vector", [*VECTORS, *BUDGETS, *PACES], ids=lambda vector: vector.name)
def test_the_vectors(server: RedisServer, vector: Vector) -> None:
    story, admitted = Story(Gate(vector.rule)), []
    for step in vector.steps:
        match step:
            case Ask():
                story.ask(step.at_ms, step.costs)
                admitted.append((step, len(story.steps) - 1))
            case End():
                story.end(step)
            case PushBack():
                story.push_back(step)
                story.end(End(step.at_ms, step.job))
            case CutOff():
                story.cut_off(step)
                story.end(End(step.at_ms, step.job))
            case Change():
                story.change(step)
    found = run_steps(server, msgspec.msgpack.encode(story.first), story.steps)
    for ask, number in admitted:
        _, _, count, _, charges, _, opens, *_ = found[number].said
        assert count == ask.admitted, ask
        assert any(probe for _, _, _, probe in charges) == ask.probe, ask
        if count < len(ask.costs):
            assert opens == (-1 if ask.opens_at_ms is None else ask.opens_at_ms), ask
    story.check(server)


def some(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


COSTS = st.lists(st.integers(0, 9) | st.integers(0, 1 << 40), max_size=6).map(tuple)
WAITS = (
    st.integers(0, 5) | st.integers(0, 3_000) | st.sampled_from([600_000, -600_000]) | st.integers(-DAY_MS, 40 * DAY_MS)
)
BREAKERS = st.builds(
    BreakerRule,
    failures=st.integers(0, 5),
    within_ms=st.sampled_from([0, 1, 1_000, 60_000]),
    cooldown_ms=st.sampled_from([100, 60_000]),
    probe_after_ms=st.sampled_from([10, 60_000]),
    rate=st.sampled_from([None, None, 0.0, 1.0, 0.5, 0.1, 1 / 3]),
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
    climb_ms=st.sampled_from([60_000, 60_000, 1, 1_000, 86_400_000]) | st.integers(1, 100_000),
    cap=some(st.integers(0, 30) | st.integers(0, MOST)),
    period=some(st.sampled_from(get_args(Period))),
)
INSTANTS = st.just(0) | st.integers(T0 - 3_000, T0 + 3_000) | st.just(FOREVER_MS)
GATES = st.builds(
    Gate,
    RULES,
    declared=st.booleans(),
    paused=st.sampled_from([None, None, None, PAUSE]),
    draining=st.booleans(),
    used=st.integers(0, 13),
    full_at_us=st.just(0) | st.integers((T0 - 1_000) * 1000, (T0 + 20_000) * 1000) | st.integers(T0 * 1000, MOST),
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
    pace=st.integers(0, 1_000),
    paced_at_ms=INSTANTS | st.integers(T0 - 20_000, T0 + 3_000),
    ceiling=st.just(1_000) | st.integers(1, 1_000),
    last_cut_token=st.sampled_from([0, 0, T0 * 2048 - 1, (T0 + 1_000) * 2048]),
    period_ms=st.just(0) | st.sampled_from([began_ms(period, T0) for period in get_args(Period)]),
    spent=st.integers(0, 30) | st.integers(0, MOST),
    reserved_for=st.integers(0, 20),
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
    ceiling=some(st.integers(0, 1_001)),
    trip_ms=some(MILLISECONDS),
    reset=st.booleans(),
)


@given(st.data())
def test_any_history_of_a_gate_is_that_of_core(server: RedisServer, data: st.DataObject) -> None:
    story, now_ms = Story(data.draw(GATES)), T0
    for _ in range(data.draw(st.integers(1, 20))):
        now_ms += data.draw(WAITS)
        what = data.draw(st.sampled_from(["ask", "ask", "end", "end", "end", "push_back", "cut_off", "change"]))
        if what == "ask":
            story.ask(now_ms, data.draw(COSTS))
        elif what == "change":
            story.change(Change(now_ms, data.draw(CHANGES)))
        elif story.jobs:
            job = data.draw(st.integers(0, len(story.jobs) - 1))
            if what != "end":
                until_ms = now_ms + data.draw(st.integers(0, 30_000))
                if what == "push_back":
                    story.push_back(PushBack(now_ms, job, until_ms))
                else:
                    story.cut_off(CutOff(now_ms, job, until_ms))
            verdict = data.draw(VERDICTS)
            actual = data.draw(some(st.integers(0, 20) | st.integers(0, 1 << 40)))
            story.end(End(now_ms, job, verdict, unstarted=data.draw(st.booleans()), actual_cost=actual))
    story.check(server)


@pytest.mark.parametrize("interval_us", gate_corners.INTERVALS)
def test_rates_at_the_ends_of_what_can_be_stored_are_those_of_core(server: RedisServer, interval_us: int) -> None:
    chance = chance_of(interval_us)
    for before, after in gate_corners.pairs():
        if before[0] == interval_us:
            story = Story(gate_corners.gate_at(*before, chance))
            gate_corners.live(story, *after, chance)
            story.check(server)


def test_more_calls_than_a_breaker_remembers_are_counted_as_in_core(server: RedisServer) -> None:
    for gate in gate_corners.counted_much():
        story = Story(gate)
        gate_corners.fail(story)
        story.check(server)


def test_a_budget_gets_back_no_more_than_was_spent_of_it(server: RedisServer) -> None:
    story = Story(Gate(GateRule("limit:k", interval_us=1_000, burst=9, cap=20, period="day")))
    story.ask(T0, (5,))
    story.change(Change(T0, GateChange("limit:k", rule=GateRule("limit:k", cap=20, period="week"))))
    story.change(Change(T0, GateChange("limit:k", rule=GateRule("limit:k", cap=20, period="hour"))))
    story.ask(T0, (2,))
    story.end(End(T0, 0, actual_cost=0))
    assert (story.gate.spent, budget_left(story.gate, T0)) == (0, 20)
    story.check(server)


def test_a_slow_rate_that_is_in_debt_says_how_deep(server: RedisServer) -> None:
    rule = GateRule("limit:k", interval_us=100_000, burst=2, floor=500)
    story = Story(Gate(rule, pace=500, paced_at_ms=T0, full_at_us=(T0 + 900) * 1000))
    story.ask(T0, (1,))
    assert room(story.gate, T0) == tokens(story.gate, T0) == -7
    story.check(server)


def test_a_gate_whose_floor_is_its_full_pace_does_not_climb(server: RedisServer) -> None:
    story = Story(Gate(GateRule("limit:k", concurrency=2, floor=1_000)))
    story.ask(T0, (1,))
    story.push_back(PushBack(T0, 0, T0 + 100))
    story.push_back(PushBack(T0, 0, T0 + 500))
    assert (story.gate.held_until_ms, story.gate.paced_at_ms) == (T0 + 500, T0 + 100)
    story.check(server)


@given(st.sampled_from(get_args(Period)), st.integers(0, T0 * 3))
@example("month", 951_782_400_000)  # 29 February 2000, the last day of 400 years that begin in March
def test_periods_are_those_of_core(server: RedisServer, period: Period, now_ms: int) -> None:
    script = "return base.text(gates_period.%s(ARGV[1], tonumber(ARGV[2])))"
    began, ends = (int(run(server, script % which, period.encode(), now_ms)) for which in ("began", "ends"))
    assert (began, ends) == (began_ms(period, now_ms), ends_ms(period, now_ms))


ACCOUNTS = st.dictionaries(st.sampled_from(["", "usd", "words"]), st.integers(0, 1 << 53))


@given(RULES, ACCOUNTS, st.booleans())
def test_the_reported_cost_of_a_job_is_what_core_says(
    server: RedisServer, rule: GateRule, spent: dict[str, int], unfinished: bool
) -> None:
    script = (
        "local given = cmsgpack.unpack(ARGV[1])\n"
        "local actual_cost = gates_math.reported_cost(given[1], given[2], given[3])\n"
        "return actual_cost and base.text(actual_cost) or false"
    )
    answer = run(server, script, msgspec.msgpack.encode((rule, spent or None, unfinished)))
    assert (None if answer is None else int(answer)) == reported_cost(rule, spent, unfinished=unfinished)


def test_a_change_to_an_unknown_gate_makes_one_that_allows_all(server: RedisServer) -> None:
    script = "return gates_math.encode(gates_math.change(nil, cmsgpack.unpack(ARGV[1]), tonumber(ARGV[2])))"
    change = GateChange("queue:q", drain=True)
    stored = run(server, script, msgspec.msgpack.encode(change), T0)
    assert msgspec.msgpack.decode(stored, type=Gate) == apply_change(None, change, T0)


SPOILT = {
    "nothing": b"",
    "no msgpack": b"\xc1",
    "cut short": msgspec.msgpack.encode(Gate(GateRule("limit:k", concurrency=3)))[:-3],
    "two values": msgspec.msgpack.encode(Gate(GateRule("limit:k"))) * 2,
    "a number": b"\x01",
    "no rule": b"\x80",
    "a rule without a key": msgspec.msgpack.encode({"rule": {}}),
    "text for a number": msgspec.msgpack.encode({"rule": {"key": "limit:k"}, "used": "3"}),
    "text for a pause": msgspec.msgpack.encode({"rule": {"key": "limit:k"}, "paused": "yes"}),
    "text in a rule": msgspec.msgpack.encode({"rule": {"key": "limit:k", "concurrency": "3"}}),
    "text for a cap": msgspec.msgpack.encode({"rule": {"key": "limit:k", "cap": "3"}}),
    "an unknown period": msgspec.msgpack.encode({"rule": {"key": "limit:k", "cap": 3, "period": "aeon"}}),
    "text for a floor": msgspec.msgpack.encode({"rule": {"key": "limit:k", "floor": "3"}}),
    "text for a climb": msgspec.msgpack.encode({"rule": {"key": "limit:k", "climb_ms": "3"}}),
    "text for a pace": msgspec.msgpack.encode({"rule": {"key": "limit:k"}, "pace": "3"}),
    "text for when it was slowed": msgspec.msgpack.encode({"rule": {"key": "limit:k"}, "paced_at_ms": "3"}),
    "text for a cut": msgspec.msgpack.encode({"rule": {"key": "limit:k"}, "last_cut_token": "3"}),
    "text for a ceiling": msgspec.msgpack.encode({"rule": {"key": "limit:k"}, "ceiling": "3"}),
    "text for what was spent": msgspec.msgpack.encode({"rule": {"key": "limit:k"}, "spent": "3"}),
    "text in a breaker": msgspec.msgpack.encode({"rule": {"key": "limit:k", "breaker": {"failures": "3"}}}),
    "too few calls": msgspec.msgpack.encode({"rule": {"key": "limit:k"}, "calls": [1, 2]}),
    "text among failures": msgspec.msgpack.encode({"rule": {"key": "limit:k"}, "failed_at_ms": ["1"]}),
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_a_gate_that_cannot_be_read_is_shut_and_says_why(server: RedisServer, spoilt: str) -> None:
    [answer] = run_steps(server, SPOILT[spoilt], [["ask", T0, [1], 1, -1]])
    assert answer.said[2] == 0
    assert answer.gate == Gate(GateRule("limit:k"), declared=False, paused=UNREADABLE)


RINGS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=12).map(
    lambda pairs: [Turn(member, min(left, weight), weight) for member, (left, weight) in enumerate(pairs)]
)


@given(RINGS, st.integers(0, 100), st.data())
def test_sharing_is_that_of_core(server: RedisServer, ring: list[Turn], count: int, data: st.DataObject) -> None:
    given_to = share(count, ring)
    served = [data.draw(st.integers(0, n) | st.just(n)) for n in given_to]
    answer = run(server, SHARES, msgspec.msgpack.encode(ring), count, msgspec.msgpack.encode(served))
    assert msgspec.msgpack.decode(answer[0]) == given_to
    found = msgspec.msgpack.decode(answer[1])
    expected = [{"member": p.member, "left": p.left, "moves": p.moves} for p in places(ring, served)]
    assert found == expected
