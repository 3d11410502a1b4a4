"""Looks for alerts in the name of one process at a time, writes the book, and stores the jobs that tell what is new.

Who writes the book over the version that it has read has decided: two processes that look at once change nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from limpet.core.alerts.book import Alert, Book, KeptBook, Notice, read_book
from limpet.core.alerts.conditions import conditions
from limpet.core.alerts.decide import decide
from limpet.core.alerts.delivery import delivery_job
from limpet.core.alerts.rule import KIND, AlertRules, read_rules
from limpet.core.errors import UnknownParent, UsageError
from limpet.core.jobs.job import Job
from limpet.core.jobs.view import Entry
from limpet.ops.alert_facts import facts_of
from limpet.stores.base import Store

SOURCE: Final = "limpet.alerts"  # of the mark that says which revision of the book has been told
LEASE_LOOKS: Final = 3  # a process that misses this number is taken for dead
LEAST_LEASE_MS: Final = 1_000
SLOW_MS: Final = 60_000  # between looks at what is expensive to look at

_log = logging.getLogger("limpet.alerts")


class AlertLook:
    """The looks of one process, which is called `name`. `clock` is for tests that hold the time."""

    def __init__(
        self, store: Store, name: str, rules: AlertRules | None = None, *, clock: Callable[[], int] | None = None
    ) -> None:
        self._store = store
        self._name = name
        self._clock = clock
        self.book = Book()  # as it was read or written last
        self.rules = rules or AlertRules()  # as they were read last; before, as the settings of this process say

    async def look(self) -> bool:
        """Look, unless another process does; whether this one did."""
        controls = await self._store.controls(KIND)
        self.rules, kept = read_rules(controls), read_book(controls)
        self.book = kept.book
        now_ms = await self._store.now() if self._clock is None else self._clock()
        if kept.book.led_by_other(self._name, now_ms):
            return False
        return await self._lead(kept, now_ms)

    async def _lead(self, kept: KeptBook, now_ms: int) -> bool:
        before, rules = kept.book, self.rules
        untold = await self._tell(before)  # by a process that died between writing the book and this
        slow = now_ms - before.slow_ms >= SLOW_MS
        facts = await facts_of(self._store, rules, before.samples, now_ms, slow=slow)
        book = replace(
            decide(before, conditions(facts, rules, now_ms), rules, now_ms, untold),
            samples=facts.samples,
            leader=self._name,
            until_ms=now_ms + max(LEAST_LEASE_MS, LEASE_LOOKS * rules.every_ms),
            looked_ms=now_ms,
            slow_ms=now_ms if slow else before.slow_ms,
        )
        if await self._store.put_control(book.control(), expect=kept.version) is None:
            return False  # another process has written meanwhile, and decided
        self.book = book
        await self._tell(book)
        if entries := list(_events(before, book, now_ms)):
            await self._store.append(entries)
        return True

    async def _tell(self, book: Book) -> Sequence[Notice]:
        """Store the jobs that tell what this revision has to say; what the store does not take, now or ever.

        The mark of the revision moves in the same step: whichever process comes later changes nothing.
        """
        found = [(notice, ref.name) for notice in book.notices for ref in self.rules.webhooks if ref.hears(notice.rule)]
        if not found:
            return ()
        try:
            await self._relay(book.revision, [await self._job(notice, webhook) for notice, webhook in found])
        except UnknownParent:  # it has been pruned in between
            await self._relay(book.revision, [delivery_job(notice, webhook) for notice, webhook in found])
        except UsageError as refused:
            _log.warning("alerts are told later: %s", refused.message)
            return book.notices
        return ()

    async def _relay(self, revision: int, jobs: Sequence[Job]) -> None:
        asked_ms = None if self._clock is None else self._clock()
        await self._store.relay(SOURCE, revision, jobs, always=True, now_ms=asked_ms)

    async def _job(self, notice: Notice, webhook: str) -> Job:
        """A recovery is not told before its alert."""
        if notice.state != "resolved":
            return delivery_job(notice, webhook)
        first = notice.before().job_id(webhook)
        (known,) = await self._store.get([first])
        return delivery_job(notice, webhook, after=() if known is None else (first,))


def _events(before: Book, after: Book, now_ms: int) -> Iterator[Entry]:
    """The lines of the event log: what began to fire and what resolved in this look, told to someone or not."""
    firing = {_episode(alert) for alert in before.alerts if alert.fired_ms is not None}
    over = {_episode(alert) for alert in before.alerts if alert.resolved_ms is not None}
    for alert in after.alerts:
        if alert.fired_ms is not None and _episode(alert) not in firing:
            yield _event("alert.firing", alert, now_ms)
        if alert.resolved_ms is not None and _episode(alert) not in over:
            yield _event("alert.resolved", alert, now_ms)


def _episode(alert: Alert) -> tuple[str, int]:
    return alert.key, alert.since_ms


def _event(kind: str, alert: Alert, now_ms: int) -> Entry:
    facts = {"key": alert.key, "text": alert.text, "queue": alert.queue}
    known = {name: value for name, value in facts.items() if value is not None}
    return Entry("event", now_ms, kind, data=msgspec.json.encode(known))
