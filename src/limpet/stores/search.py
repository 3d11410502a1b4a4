"""Gathers one page from the candidates that an engine's index yields: what fits, what was seen, where to go on."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

import msgspec

from limpet.core.errors import InvalidOption
from limpet.core.jobs.state import FINISHED
from limpet.core.jobs.view import JobView, Page, Query
from limpet.stores.match import match_of

CANDIDATES: Final = 10_000  # jobs that one page may look at
LOOK_S: Final = 0.05  # and for how long: a page that comes slowly says so and has a cursor
SURE: Final = 1_024  # jobs that it looks at however slowly they come
RESOLVE: Final = 1_000_000  # ids that the end of one is looked for among

Position = TypeVar("Position")


def write_cursor(index: str, position: object) -> str:
    """The text that stands for a place in an index."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode((index, position))).decode()


def read_cursor(cursor: str, index: str, kind: type[Position]) -> Position:
    """The place that a cursor stands for; InvalidOption when it is none of this index."""
    try:
        name, packed = msgspec.msgpack.decode(base64.urlsafe_b64decode(cursor), type=tuple[str, msgspec.Raw])
    except (ValueError, msgspec.DecodeError) as error:
        raise InvalidOption(f"{cursor!r} is not a cursor", fix="pass the cursor of the page before") from error
    if name != index:
        raise foreign_cursor()
    try:
        return msgspec.msgpack.decode(packed, type=kind)
    except msgspec.DecodeError as error:
        raise foreign_cursor() from error


def foreign_cursor() -> InvalidOption:
    """The refusal of a cursor that some other query answered."""
    return InvalidOption("the cursor belongs to another query", fix="pass the cursor of the page before")


def hex_suffix(suffix: str) -> str | None:
    """The end of an id as plain hex digits; None when no id can end so."""
    plain = suffix.replace("-", "").lower()
    if not plain or len(plain) > 32 or any(digit not in "0123456789abcdef" for digit in plain):
        return None
    return plain


def named(jobs: Iterable[JobView | None]) -> Page:
    """The page of the jobs that the end of an id names: all there are, without those that have gone meanwhile."""
    return Page(tuple(job for job in jobs if job is not None))


def ended_from_ms(query: Query, now_ms: int) -> int | None:
    """The earliest end that a query for one final state allows, whose index is in the order of ends; None: any."""
    if query.states is None or len(query.states) != 1 or not query.states <= FINISHED:
        return None
    ends = [term for term in query.terms if term.field == "finished" and term.op in ("<", "<=") and not term.negated]
    return max((now_ms - int(term.value) for term in ends), default=None)


class Search(Generic[Position]):
    """What a query wants, and what of it was found so far, each with its position."""

    def __init__(self, query: Query, index: str, now_ms: int) -> None:
        self.found: list[tuple[Position, bytes]] = []
        self._limit = query.limit
        self._states = query.states
        self._index = index
        self._match = match_of(query.terms, now_ms)
        self._seen: set[bytes] = set()

    @property
    def full(self) -> bool:
        """True when there is more than fits on the page."""
        return len(self.found) > self._limit

    @property
    def ids(self) -> list[bytes]:
        """The jobs of the page."""
        return [id for _, id in self.found[: self._limit]]

    def wants(self, job: JobView) -> bool:
        return (self._states is None or job.state in self._states) and self._match(job)

    def take(self, candidates: Iterable[tuple[Position, JobView | None]]) -> None:
        """Keep those that fit, each once, until there is more than fits on the page."""
        for position, job in candidates:
            if job is not None and job.id not in self._seen and self.wants(job):
                self._seen.add(job.id)
                self.found.append((position, job.id))
                if self.full:
                    return

    def page(self, whole: Iterable[JobView | None], last: Position | None) -> Page:
        """The page of these jobs, read again: meanwhile one may have been removed, or moved to another state.

        `last`: where the search stopped; None when it came to the end of its index.
        """
        jobs = tuple(job for job in whole if job is not None and self.wants(job))
        if self.full and self._limit:
            return Page(jobs, write_cursor(self._index, self.found[self._limit - 1][0]), complete=True)
        return Page(jobs, None if last is None else write_cursor(self._index, last), complete=last is None or self.full)
