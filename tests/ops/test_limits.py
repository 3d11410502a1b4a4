"""Limits as operators see and change them: levels, waiters, buckets and budgets, events and shares."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace

from limpet.core.endings.transition import Hold
from limpet.core.errors import InvalidArguments, InvalidOption
from limpet.core.gate import BreakerRule, Gate, GateRule, learn, push_back
from limpet.core.jobs.view import Entry, JobView
from limpet.core.limits.budget import Budget
from limpet.core.limits.limit import Limit
from limpet.core.records.limit import BreakerRecord, LimitRecord
from limpet.core.records.log import EventRecord
from limpet.core.tasks.declaration import Declaration
from limpet.core.tasks.task import TaskSpec
from limpet.ops import Agents, LimitChange, Operator
from limpet.ops import limits as limits_room
from limpet.ops.gate_reasons import gate_reasons
from limpet.ops.names import unknown_gate_note
from limpet.stores.asking import last_seq
from limpet.stores.base import Store
from tests.ops.making import claim, job, put

USD = GateRule("limit:usd/day:llm:acme", unit="usd", cap=1_000_000, period="day")


def paid(usd: int, **options: Any) -> Any:
    return replace(job(keys=("usd/day:llm:acme",), **options), costs={"usd": usd})


async def test_buckets_and_budgets_are_set_by_hand_and_cleared_together(operator: Operator, store: Store) -> None:
    gates = await operator.gates.set_limit(
        "llm:acme",
        LimitChange(rate="10/m", buckets={"input_tokens": "60000/m"}, budgets={"usd": "0.5/day", "cost": "7/week"}),
        reason="cheaper",
    )
    assert [gate.rule for gate in gates] == [
        GateRule("limit:llm:acme", interval_us=6_000_000, burst=10),
        GateRule("limit:input_tokens:llm:acme", interval_us=1_000, burst=60_000, unit="input_tokens"),
        GateRule("limit:usd/day:llm:acme", unit="usd", cap=500_000, period="day"),
        GateRule("limit:cost/week:llm:acme", unit="", cap=7, period="week"),
    ]
    entries = await operator.audit()
    assert [entry.data for entry in entries] == [
        {"key": "limit:llm:acme", "rate": "10/m"},
        {"key": "limit:input_tokens:llm:acme", "bucket": "input_tokens=60000/m"},
        {"key": "limit:usd/day:llm:acme", "budget": "usd=0.5/day"},
        {"key": "limit:cost/week:llm:acme", "budget": "cost=7/week"},
    ]
    await put(store, paid(1), rules=(USD,))
    assert {gate.declared for gate in await operator.gates.limits()} == {False}
    cleared = await operator.gates.clear_limit("llm:acme")
    assert {gate.key for gate in cleared} == {gate.key for gate in gates}
    assert all(gate.declared for gate in cleared)


async def test_a_task_that_was_pushed_back_is_listed_until_it_has_climbed(operator: Operator, store: Store) -> None:
    await put(store, job("send"), job("send"))
    (held,) = await claim(store, limit=1)
    assert await operator.gates.limits() == []
    await store.settle("w1", 1, [Hold(held.id, held.token, "task:send", 60_000, "slow down")])
    (gate,) = await operator.gates.limits()
    shape = LimitRecord.of(gate, gate.held_until_ms).to_dict()
    assert (shape["key"], shape["free"], shape["pace"]["percent"]) == ("task:send", 1, 0.0)
    assert LimitRecord.of(gate, gate.held_until_ms + 10_000).to_dict()["pace"] is None
    later = Operator(store, "ada", clock=lambda: gate.held_until_ms + 10_000)
    assert await later.limits() == []


async def test_a_limit_is_told_to_adapt_and_not_to(operator: Operator, store: Store) -> None:
    await put(store, job(limits=("openai",)), rules=(GateRule("limit:openai", interval_us=120_000, burst=500),))
    (gate,) = await operator.gates.set_limit("openai", LimitChange(adaptive=True))
    assert gate.rule == GateRule("limit:openai", interval_us=120_000, burst=500, floor=100)
    (gate,) = await operator.gates.set_limit("openai", LimitChange(rate="1000/m", adaptive="50/m"))
    assert (gate.rule.interval_us, gate.rule.floor) == (60_000, 50)
    with pytest.raises(
        InvalidOption,
        match=r"limit:openai: the slowest rate '2000/m' must be a rate from a hundredth of its own to its own",
    ):
        await operator.gates.set_limit("openai", LimitChange(adaptive="2000/m"))
    (gate,) = await operator.gates.set_limit("openai", LimitChange(concurrency=4, adaptive=False))
    assert (gate.rule.floor, gate.rule.concurrency) == (None, 4)
    (gate,) = await operator.gates.set_limit("queue:mail", LimitChange(concurrency=4, adaptive=True))
    assert gate.rule.floor == 250
    with pytest.raises(InvalidOption, match="limit:new has no rate and no concurrency to adapt"):
        await operator.gates.set_limit("new", LimitChange(adaptive=True))
    with pytest.raises(InvalidOption, match="queue:mail has no rate to adapt"):
        await operator.gates.set_limit("queue:mail", LimitChange(adaptive="5/m"))
    assert (await operator.audit())[0].data == {"key": "limit:openai", "adaptive": True}


async def test_a_new_rate_does_not_lift_the_burst_that_the_code_keeps_small(operator: Operator, store: Store) -> None:
    limit = Limit("openai:{model}", rate="600/m", burst=10)
    spec = TaskSpec.declare(lambda model: None, name="ask", limits=[limit])
    await store.put_control(Declaration.of(spec).control())
    for change, burst in (({"rate": "300/m"}, 10), ({"rate": "5/s"}, 5), ({"rate": "300/m", "burst": 30}, 30)):
        (gate,) = await operator.gates.set_limit("openai:small", LimitChange(**cast(Any, change)))
        assert gate.rule.burst == burst
    (gate,) = await operator.gates.set_limit("unheard", LimitChange(rate="300/m"))
    assert gate.rule.burst == 300


async def test_a_budget_raised_by_hand_lets_those_who_wait_go_on(operator: Operator, store: Store) -> None:
    await put(store, paid(900_000), paid(900_000), rules=(USD,))
    assert len(await claim(store)) == 1
    await operator.gates.set_limit("usd/day:llm:acme", LimitChange(budgets={"usd": "2/day"}))
    assert len(await claim(store)) == 1


async def test_clearing_a_budget_of_a_template_brings_the_published_one_back(operator: Operator, store: Store) -> None:
    def ask(team: str) -> None: ...

    spec = TaskSpec.declare(
        ask, name="ask", limits=[Budget("llm:{team}", usd=1), Limit("m:{team}", buckets={"tokens": "60/s"})]
    )
    await store.put_control(Declaration.of(spec).control())
    await put(store, paid(1), rules=(USD,))
    await operator.gates.set_limit("llm:acme", LimitChange(budgets={"usd": "9/day"}))
    (gate,) = await operator.gates.clear_limit("llm:acme")
    assert gate.rule == USD
    await operator.gates.set_limit("m:acme", LimitChange(buckets={"tokens": "1/s"}))
    (gate,) = await operator.gates.clear_limit("m:acme")
    assert gate.rule.interval_us == 16_667


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, r"needs a rate or a concurrency, a bucket or a budget"),
        ({"budgets": {"usd": "50"}}, r"the budget usd='50' has no period \(write usd=50/day; periods are minute"),
        ({"budgets": {"usd": "50/fortnight"}}, r"has the period 'fortnight', which does not exist"),
        ({"budgets": {"eur": "50/day"}}, r"the budget counts 'eur'"),
        ({"budgets": {"usd": "x/day"}}, r"the budget usd must be an amount of usd, got 'x'"),
        ({"budgets": {"usd": "0/day"}}, r"must be a positive number, got '0'"),
        ({"buckets": {"tokens": "x"}}, r"tokens='x' cannot be read"),
        ({"buckets": {"requests": "1/s"}}, r"each job is one request"),
        ({"buckets": {"tokens": "1/0s"}}, r"tokens='1/0s' cannot be read"),
        ({"concurrency": 0}, r"concurrency=0: the number must be ≥ 1 \(write 1 or more; to stop the jobs, pause them"),
        ({"concurrency": "5"}, r"concurrency='5': the number must be an integer ≥ 1"),
        ({"concurrency": 1.5}, r"concurrency=1.5: the number must be an integer ≥ 1"),
        ({"concurrency": True}, r"concurrency=True: the number must be an integer ≥ 1"),
        ({"concurrency": 10**12}, r"limits nothing"),
        ({"rate": "10/m", "burst": 0}, r"rate='10/m', burst=0: the number must be ≥ 1"),
        ({"rate": "10/m", "burst": 10**12}, r"burst=1000000000000 limits nothing"),
        ({"rate": "1/366d", "burst": 10**6}, r"fill up for more than a century"),
        ({"rate": "10/mi"}, r"rate='10/mi' cannot be read"),
        ({"adaptive": "no"}, r"the slowest rate='no' cannot be read"),
        ({"adaptive": 1}, r"adaptive=1 is neither yes nor no nor a rate"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        LimitChange(**change)


async def test_a_queue_has_no_budget(operator: Operator) -> None:
    with pytest.raises(InvalidOption, match="queue:mail has no buckets and no budgets"):
        await operator.gates.set_limit("queue:mail", LimitChange(budgets={"usd": "1/day"}))


async def test_a_budget_has_no_rate_of_its_own(operator: Operator, store: Store) -> None:
    await put(store, paid(1), rules=(USD,))
    with pytest.raises(InvalidOption, match=r"is a budget, which has no rate.*set --budget of 'llm:acme'"):
        await operator.gates.set_limit("usd/day:llm:acme", LimitChange(rate="5/m"))


async def test_waiters_are_counted_at_the_gates_that_stop_them(operator: Operator, store: Store) -> None:
    rules = (USD, GateRule("limit:smtp", concurrency=1))
    mails = [job(limits=("smtp",)) for _ in range(3)]
    await put(store, paid(600_000), paid(600_000), paid(100_000), *mails, rules=rules)
    await claim(store)
    gates = await operator.gates.limits()
    found = await operator.waiters(gates)
    assert found.complete
    assert found.counts == {"limit:usd/day:llm:acme": 2, "limit:smtp": 2}
    shapes = {shape["key"]: shape for shape in (LimitRecord.of(gate, operator.now_ms(), 2).to_dict() for gate in gates)}
    money = shapes["limit:usd/day:llm:acme"]["budget"]
    assert {name: money[name] for name in ("unit", "cap", "spent", "left", "wanted", "per")} == {
        "unit": "usd",
        "cap": 1.0,
        "spent": 0.6,
        "left": 0.4,
        "wanted": 0.6,
        "per": "day",
    }
    assert shapes["limit:smtp"]["waiting"] == 2


async def test_what_code_no_longer_declares_is_forgotten_on_request(operator: Operator, store: Store) -> None:
    await put(store, paid(700_000), paid(700_000), rules=(USD,))
    await claim(store)
    assert await claim(store) == []
    (gate,) = await operator.gates.clear_limit("llm:acme")
    assert gate.rule == GateRule("limit:usd/day:llm:acme")
    assert len(await claim(store)) == 1


async def test_clearing_does_not_lift_a_budget_whose_code_nobody_has_published(
    operator: Operator, store: Store
) -> None:
    """Agents work, and no worker has said what the code declares: it is said again with the next job."""
    await operator.gates.set_limit("llm:acme", LimitChange(budgets={"usd": "1/day"}))
    await put(store, paid(700_000), paid(700_000), rules=(replace(USD, cap=2_000_000),))
    assert len(await claim(store)) == 1
    (gate,) = await operator.gates.clear_limit("llm:acme")
    assert (gate.declared, gate.rule) == (True, USD)
    assert await claim(store) == []
    await put(store, paid(100_000), rules=(replace(USD, cap=2_000_000),))
    assert len(await claim(store)) == 2
    # What only an operator has set is gone; and so is what code declares, when somebody asks for that.
    await operator.gates.set_limit("other", LimitChange(concurrency=1))
    (gate,) = await operator.gates.clear_limit("other")
    assert gate.rule == GateRule("limit:other")
    (gate,) = await operator.gates.clear_limit("llm:acme")
    assert gate.rule == GateRule("limit:usd/day:llm:acme")


async def test_thousands_of_keys_hide_nothing(operator: Operator, store: Store) -> None:
    keys = [f"c:{n:05}" for n in range(10_000)]
    rules = [GateRule(f"limit:{key}", concurrency=1) for key in (*keys, "z:1")]
    late = replace(USD, key="limit:usd/day:z:1")
    await put(store, *(job("late", keys=("z:1", "usd/day:z:1")) for _ in range(2)), rules=(*rules, late))
    await operator.gates.set_limit("queue:mail", LimitChange(concurrency=2))
    await operator.pause("task:late", new=True)
    gates = await operator.gates.limits()
    assert gates[-1].key == "queue:mail"
    assert "task late is paused" in {finding.code: finding.text for finding in await operator.doctor()}["paused"]
    await operator.resume("task:late")
    await claim(store)
    found = await operator.waiters(gates)
    assert (found.counts, [gate.key for gate in found.beyond]) == ({"limit:z:1": 1}, ["limit:z:1"])
    assert [gate.key for gate in await operator.gates.limits("z:")] == ["limit:usd/day:z:1", "limit:z:1"]
    assert await unknown_gate_note(store, "limit:z:1") == ""
    assert [gate.key for gate in await operator.gates.clear_limit("z:1")] == ["limit:usd/day:z:1", "limit:z:1"]


def test_what_a_gate_that_climbs_lets_through_is_a_reason_to_wait() -> None:
    gate = push_back(Gate(GateRule("limit:smtp", concurrency=8)), 1_000, 5, 0)
    view = cast(JobView, None)  # only budgets look at the job
    (held,) = gate_reasons(gate, view, 0)
    assert held.code == "held"
    begun = replace(gate, used=1)
    (why,) = gate_reasons(begun, view, 2_000)
    assert why.text == "limit smtp has 1 of 8 slots taken, and goes at 10 % (100 % in 9s)"
    assert why.until is not None
    assert list(gate_reasons(begun, view, 3_500)) == []
    (full,) = gate_reasons(replace(gate, used=8), view, 11_000)
    assert (full.text, full.until) == ("limit smtp has 8 of 8 slots taken", None)


async def test_the_look_at_waiters_is_bounded(
    operator: Operator, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits_room, "LOOKED_AT", 3)
    monkeypatch.setattr(limits_room, "PAGE", 3)
    await put(store, *(job(limits=("smtp",)) for _ in range(9)), rules=(GateRule("limit:smtp", concurrency=1),))
    assert await claim(store, limit=1)
    found = await operator.waiters(await operator.gates.limits())
    assert (found.counts, found.complete) == ({"limit:smtp": 3}, False)


async def test_the_history_of_a_breaker_and_of_a_limit(operator: Operator, store: Store) -> None:
    rules = (USD, GateRule("breaker:api", breaker=BreakerRule()), GateRule("breaker:smtp", breaker=BreakerRule()))
    await put(store, paid(600_000), paid(600_000), job(breaker="api"), job(breaker="smtp"), rules=rules)
    await operator.gates.trip("api", for_ms=1_000)
    await operator.gates.trip("smtp")
    await operator.reset("api")
    await claim(store)
    assert [entry.kind for entry in await operator.breaker_history("api")] == ["breaker.opened", "breaker.closed"]
    assert len(await operator.breaker_history()) == 3
    assert len(await operator.breaker_history(limit=2)) == 2
    history = await operator.limit_history("llm:acme")
    assert [entry.kind for entry in history] == ["budget.reached", "budget.short"]
    assert await operator.limit_history() == history
    assert await operator.limit_history("nobody") == []
    assert len(await operator.events()) == 5
    reached, short = history
    assert reached.text == "the budget 'llm:acme' is at 50 %: $0.60 of $1 a day is spent or reserved"
    assert (reached.key, reached.spent, reached.cap, reached.unit) == (USD.key, 0.6, 1.0, "usd")
    assert short.text == "the budget 'llm:acme' has $0.40 of $1 a day left, and a job waits for $0.60"
    opened, by_hand, closed = await operator.breaker_history()
    assert opened.text.startswith("breaker api opened until 20")
    assert (by_hand.text, by_hand.until) == ("breaker smtp opened until it is reset", None)
    assert closed.text == "breaker api closed"


def test_a_breaker_shows_what_it_has_counted_in_its_window() -> None:
    counts = Gate(GateRule("breaker:b", breaker=BreakerRule(within_ms=1_000)))
    for at_ms in (100_000, 100_600, 100_900):
        counts = learn(counts, "failed", at_ms)
    shapes = [BreakerRecord.of(counts, now_ms).to_dict() for now_ms in (100_900, 101_200, 200_000)]
    assert [(shape["recent_failures"], shape["recent_calls"]) for shape in shapes] == [(3, None), (2, None), (0, None)]
    shares = Gate(GateRule("breaker:b", breaker=BreakerRule(within_ms=1_000, rate=0.9, min_calls=5)))
    for at_ms, verdict in ((100_000, "failed"), (100_100, "ok"), (100_600, "ok"), (100_700, "failed")):
        shares = learn(shares, cast(Any, verdict), at_ms)
    shapes = [BreakerRecord.of(shares, now_ms).to_dict() for now_ms in (100_700, 101_200, 200_000)]
    assert [(shape["recent_failures"], shape["recent_calls"]) for shape in shapes] == [(2, 4), (1, 2), (0, 0)]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 64, 65])
async def test_the_end_of_a_log_is_found_without_reading_it(store: Store, count: int) -> None:
    await store.append([Entry("event", n, "x") for n in range(count)])
    found = await store.read("event", 0, 1_000)
    assert await last_seq(store, "event") == (found[-1].seq if found else 0)


def test_an_event_that_cannot_be_read_is_told_by_its_kind() -> None:
    event = EventRecord.of(Entry("event", 0, "new.kind", data=b"x"))
    assert (event.text, event.key, event.until) == ("new.kind", None, None)


async def test_a_share_is_set_listed_and_taken_back(operator: Operator, store: Store) -> None:
    for tenant in ("whale", "carp"):
        await put(store, *(job(tenant=tenant) for _ in range(9)))
    await operator.set_weight("tenant:whale", 3, reason="they pay more")
    got = [one.lane.tenant for one in await claim(store, limit=8)]
    assert (got.count("whale"), got.count("carp")) == (6, 2)
    assert [(one.name, one.weight) for one in await operator.weights()] == [("tenant:whale", 3)]
    await operator.set_weight("tenant:whale", 1)
    assert await operator.weights() == []
    assert [entry.kind for entry in await operator.audit()] == ["weight.set", "weight.set"]
    with pytest.raises(InvalidOption, match=r"'whale' has no share \(name queue:NAME or tenant:NAME"):
        await operator.set_weight("whale", 2)
    with pytest.raises(InvalidArguments, match="the name after 'tenant:' is 257 characters long"):
        await operator.set_weight("tenant:" + "x" * 257, 2)
    for wrong in (0, 1_001, True):
        with pytest.raises(InvalidOption, match="a weight must be an integer ≥ 1, got"):
            await operator.set_weight("tenant:whale", wrong)


async def test_an_agent_says_what_it_spent(store: Store, operator: Operator) -> None:
    from limpet.core.jobs.lease import Serves

    await put(store, paid(500_000, task="a"), paid(300_000, task="b"), paid(100_000, task="c"), rules=(USD,))
    agents = Agents(store)
    for n, task in enumerate(("a", "b", "c")):
        (held,) = await agents.claim(f"x{n}", Serves(None, (task,)))
        id = (await operator.job(held.id)).id
        spent = {"usd": 0.05, "tokens": 12}
        if task == "a":
            await agents.complete(id, held.token, spent=spent)
        elif task == "b":
            await agents.fail(id, held.token, "no", spent=spent)
        else:
            await agents.release(id, held.token, spent=spent)
        (note,) = (await operator.job(held.id)).notes
        assert note.body == {"tokens": 12, "usd": 0.05}
    (gate,) = await store.gates(USD.key)
    assert gate.spent == 150_000
    (held,) = await agents.claim("y", Serves(None, ("c",)))
    with pytest.raises(InvalidOption, match="spent\\(\\) counts 'token'"):
        await agents.complete(held.id, held.token, spent={"token": 1})


@pytest.mark.parametrize(
    ("name", "why"), [("x" * 257, "is 257 characters long"), ("a\0b", "NUL"), ("a\ud800", "half a")]
)
async def test_what_no_job_can_be_under_is_refused(operator: Operator, name: str, why: str) -> None:
    for asked in (
        operator.gates.set_limit(name, LimitChange(rate="5/m")),
        operator.gates.set_limit(f"usd/month:{name}", LimitChange(budgets={"usd": "5/month"})),
        operator.pause(f"queue:{name}", new=True),
        operator.gates.trip(name, new=True),
    ):
        with pytest.raises(InvalidArguments, match=why):
            await asked
    assert await operator.store.gates() == []
    await operator.gates.set_limit("usd/month:" + "x" * 256, LimitChange(budgets={"usd": "5/month"}))
