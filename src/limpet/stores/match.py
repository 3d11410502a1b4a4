"""Decides which jobs the terms of a query mean; no index knows them, so they filter what an index found."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from limpet.core.errors import InvalidOption
from limpet.core.gate import FOREVER_MS
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.job import PRIORITIES, Lane, Policy
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Compare, JobView, Term
from limpet.core.text.wildcard import part_fits, whole_fits

Match = Callable[[JobView], bool]

Number = int | float

_COMPARE: Final[dict[str, Callable[[Number, Number], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}
_TEXT: Final[dict[str, Callable[[JobView], Sequence[str | None]]]] = {
    "queue": lambda job: (job.lane.queue,),
    "task": lambda job: (job.lane.task,),
    "tenant": lambda job: (job.lane.tenant,),
    "cause": lambda job: (job.cause or None,),
    "unique": lambda job: (job.unique,),
    "tag": lambda job: job.tags,
}
_NUMBER: Final[dict[str, Callable[[JobView], int]]] = {
    "priority": lambda job: job.lane.priority,
    "attempt": lambda job: job.attempt,
    "lost": lambda job: job.lost,
}


def _since_start(job: JobView, now_ms: int) -> int | None:
    return now_ms - job.claimed_at_ms if job.state is State.running and job.claimed_at_ms is not None else None


def _until_due(job: JobView, now_ms: int) -> int | None:
    """A job whose time has come is due no more, whether or not its store has noticed; one may wait without an end."""
    waits = job.state is State.scheduled and now_ms < job.due_at_ms < FOREVER_MS
    return job.due_at_ms - now_ms if waits else None


# How far an instant of a job is from now; None for a job that has none.
_TIME: Final[dict[str, Callable[[JobView, int], int | None]]] = {
    "age": lambda job, now_ms: now_ms - job.enqueued_at_ms,
    "finished": lambda job, now_ms: None if job.finished_at_ms is None else now_ms - job.finished_at_ms,
    "started": _since_start,
    "due": _until_due,
}
TIMES: Final = frozenset(_TIME)
# Exact at any size, which a double is not. The bound is on what Python reads from text.
_DECIMAL: Final = re.compile(r"-?\d{1,4000}(?P<real>(?:\.\d+)?(?:[eE][-+]?\d+)?)")

_OF_LANES: Final = frozenset({"queue", "task", "tenant", "priority"})


def match_of(terms: Sequence[Term], now_ms: int) -> Match:
    """One question for all terms. Raises InvalidOption for a field or value that cannot be searched by."""
    matches = [(_match_of(term, now_ms), not term.negated) for term in terms]
    return lambda job: all(match(job) is wanted for match, wanted in matches)


def lane_match_of(terms: Sequence[Term]) -> Callable[[Lane], bool]:
    """The part of the question that a job's lane alone can answer with no."""
    match = match_of([term for term in terms if term.field in _OF_LANES], 0)
    return lambda lane: match(JobView(b"", State.ready, lane, Policy(), b"", 0, 0, 0, 0))


def needs_args(terms: Sequence[Term]) -> bool:
    """True when the terms look into arguments."""
    return any(term.field.startswith("args.") for term in terms)


def needs_clock(terms: Sequence[Term]) -> bool:
    """True when the terms depend on what time it is."""
    return any(term.field in TIMES for term in terms)


def exact_of(terms: Sequence[Term], field: str) -> str | None:
    """The one value that the terms allow a field to have; None when they allow several."""
    for term in terms:
        if term.field == field and not term.negated and "*" not in term.value:
            return term.value
    return None


def _match_of(term: Term, now_ms: int) -> Match:
    field, value = term.field, term.value
    if field in _TEXT:
        return _any_text(_TEXT[field], whole_fits(value))
    if field in _NUMBER:
        return _number(term, _NUMBER[field], PRIORITIES.get(value) if field == "priority" else None)
    if field in TIMES:
        return _number(term, lambda job: _TIME[field](job, now_ms))
    if field == "id":
        wanted = id_bytes(value)
        return lambda job: job.id == wanted
    if field == "flow":
        flow = id_bytes(value)
        return lambda job: job.flow == flow
    if field == "state":
        state = State(value)
        return lambda job: job.state is state
    if field == "error":
        part = part_fits(value)
        return lambda job: part(job.error_type) or part(job.reason)
    if field == "word":
        part = part_fits(value)
        return lambda job: part(job.lane.task) or part(job.error_type) or part(job.reason)
    if field.startswith("args."):
        path = field[5:].split(".")
        if term.op != "=":
            compares = _compares(term)
            return lambda job: compares(_argument(job.args, path))
        fits = whole_fits(value)
        return lambda job: (text := _text_of(_argument(job.args, path))) is not None and fits(text)
    raise InvalidOption(f"cannot search by {field!r}", fix="see `limpet jobs --help` for the fields")


def _any_text(read: Callable[[JobView], Sequence[str | None]], fits: Callable[[str], bool]) -> Match:
    return lambda job: any(text is not None and fits(text) for text in read(job))


def _number(term: Term, read: Callable[[JobView], int | None], known: int | None = None) -> Match:
    compare = _COMPARE[term.op]
    try:
        wanted = int(term.value) if known is None else known
    except ValueError as error:
        raise InvalidOption(f"{term.field}{term.op}{term.value}: not a number", fix="write a whole number") from error
    return lambda job: (number := read(job)) is not None and compare(number, wanted)


def number_of(text: str) -> Number | None:
    """The number that a text is: a whole one exactly, any other as a double; None for any other text."""
    found = _DECIMAL.fullmatch(text)
    if found is None:
        return None
    number = float(text) if found["real"] else int(text)
    return number if isinstance(number, int) or math.isfinite(number) else None


def number_in(term: Term) -> Number:
    """The number that an argument is compared with."""
    number = number_of(term.value)
    if number is None:
        raise InvalidOption(f"{term.field}{term.op}{term.value}: not a number", fix="compare with a number, such as 5")
    return number


def argument_compares(args: str, field: str, op: Compare, value: str) -> bool:
    """Whether the number at `args.<path>` stands so to `value`; the SQLite engine calls it from its statements."""
    return _compares(Term(field, value, op))(_argument(args, field[5:].split(".")))


def _compares(term: Term) -> Callable[[Any], bool]:
    """Python compares whole numbers and doubles exactly; true, false and text are no numbers."""
    compare, wanted = _COMPARE[term.op], number_in(term)
    return lambda found: isinstance(found, int | float) and not isinstance(found, bool) and compare(found, wanted)


def _argument(args: bytes | str, path: Sequence[str]) -> Any:
    """The value at a path into the arguments; None when it is not there."""
    try:
        value: Any = msgspec.json.decode(args)
    except ValueError:
        return None
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return value


def _text_of(value: Any) -> str | None:
    """An argument as text, the way SQL casts JSON: true is 1, an object is its JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(int(value))
    return _real(value) if isinstance(value, float) else msgspec.json.encode(value).decode()


def _real(value: float) -> str:
    """A number that is not whole, with fifteen digits and always a point."""
    mantissa, e, exponent = f"{value:.15g}".partition("e")
    return (mantissa if "." in mantissa else f"{mantissa}.0") + e + exponent
