"""`limpet classify` says what an error means, why, and what becomes of the job."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from limpet.core.endings.decide import SPENT_PROBE_MS
from limpet.core.endings.transition import Hold
from limpet.ops.verdicts import known_rules, sample_of, tell
from tests.cli.conftest import Cli

BILLED = "tests.cli.billed:app"


def asked(cli: Cli, *words: str) -> Any:
    return cli("classify", *words, "--json").json


@pytest.mark.parametrize(
    ("words", "kind", "by", "what", "then"),
    [
        (["ValueError"], "transient", "default", None, "RetryAfter"),
        (["builtins:KeyError"], "permanent", "mistake", "KeyError", "Bury"),
        (["pydantic:ValidationError"], "permanent", "mistake", "pydantic_core.ValidationError", "Bury"),
        (["msgspec:ValidationError"], "permanent", "mistake", "msgspec.ValidationError", "Bury"),
        (["asyncpg:UniqueViolationError"], "permanent", "sqlstate", "23505", "Bury"),
        (["redis.exceptions:BusyLoadingError"], "transient", "name", "redis.BusyLoadingError", "RetryAfter"),
        (["urllib.error:HTTPError", "--status", "404"], "permanent", "status", "404", "Bury"),
        (["--status", "402"], "spent", "status", "402", "Hold"),
        (["--status", "429", "--code", "insufficient_quota"], "spent", "code", "insufficient_quota", "Hold"),
        (["--body", '{"error": {"type": "billing_error"}}'], "spent", "code", "billing_error", "Hold"),
        (["limpet:Cancel"], None, "signal", "Cancel", "Drop"),
        (["limpet:Snooze"], None, "signal", "Snooze", "Snooze"),
        (["ExceptionGroup"], "transient", "default", None, "RetryAfter"),
        # what an app and its tasks say
        (["ValueError", "--app", BILLED], "permanent", "app", "ValueError", "Bury"),
        (["ValueError", "--app", BILLED, "--task", "ask"], "timeout", "task", "builtins.ValueError", "RetryAfter"),
        (["tests.cli.billed:Odd", "--app", BILLED], "transient", "app", "judge", "RetryAfter"),
        (["TypeError", "--app", BILLED, "--task", "once"], "permanent", "mistake", "TypeError", "Bury"),
    ],
)
def test_an_error_is_judged(cli: Cli, words: list[str], kind: str | None, by: str, what: str | None, then: str) -> None:
    found = asked(cli, *words)
    assert (found["kind"], found["rule"]["by"], found["rule"]["what"]) == (kind, by, what)
    assert found["then"]["transition"] == then
    assert found["then"]["attempt_spent"] is (then in ("RetryAfter", "Bury"))


def test_headers_name_the_time_and_the_task_names_the_limit(cli: Cli) -> None:
    words = ["--status", "429", "--header", "Retry-After: 12", "--app", BILLED, "--task", "ask"]
    found = asked(cli, *words)
    assert (found["retry_after_s"], found["then"]["key"], found["then"]["trips"]) == (12.0, "limit:llm:{team}", False)
    said = cli("classify", *words).out
    assert said.splitlines()[0] == "an answer with status 429, in a job of ask"
    assert "rate_limited: the provider asks for a lower rate" in said
    assert "limit 'llm:{team}' is held for 12s, as the provider asks" in said
    words[3] = "Retry-After: Fri, 31 Dec 2199 23:59:59 GMT"  # a job is held for a day, and no longer
    assert asked(cli, *words)["retry_after_s"] > 86_400
    assert "limit 'llm:{team}' is held for 1d, as the provider asks" in cli("classify", *words).out


def test_no_money_is_told_with_the_way_out(cli: Cli) -> None:
    said = cli("classify", "--code", "insufficient_quota", "--app", BILLED, "--task", "ask").out
    for words in (
        "spent: the account has no money or quota left",
        "its code is 'insufficient_quota'",
        "its attempt unspent; limit 'llm:{team}' is closed like an open breaker",
        "after 10m one of them probes",
        "limpet breakers reset",
    ):
        assert words in said
    told = tell(sample_of(Exception, status=402))
    assert isinstance(told.transition, Hold)
    assert (told.transition.trips, told.transition.delay_ms) == (True, SPENT_PROBE_MS)


def test_a_task_with_one_attempt_says_so(cli: Cli) -> None:
    said = cli("classify", "OSError", "--app", BILLED, "--task", "once").out
    assert "dead: the task allows no other attempt" in said
    said = cli("classify", "OSError", "--app", BILLED, "--task", "ask").out
    assert "tried again when its retry function says; 100 attempts in all, then dead; counts for its breaker" in said


def test_classifiers_that_are_passed_over_are_told(cli: Cli) -> None:
    ran = cli("classify", "KeyError", "--app", BILLED, "--task", "once")
    assert "note: nonsense() answered 'sometimes', which is not a kind, and is ignored" in ran.err
    notes = asked(cli, "KeyError", "--app", BILLED, "--task", "once")["notes"]
    assert notes == [
        "nonsense() answered 'sometimes', which is not a kind, and is ignored",
        "broken() raised ZeroDivisionError and is passed over",
    ]


@pytest.mark.parametrize(
    ("words", "code", "says", "fix"),
    [
        ([], 2, "which error?", "--list"),
        (["nowhere.at.all:Error"], 2, "no module named 'nowhere.at.all'", "--status, --code"),
        (["redis:Connectionerror"], 2, "'redis' has no 'Connectionerror'", "did you mean 'ConnectionError'?"),
        (["redis.ConnectionError"], 2, "not an exception", "write redis:ConnectionError"),
        (["NoSuchError"], 2, "not an exception", "known: "),
        (["json:dumps"], 2, "is of type function, not an exception class", "module:Error"),
        (["redis:"], 2, "'redis:' names no class", "module:Error"),
        ([":ValueError"], 2, "':ValueError' names no class", "module:Error"),
        (["tests.cli.billed:ODD"], 2, "is an instance, not an exception class", "module:Error"),
        (["tests.cli.unimportable:Error"], 2, "RuntimeError: not today", "correct it"),
        (["tests.cli.exits:Error"], 2, "importing 'tests.cli.exits' ends the program (exit 3)", "__main__"),
        (["ValueError", "--app", "tests.cli.exits:app"], 2, "ends the program (exit 3)", "__main__"),
        (["ValueError", "--task", "ask"], 2, "a task of an app", "--app"),
        (["ValueError", "--app", BILLED, "--task", "aks"], 3, "no task 'aks'", "did you mean 'ask'?"),
        (["ValueError", "--list"], 2, "lists all rules", "ask about ValueError"),
        (["--status", "200"], 2, "200", ""),
        (["--header", "retry-after"], 2, "is not a header", ""),
        (["--body", "{"], 2, "not JSON", ""),
        (["pydantic_core:PydanticCustomError"], 2, "no sample of PydanticCustomError can be made", "--list"),
        (["tests.cli.billed:Fixed", "--status", "500"], 2, "a status of its own: 418", "leave --status out"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_fix(
    cli: Cli, words: list[str], code: int, says: str, fix: str
) -> None:
    said = cli("classify", *words, code=code).err
    assert says in said
    assert fix in said


def test_all_rules_are_listed_in_the_order_of_asking(cli: Cli) -> None:
    rules = cli("classify", "--list", "--json", "--app", BILLED).json["rules"]
    assert rules[:2] == [
        {"kind": "timeout", "by": "task ask", "what": "builtins.ValueError"},
        {"kind": None, "by": "task once", "what": "nonsense()"},
    ]
    assert {"kind": "permanent", "by": "app", "what": "builtins.ValueError"} in rules
    assert {"kind": "spent", "by": "status", "what": "402"} in rules
    assert rules[-1] == {"kind": "transient", "by": "default", "what": "anything else"}
    lines = cli("classify", "--list").out.splitlines()
    assert len(lines) == len(known_rules()) + 1


def test_every_builtin_error_has_a_meaning() -> None:
    kinds = [kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)]
    assert {tell(sample_of(kind)).kind for kind in kinds} == {"transient", "permanent", "timeout"}
