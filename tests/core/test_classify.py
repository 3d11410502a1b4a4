"""Errors are known by name, status, code and headers, without importing the libraries that raise them."""

from __future__ import annotations

import asyncio
import concurrent.futures
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import pytest

from limpet.core.endings.classify import Kind, Verdict, classify, judge_error, outcome_of
from limpet.core.endings.outcome import CancelAsked, DeadAsked, LaterAsked, Limited, Raised, SnoozeAsked
from limpet.core.endings.overrides import ClassifyOption, Overrides, classifiers_of
from limpet.core.endings.signals import Cancel, Dead, RateLimited, RetryLater, Snooze
from limpet.core.errors import (
    InvalidArguments,
    InvalidOption,
    StepFailed,
    StepsChanged,
    StoreUnreachable,
    WaitTimeout,
)
from limpet.core.text.duration import LONGEST_WAIT_MS


def fake(name: str, *bases: type[BaseException], **attributes: Any) -> type[Any]:
    """A class that looks like one of a library: `fake("httpx.ConnectError")`."""
    module, _, qualname = name.rpartition(".")
    return type(qualname, bases or (Exception,), {"__module__": module, **attributes})


class Response:
    """What an HTTP client's error carries."""

    def __init__(self, status: int, headers: dict[str, str] | None = None, content: bytes = b"") -> None:
        self.status_code = status
        self.headers = headers or {}
        self._content = content  # where httpx and requests keep what they have read


def http(status: int, headers: dict[str, str] | None = None, **more: Any) -> Any:
    error = fake("httpx.HTTPStatusError")("no luck")
    error.response = Response(status, headers)
    for name, value in more.items():
        setattr(error, name, value)
    return error


TRANSPORT = fake("httpx.TransportError")
TIMEOUT = fake("httpx.TimeoutException", TRANSPORT)
SQL = fake("psycopg.Error")
BOTO = fake("botocore.exceptions.ClientError")


def boto(code: str, status: int, headers: dict[str, str] | None = None) -> Any:
    error = BOTO("no luck")
    meta = {"HTTPStatusCode": status, "HTTPHeaders": headers or {}}
    error.response = {"Error": {"Code": code}, "ResponseMetadata": meta}
    return error


def with_state(state: str) -> Any:
    return fake("psycopg.errors.Some", SQL, sqlstate=state)("x")


def rpc(code: str) -> Any:
    """As gRPC does it: a method that answers an enum."""
    answer = type("StatusCode", (), {"name": code})()
    return fake("grpc.aio._call.AioRpcError", fake("grpc.RpcError"), code=lambda self: answer)()


REQUESTS_CONNECT_TIMEOUT = fake(
    "requests.exceptions.ConnectTimeout",
    fake("requests.exceptions.ConnectionError", IOError),
    fake("requests.exceptions.Timeout", IOError),
)


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
    ("openai: no money", fake("openai.RateLimitError", status_code=429, code="insufficient_quota")(), "spent"),
    (
        "openai: no credits",
        fake("openai.RateLimitError", status_code=429, code="credit_balance_exhausted")(),
        "spent",
    ),
    (
        "openai: the type says it, the code says more",
        fake("openai.RateLimitError", status_code=429, code="new_code", type="insufficient_quota")(),
        "spent",
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
        "spent",
    ),
    ("anthropic: overloaded", fake("anthropic.InternalServerError", status_code=529)(), "transient"),
    ("anthropic: billing", fake("anthropic.APIStatusError", status_code=402)(), "spent"),
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
    (
        "google: no billing account",
        fake(
            "google.genai.errors.ClientError",
            code=403,
            details={"error": {"status": "PERMISSION_DENIED", "details": [{"reason": "BILLING_DISABLED"}]}},
        )(),
        "spent",
    ),
    (
        "google: slow down with 403",
        fake(
            "googleapiclient.errors.HttpError",
            status_code=403,
            body={"error": {"errors": [{"reason": "rateLimitExceeded"}]}},
        )(),
        "rate_limited",
    ),
    ("google: its own retries ran out", fake("google.api_core.exceptions.RetryError")(), "timeout"),
    ("grpc: unavailable", rpc("UNAVAILABLE"), "transient"),
    ("grpc: too late", rpc("DEADLINE_EXCEEDED"), "timeout"),
    ("grpc: exhausted", rpc("RESOURCE_EXHAUSTED"), "rate_limited"),
    ("grpc: bad argument", rpc("INVALID_ARGUMENT"), "permanent"),
    (
        "anthropic: overloaded in a stream, whose status is 200",
        fake("anthropic.APIStatusError", status_code=200, body={"error": {"type": "overloaded_error"}})(),
        "transient",
    ),
    (
        "anthropic: refused in a stream",
        fake("anthropic.APIStatusError", status_code=200, body={"error": {"type": "invalid_request_error"}})(),
        "permanent",
    ),
    ("an own error may have any code", fake("shop.NoSuchOrder", code="NOT_FOUND")(), "transient"),
    ("stripe: the card is declined, with a 402", fake("stripe._error.CardError", http_status=402)(), "permanent"),
    ("stripe: bad key", fake("stripe._error.AuthenticationError", http_status=401)(), "permanent"),
    ("botocore: timeout with 400", boto("RequestTimeout", 400), "transient"),
    ("botocore: quota", boto("ServiceQuotaExceededException", 400), "spent"),
    ("litellm: over its budget", fake("litellm.BudgetExceededError")(), "spent"),
    ("requests: connect timeout, a connection error first", REQUESTS_CONNECT_TIMEOUT(), "timeout"),
    ("redis: loading", fake("redis.exceptions.BusyLoadingError")(), "transient"),
    ("redis: readonly", fake("redis.exceptions.ReadOnlyError")(), "transient"),
    ("redis: timeout", fake("redis.exceptions.TimeoutError")(), "timeout"),
    (
        "redis: bad password, a connection error too",
        fake("redis.exceptions.AuthenticationError", fake("redis.exceptions.ConnectionError"))(),
        "permanent",
    ),
    (
        "pymongo: no primary",
        fake("pymongo.errors.NotPrimaryError", fake("pymongo.errors.ConnectionFailure"))(),
        "transient",
    ),
    ("pymongo: bad uri", fake("pymongo.errors.InvalidURI", fake("pymongo.errors.ConfigurationError"))(), "permanent"),
    ("kombu: broker away", fake("kombu.exceptions.OperationalError")(), "transient"),
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
    (
        "sqlalchemy: the driver's error knows more",
        fake("sqlalchemy.exc.ProgrammingError", orig=with_state("40001"))(),
        "transient",
    ),
    ("sqlite: locked", fake("sqlite3.OperationalError", sqlite_errorname="SQLITE_BUSY")(), "transient"),
    ("sqlite: no such table", fake("sqlite3.OperationalError", sqlite_errorname="SQLITE_ERROR")(), "permanent"),
    ("sqlite: programming error", fake("sqlite3.ProgrammingError")(), "permanent"),
    ("an exit code is no status", SystemExit(404), "transient"),
    ("a status that is none", fake("app.Odd", status=7, status_code=True)(), "transient"),
    ("a subclass of the user's own", fake("shop.Flaky", fake("httpx.ReadTimeout", TIMEOUT))(), "timeout"),
    ("the same name elsewhere", fake("shop.TimeoutException")(), "transient"),
]


@pytest.mark.parametrize(("error", "kind"), [(error, kind) for _, error, kind in KNOWN], ids=[row[0] for row in KNOWN])
def test_known_errors(error: BaseException, kind: str) -> None:
    assert classify(error).kind == kind


def test_every_status_has_a_meaning() -> None:
    expected = dict.fromkeys(range(400, 500), "permanent") | dict.fromkeys(range(500, 600), "transient")
    expected |= {402: "spent", 408: "transient", 409: "transient", 425: "transient", 429: "rate_limited"}
    assert {status: classify(http(status)).kind for status in range(400, 600)} == expected


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
        ({"x-ratelimit-reset": "1700000012", "x-ratelimit-remaining": "0"}, 12_000),
        ({"x-ratelimit-reset": "1700000012", "x-ratelimit-remaining": "3"}, None),
        ({"ratelimit-reset": "12", "ratelimit-remaining": "0"}, 12_000),
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
        ({"retry-after": "2023-11-14t22:13:45.5z"}, 25_500),
        ({"retry-after": "1700000030"}, 30_000),
        ({"retry-after": "1700000030500"}, 30_500),
        ({"retry-after": "1600000000"}, 0),
        ({"retry-after": "7, 9"}, 9_000),
        ({"retry-after": "7, soon"}, None),
        ({"x-ratelimit-reset-requests": "1700000012", "x-ratelimit-remaining-requests": "0"}, 12_000),
        ({"x-ratelimit-reset-requests": "6s", "x-ratelimit-remaining-requests": "-1"}, 6_000),
        ({"retry-after": "Infinity"}, None),
        ({"retry-after": "1e300"}, LONGEST_WAIT_MS),
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
    assert classify(http(429, {"retry-after": "1700000030"})).retry_after_ms is None
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
    delay = timedelta(seconds=7, milliseconds=500)
    info = type("RetryInfo", (), {"retry_delay": delay})()
    assert classify(http(429, details=[info])).retry_after_ms == 7_500
    # Gemini behind an API like OpenAI's answers with a list of errors.
    assert classify(http(429, body=[body])).retry_after_ms == 34_500


def test_a_detail_that_cannot_be_read_hides_nothing_else() -> None:
    odd = type("RetryInfo", (), {"retry_delay": type("Duration", (), {"seconds": 7, "nanos": "x"})()})()
    good = {"retryDelay": "9s"}
    assert classify(http(429, {"retry-after": "3"}, details=[odd])).retry_after_ms == 3_000
    assert classify(http(429, {"retry-after": "3"}, details=[odd, good])).retry_after_ms == 9_000


def test_googles_discovery_client_keeps_answers_in_places_of_its_own() -> None:
    content = b'{"error": {"code": 403, "errors": [{"reason": "userRateLimitExceeded"}]}}'
    http_error = fake("googleapiclient.errors.HttpError", status_code=403, content=content, resp={"retry-after": "5"})
    assert classify(http_error()) == Verdict("rate_limited", 5_000)
    details = [{"domain": "usageLimits", "reason": "dailyLimitExceeded"}]
    assert classify(fake("googleapiclient.errors.HttpError", status_code=403, error_details=details)()).kind == "spent"


def test_a_body_that_is_still_text_is_read_too() -> None:
    assert classify(http(429, body='{"code": "insufficient_quota"}')).kind == "spent"
    assert classify(http(429, body="{" * 100)).kind == "rate_limited"


def test_a_plain_http_client_keeps_the_body_with_the_response() -> None:
    error = http(429)
    error.response = Response(429, {}, b'{"error": {"type": "insufficient_quota", "code": "insufficient_quota"}}')
    assert classify(error).kind == "spent"
    error.response = Response(429, {}, b'{"error": {"details": [{"retryDelay": "7s"}]}}')
    assert classify(error) == Verdict("rate_limited", 7_000)
    for odd in (b"<html>", b"[1]", b"\xff", b"{" * 100_000):
        error.response = Response(429, {}, odd)
        assert classify(error) == Verdict("rate_limited")


@pytest.mark.parametrize("junk", [None, 3, "x", [1], {"error": 3}, {"error": {"details": {"a": 1}}}, {"details": [{}]}])
def test_odd_bodies_and_headers_do_no_harm(junk: Any) -> None:
    error = http(429, body=junk, details=junk, code=junk, type=junk)
    error.response.headers = junk
    assert classify(error).kind == "rate_limited"
    error.response = junk
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
        ([http(402), http(429, {"retry-after": "3"})], "spent"),
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


def test_a_kind_that_the_user_names_keeps_the_time_that_the_answer_names() -> None:
    error = http(503, {"retry-after": "30"})
    assert classify(error, [Overrides({503: "rate_limited"})]) == Verdict("rate_limited", 30_000)
    assert classify(error, [lambda error: "rate_limited"]) == Verdict("rate_limited", 30_000)
    assert classify(error, [lambda error: Verdict("rate_limited")]) == Verdict("rate_limited", 30_000)
    assert classify(error, [lambda error: Verdict("rate_limited", 5)]).retry_after_ms == 5
    assert classify(error, [Overrides({503: "spent"})]) == Verdict("spent")


def test_a_broken_classifier_hides_nothing() -> None:
    def broken(error: BaseException) -> Verdict | None:
        raise RuntimeError

    assert classify(KeyError(), [broken]).kind == "permanent"
    assert classify(KeyError(), [lambda error: "sometimes"]).kind == "permanent"  # type: ignore[list-item,return-value]  # a mistake
    assert classify(KeyError(), [lambda error: "cancelled"]).kind == "permanent"  # only raise Cancel() cancels
    assert classify(KeyError(), [lambda error: Verdict("cancelled")]).kind == "permanent"


# -- what `classify=` says


class Flaky(Exception):
    """An error of the user's own."""


class Flakier(Flaky):
    """One of its kind."""


def nested_class() -> Any:
    return fake("shop.Full", __qualname__="Cart.Full")()


OVERRIDES: list[tuple[str, dict[Any, Kind], BaseException, str | None]] = [
    ("a class", {ValueError: "permanent"}, ValueError(), "permanent"),
    ("a base of it", {LookupError: "transient"}, KeyError(), "transient"),
    ("not another one", {ValueError: "permanent"}, KeyError(), None),
    ("the nearest base, whatever the order", {Flaky: "permanent", Flakier: "timeout"}, Flakier(), "timeout"),
    ("the nearest base, the other way round", {Flakier: "timeout", Flaky: "permanent"}, Flakier(), "timeout"),
    ("a builtin by name", {"ValueError": "permanent"}, ValueError(), "permanent"),
    ("a class by name", {"shop.errors.Flaky": "transient"}, fake("shop.errors.Flaky")(), "transient"),
    ("a base by name", {"shop.Flaky": "spent"}, fake("till.Own", fake("shop.Flaky"))(), "spent"),
    ("what a package exports", {"requests.Timeout": "permanent"}, fake("requests.exceptions.Timeout")(), "permanent"),
    ("not what another package has", {"shop.Flaky": "permanent"}, fake("shopping.Flaky")(), None),
    ("not a class of another name", {"shop.errors.Flaky": "permanent"}, fake("shop.errors.NotFlaky")(), None),
    ("a class inside a class", {"shop.Cart.Full": "permanent"}, nested_class(), "permanent"),
    ("a status", {404: "transient"}, http(404), "transient"),
    ("another status", {404: "transient"}, http(410), None),
    ("a status is more exact than a class", {Exception: "permanent", 503: "rate_limited"}, http(503), "rate_limited"),
    ("a code", {"code:card_declined": "permanent"}, fake("shop.No", code="card_declined")(), "permanent"),
    ("a code is more exact than a status", {429: "transient", "code:x": "spent"}, http(429, code="x"), "spent"),
    ("no module at all", {"shop.Nowhere": "permanent"}, type("Nowhere", (Exception,), {"__module__": None})(), None),
]  # fmt: skip


@pytest.mark.parametrize(("kinds", "error", "kind"), [row[1:] for row in OVERRIDES], ids=[row[0] for row in OVERRIDES])
def test_a_mapping_names_errors(kinds: dict[Any, Kind], error: BaseException, kind: str | None) -> None:
    found = Overrides(kinds).match(error)
    assert (None if found is None else found[1]) == kind
    assert classify(error, [Overrides(kinds)]) == (Verdict(found[1]) if found else classify(error))


@pytest.mark.parametrize(
    ("option", "says", "fix"),
    [
        ({ValueError: "permanant"}, "{ValueError: 'permanant'} is not a kind", "did you mean 'permanent'?"),
        ({ValueError: None}, "None} is not a kind", "known: "),
        ({ValueError: "cancelled"}, "cannot cancel a job", "raise Cancel"),
        ({int: "permanent"}, "int, which is not an exception class", "an exception class"),
        ({RateLimited: "permanent"}, "says itself", "signal"),
        ({200: "permanent"}, "200, which is no HTTP status", "400 to 599"),
        ({True: "permanent"}, "True, which is not an error", "exception class"),
        ({"Flaky": "permanent"}, "'Flaky'", '"shop.errors.Flaky"'),
        ({"shop.errors:Flaky": "permanent"}, "'shop.errors:Flaky'", '"shop.errors.Flaky"'),
        ({"404": "permanent"}, "'404'", "a status such as 404 as a number"),
        ({"card_declined": "permanent"}, "'card_declined'", '"code:card_declined"'),
        ({"code:": "permanent"}, "'code:'", "shop.errors.Flaky"),
        ({"": "permanent"}, "''", "shop.errors.Flaky"),
        (ValueError, "does not say what it means", '{ValueError: "permanent"}'),
        ("permanent", "'permanent' classifies nothing", "a mapping"),
        (3, "3 classifies nothing", "a mapping"),
        ([3], "3, which classifies nothing", "a mapping"),
        ([ValueError], "does not say what it means", "mapping"),
        (asyncio.sleep, "sleep(), which is async", "plain def"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_fix(option: Any, says: str, fix: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        classifiers_of(option)
    assert says in refused.value.message
    assert fix in refused.value.fix


def test_functions_and_mappings_are_asked_in_order() -> None:
    def mine(error: BaseException) -> Kind | None:
        return "timeout" if isinstance(error, Flaky) else None

    option: ClassifyOption = [mine, {Flaky: "permanent", ValueError: "permanent"}]
    judges = classifiers_of(option)
    assert [classify(error, judges).kind for error in (Flaky(), ValueError())] == ["timeout", "permanent"]
    assert classify(Flaky(), classifiers_of(mine)).kind == "timeout"
    assert classifiers_of(()) == ()


def test_the_outermost_error_that_anybody_knows_decides() -> None:
    judge = [Overrides({Flaky: "permanent", "httpx.HTTPStatusError": "timeout"})]
    assert classify(raised_from(RuntimeError("payment failed"), Flaky()), judge).kind == "permanent"
    assert classify(raised_from(http(404), Flaky()), judge).kind == "timeout"
    assert classify(raised_from(TimeoutError(), Flaky()), judge).kind == "timeout"  # known without anybody's word
    group = ExceptionGroup("several", [ValueError(), Flaky()])
    assert classify(group, judge).kind == "permanent"


def test_the_drivers_error_behind_sqlalchemys_may_be_named() -> None:
    inner = fake("psycopg.errors.ForeignKeyViolation", SQL, sqlstate="23503")()
    error = fake("sqlalchemy.exc.IntegrityError", orig=inner)()
    assert classify(error).kind == "transient"
    assert classify(error, [Overrides({"psycopg.errors.ForeignKeyViolation": "permanent"})]).kind == "permanent"
    assert classify(error, [Overrides({"sqlalchemy.exc.IntegrityError": "permanent"})]).kind == "permanent"


# -- how it is known


@pytest.mark.parametrize(
    ("error", "by", "what"),
    [
        (http(429, code="insufficient_quota"), "code", "insufficient_quota"),
        (http(429), "status", "429"),
        (with_state("40001"), "sqlstate", "40001"),
        (fake("shop.Own", fake("httpx.ReadTimeout", TIMEOUT))(), "name", "httpx.TimeoutException"),
        (fake("stripe.CardError", http_status=402)(), "name", "stripe.CardError"),
        (ModuleNotFoundError(), "mistake", "ImportError"),
        (StepFailed("x"), "remembered", "StepFailed"),
        (ValueError(), "default", ""),
    ],
)
def test_a_judgement_names_its_rule(error: BaseException, by: str, what: str) -> None:
    found = judge_error(error)
    assert (found.rule.by, found.rule.what, found.of) == (by, what, error)


def test_a_judgement_names_the_error_behind() -> None:
    inner = http(503)
    assert judge_error(raised_from(RuntimeError("x"), inner)).of is inner
    found = judge_error(Flaky(), [lambda error: None, Overrides({Flaky: "permanent"})])
    assert (found.rule.by, found.rule.place) == ("override", 1)


# -- outcomes


def test_signals_become_what_they_ask() -> None:
    later = outcome_of(RetryLater(30))
    assert isinstance(later, LaterAsked)
    assert (later.delay_ms, later.failure.type) == (30_000, "limpet.RetryLater")
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


def test_an_error_raised_from_pushback_means_pushback() -> None:
    limited = outcome_of(raised_from(RuntimeError("the model is busy"), RateLimited(12, "openai")))
    assert isinstance(limited, Limited)
    assert (limited.retry_after_ms, limited.key, limited.message) == (12_000, "openai", "the model is busy")
    assert isinstance(outcome_of(raised_from(TypeError("x"), RateLimited(12))), Raised)


@pytest.mark.parametrize(
    ("error", "message"),
    [(http(402), "no luck"), (RateLimited(12), "rate limited, retry after 12 s")],
)
def test_of_a_group_people_hear_what_decided(error: Exception, message: str) -> None:
    limited = outcome_of(ExceptionGroup("several", [ValueError("x"), error]))
    assert isinstance(limited, Limited)
    assert limited.message == message


def test_errors_become_what_they_mean() -> None:
    raised = outcome_of(http(503, {"retry-after": "3"}))
    assert isinstance(raised, Raised)
    assert (raised.failure.kind, raised.retry_after_ms) == ("transient", 3_000)
    assert isinstance(outcome_of(http(429)), Limited)
    spent = outcome_of(http(402))
    assert isinstance(spent, Limited)
    assert (spent.spent, spent.failure and spent.failure.kind, spent.message) == (True, "spent", "no luck")


# -- errors that do not want to be looked at


class Hostile:
    """Raises whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __bool__(self) -> bool:
        raise RuntimeError("bool")

    def __str__(self) -> str:
        raise RuntimeError("str")


def hostile(name: str) -> Any:
    def no(self: object) -> Any:
        raise RuntimeError(f"no {name} yet")

    return type("Odd", (Exception,), {name: property(no)})("x")


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
    error.status_code = 404
    assert classify(error).kind == "permanent"


@pytest.mark.parametrize("wait", [float("inf"), float("nan"), -1, "soon", 1e300])
def test_a_verdict_of_someone_elses_making_is_bounded(wait: Any) -> None:
    said = classify(ValueError(), [lambda error: Verdict("rate_limited", wait, "k\udcff")])
    assert said.retry_after_ms is None or 0 <= said.retry_after_ms < 2**53
    assert said.key == "k\\udcff"
    assert classify(ValueError(), [lambda error: Verdict("odd")]).kind == "transient"  # type: ignore[arg-type]  # a mistake
