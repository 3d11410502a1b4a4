"""Decides which live events a reader wants: by the parts of the query language that an event can answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from limpet.core.jobs.job import Lane
from limpet.core.records.live import EventGap, JobEvent, LiveEvent
from limpet.ops.query import InvalidQuery, parse_query
from limpet.stores.match import lane_match_of

FIELDS: Final = ("state", "queue", "task", "id")
MOST_KNOWN: Final = 10_000  # queues and tasks whose answer is remembered

Sees = Callable[[str], bool]  # whether a reader may know of jobs of a queue


class Wanted:
    """What `text` means for events; with `sees`, only of queues that the reader may see.

    >>> Wanted("state:dead queue:mail*").states
    frozenset({<State.dead: 'dead'>})
    """

    def __init__(self, text: str = "", sees: Sees | None = None) -> None:
        query = parse_query(text)
        for term in query.terms:
            if term.field not in FIELDS:
                what = f"the word {term.value!r}" if term.field == "word" else term.field
                raise InvalidQuery(
                    f"live events cannot be asked for {what}", fix=f"ask for {', '.join(FIELDS)}: queue:mail state:dead"
                )
        self.states = query.states
        self._sees = sees
        self._ids = [(term.value.lower(), not term.negated) for term in query.terms if term.field == "id"]
        scopes = [term for term in query.terms if term.field in ("queue", "task")]
        self._match = lane_match_of(scopes)
        self._takes_unknown = not scopes and sees is None
        self._known: dict[tuple[str, str], bool] = {}

    def __call__(self, event: LiveEvent) -> bool:
        """True for what is wanted, and for every gap."""
        if isinstance(event, EventGap):
            return True
        if self.states is not None and event.state not in self.states:
            return False
        if self._ids and not (isinstance(event, JobEvent) and self._is_asked(event.job)):
            return False
        return self._takes_unknown if event.queue is None else self._in_scope(event.queue, event.task or "")

    def _is_asked(self, job: str) -> bool:
        """An id may be given by its end."""
        return all(job.endswith(end) is asked for end, asked in self._ids)

    def _in_scope(self, queue: str, task: str) -> bool:
        known = self._known.get((queue, task))
        if known is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            known = self._match(Lane(queue, task)) and (self._sees is None or self._sees(queue))
            self._known[queue, task] = known
        return known
