"""Commands about limits, budgets, what was spent, events and shares."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from limpet.core.endings.transition import Hold
from limpet.core.gate import BreakerRule, Gate, GateChange, GateRule
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Job
from limpet.core.limits.budget import Budget
from limpet.core.tasks.declaration import Declaration
from limpet.core.tasks.task import TaskSpec
from limpet.ops import Operator
from limpet.ops.limits import Waiters
from limpet.stores.base import Store
from tests.cli.conftest import Cli
from tests.ops.making import claim, job, put

RULES = (
    GateRule("limit:usd/day:llm:acme", unit="usd", cap=50_000_000, period="day"),
    GateRule("limit:openai", interval_us=120_000, burst=500),
    GateRule("limit:input_tokens:openai", interval_us=300, burst=200_000, unit="input_tokens"),
    GateRule("breaker:smtp", breaker=BreakerRule()),
)


def ask(usd: float) -> Job:
    costs = {"usd": round(usd * 1_000_000), "input_tokens": 900}
    asked = job("ask", limits=("openai", "input_tokens:openai"), keys=("usd/day:llm:acme",))
    return replace(asked, costs=costs)


async def busy(store: Store) -> str:
    """One job has taken most of the budget, and two wait for the rest."""
    jobs = [ask(49.6), ask(0.5), ask(0.1)]
    await put(store, *jobs, rules=RULES)
    await claim(store)
    return id_text(jobs[1].id)


def test_limits_show_levels_and_who_waits(cli: Cli) -> None:
    id = cli.seed(busy)
    out = cli("limits").out
    assert "$49.60 of $50 spent, this day ends in " in out
    assert "of 200,000 input tokens left, 200,000/m" in out
    assert "of 500 left, 500/m" in out
    shapes = {shape["key"]: shape for shape in cli("limits", "--json").json["limits"]}
    budget = shapes["limit:usd/day:llm:acme"]
    assert (budget["waiting"], budget["all_counted"], budget["unit"]) == (2, True, "usd")
    assert (budget["budget"]["left"], budget["budget"]["wanted"], budget["budget"]["per"]) == (0.4, 0.5, "day")
    assert 199_100 <= shapes["limit:input_tokens:openai"]["tokens"] <= 200_000
    assert [line["key"] for line in cli("limits", "--waiting", "--json").json["limits"]] == ["limit:usd/day:llm:acme"]
    said = cli("explain", id).out
    assert "the budget 'llm:acme' has $0.40 of $50 left today; this job needs $0.50; it continues in" in said


def test_who_waits_beyond_what_was_looked_at_is_not_denied(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody_found(operator: Operator, gates: Sequence[Gate]) -> Waiters:
        return Waiters({}, complete=False)

    monkeypatch.setattr(Operator, "waiters", nobody_found)
    cli.seed(busy)
    unknown = [line.split()[0] for line in cli("limits").out.splitlines() if "  0+  " in line]
    assert unknown == ["limit:usd/day:llm:acme"]


async def slowed(store: Store) -> str:
    """A limit that adapts was pushed back for an hour; another one is allowed less by the other side."""
    adaptive = GateRule("limit:openai", interval_us=120_000, burst=500, floor=100, climb_ms=600_000)
    calls = [job("ask", limits=("openai",)) for _ in range(2)]
    await put(store, *calls, rules=(adaptive, replace(adaptive, key="limit:claude")))
    (held,) = await claim(store, limit=1)
    await store.settle("w1", 1, [Hold(held.id, held.token, "limit:openai", 3_600_000, "slow down")])
    await store.change_gates([GateChange("limit:claude", ceiling=250)])
    return id_text(calls[1].id)


def test_limits_that_go_slower_say_how_much_and_until_when(cli: Cli) -> None:
    id = cli.seed(slowed)
    out = cli("limits").out
    assert "1 of 500 left, 500/m, at 50 % (100 % in 1h" in out
    assert "500 of 500 left, 500/m, at 25 % (all that the provider" in out
    shapes = {shape["key"]: shape for shape in cli("limits", "--json").json["limits"]}
    pace = shapes["limit:openai"]["pace"]
    assert (pace["percent"], pace["adaptive"], pace["floor"], pace["ceiling"]) == (50.0, True, 10.0, 100.0)
    assert pace["fastest_at"] > shapes["limit:openai"]["held_until"]
    assert shapes["limit:claude"]["pace"] == {
        "percent": 25.0,
        "fastest_at": None,
        "adaptive": True,
        "floor": 10.0,
        "ceiling": 25.0,
    }
    assert "limit openai is held back" in cli("explain", id).out
    told = "limit openai was pushed back, and goes at 50 % of what is declared"
    assert told in cli("limits", "history", "openai").out
    percents = [event["percent"] for event in cli("events", "--json").json["events"]]
    assert [percent for percent in percents if percent is not None] == [50.0]
    cli("limits", "set", "openai", "--no-adaptive")
    assert [line["pace"] for line in cli("limits", "--json").json["limits"] if line["key"] == "limit:openai"] == [None]
    cli("limits", "set", "openai", "--adaptive")
    cli("limits", "set", "openai", "--slowest", "100/m")
    listed = {line["key"]: line["pace"] for line in cli("limits", "--json").json["limits"]}
    assert listed["limit:openai"]["floor"] == 20.0
    assert "leave --no-adaptive out" in cli("limits", "set", "openai", "--slowest", "1/s", "--no-adaptive", code=2).err
    cli("breakers", "reset", "limit:openai")
    assert "500/m, at 50 %" not in cli("limits").out


def test_a_budget_is_raised_and_cleared_while_jobs_wait(cli: Cli) -> None:
    cli.seed(busy)
    told = cli("limits", "set", "llm:acme", "--budget", "usd=60/day", "--reason", "a big day", "--json").json
    assert told == {
        "key": "limit:usd/day:llm:acme",
        "changed": ["limit:usd/day:llm:acme"],
        "state": "set",
        "notes": [],
    }
    assert "$49.60 of $60 spent" in cli("limits").out
    assert len(cli.seed(claim)) == 2
    cli("limits", "set", "openai", "--bucket", "input_tokens=60000/m", "--rate", "100/m", "--concurrency", "3")
    assert "0/3" in cli("limits").out
    assert "rate=100/m concurrency=3" in cli("audit").out
    ran = cli("limits", "clear", "openai")
    assert "limit:input_tokens:openai: cleared" in ran.out
    assert (
        "no worker has published what code declares of limit:openai: these numbers stay until its next job" in ran.err
    )
    assert cli("audit", "--json").json["entries"][0]["reason"] == "a big day"


def test_a_budget_that_no_job_names_is_set_with_a_note(cli: Cli) -> None:
    cli.seed(busy)
    ran = cli("limits", "set", "llm:acme", "--budget", "usd=300/week")
    assert "no task or job uses limit 'usd/week:llm:acme' yet; did you mean 'usd/day:llm:acme'?" in ran.err

    async def publish(store: Store) -> None:
        spec = TaskSpec.declare(lambda team: None, name="ask", limits=[Budget("llm:{team}", usd=1, per="week")])
        await store.put_control(Declaration.of(spec).control())

    cli.seed(publish)  # a team whose first job is still to come
    assert cli("limits", "set", "llm:zen", "--budget", "usd=300/week").err == ""
    assert "is a template, which no job has" in cli("limits", "set", "llm:{team}", "--budget", "usd=3/week").err


def test_what_cannot_be_a_limit_is_refused(cli: Cli) -> None:
    cli.seed(busy)
    assert "--budget usd=50/day" in cli("limits", "set", "openai", code=2).err
    assert "names no unit" in cli("limits", "set", "openai", "--budget", "50/day", code=2).err
    assert "given twice" in cli("limits", "set", "x", "--budget", "usd=1/day", "--budget", "usd=2/day", code=2).err
    refused = cli("limits", "set", "openai", "--budget", "usd=50/year", code=2).err
    assert "has the period 'year', which does not exist" in refused
    assert "periods are minute" in refused
    assert "the slowest rate='x' cannot be read" in cli("limits", "set", "openai", "--slowest", "x", code=2).err
    assert "units are cost, tokens" in cli("limits", "set", "openai", "--bucket", "words=5/m", code=2).err
    assert "no buckets and no budgets" in cli("limits", "set", "queue:mail", "--budget", "usd=5/day", code=2).err


async def unpaid(store: Store) -> None:
    """The account of a limit is empty; another one, of dollars, has all of them."""
    call = job("ask", limits=("claude", "usd:claude"))
    dollars = GateRule("limit:usd:claude", interval_us=720, burst=5_000_000, unit="usd")
    rules = (GateRule("limit:claude", concurrency=4, floor=250), dollars)
    await put(store, call, rules=rules)
    (held,) = await claim(store, limit=1)
    await store.settle("w1", 1, [Hold(held.id, held.token, "limit:claude", 600_000, "no money", trips=True)])


def test_a_limit_without_money_says_so_and_is_found_by_its_name(cli: Cli) -> None:
    cli.seed(unpaid)
    shut, money = cli("limits", "list", "claude").out.splitlines()[1:]
    assert "no money or quota left" in shut
    assert "$5 of $5 left, $5/h" in money
    (shape, _) = cli("limits", "list", "claude", "--json").json["limits"]
    assert shape["shut"]
    assert shape["shut_until"] == cli("breakers", "--json").json["breakers"][-1]["open_until"]
    assert "did you mean 'limit:claude'?" in cli("breakers", "reset", "claude", code=3).err
    cli("breakers", "reset", "limit:claude")
    assert not cli("limits", "list", "claude", "--json").json["limits"][0]["shut"]


def test_limits_of_queues_are_listed_by_their_kind(cli: Cli) -> None:
    cli.seed(busy)
    cli("limits", "set", "queue:mail", "--concurrency", "5")
    assert [line["key"] for line in cli("limits", "list", "queue:", "--json").json["limits"]] == ["queue:mail"]
    assert "no limit begins with 'llama'" in cli("limits", "list", "llama").err


def test_the_history_of_limits_and_breakers_and_all_events(cli: Cli) -> None:
    cli.seed(busy)
    cli("breakers", "trip", "smtp", "--for", "60")
    cli("breakers", "reset", "smtp")
    assert "breaker smtp closed" in cli("breakers", "history", "smtp").out
    history = cli("breakers", "history", "--json").json["events"]
    assert [event["kind"] for event in history] == ["breaker.opened", "breaker.closed"]
    kinds = ["budget.reached", "budget.reached", "budget.short"]
    limits = cli("limits", "history", "llm:acme", "--json").json["events"]
    assert [event["kind"] for event in limits] == kinds
    assert [event["percent"] for event in limits[:2]] == [50, 80]
    assert "a job waits for $0.50" in cli("limits", "history").out
    assert len(cli("events", "--json").json["events"]) == 5
    assert len(cli("events", "-n", "2", "--jsonl").out.splitlines()) == 2


def test_costs_and_what_was_spent_are_given_and_shown(cli: Cli) -> None:
    cli.seed(busy)
    id = cli("enqueue", "think", "--cost", "2", "--cost", "usd=0.25", "--json").json["id"]
    shown = cli("job", id, "--json").json
    assert (shown["cost"], shown["costs"], shown["spent"]) == (2, {"usd": 0.25}, {})
    held = cli("claim", "--agent", "a1", "--tasks", "think", "--json").json
    token = str(held["token"])
    assert "not an amount" in cli("complete", id, "--token", token, "--spent", "usd=lots", code=2).err
    assert "units are" in cli("complete", id, "--token", token, "--spent", "token=5", code=2).err
    cli("release", id, "--token", token, "--spent", "usd=0.01")
    token = str(cli("claim", "--agent", "a1", "--tasks", "think", "--json").json["token"])
    cli("complete", id, "--token", token, "--spent", "tokens=1834", "--spent", "usd=0.02")
    assert cli("job", id, "--json").json["spent"] == {"tokens": 1834, "usd": 0.03}
    out = cli("job", id).out
    assert "costs        $0.25" in out
    assert "spent        1,834 tokens, $0.03" in out
    failing = cli("enqueue", "think", "--json").json["id"]
    token = str(cli("claim", "--agent", "a1", "--tasks", "think", "--json").json["token"])
    cli("fail", failing, "--token", token, "--error", "no", "--spent", "usd=0.5")
    assert cli("job", failing, "--json").json["spent"] == {"usd": 0.5}
    assert "cost= is given twice" in cli("enqueue", "think", "--cost", "1", "--cost", "2", code=2).err
    assert "cost counts 'eur'" in cli("enqueue", "think", "--cost", "eur=1", code=2).err
    cli("schedules", "add", "think", "--name", "nightly", "--every", "1h", "--cost", "usd=0.25")
    assert cli("schedules", "show", "nightly", "--json").json["options"] == {"cost": {"usd": 0.25}}


def test_shares_are_set_listed_and_cleared(cli: Cli) -> None:
    cli.seed(lambda store: put(store, job("ask", tenant="acme")))
    assert cli("weights", "set", "tenant:acme", "3", "--json").json == {"name": "tenant:acme", "weight": 3, "notes": []}
    assert cli("weights", "--json").json == {"weights": [{"name": "tenant:acme", "weight": 3}]}
    assert "tenant:acme: 1 per turn" in cli("weights", "clear", "tenant:acme").out
    assert cli("weights", "--json").json == {"weights": []}
    assert "queue:NAME or tenant:NAME" in cli("weights", "set", "acme", "3", code=2).err
    assert "no job of tenant 'acne' is there" in cli("weights", "set", "tenant:acne", "3").err
    (note,) = cli("weights", "set", "queue:mial", "3", "--json").json["notes"]
    assert note.startswith("no task or job uses queue 'mial' yet")
