"""Runs dead jobs again, with the same or with other arguments, and starts scheduled ones now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from limpet.core.flows.steps import SLEEP, waits_of
from limpet.core.jobs.lease import Signal
from limpet.core.jobs.state import State
from limpet.core.jobs.view import JobView, Query
from limpet.core.redaction.redaction import Redaction
from limpet.ops.causes import facts_of
from limpet.ops.edits import Edit
from limpet.ops.select import Which
from limpet.stores.base import RetryRequest, Store

RETRYABLE = frozenset({State.dead, State.scheduled})
DEAD = frozenset({State.dead})


def retried_states(which: Which) -> frozenset[State]:
    """The states of the jobs that are meant: a query that names none means dead jobs."""
    return DEAD if isinstance(which, Query) and which.states is None else RETRYABLE


@dataclass
class Retry:
    """One request to run jobs again."""

    store: Store
    actor: str
    reason: str
    edit: Edit
    redaction: Redaction
    delay_ms: int = 0
    forget: tuple[str, ...] = ()
    asked_ms: int | None = None
    before_ms: int | None = None  # only jobs that died before: what has died since was retried already
    refused: list[bytes] = field(default_factory=list)  # another job holds their unique key
    _facts: dict[bytes, dict[str, object]] = field(default_factory=dict)

    async def act(self, ids: Sequence[bytes]) -> Sequence[str]:
        """Retry a chunk; of each job what became of it, in a word."""
        views = await self.store.get(ids)
        again = {view.id for view in views if view is not None and self.died_since(view)}
        left = [id for id in ids if id not in again]
        found = [view for view in views if view is not None and view.id not in again]
        self._facts |= {view.id: facts_of(view) for view in found if view.state is State.dead}
        answers = dict(zip(left, await (self._edited if self.edit else self._plain)(left, found), strict=True))
        self.refused += [id for id, word in answers.items() if word == "unique_held"]
        return [answers.get(id, "died_again") for id in ids]

    def facts(self, id: bytes) -> dict[str, object]:
        """What the audit log keeps of one of them."""
        return self._facts.pop(id, {})

    def died_since(self, view: JobView) -> bool:
        """True for a job that is dead again."""
        return self.before_ms is not None and view.state is State.dead and (view.finished_at_ms or 0) >= self.before_ms

    async def _plain(self, ids: Sequence[bytes], found: Sequence[JobView]) -> Sequence[str]:
        plain = not self.forget and not self.delay_ms
        woken = await self._roused(found) if plain else frozenset()
        request = self._request(tuple(id for id in ids if id not in woken))
        retried = iter(await self.store.retry(request, now_ms=self.asked_ms) if request.ids else ())
        return ["retried" if id in woken else next(retried) for id in ids]

    async def _edited(self, ids: Sequence[bytes], found: Sequence[JobView]) -> Sequence[str]:
        words = dict.fromkeys(ids, "gone")
        for view in found:
            self._facts[view.id] = self._facts.get(view.id, {}) | self.edit.changes(view, self.redaction)
            request = self._request((view.id,), self.edit.of(view).args)
            (words[view.id],) = await self.store.retry(request, now_ms=self.asked_ms)
        return list(words.values())

    def _request(self, ids: tuple[bytes, ...], args: bytes | None = None) -> RetryRequest:
        return RetryRequest(ids, self.delay_ms, args, self.actor, self.reason, self.forget)

    async def _roused(self, found: Sequence[JobView]) -> frozenset[bytes]:
        """Those of the jobs that were asleep in a step, and are not any more: run by itself, each would sleep on."""
        asleep: list[Signal] = []
        for view in found:
            if view.state is State.scheduled:
                events = [waiting.event for waiting in waits_of(view.notes, view.due_at_ms)]
                value = msgspec.json.encode({"by": self.actor})
                asleep += [Signal(view.id, event, value) for event in events if event.startswith(SLEEP)]
        answers = await self.store.signal(asleep, now_ms=self.asked_ms) if asleep else []
        return frozenset(one.id for one, answer in zip(asleep, answers, strict=True) if answer == "woken")
