"""A breaker whose name is a template: its name for one job, where that job counts, and what others hear of it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from limpet.core.endings.stopping import may_shut
from limpet.core.endings.transition import Failure, RetryAfter
from limpet.core.errors import InvalidArguments, InvalidTask
from limpet.core.gate import (
    CLOSED,
    COUNTING,
    OPEN,
    BreakerRule,
    Charge,
    Gate,
    GateRule,
    WorstFirst,
    by_key,
    rank,
    under_own,
)
from limpet.core.jobs.job import Job
from limpet.core.jobs.options import PLAIN, Options
from limpet.core.limits.limit import Breaker, Limit
from limpet.core.tasks.agreement import check_agreement
from limpet.core.tasks.declaration import Declaration, read_declaration
from limpet.core.tasks.task import TaskSpec, build_job

ID = b"i" * 16
NUMBERS = BreakerRule(failures=3)
OWN = Gate(GateRule("breaker:hook", breaker=NUMBERS))


def hook(customer: str, order: dict[str, Any] | None = None) -> None: ...


def spec(breaker: Breaker | None = None, **options: Any) -> TaskSpec:
    chosen = breaker or Breaker("webhook:{customer}", failures=3)
    return TaskSpec.declare(hook, name="hook", breaker=chosen, **options)


def job_of(spec: TaskSpec, *args: Any, options: Options = PLAIN) -> Job:
    return build_job(spec, spec.signature.bind(args, {}), options, id=ID)[0]


def test_the_lane_has_the_breaker_of_its_key_and_the_one_of_its_task() -> None:
    one = spec(limits=[Limit("c:{customer}", concurrency=1)])
    job, rules = build_job(one, {"customer": "acme"}, id=ID)
    assert (job.lane.breaker, job.lane.breaker_key) == ("hook", "webhook:acme")
    assert job.lane.class_gates[-1] == "breaker:hook"
    assert job.lane.lane_gates == ("limit:c:acme", "breaker:webhook:acme")
    assert job.lane.lasting_gates == ("breaker:hook", "limit:c:acme")
    assert rules[-1] == OWN.rule, "the numbers are declared once, whichever key the job has"
    other = job_of(one, "zen").lane
    assert (job.lane.kind, job.lane.limited) == (other.kind, True)
    assert job.lane.id != other.id
    assert job.lane.member != other.member, "keys take turns"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("{customer}", "acme"),
        ("w:{order.server}:{order[path]}", "w:s1:/in"),
        ("{task}@{queue}:{tenant}", "hook@fast:blue"),
        ("{order.nothing}", None),
        ("hook", None),
        ("of:{task}", None),
    ],
)
def test_the_name_is_filled_in_at_enqueue(name: str, key: str | None) -> None:
    order = {"server": "s1", "path": "/in", "nothing": None}
    job = job_of(spec(Breaker(name)), "acme", order, options=Options().replace(queue="fast", tenant="blue"))
    assert job.lane.breaker_key == key
    assert job.lane.breaker == ("of:hook" if name == "of:{task}" else "hook")


def test_a_key_that_is_called_as_the_task_is_the_breaker_of_the_task() -> None:
    assert job_of(spec(Breaker("{customer}")), "hook").lane.breaker_key is None


def test_a_name_with_an_unknown_parameter_is_refused_at_declaration() -> None:
    with pytest.raises(InvalidTask, match="names 'custmer', which is not a parameter of the task") as refused:
        spec(Breaker("webhook:{custmer}"))
    assert "did you mean 'customer'?" in refused.value.fix


def test_a_value_that_is_too_long_for_a_key_is_refused_at_enqueue() -> None:
    with pytest.raises(InvalidArguments, match="characters long"):
        job_of(spec(), "x" * 300)


def test_a_published_task_fills_the_same_key() -> None:
    read = read_declaration(Declaration.of(spec()).control())
    assert read is not None
    values = {"customer": "acme"}
    assert build_job(read.spec(), values, id=ID) == build_job(spec(), values, id=ID)
    assert [rule.key for rule in read.constant_rules()] == ["breaker:hook"]
    assert read.breaker_rule("breaker:webhook:zen") == GateRule("breaker:webhook:zen", breaker=NUMBERS)
    assert read.breaker_rule("breaker:hook") == OWN.rule
    assert read.breaker_rule("breaker:other") is None
    assert read.breaker_rule("limit:webhook:zen") is None


def test_tasks_that_may_share_a_key_declare_the_same_numbers() -> None:
    other = TaskSpec.declare(hook, name="other", breaker=Breaker("webhook:{customer}", failures=3))
    check_agreement(other, [spec()])
    stricter = TaskSpec.declare(hook, name="other", breaker=Breaker("webhook:{customer}", failures=1))
    with pytest.raises(InvalidTask, match=r"tasks 'hook' and 'other' share the breaker 'webhook:\{\}'"):
        check_agreement(stricter, [spec()])


def test_a_key_has_the_numbers_of_its_tasks_own_breaker() -> None:
    key = "breaker:webhook:acme"
    fresh = Gate(GateRule(key, breaker=NUMBERS))
    assert under_own(None, key, OWN) == fresh
    assert under_own(None, key, None) is None
    by_hand = Gate(GateRule(key), open_until_ms=5)
    assert under_own(by_hand, key, OWN) == replace(fresh, open_until_ms=5)
    assert under_own(by_hand, key, Gate(GateRule("breaker:hook"))) == by_hand
    operated = Gate(GateRule(key, breaker=BreakerRule(failures=9)), declared=False)
    assert under_own(operated, key, OWN) == operated


@pytest.mark.parametrize(
    ("charges", "counts"),
    [
        ([], []),
        ([Charge("limit:c")], [Charge("limit:c")]),
        ([Charge("o")], [Charge("k", own="o")]),
        ([Charge("k")], [Charge("k", own="o")]),
        (
            [Charge("o"), Charge("limit:c", slot=True), Charge("k")],
            [Charge("limit:c", slot=True), Charge("k", own="o")],
        ),
        ([Charge("o"), Charge("k", probe=True)], [Charge("k", probe=True, own="o")]),
        ([Charge("o", probe=True), Charge("k")], [Charge("o", probe=True)]),
        (
            [Charge("o", probe=True), Charge("k", probe=True)],
            [Charge("o", probe=True), Charge("k", probe=True, own="o")],
        ),
    ],
)
def test_a_job_counts_at_its_key_and_a_probe_where_it_was_let_through(
    charges: list[Charge], counts: list[Charge]
) -> None:
    assert by_key(charges, "o", "k") == counts


def test_breakers_are_ranked_by_what_there_is_to_see() -> None:
    assert rank(Gate(GateRule("breaker:a"), open_until_ms=1)) == OPEN
    assert rank(Gate(GateRule("limit:a"), open_until_ms=1)) == OPEN
    assert rank(Gate(GateRule("breaker:a"), failed_at_ms=(1,))) == COUNTING
    assert rank(Gate(GateRule("breaker:a"), calls=(1, 1, 0, 0))) == COUNTING
    assert rank(Gate(GateRule("breaker:a"))) == CLOSED
    assert rank(Gate(GateRule("limit:a"))) is None
    assert list(WorstFirst().ranges()) == [(OPEN, ""), (COUNTING, ""), (CLOSED, "")]
    assert list(WorstFirst(after=(COUNTING, "b")).ranges()) == [(COUNTING, "b"), (CLOSED, "")]


def test_a_failure_may_shut_the_breaker_of_its_key() -> None:
    failed = RetryAfter(ID, 1, Failure("transient", "E", "down"), 0)
    assert may_shut(job_of(spec(), "acme").lane, failed) == "breaker:webhook:acme"
    assert may_shut(job_of(spec(Breaker("{order.nothing}")), "acme", {"nothing": None}).lane, failed) == "breaker:hook"
