"""Decides what an exception means for a job: try again, slow down, or let a person look."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, get_args

from msgspec import Struct

from holdfast.core import pushback
from holdfast.core.duration import bounded_ms
from holdfast.core.errors import StepFailed, StepsChanged, UsageError, WaitTimeout
from holdfast.core.failure import failure_of
from holdfast.core.outcome import CancelAsked, DeadAsked, LaterAsked, Limited, Outcome, Raised, SnoozeAsked
from holdfast.core.pushback import peek
from holdfast.core.signals import Cancel, Dead, JobSignal, RateLimited, RetryLater, Snooze
from holdfast.core.text import storable

__all__ = ["Classifier", "Kind", "Verdict", "classify", "failure_of", "outcome_of"]

Kind = Literal["transient", "permanent", "timeout", "rate_limited", "cancelled"]
KINDS: Final[tuple[str, ...]] = get_args(Kind)


class Verdict(Struct, frozen=True):
    """What an error means; `retry_after_ms` when the other side named a time, `key` the limit it speaks of."""

    kind: Kind
    retry_after_ms: int | None = None
    key: str | None = None


Classifier = Callable[[BaseException], Verdict | Kind | None]

# (first part of the module, class name) → kind. Libraries are recognised by name, so none is ever imported.
_BY_NAME: Final[dict[tuple[str, str], Kind]] = {
    ("asyncio", "CancelledError"): "cancelled",
    ("concurrent", "CancelledError"): "cancelled",
    ("builtins", "TimeoutError"): "timeout",
    ("builtins", "ConnectionError"): "transient",
    ("httpx", "TimeoutException"): "timeout",
    ("httpx", "InvalidURL"): "permanent",
    ("httpx", "UnsupportedProtocol"): "permanent",
    ("httpx", "TransportError"): "transient",
    ("httpx2", "TimeoutException"): "timeout",
    ("httpx2", "InvalidURL"): "permanent",
    ("httpx2", "UnsupportedProtocol"): "permanent",
    ("httpx2", "TransportError"): "transient",
    ("httpcore", "TimeoutException"): "timeout",
    ("requests", "Timeout"): "timeout",
    ("requests", "InvalidURL"): "permanent",
    ("requests", "InvalidSchema"): "permanent",
    ("requests", "MissingSchema"): "permanent",
    ("requests", "ConnectionError"): "transient",
    ("urllib3", "TimeoutError"): "timeout",
    ("urllib3", "LocationValueError"): "permanent",
    ("aiohttp", "ServerTimeoutError"): "timeout",
    ("aiohttp", "InvalidURL"): "permanent",
    ("aiohttp", "ClientConnectionError"): "transient",
    ("openai", "APITimeoutError"): "timeout",
    ("openai", "APIConnectionError"): "transient",
    ("anthropic", "APITimeoutError"): "timeout",
    ("anthropic", "APIConnectionError"): "transient",
    ("botocore", "ConnectTimeoutError"): "timeout",
    ("botocore", "ReadTimeoutError"): "timeout",
    ("botocore", "NoCredentialsError"): "permanent",
    ("botocore", "ParamValidationError"): "permanent",
    ("redis", "TimeoutError"): "timeout",
    ("redis", "BusyLoadingError"): "transient",
    ("redis", "ReadOnlyError"): "transient",
    ("redis", "ConnectionError"): "transient",
    ("sqlalchemy", "ProgrammingError"): "permanent",
    ("sqlalchemy", "ArgumentError"): "permanent",
    ("psycopg", "ProgrammingError"): "permanent",
    ("psycopg2", "ProgrammingError"): "permanent",
    ("asyncpg", "InterfaceError"): "transient",
    ("sqlite3", "ProgrammingError"): "permanent",
}

# Mistakes in the code or its arguments: the next run would make them again.
_MISTAKES: Final = (
    UsageError,
    TypeError,
    KeyError,
    AttributeError,
    NameError,
    ImportError,
    NotImplementedError,
    SyntaxError,
)

# What is remembered with the job: the next run would meet it again.
_REMEMBERED: Final = (StepFailed, StepsChanged, WaitTimeout)

_MAY_PASS: Final = frozenset({408, 409, 425})  # the 4xx that another try can cure

# SQLSTATE classes and codes. What is not listed is retried, such as a foreign key whose row is not committed yet.
_SQL_TRANSIENT: Final = ("40", "08", "53", "57", "58", "55P03", "25006")
_SQL_PERMANENT: Final = ("22", "42", "0A", "28", "3D", "3F")


def classify(error: BaseException, extra: Sequence[Classifier] = (), *, now_ms: int | None = None) -> Verdict:
    """The meaning of `error`; `extra` classifiers are asked first. Unknown errors are transient: tries are bounded.

    `now_ms` is needed only for headers that name an instant and come without a Date of their own.
    """
    try:
        return _judged(error, extra, now_ms)
    except Exception:
        return Verdict("transient")  # an error that cannot be looked at is an unknown one


def _judged(error: BaseException, extra: Sequence[Classifier], now_ms: int | None) -> Verdict:
    for classifier in extra:
        said = _asked(classifier, error)
        if said is not None:
            return said
    if isinstance(error, _REMEMBERED):
        return Verdict("permanent")
    if isinstance(error, BaseExceptionGroup):
        return _worst([_judged(one, extra, now_ms) for one in error.exceptions])
    for one in _chain(error):
        known = _recognised(one, now_ms)
        if known is not None:
            return known
        if one is error and isinstance(error, _MISTAKES):
            return Verdict("permanent")
    return Verdict("transient")


def outcome_of(error: BaseException, extra: Sequence[Classifier] = (), *, now_ms: int | None = None) -> Outcome:
    """The outcome of an attempt that raised `error`: what a signal asks for, else what the error means."""
    signal = _signal(error)
    match signal:
        case RetryLater():
            return LaterAsked(signal.delay_ms, failure_of(error, "transient"))
        case Snooze():
            return SnoozeAsked(signal.delay_ms, signal.reason)
        case Dead():
            return DeadAsked(signal.reason, failure_of(error, "permanent"))
        case Cancel():
            return CancelAsked(signal.reason)
        case RateLimited():
            failure = failure_of(error, "rate_limited")
            return Limited(signal.retry_after_ms, signal.key, failure.message, failure)
    verdict = classify(error, extra, now_ms=now_ms)
    failure = failure_of(error, verdict.kind)
    if verdict.kind == "rate_limited":
        return Limited(verdict.retry_after_ms, verdict.key, failure.message, failure)
    return Raised(failure, verdict.retry_after_ms)


def _signal(error: BaseException) -> JobSignal | None:
    """The signal itself, or the first one that a task group wrapped."""
    if isinstance(error, JobSignal):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((found for one in error.exceptions if (found := _signal(one)) is not None), None)
    return None


def _asked(classifier: Classifier, error: BaseException) -> Verdict | None:
    try:
        said = classifier(error)
    except Exception:
        return None  # a broken classifier must not hide the error it was asked about
    if isinstance(said, str):
        return Verdict(said) if said in KINDS else None
    return _sound(said) if isinstance(said, Verdict) and said.kind in KINDS else None


def _sound(verdict: Verdict) -> Verdict:
    """A verdict of someone else's making, without what is neither a time nor a key."""
    wait_ms, key = verdict.retry_after_ms, verdict.key
    if wait_ms is not None:
        wait_ms = bounded_ms(wait_ms)
    return Verdict(verdict.kind, wait_ms, None if key is None else storable(key))


def _worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Of several errors at once: one that no retry cures decides, then the one that asks for patience."""
    for kind in ("permanent", "rate_limited", "timeout", "transient"):
        of_kind = [verdict for verdict in verdicts if verdict.kind == kind]
        if of_kind:
            return max(of_kind, key=lambda verdict: verdict.retry_after_ms or 0)
    return Verdict("cancelled") if verdicts else Verdict("transient")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from: people wrap a provider's error in one of their own."""
    seen: BaseException | None = error
    for _ in range(8):  # chains are short; a cycle must not trap us
        if seen is None:
            return
        yield seen
        wrapped = peek(seen, "orig")
        seen = wrapped if isinstance(wrapped, BaseException) else seen.__cause__


def _recognised(error: BaseException, now_ms: int | None) -> Verdict | None:
    try:
        return _known(error, now_ms)
    except Exception:
        return None  # what it carries is not what its name promises


def _known(error: BaseException, now_ms: int | None) -> Verdict | None:
    codes = frozenset(_codes(error))
    if codes & pushback.SPENT:
        return Verdict("permanent")
    if codes & pushback.THROTTLED:
        return Verdict("rate_limited", pushback.retry_after_ms(error, now_ms))
    status = _status(error)
    if status is not None:
        return _by_status(status, error, now_ms)
    state = peek(error, "sqlstate") or peek(error, "pgcode")
    if isinstance(state, str) and len(state) == 5:
        if state.startswith(_SQL_TRANSIENT):
            return Verdict("transient")
        if state.startswith(_SQL_PERMANENT):
            return Verdict("permanent")
    for kind in type(error).__mro__:
        found = _BY_NAME.get((_library(kind), kind.__qualname__))
        if found is not None:
            return Verdict(found)
    return None


def _by_status(status: int, error: BaseException, now_ms: int | None) -> Verdict:
    if status == 429:
        return Verdict("rate_limited", pushback.retry_after_ms(error, now_ms))
    if status >= 500:  # 529 (overloaded) among them
        return Verdict("transient", pushback.retry_after_ms(error, now_ms))
    if status in _MAY_PASS:
        return Verdict("transient", pushback.retry_after_ms(error, now_ms))
    return Verdict("permanent")


def _status(error: BaseException) -> int | None:
    """The HTTP status an error carries, wherever its library keeps it."""
    response = peek(error, "response")
    found: list[Any] = [peek(error, "status_code"), peek(error, "status")]
    if isinstance(response, Mapping):  # botocore
        found.append((response.get("ResponseMetadata") or {}).get("HTTPStatusCode"))
    else:
        found += [peek(response, "status_code"), peek(response, "status")]
    if any(_library(kind) in ("urllib", "google") for kind in type(error).__mro__):
        found.append(peek(error, "code"))  # elsewhere `code` is anything from an exit code to a word
    for status in found:
        if isinstance(status, int) and not isinstance(status, bool) and 400 <= status <= 599:
            return int(status)
    return None


def _library(kind: type) -> str:
    module = kind.__module__
    return module.partition(".")[0] if isinstance(module, str) else ""


def _codes(error: BaseException) -> Iterator[str]:
    """The words by which providers say what went wrong."""
    for name in ("code", "type"):
        said = peek(error, name)
        if isinstance(said, str):
            yield said
    for place in (peek(error, "body"), peek(error, "response")):
        if isinstance(place, Mapping):
            yield from _words(place, depth=3)


def _words(place: Mapping[Any, Any], depth: int) -> Iterator[str]:
    for name in ("code", "type", "Code", "error_code"):
        said = place.get(name)
        if isinstance(said, str):
            yield said
    for name in ("error", "Error", "details"):
        inner = place.get(name)
        if depth and isinstance(inner, Mapping):
            yield from _words(inner, depth - 1)
