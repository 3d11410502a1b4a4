"""Options of one call: every name and value is checked, and copies do not change the original."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from limpet.core.endings.retry import Retry
from limpet.core.errors import InvalidOption
from limpet.core.flows.refs import Ref
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Policy
from limpet.core.jobs.options import PLAIN, Options, priority_of
from limpet.core.jobs.state import State

A, B = b"a" * 16, b"b" * 16


def key(args: Any) -> str:
    return "k"


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"delay": 60}, "delay_ms", 60_000),
        ({"delay": timedelta(minutes=1)}, "delay_ms", 60_000),
        ({"at": datetime(2030, 1, 1, tzinfo=UTC)}, "due_at_ms", 1_893_456_000_000),
        ({"expires_in": 5}, "expires_ms", 5_000),
        ({"priority": "critical"}, "priority", 0),
        ({"priority": 9}, "priority", 9),
        ({"queue": "email"}, "queue", "email"),
        ({"tenant": "acme"}, "tenant", "acme"),
        ({"tenant": 42}, "tenant", "42"),
        ({"unique": True}, "unique", True),
        ({"unique": "welcome:42"}, "unique", "welcome:42"),
        ({"unique": key}, "unique", key),
        ({"unique_for": 3600}, "unique_for_ms", 3_600_000),
        ({"unique_states": ["ready", State.running]}, "unique_states", frozenset({State.ready, State.running})),
        ({"on_duplicate": "replace"}, "on_duplicate", "replace"),
        ({"after": id_text(A)}, "after", (A,)),
        ({"after": [id_text(A), B, A]}, "after", (A, B)),
        ({"after": [SimpleNamespace(id=id_text(A)), Ref(B)]}, "after", (A, B)),
        ({"if_parent_fails": "run"}, "if_parent_fails", "run"),
        ({"needs": ["gpu", "gpu"]}, "needs", ("gpu",)),
        ({"tags": ("a", "b")}, "tags", ("a", "b")),
        ({"cost": 0}, "cost", {"cost": 0}),
        ({"cost": {"usd": 0.5, "tokens": 3}}, "cost", {"usd": 500_000, "tokens": 3}),
        ({"timeout": None}, "timeout_ms", None),
        ({"timeout": 3}, "timeout_ms", 3_000),
        ({"retry": 2}, "retry", Retry(attempts=2)),
        ({"retry": None}, "retry", Retry(attempts=1)),
        ({"id": id_text(A)}, "id", A),
        ({"conn": "a connection"}, "conn", "a connection"),
    ],
)
def test_each_option_is_understood(given: dict[str, Any], field: str, value: Any) -> None:
    found = PLAIN.replace(**given)
    assert getattr(found, field) == value
    assert Options() == PLAIN
    assert found != PLAIN


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"prioritty": 1}, r"no option 'prioritty'.*did you mean 'priority'"),
        ({"dealy": 1}, r"did you mean 'delay'"),
        ({"delay": -1}, r"delay=-1"),
        ({"delay": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)}, r"contradict"),
        ({"at": datetime(2030, 1, 1)}, r"no time zone"),  # noqa: DTZ001  what is refused
        ({"at": 5}, r"not a datetime"),
        ({"priority": "urgent"}, r"priority='urgent'"),
        ({"priority": "hihg"}, r"did you mean 'high'"),
        ({"priority": 10}, r"priority=10"),
        ({"priority": True}, r"priority=True"),
        ({"queue": ""}, r"queue=''"),
        ({"queue": "a b"}, r"queue='a b'"),
        ({"queue": "x" * 201}, r"queue="),
        ({"queue": 3}, r"queue=3"),
        ({"tenant": ["acme"]}, r"tenant="),
        ({"tenant": "x" * 257}, r"tenant=.*at most 256"),
        ({"tenant": "caf\udce9"}, r"tenant=.*whole characters"),
        ({"tenant": "a\0b"}, r"tenant=.*without NUL"),
        ({"tags": ["caf\udce9"]}, r"tags="),
        ({"queue": "a\0b"}, r"queue="),
        ({"id": 5}, r"^id=5 is not a job id.*UUID"),
        ({"id": "abc"}, r"^id='abc' is not a job id.*UUID"),
        ({"cost": 10**30}, r"use 0 to 100,000"),
        ({"retry": 10**30}, r"not a number of runs"),
        ({"unique": 3}, r"unique must be .* got 3"),
        ({"unique_for": "x"}, r"unique_for"),
        ({"unique_states": ["redy"]}, r"did you mean 'ready'"),
        ({"unique_states": ["dead"]}, r"'dead'"),
        ({"unique_states": "ready"}, r"not a list"),
        ({"on_duplicate": "ignore"}, r"on_duplicate='ignore'"),
        ({"after": ["nope"]}, r"not a job id"),
        ({"after": [3]}, r"names no job"),
        ({"if_parent_fails": "stop"}, r"if_parent_fails='stop'"),
        ({"needs": "gpu"}, r"needs='gpu' is not a list"),
        ({"tags": [""]}, r"tags=''"),
        ({"cost": -1}, r"cost must be .* got -1"),
        ({"cost": 1.5}, r"cost must be .* got 1.5"),
        ({"cost": {"eur": 1}}, r"cost counts 'eur' \(units are cost, tokens, input_tokens, output_tokens, usd\)"),
        ({"timeout": 0}, r"timeout=0"),
        ({"retry": "often"}, r"retry='often'"),
        ({"id": "x"}, r"'x' is not a job id"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        PLAIN.replace(**given)


def test_the_last_word_on_time_counts() -> None:
    at = PLAIN.replace(delay=5).replace(at=datetime(2030, 1, 1, tzinfo=UTC))
    assert (at.delay_ms, at.due_at_ms) == (0, 1_893_456_000_000)
    delay = at.replace(delay=5)
    assert (delay.delay_ms, delay.due_at_ms) == (5_000, None)


def test_a_timeout_moves_the_hard_one_along() -> None:
    policy = Policy(timeout_ms=30_000, hard_timeout_ms=35_000)
    assert PLAIN.replace(timeout=60).applied_to(policy).hard_timeout_ms == 65_000
    assert PLAIN.replace(timeout=None).applied_to(policy).hard_timeout_ms is None
    without = Policy(timeout_ms=None, hard_timeout_ms=None)
    assert PLAIN.replace(timeout=60).applied_to(without).hard_timeout_ms == 70_000
    assert PLAIN.replace(retry=2).applied_to(policy) == Policy(attempts=2, timeout_ms=30_000, hard_timeout_ms=35_000)


def test_none_takes_an_option_back() -> None:
    given: dict[str, Any] = {
        "delay": 1,
        "expires_in": 1,
        "priority": 1,
        "queue": "q",
        "tenant": "g",
        "unique": "k",
        "unique_for": 1,
        "unique_states": ["ready"],
        "on_duplicate": "replace",
        "after": [A],
        "id": A,
        "conn": 1,
    }
    assert PLAIN.replace(**given).replace(**dict.fromkeys(given)) == PLAIN
    assert PLAIN.replace(at=datetime(2030, 1, 1, tzinfo=UTC)).replace(at=None) == PLAIN


def test_the_four_words() -> None:
    assert [priority_of(word) for word in ("critical", "high", "normal", "low")] == [0, 3, 5, 8]
