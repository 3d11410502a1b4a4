"""Tells webhooks directly that the store is away: no job can be stored then. For servers; workers only wait."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from limpet.core.alerts.book import Book, Notice
from limpet.core.alerts.delivery import call_of
from limpet.core.alerts.rule import DEFAULTS, AlertRules
from limpet.core.alerts.webhook import Webhook
from limpet.core.errors import StoreError
from limpet.ops.webhook_call import tell

SUBJECT: Final = "store"
NO_BOOK: Final = Book()

_log = logging.getLogger("limpet.alerts")


class AwayWatch:
    """What one server knows of an outage. It is kept nowhere else: each server tells of what it sees."""

    def __init__(
        self,
        receivers: Mapping[str, Webhook],
        namespace: str,
        *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._receivers = receivers
        self._namespace = namespace
        self._clock = clock
        self._since_ms: int | None = None
        self._firing: Notice | None = None
        self._untold: dict[str, Notice] = {}  # by webhook: what it has not taken yet

    async def failed(self, error: StoreError, rules: AlertRules, book: Book = NO_BOOK) -> None:
        """A look has failed; told once that has lasted for as long as the rule says, and no silence covers it."""
        now_ms = self._clock()
        self._since_ms = now_ms if self._since_ms is None else self._since_ms
        rule = rules.of("store_away")
        silence = book.silence_of("store_away", SUBJECT, now_ms)
        if rule and not silence and self._firing is None and now_ms - self._since_ms >= rule.for_ms:
            text = f"the store does not answer: {error.message}"
            self._firing = Notice("firing", rule.name, SUBJECT, text, now_ms, now_ms)
            self._say(self._firing, rules)
        await self._tell()

    async def back(self, rules: AlertRules) -> None:
        """A look has been answered."""
        self._since_ms = None
        if self._firing is not None:
            now_ms = self._clock()
            text, began_ms = "the store answers again", self._firing.fired_ms
            self._firing = None
            self._say(Notice("resolved", DEFAULTS["store_away"].name, SUBJECT, text, began_ms, now_ms), rules)
        await self._tell()

    def _say(self, notice: Notice, rules: AlertRules) -> None:
        deaf = {ref.name for ref in rules.webhooks if not ref.hears(notice.rule)}
        for name in self._receivers.keys() - deaf:
            if notice.state == "firing" or self._untold.pop(name, None) is None:  # else it has not heard of it at all
                self._untold[name] = notice

    async def _tell(self) -> None:
        for name, notice in list(self._untold.items()):
            call = call_of(self._receivers[name], notice, notice.job_id(name), self._namespace, self._clock())
            answer = await tell(self._receivers[name], call)
            if answer.ok or not answer.may_succeed_later:
                self._untold.pop(name, None)
            if not answer.ok:
                _log.warning("webhook %s was not told that the store is away: %s", name, answer.text)
