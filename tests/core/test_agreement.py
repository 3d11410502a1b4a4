"""One key has one declaration, whichever tasks share it."""

from __future__ import annotations

import pytest

from limpet.core.errors import InvalidTask
from limpet.core.limits.budget import Budget
from limpet.core.limits.limit import Breaker, Limit
from limpet.core.tasks.agreement import check_agreement
from limpet.core.tasks.task import TaskSpec


def mail(customer: str, to: str) -> None: ...


def of(name: str, *limits: Limit | Budget, breaker: Breaker | None = None) -> TaskSpec:
    return TaskSpec.declare(mail, name=name, limits=limits, breaker=breaker)


@pytest.mark.parametrize(
    ("first", "other", "says"),
    [
        (
            Limit("smtp", concurrency=1),
            Limit("smtp", concurrency=5),
            r"tasks 'a' and 'b' share the limit 'smtp' and declare it differently: "
            r"Limit\('smtp', concurrency=1\), and Limit\('smtp', concurrency=5\)",
        ),
        (Limit("smtp", rate="10/m"), Limit("smtp", concurrency=5), r"rate='10/m', concurrency=None\), and"),
        (Limit("c:{customer}", rate="1/m"), Limit("c:{to}", rate="2/m"), r"share the limit 'c:\{\}'"),
        (Limit("x", buckets={"tokens": "1/s"}), Limit("tokens:x", rate="1/s"), r"share the limit 'tokens:x'"),
        (Budget("llm", usd=5), Budget("llm", usd=6), r"share the limit 'usd/day:llm'.*usd=5\), and.*usd=6\)"),
    ],
)
def test_tasks_that_say_different_things_of_a_key_are_refused(
    first: Limit | Budget, other: Limit | Budget, says: str
) -> None:
    with pytest.raises(InvalidTask, match=says) as refused:
        check_agreement(of("b", other), [of("a", first)])
    assert "and pass it to both, or give them different keys" in refused.value.fix


def test_a_task_that_says_different_things_of_keys_that_may_be_one_is_refused() -> None:
    with pytest.raises(InvalidTask, match=r"jobs of 'a' may share the limit 'c:\{\}'"):
        check_agreement(of("a", Limit("c:{customer}", rate="1/m"), Limit("c:{to}", rate="2/m")), [])


def test_tasks_that_agree_may_share_a_key() -> None:
    first = of("a", Limit("c:{customer}", rate="1/m"), Budget("llm", usd=5), Limit("of:{task}", concurrency=1))
    other = of(
        "b",
        Limit("c:{to}", rate="1/m", buckets={"tokens": "1/s"}),
        Budget("llm", usd=50, per="month"),
        Limit("of:{task}", concurrency=2),
        breaker=Breaker("llm"),
    )
    check_agreement(other, [first])
