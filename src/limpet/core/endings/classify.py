"""Decides what an exception means for a job: try again, slow down, wait for money, or let a person look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from limpet.core.endings.answer import classes_of, codes_of, is_of_answer, libraries_of, peek, status_of
from limpet.core.endings.failure import failure_of, message_of
from limpet.core.endings.library_errors import (
    ANSWERING,
    BEFORE_STATUS,
    BY_CLASS,
    BY_CODE,
    SPEAKERS,
    UNFIT,
    WORDS,
    class_name,
    kind_of_sqlstate,
    kind_of_status,
)
from limpet.core.endings.outcome import Limited, Outcome, Raised
from limpet.core.endings.signals import JobSignal, RateLimited, held_for_ms
from limpet.core.endings.verdict import SAYABLE, Classifier, Judgement, Kind, Rule, Verdict
from limpet.core.errors import StepFailed, StepsChanged, UsageError, WaitTimeout
from limpet.core.limits import pushback
from limpet.core.text.duration import bounded_ms
from limpet.core.text.storable import storable

__all__ = ["MISTAKES", "Classifier", "Kind", "Verdict", "classify", "failure_of", "judge_error", "outcome_of"]

# Mistakes in the code or its arguments: the next run would make them again.
MISTAKES = (
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
_REMEMBERED = (StepFailed, StepsChanged, WaitTimeout)

_Known = tuple[Verdict, Rule]


def classify(error: BaseException, extra: Sequence[Classifier] = (), *, now_ms: int | None = None) -> Verdict:
    """The meaning of `error`; `extra` classifiers are asked first. Unknown errors are transient: tries are bounded.

    `now_ms` is needed only for headers that name an instant and come without a Date of their own.
    """
    return judge_error(error, extra, now_ms=now_ms).verdict


def judge_error(error: BaseException, extra: Sequence[Classifier] = (), *, now_ms: int | None = None) -> Judgement:
    """The meaning of `error`, and how it is known."""
    try:
        return _judged(error, extra, now_ms)
    except Exception:
        return _unknown(error)  # an error that cannot be looked at is an unknown one


def _unknown(error: BaseException) -> Judgement:
    return Judgement(Verdict("transient"), Rule("default"), error)


def _judged(error: BaseException, extra: Sequence[Classifier], now_ms: int | None) -> Judgement:
    """The outermost known error decides: the user's rules first, then the tables."""
    for whole in _chain(error):
        translated = peek(whole, "orig")  # SQLAlchemy's error and the driver's own are one
        parts = (whole, translated) if isinstance(translated, BaseException) else (whole,)
        for one in parts:
            said = _asked(extra, one, now_ms)
            if said is not None:
                return Judgement(*said, one)
        if isinstance(whole, BaseExceptionGroup):
            return _worst(whole, [_judged(one, extra, now_ms) for one in whole.exceptions])
        for one in reversed(parts):  # the driver's knows more
            known = _recognised(one, now_ms)
            if known is not None:
                return Judgement(*known, one)
        if whole is error and (mistake := _mistake(whole)) is not None:
            return Judgement(Verdict("permanent"), Rule("mistake", mistake), whole)
    return _unknown(error)


def outcome_of(error: BaseException, extra: Sequence[Classifier] = (), *, now_ms: int | None = None) -> Outcome:
    """The outcome of an attempt that raised `error`: what a signal asks for, else what the error means."""
    signal = _signal(error)
    if signal is not None and (asked := signal.asks_for(error, now_ms)) is not None:
        return asked
    judged = judge_error(error, extra, now_ms=now_ms)
    verdict, failure = judged.verdict, failure_of(error, judged.verdict.kind)
    if verdict.kind in ("rate_limited", "spent"):
        spent = verdict.kind == "spent"
        # "Two sub-exceptions" would not tell a person what has to be paid.
        said = message_of(judged.of) if isinstance(error, BaseExceptionGroup) else failure.message
        return Limited(verdict.retry_after_ms, verdict.key, said, failure, spent)
    return Raised(failure, verdict.retry_after_ms)


def _signal(error: BaseException) -> JobSignal | None:
    """The signal itself, or the first one that a task group wrapped."""
    if isinstance(error, JobSignal):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((found for one in error.exceptions if (found := _signal(one)) is not None), None)
    return None


def _asked(classifiers: Sequence[Classifier], error: BaseException, now_ms: int | None) -> _Known | None:
    """What the first classifier that has a word for this error says; the answer itself says how long that lasts."""
    for place, classifier in enumerate(classifiers):
        try:
            said = classifier(error)
        except Exception:
            continue  # a broken classifier must not hide the error it was asked about
        if isinstance(said, str) and said in SAYABLE:
            return _patient(said, error, now_ms), Rule("override", place=place)
        if isinstance(said, Verdict) and said.kind in SAYABLE:
            return _sound(said, _patient(said.kind, error, now_ms)), Rule("override", place=place)
    return None


def _sound(verdict: Verdict, otherwise: Verdict) -> Verdict:
    """A verdict of someone else's making, without what is neither a time nor a key."""
    wait_ms, key = verdict.retry_after_ms, verdict.key
    if wait_ms is not None:
        wait_ms = bounded_ms(wait_ms)
    if wait_ms is None:
        wait_ms = otherwise.retry_after_ms
    return Verdict(verdict.kind, wait_ms, None if key is None else storable(key))


def _worst(group: BaseException, found: Sequence[Judgement]) -> Judgement:
    """Of several errors at once: one that no retry cures decides, then the one that asks for most patience."""
    for kind in ("permanent", "spent", "rate_limited", "timeout", "transient", "cancelled"):
        of_kind = [one for one in found if one.verdict.kind == kind]
        if of_kind:
            return max(of_kind, key=lambda one: one.verdict.retry_after_ms or 0)
    return _unknown(group)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from: people wrap a provider's error in one of their own."""
    seen: BaseException | None = error
    for _ in range(8):  # chains are short; a cycle must not trap us
        if seen is None:
            return
        yield seen
        seen = seen.__cause__


def _mistake(error: BaseException) -> str | None:
    """Which mistake it is, if it is one: of the code, or in what it was given to read."""
    if isinstance(error, MISTAKES):
        return next(kind.__qualname__ for kind in MISTAKES if isinstance(error, kind))
    unfit = next((named for named in classes_of(error) if named in UNFIT), None)
    return None if unfit is None or is_of_answer(error, ANSWERING) else class_name(*unfit)


def _recognised(error: BaseException, now_ms: int | None) -> _Known | None:
    try:
        return _known(error, now_ms)
    except Exception:
        return None  # what it carries is not what its name promises


def _known(error: BaseException, now_ms: int | None) -> _Known | None:
    if isinstance(error, _REMEMBERED):
        return Verdict("permanent"), Rule("remembered", type(error).__qualname__)
    if isinstance(error, RateLimited):  # behind an error that was raised from it
        return Verdict("rate_limited", held_for_ms(error, now_ms), error.key), Rule("name", "limpet.RateLimited")
    classes = classes_of(error)
    for named in classes:
        if named in BEFORE_STATUS:
            return Verdict(BEFORE_STATUS[named]), Rule("name", ".".join(named))
    codes = tuple(_codes(error))
    for words, kind in WORDS:
        for code in codes:
            if code in words:
                return _patient(kind, error, now_ms), Rule("code", code)
    status = status_of(error)
    if status is not None:
        return _patient(kind_of_status(status), error, now_ms), Rule("status", str(status))
    if codes and not SPEAKERS.isdisjoint(libraries_of(error)):
        for code in codes:
            if code in BY_CODE:
                return _patient(BY_CODE[code], error, now_ms), Rule("code", code)
    state = peek(error, "sqlstate") or peek(error, "pgcode")
    if isinstance(state, str) and len(state) == 5 and (meant := kind_of_sqlstate(state)) is not None:
        return Verdict(meant), Rule("sqlstate", state)
    for named in classes:
        if named in BY_CLASS:
            return Verdict(BY_CLASS[named]), Rule("name", ".".join(named))
    return None


def _codes(error: BaseException) -> Iterator[str]:
    try:
        yield from codes_of(error)
    except Exception:
        return  # what was read so far stands


def _patient(kind: Kind, error: BaseException, now_ms: int | None) -> Verdict:
    """The verdict with the time in the answer, if a time matters."""
    if kind in ("permanent", "spent"):
        return Verdict(kind)
    return Verdict(kind, pushback.retry_after_ms(error, now_ms))
