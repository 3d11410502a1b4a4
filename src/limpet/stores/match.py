"""Decides which jobs the terms of a query mean; no index knows them, so they filter what an index found."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from limpet.core.errors import InvalidOption
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.job import PRIORITIES, Lane, Policy
from limpet.core.jobs.state import State
from limpet.core.jobs.view import JobView, Term

Match = Callable[[JobView], bool]

_COMPARE: Final[dict[str, Callable[[int, int], bool]]] = {
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
    return any(term.field == "age" for term in terms)


def exact_of(terms: Sequence[Term], field: str) -> str | None:
    """The one value that the terms allow a field to have; None when they allow several."""
    for term in terms:
        if term.field == field and not term.negated and "*" not in term.value:
            return term.value
    return None


def _match_of(term: Term, now_ms: int) -> Match:
    field, value = term.field, term.value
    if field in _TEXT:
        return _any_text(_TEXT[field], _glob(value))
    if field in _NUMBER:
        return _number(term, _NUMBER[field], PRIORITIES.get(value) if field == "priority" else None)
    if field == "age":
        return _number(term, lambda job: now_ms - job.enqueued_at_ms)
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
        return _error(value)
    if field.startswith("args."):
        path, fits = field[5:].split("."), _glob(value)
        return lambda job: (text := _argument(job.args, path)) is not None and fits(text)
    raise InvalidOption(f"cannot search by {field!r}", fix="see `limpet jobs --help` for the fields")


def _glob(value: str) -> Callable[[str], bool]:
    if "*" not in value:
        return lambda text: text == value
    pattern = re.compile(".*".join(map(re.escape, value.split("*"))), re.DOTALL)
    return lambda text: pattern.fullmatch(text) is not None


def _any_text(read: Callable[[JobView], Sequence[str | None]], fits: Callable[[str], bool]) -> Match:
    return lambda job: any(text is not None and fits(text) for text in read(job))


def _number(term: Term, read: Callable[[JobView], int], known: int | None = None) -> Match:
    compare = _COMPARE[term.op]
    try:
        wanted = int(term.value) if known is None else known
    except ValueError as error:
        raise InvalidOption(f"{term.field}{term.op}{term.value}: not a number", fix="write a whole number") from error
    return lambda job: compare(read(job), wanted)


def _error(value: str) -> Match:
    """A part of the type or of the message; upper and lower case of ASCII letters are the same."""
    parts = value.replace("%", "").split("*")
    pattern = re.compile(".*".join(map(re.escape, parts)), re.DOTALL | re.IGNORECASE | re.ASCII)
    return lambda job: any(text and pattern.search(text) is not None for text in (job.error_type, job.reason))


def _argument(args: bytes, path: Sequence[str]) -> str | None:
    """One argument as text, the way SQL casts JSON: true is 1, an object is its JSON; None when it is not there."""
    try:
        value: Any = msgspec.json.decode(args)
    except ValueError:
        return None
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(int(value))
    return _real(value) if isinstance(value, float) else msgspec.json.encode(value).decode()


def _real(value: float) -> str:
    """A number that is not whole, with fifteen digits and always a point."""
    mantissa, e, exponent = f"{value:.15g}".partition("e")
    return (mantissa if "." in mantissa else f"{mantissa}.0") + e + exponent
