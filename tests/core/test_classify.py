"""Errors are known by name, status, code and headers, without importing the libraries that raise them."""

from __future__ import annotations

import asyncio
import concurrent.futures
from http import HTTPStatus
from typing import Any

import pytest

from holdfast.core.classify import Verdict, classify, outcome_of
from holdfast.core.errors import InvalidArguments, StepFailed, StepsChanged, StoreUnreachable, WaitTimeout
from holdfast.core.outcome import CancelAsked, DeadAsked, LaterAsked, Limited, Raised, SnoozeAsked
from holdfast.core.signals import Cancel, Dead, RateLimited, RetryLater, Snooze


def fake(name: str, *bases: type[BaseException], **attributes: Any) -> type[Any]:
    """A class that looks like one of a library: `fake("httpx.ConnectError")`."""
    module, _, qualname = name.rpartition(".")
    return type(qualname, bases or (Exception,), {"__module__": module, **attributes})


class Response:
    """What an HTTP client's error carries."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.status_code = status
        self.headers = headers or {}


def http(status: int, headers: dict[str, str] | None = None, **more: Any) -> BaseException:
    error: BaseException = fake("httpx.HTTPStatusError")("no luck")
    error.response = Response(status, headers)  # type: ignore[attr-defined]  # as httpx does
    for name, value in more.items():
        setattr(error, name, value)
    return error


TRANSPORT = fake("httpx.TransportError")
TIMEOUT = fake("httpx.TimeoutException", TRANSPORT)
SQL = fake("psycopg.Error")
BOTO = fake("botocore.exceptions.ClientError")


def boto(code: str, status: int, headers: dict[str, str] | None = None) -> BaseException:
    error: BaseException = BOTO("no luck")
    meta = {"HTTPStatusCode": status, "HTTPHeaders": headers or {}}
    error.response = {"Error": {"Code": code}, "ResponseMetadata": meta}  # type: ignore[attr-defined]
    return error


def with_state(state: str) -> BaseException:
    return fake("psycopg.errors.Some", SQL, sqlstate=state)("x")  # type: ignore[no-any-return]


KNOWN: list[tuple[str, BaseException, str]] = [
    ("a connection that broke", ConnectionResetError(), "transient"),
    ("a socket that timed out", TimeoutError(), "timeout"),
    ("a cancelled await", asyncio.CancelledError(), "cancelled"),
    ("a cancelled future", concurrent.futures.CancelledError(), "cancelled"),
    ("anything unknown", RuntimeError("?"), "transient"),
    ("a bad value", ValueError("?"), "transient"),
    ("a wrong type", TypeError(), "permanent"),
    ("a missing key", KeyError("x"), "permanent"),
    ("a missing module", ModuleNotFoundError(), "permanent"),
    ("a missing attribute", AttributeError(), "permanent"),
    ("arguments that do not fit", InvalidArguments("x"), "permanent"),
    ("a step whose error is kept", StepFailed("x"), "permanent"),
    ("steps that changed", StepsChanged("x"), "permanent"),
    ("an event that did not come", WaitTimeout("x"), "permanent"),
    ("our own store in trouble", StoreUnreachable("x"), "transient"),
    ("out of memory", MemoryError(), "transient"),
    ("httpx: connect", fake("httpx.ConnectError", TRANSPORT)(), "transient"),
    ("httpx: read timeout", fake("httpx.ReadTimeout", TIMEOUT)(), "timeout"),
    ("httpx: bad url", fake("httpx.InvalidURL")(), "permanent"),
    ("httpx2: read timeout", fake("httpx2.ReadTimeout", fake("httpx2.TimeoutException"))(), "timeout"),
    ("requests: timeout", fake("requests.exceptions.ReadTimeout", fake("requests.exceptions.Timeout"))(), "timeout"),
    ("requests: no schema", fake("requests.exceptions.MissingSchema", ValueError)(), "permanent"),
    ("aiohttp: server timeout", fake("aiohttp.client_exceptions.ServerTimeoutError")(), "timeout"),
    ("aiohttp: response 503", fake("aiohttp.client_exceptions.ClientResponseError", status=503)(), "transient"),
    ("aiohttp: response 404", fake("aiohttp.client_exceptions.ClientResponseError", status=404)(), "permanent"),
    ("openai: timeout", fake("openai.APITimeoutError", fake("openai.APIConnectionError"))(), "timeout"),
    ("openai: connection", fake("openai.APIConnectionError")(), "transient"),
    ("openai: 429", fake("openai.RateLimitError", status_code=429, code="rate_limit_exceeded")(), "rate_limited"),
    ("openai: no money", fake("openai.RateLimitError", status_code=429, code="insufficient_quota")(), "permanent"),
    (
        "openai: no credits",
        fake("openai.RateLimitError", status_code=429, code="credit_balance_exhausted")(),
        "permanent",
    ),
    (
        "openai: the type says it, the code says more",
        fake("openai.RateLimitError", status_code=429, code="new_code", type="insufficient_quota")(),
        "permanent",
    ),
    ("openai: bad key", fake("openai.AuthenticationError", status_code=401)(), "permanent"),
    (
        "anthropic: 429",
        fake(
            "anthropic.RateLimitError", status_code=429, body={"type": "error", "error": {"type": "rate_limit_error"}}
        )(),
        "rate_limited",
    ),
    (
        "anthropic: enforced spend limit",
        fake(
            "anthropic.RateLimitError",
            status_code=429,
            body={"error": {"type": "rate_limit_error", "details": {"error_code": "enforced_spend_limit_reached"}}},
        )(),
        "permanent",
    ),
    ("anthropic: overloaded", fake("anthropic.InternalServerError", status_code=529)(), "transient"),
    ("anthropic: billing", fake("anthropic.APIStatusError", status_code=402)(), "permanent"),
    ("botocore: throttled with 400", boto("ThrottlingException", 400), "rate_limited"),
    ("botocore: slow down", boto("SlowDown", 503), "rate_limited"),
    ("botocore: validation", boto("ValidationException", 400), "permanent"),
    ("botocore: internal", boto("InternalError", 500), "transient"),
    ("botocore: no credentials", fake("botocore.exceptions.NoCredentialsError")(), "permanent"),
    ("urllib: 502", fake("urllib.error.HTTPError", OSError, code=502)(), "transient"),
    ("urllib: 410", fake("urllib.error.HTTPError", OSError, code=410)(), "permanent"),
    (
        "google: exhausted",
        fake("google.api_core.exceptions.ResourceExhausted", code=HTTPStatus.TOO_MANY_REQUESTS)(),
        "rate_limited",
    ),
    (
        "google genai: 429",
        fake("google.genai.errors.ClientError", code=429, status="RESOURCE_EXHAUSTED")(),
        "rate_limited",
    ),
    ("redis: loading", fake("redis.exceptions.BusyLoadingError")(), "transient"),
    ("redis: readonly", fake("redis.exceptions.ReadOnlyError")(), "transient"),
    ("redis: timeout", fake("redis.exceptions.TimeoutError")(), "timeout"),
    ("sql: serialization failure", with_state("40001"), "transient"),
    ("sql: deadlock", with_state("40P01"), "transient"),
    ("sql: connection lost", with_state("08006"), "transient"),
    ("sql: shutting down", with_state("57P01"), "transient"),
    ("sql: lock not available", with_state("55P03"), "transient"),
    ("sql: foreign key, perhaps not committed yet", with_state("23503"), "transient"),
    (
        "sql: a passing state under a lasting name",
        fake("psycopg.errors.Other", fake("psycopg.ProgrammingError", SQL), sqlstate="40001")(),
        "transient",
    ),
    ("sql: syntax error", with_state("42601"), "permanent"),
    ("sql: bad number", with_state("22003"), "permanent"),
    ("sqlalchemy: wraps a syntax error", fake("sqlalchemy.exc.DBAPIError", orig=with_state("42601"))(), "permanent"),
    ("sqlalchemy: wraps a deadlock", fake("sqlalchemy.exc.OperationalError", orig=with_state("40P01"))(), "transient"),
    ("sqlite: programming error", fake("sqlite3.ProgrammingError")(), "permanent"),
    ("an exit code is no status", SystemExit(404), "transient"),
    ("a status that is none", fake("app.Odd", status=7, status_code=True)(), "transient"),
    ("a subclass of the user's own", fake("shop.Flaky", fake("httpx.ReadTimeout", TIMEOUT))(), "timeout"),
    ("the same name elsewhere", fake("shop.TimeoutException")(), "transient"),
]


@pytest.mark.parametrize(("error", "kind"), [(error, kind) for _, error, kind in KNOWN], ids=[row[0] for row in KNOWN])
def test_known_errors(error: BaseException, kind: str) -> None:
    assert classify(error).kind == kind


@pytest.mark.parametrize("status", range(400, 600))
def test_every_status_has_a_meaning(status: int) -> None:
    expected = "permanent"
    if status == 429:
        expected = "rate_limited"
    elif status in (408, 409, 425) or status >= 500:
        expected = "transient"
    assert classify(http(status)).kind == expected


NOW_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z
AT = {"date": "Tue, 14 Nov 2023 22:13:20 GMT"}


@pytest.mark.parametrize(
    ("headers", "ms"),
    [
        ({}, None),
        ({"retry-after": "12"}, 12_000),
        ({"Retry-After": "0.5"}, 500),
        ({"RETRY-AFTER": " 7 "}, 7_000),
        ({"retry-after-ms": "250"}, 250),
        ({"retry-after-ms": "250", "retry-after": "9"}, 250),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30_000),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT", "date": "Tue, 14 Nov 2023 22:13:40 GMT"}, 10_000),
        ({"retry-after": "Tue, 14 Nov 2023 22:00:00 GMT"}, 0),
        ({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "0"}, 360_000),
        ({"x-ratelimit-reset-tokens": "1h2m3.5s", "x-ratelimit-remaining-tokens": "0"}, 3_723_500),
        ({"x-ratelimit-reset-tokens": "17ms", "x-ratelimit-remaining-tokens": "0"}, 17),
        ({"x-ratelimit-reset-tokens": "1.2µs", "x-ratelimit-remaining-tokens": "0"}, 1),
        ({"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "500"}, None),
        ({"x-ratelimit-reset-tokens": "6m0s"}, None),
        (
            {
                "retry-after": "5",
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2023-11-14T22:13:45Z",
                "anthropic-ratelimit-requests-remaining": "9",
                "anthropic-ratelimit-requests-reset": "2023-11-14T23:13:45Z",
            },
            25_000,
        ),
        ({"retry-after": "2023-11-14T22:13:45"}, 25_000),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "99999-01-01T00:00:00Z"}, None),
        ({"x-ratelimit-reset-requests": "6q", "x-ratelimit-remaining-requests": "0"}, None),
        ({"anthropic-ratelimit-tokens-reset": "x", "anthropic-ratelimit-tokens-remaining": "0"}, None),
    ],
)
def test_headers_say_how_long(headers: dict[str, str], ms: int | None) -> None:
    assert classify(http(429, headers), now_ms=NOW_MS) == Verdict("rate_limited", ms)


def test_instants_need_a_clock_and_the_answers_own_is_best() -> None:
    headers = {"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}
    assert classify(http(429, headers)).retry_after_ms is None
    assert classify(http(429, headers | AT)).retry_after_ms == 30_000
    assert classify(http(429, headers | AT), now_ms=0).retry_after_ms == 30_000


def test_retry_after_of_an_overload_is_kept_too() -> None:
    assert classify(http(503, {"retry-after": "3"})) == Verdict("transient", 3_000)
    assert classify(http(529, {"retry-after": "3"})) == Verdict("transient", 3_000)
    assert classify(http(404, {"retry-after": "3"})) == Verdict("permanent")


def test_headers_of_other_libraries() -> None:
    error = fake("aiohttp.client_exceptions.ClientResponseError", status=429, headers={"Retry-After": "4"})()
    assert classify(error).retry_after_ms == 4_000
    assert classify(boto("Throttling", 400, {"retry-after": "2"})).retry_after_ms == 2_000


def test_google_says_it_in_the_body() -> None:
    body = {"error": {"details": [{"@type": "x.QuotaFailure"}, {"@type": "x.RetryInfo", "retryDelay": "34.5s"}]}}
    assert classify(http(429, body=body)).retry_after_ms == 34_500
    assert classify(http(429, details=body)).retry_after_ms == 34_500
    delay = type("Duration", (), {"seconds": 7, "nanos": 500_000_000})()
    info = type("RetryInfo", (), {"retry_delay": delay})()
    assert classify(http(429, details=[object(), info])).retry_after_ms == 7_500


@pytest.mark.parametrize("junk", [None, 3, "x", [1], {"error": 3}, {"error": {"details": {"a": 1}}}, {"details": [{}]}])
def test_odd_bodies_and_headers_do_no_harm(junk: Any) -> None:
    error = http(429, body=junk, details=junk, code=junk, type=junk)
    error.response.headers = junk  # type: ignore[attr-defined]  # as above
    assert classify(error).kind == "rate_limited"
    error.response = junk  # type: ignore[attr-defined]
    assert classify(error).kind in ("rate_limited", "transient")


# -- wrapped and grouped


def raised_from(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def test_an_own_error_means_what_it_was_raised_from() -> None:
    assert classify(raised_from(RuntimeError("payment failed"), http(404))).kind == "permanent"
    wrapped = raised_from(fake("shop.PaymentFailed")(), http(429, {"retry-after": "3"}))
    assert classify(wrapped) == Verdict("rate_limited", 3_000)


def test_a_mistake_behind_an_own_error_is_left_to_that_error() -> None:
    assert classify(raised_from(RuntimeError("try again"), KeyError("x"))).kind == "transient"


def test_a_mistake_is_one_even_when_raised_from_something_transient() -> None:
    assert classify(raised_from(TypeError(), http(503))).kind == "permanent"


def test_a_chain_that_bites_its_tail_ends() -> None:
    one, two = RuntimeError("1"), RuntimeError("2")
    one.__cause__, two.__cause__ = two, one
    assert classify(one).kind == "transient"


@pytest.mark.parametrize(
    ("errors", "kind"),
    [
        ([ValueError(), TypeError()], "permanent"),
        ([ValueError(), http(429, {"retry-after": "3"})], "rate_limited"),
        ([ValueError(), TimeoutError()], "timeout"),
        ([ExceptionGroup("inner", [KeyError("x")])], "permanent"),
    ],
)
def test_a_group_means_its_worst(errors: list[Exception], kind: str) -> None:
    assert classify(ExceptionGroup("several", errors)).kind == kind


def test_a_group_of_cancellations_is_one() -> None:
    assert classify(BaseExceptionGroup("several", [asyncio.CancelledError()])).kind == "cancelled"


def test_of_several_waits_the_longest_counts() -> None:
    errors = [http(429, {"retry-after": "3"}), http(429, {"retry-after": "9"}), http(429)]
    assert classify(BaseExceptionGroup("several", errors)) == Verdict("rate_limited", 9_000)


# -- classifiers of the user


def test_an_extra_classifier_has_the_first_word() -> None:
    assert classify(TypeError(), [lambda error: "transient"]).kind == "transient"
    own = Verdict("rate_limited", 5, "openai")
    assert classify(ValueError(), [lambda error: None, lambda error: own]) == own
    outcome = outcome_of(ValueError("slow"), [lambda error: own])
    assert isinstance(outcome, Limited)
    assert (outcome.retry_after_ms, outcome.key, outcome.message) == (5, "openai", "slow")


def test_a_broken_classifier_hides_nothing() -> None:
    def broken(error: BaseException) -> Verdict | None:
        raise RuntimeError

    assert classify(KeyError(), [broken]).kind == "permanent"
    assert classify(KeyError(), [lambda error: "sometimes"]).kind == "permanent"  # type: ignore[list-item,return-value]


# -- outcomes


def test_signals_become_what_they_ask() -> None:
    later = outcome_of(RetryLater(30))
    assert isinstance(later, LaterAsked)
    assert (later.delay_ms, later.failure.type) == (30_000, "holdfast.RetryLater")
    assert outcome_of(Snooze(60, "not yet")) == SnoozeAsked(60_000, "not yet")
    dead = outcome_of(Dead("bad address"))
    assert isinstance(dead, DeadAsked)
    assert dead.failure is not None
    assert (dead.reason, dead.failure.kind, dead.failure.message) == ("bad address", "permanent", "bad address")
    assert outcome_of(Cancel("why")) == CancelAsked("why")
    limited = outcome_of(RateLimited(12, "openai"))
    assert isinstance(limited, Limited)
    assert (limited.retry_after_ms, limited.key) == (12_000, "openai")


def test_a_signal_inside_a_task_group_is_heard() -> None:
    group = ExceptionGroup("several", [ValueError(), ExceptionGroup("inner", [Snooze(5)])])
    assert outcome_of(group) == SnoozeAsked(5_000, "")


def test_errors_become_what_they_mean() -> None:
    raised = outcome_of(http(503, {"retry-after": "3"}))
    assert isinstance(raised, Raised)
    assert (raised.failure.kind, raised.retry_after_ms) == ("transient", 3_000)
    assert isinstance(outcome_of(http(429)), Limited)


# -- errors that do not want to be looked at


class Hostile:
    """Raises whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __bool__(self) -> bool:
        raise RuntimeError("bool")

    def __str__(self) -> str:
        raise RuntimeError("str")


def hostile(name: str) -> BaseException:
    def no(self: object) -> Any:
        raise RuntimeError(f"no {name} yet")

    return type("Odd", (Exception,), {name: property(no)})("x")  # type: ignore[no-any-return]


def carrying(**attributes: Any) -> BaseException:
    error = Exception("x")
    error.__dict__.update(attributes)
    return error


def nested(depth: int) -> BaseException:
    error: BaseException = ValueError("x")
    for _ in range(depth):
        error = BaseExceptionGroup("more", [error])
    return error


READ = ("response", "status_code", "status", "headers", "body", "details", "code", "type", "orig", "sqlstate", "pgcode")


@pytest.mark.parametrize(
    "error",
    [
        *(hostile(name) for name in READ),
        *(carrying(**{name: Hostile()}) for name in READ),
        carrying(response={"ResponseMetadata": None}),
        carrying(response={"ResponseMetadata": 7, "Error": None}),
        carrying(response={"ResponseMetadata": {"HTTPStatusCode": 503, "HTTPHeaders": 3}}),
        carrying(status_code=503, headers={"retry-after": "9" * 400}),
        carrying(status_code=503, headers={"retry-after": "1e308"}),
        carrying(status_code=503, headers={Hostile(): Hostile()}),
        carrying(status_code=503, headers=Hostile()),
        carrying(status_code=503, details=[carrying(retry_delay=carrying(seconds=1, nanos="x"))]),
        carrying(status_code=503, details=[carrying(retry_delay=carrying(seconds=float("nan")))]),
        nested(3_000),
        type("Nowhere", (Exception,), {"__module__": None})("x"),
    ],
    ids=str,
)
def test_an_error_that_cannot_be_looked_at_is_transient(error: BaseException) -> None:
    assert classify(error).kind == "transient"


@pytest.mark.parametrize("error", [hostile("response"), type("Nowhere", (Exception,), {"__module__": None})("x")])
def test_its_outcome_is_an_ordinary_failure(error: BaseException) -> None:
    outcome = outcome_of(error)
    assert isinstance(outcome, Raised)
    assert (outcome.failure.kind, outcome.failure.message) == ("transient", "x")


def test_a_hostile_property_does_not_hide_what_the_others_say() -> None:
    error = hostile("response")
    error.status_code = 404  # type: ignore[attr-defined]
    assert classify(error).kind == "permanent"


@pytest.mark.parametrize("wait", [float("inf"), float("nan"), -1, "soon", 1e300])
def test_a_verdict_of_someone_elses_making_is_bounded(wait: Any) -> None:
    said = classify(ValueError(), [lambda error: Verdict("rate_limited", wait, "k\udcff")])
    assert said.retry_after_ms is None or 0 <= said.retry_after_ms < 2**53
    assert said.key == "k\\udcff"
    assert classify(ValueError(), [lambda error: Verdict("odd")]).kind == "transient"  # type: ignore[arg-type]
