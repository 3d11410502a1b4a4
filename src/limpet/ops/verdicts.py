"""Decides how to say what an error would mean for a job, by which rule, and what would become of the job."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from limpet.core.endings.answer import status_of
from limpet.core.endings.classify import MISTAKES, judge_error, outcome_of
from limpet.core.endings.decide import HOLD_CAP_MS, HOLD_FIRST_MS, decide
from limpet.core.endings.failure import type_name
from limpet.core.endings.library_errors import (
    BEFORE_STATUS,
    BY_CLASS,
    BY_CODE,
    BY_STATUS,
    SQL_PERMANENT,
    SQL_TRANSIENT,
    UNFIT,
    WORDS,
    class_name,
)
from limpet.core.endings.overrides import Overrides
from limpet.core.endings.signals import SAMPLES, JobSignal
from limpet.core.endings.transition import Bury, Hold, RetryAfter, Transition
from limpet.core.endings.verdict import MEANING, SAYABLE, Classifier, Judgement, Kind
from limpet.core.errors import InvalidOption
from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.lease import Claimed
from limpet.core.tasks.task import TaskSpec
from limpet.core.text.duration import text_of_ms

_NOBODY: Final = "a task"  # whose job it would be, when no task is named


@dataclass(frozen=True)
class Told:
    """What an error means, why, and what becomes of the job that raises it."""

    error: str
    kind: Kind | None  # None: a signal, which says itself what becomes of the job
    means: str
    by: str
    what: str
    why: str
    then: str
    transition: Transition
    retry_after_ms: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def attempt_spent(self) -> bool:
        """Whether the run counts against the job's attempts."""
        return isinstance(self.transition, RetryAfter | Bury)


class AnError(Exception):
    """Stands for an error of which only the answer is known."""


class _Answer:
    """The answer behind a sample, as HTTP clients keep it."""

    def __init__(self, status: int | None, headers: Mapping[str, str]) -> None:
        self.status_code = status
        self.headers = dict(headers)


def sample_of(
    kind: type[BaseException],
    *,
    status: int | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
    body: Any = None,
) -> BaseException:
    """An error of that class as if a provider had answered so; its `__init__` is not asked, as it may need anything.

    Whatever cannot be put there is refused: a verdict about another error would mislead.
    """
    error = _blank(kind)
    given = {"status_code": status, "code": code, "headers": headers, "body": body}
    if status is not None or headers:
        given["response"] = _Answer(status, headers or {})
    for name, value in given.items():
        if value is not None:
            with suppress(Exception):  # a property of the class: what it reads is set by another name, or is fixed
                setattr(error, name, value)
    if status is not None and status_of(error) != status:
        raise InvalidOption(
            f"{kind.__qualname__} keeps a status of its own: {status_of(error)}", fix="leave --status out, or use that"
        )
    return error


def _blank(kind: type[BaseException]) -> BaseException:
    for sample in SAMPLES:
        if issubclass(kind, type(sample)):
            return sample
    if issubclass(kind, BaseExceptionGroup):
        return kind("a sample", [Exception("a sample")])
    builtin: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    of_kind: Any = kind
    ways: tuple[Callable[[], Any], ...] = (
        lambda: builtin.__new__(of_kind, "a sample"),
        # Classes that are written in C make their instances themselves.
        lambda: of_kind.__new__(of_kind, "a sample"),
        lambda: of_kind.__new__(of_kind),
        lambda: of_kind.from_exception_data("a sample", []),  # pydantic
    )
    for make in ways:
        with suppress(Exception):
            made = make()
            if isinstance(made, kind):
                return made
    raise InvalidOption(
        f"no sample of {kind.__qualname__} can be made: its constructor is its own",
        fix="describe the answer behind it (--status, --code, --body), or read the rules: --list",
    )


def tell(
    error: BaseException, *, spec: TaskSpec | None = None, app: Sequence[Classifier] = (), now_ms: int | None = None
) -> Told:
    """What `error` means for a job of `spec`, whose word comes before that of the app."""
    own = () if spec is None else spec.classifiers
    classifiers = (*own, *app)
    transition = decide(
        _job(spec),
        outcome_of(error, classifiers, now_ms=now_ms),
        rng=random.Random(0),
        retry_function=None if spec is None else spec.retry.function,
        error=error,
        learns=None if spec is None else spec.learns(spec.pattern),
    )
    name = type_name(error)
    if isinstance(error, JobSignal):
        return Told(
            error=name,
            kind=None,
            means="the handler decides",
            by="signal",
            what=type(error).__name__,
            why="it is a signal, which says itself what becomes of its job",
            then=_then(transition, spec),
            transition=transition,
        )
    judged = judge_error(error, classifiers, now_ms=now_ms)
    kind = judged.verdict.kind
    what, why = _why(judged, classifiers, len(own), spec)
    if isinstance(error, BaseExceptionGroup):
        why = "a group of errors means its worst: permanent, then spent, rate_limited, timeout, transient"
    return Told(
        error=name,
        kind=kind,
        means=MEANING[kind],
        by=_source(judged, len(own)),
        what=what,
        why=why,
        then=_then(transition, spec, judged),
        transition=transition,
        retry_after_ms=judged.verdict.retry_after_ms,
        notes=tuple(_broken(classifiers, error)),
    )


def _job(spec: TaskSpec | None) -> Claimed:
    lane, policy = (Lane("default", _NOBODY), Policy()) if spec is None else (spec.pattern, spec.policy)
    return Claimed(bytes(16), 1, 1, 0, lane, policy, b"{}", 0, 0, 0)


def _source(judged: Judgement, own: int) -> str:
    rule = judged.rule
    if rule.by != "override":
        return rule.by
    return "task" if rule.place < own else "app"


def _why(judged: Judgement, classifiers: Sequence[Classifier], own: int, spec: TaskSpec | None) -> tuple[str, str]:
    rule = judged.rule
    what = rule.what
    match rule.by:
        case "override":
            classifier = classifiers[rule.place]
            who = f"the task {spec.name}" if spec is not None and rule.place < own else "the app"
            found = classifier.match(judged.of) if isinstance(classifier, Overrides) else None
            what = _function(classifier) if found is None else found[0]
            said = f"{what}() answers" if found is None else f"classify={{{what}: …}} says"
            whose = f"{said} so, for {who}"
        case "code":
            whose = f"its code is {what!r}"
        case "status":
            whose = f"its HTTP status is {what}"
        case "sqlstate":
            whose = f"its SQLSTATE is {what}"
        case "name":
            whose = f"{what} is known by name"
        case "mistake":
            whose = f"a {what} is a mistake in the code or in what it was given, and the next run would make it again"
        case "remembered":
            whose = "it is remembered with its job, and the next run would meet it again"
        case _:
            whose = "no rule knows it; attempts are bounded, so it is tried again"
    return what, whose


def _function(classifier: Classifier) -> str:
    kind = type(classifier)
    return str(getattr(classifier, "__qualname__", kind.__qualname__))


def _broken(classifiers: Sequence[Classifier], error: BaseException) -> Iterable[str]:
    """Classifiers that are passed over when a job fails, since they raise or answer nothing that is known."""
    for classifier in classifiers:
        try:
            said = classifier(error)
        except Exception as trouble:
            yield f"{_function(classifier)}() raised {type(trouble).__qualname__} and is passed over"
        else:
            kind = getattr(said, "kind", said)
            if kind is not None and kind not in SAYABLE:
                yield f"{_function(classifier)}() answered {said!r:.60}, which is not a kind, and is ignored"


def _then(transition: Transition, spec: TaskSpec | None, judged: Judgement | None = None) -> str:
    """What becomes of the job, in words."""
    policy = Policy() if spec is None else spec.policy
    match transition:
        case Hold(gate=gate, trips=True, delay_ms=delay_ms):
            return (
                f"back to the front, its attempt unspent; {_gate(gate, spec)} is closed like an open breaker, and its "
                f"jobs wait at no cost; after {text_of_ms(delay_ms)} one of them probes, and if that succeeds it "
                "opens for all (`limpet breakers reset` opens it sooner)"
            )
        case Hold(gate=gate):
            named = judged.verdict.retry_after_ms if judged is not None else 60_000
            wait = (
                f"{text_of_ms(HOLD_FIRST_MS)}, doubled each time up to {text_of_ms(HOLD_CAP_MS)}"
                if named is None
                else f"{text_of_ms(min(named, policy.max_held_ms))}, as the provider asks"
            )
            return f"back to the front, its attempt unspent; {_gate(gate, spec)} is held for {wait} plus jitter"
        case Bury() if judged is not None and judged.verdict.kind != "permanent":
            return "dead: the task allows no other attempt, and it waits for a person in the dead-letter queue"
        case Bury():
            return "dead now: it waits for a person in the dead-letter queue"
        case RetryAfter():
            counts = "" if spec is None or spec.breaker is None else "; counts for its breaker"
            if judged is None:
                return f"tried again after the time that it names; {policy.attempts} attempts in all, then dead"
            return f"tried again {_waits(policy, spec, judged)}; {policy.attempts} attempts in all, then dead{counts}"
    return transition.then


def _waits(policy: Policy, spec: TaskSpec | None, judged: Judgement) -> str:
    least_ms = judged.verdict.retry_after_ms
    no_sooner = "" if not least_ms else f", no sooner than {text_of_ms(least_ms)}"
    if spec is not None and spec.retry.function is not None:
        return f"when its retry function says{no_sooner}"
    first_ms = policy.base_ms if policy.delays_ms is None else policy.delays_ms[0]
    jitter = "" if policy.jitter == "none" else " at most, by jitter"
    return f"after {text_of_ms(first_ms)}{jitter}{no_sooner}"


def _gate(gate: str, spec: TaskSpec | None) -> str:
    if spec is None:
        return "its limit (the one that learns, else the first; without any, its task)"
    kind, _, name = gate.partition(":")
    return f"{kind} {name!r}"


@dataclass(frozen=True)
class KnownRule:
    """One rule of the tables, or one override."""

    kind: Kind | None  # None: a function, which says it when it is asked
    by: str
    what: str


def known_rules(specs: Iterable[TaskSpec] = (), app: Sequence[Classifier] = ()) -> list[KnownRule]:
    """Every rule, in the order in which they are asked."""
    found: list[KnownRule] = []
    for spec in specs:
        found += _overriding(f"task {spec.name}", spec.classifiers)
    found += _overriding("app", app)
    found += [KnownRule(kind, "name", f"{library}.{name}") for (library, name), kind in BEFORE_STATUS.items()]
    found += [KnownRule(kind, "code", word) for codes, kind in WORDS for word in sorted(codes)]
    found += [KnownRule(kind, "status", str(status)) for status, kind in BY_STATUS.items()]
    found += [KnownRule("permanent", "status", "other 4xx"), KnownRule("transient", "status", "5xx")]
    found += [KnownRule(kind, "code", f"{word} (without a status)") for word, kind in BY_CODE.items()]
    found += [KnownRule("transient", "sqlstate", state) for state in SQL_TRANSIENT]
    found += [KnownRule("permanent", "sqlstate", state) for state in SQL_PERMANENT]
    found += [KnownRule(kind, "name", f"{library}.{name}") for (library, name), kind in BY_CLASS.items()]
    found += [KnownRule("permanent", "mistake", kind.__qualname__) for kind in MISTAKES]
    found += [KnownRule("permanent", "mistake", class_name(*named)) for named in UNFIT]
    return [*found, KnownRule("transient", "default", "anything else")]


def _overriding(source: str, classifiers: Sequence[Classifier]) -> list[KnownRule]:
    found: list[KnownRule] = []
    for classifier in classifiers:
        if isinstance(classifier, Overrides):
            found += [KnownRule(kind, source, what) for what, kind in classifier.entries()]
        else:
            found.append(KnownRule(None, source, f"{_function(classifier)}()"))
    return found
