"""Runs what people ask of alerts: where they stand, which rules are in force, a silence, a test of the webhooks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from limpet.core.alerts.book import MOST_SILENCES, KeptBook, Notice, Silence, read_book
from limpet.core.alerts.delivery import delivery_job
from limpet.core.alerts.rule import KIND, NAMES, RULES, AlertRules, read_rules
from limpet.core.alerts.settings import AlertsTable
from limpet.core.errors import InvalidOption, ResultTimeout
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import FINISHED, State
from limpet.core.jobs.view import JobView
from limpet.core.records.alert import AlertRecord, AlertRuleRecord, AlertTest, SilenceRecord
from limpet.core.tasks.naming import did_you_mean
from limpet.core.text.duration import Duration, to_ms
from limpet.core.text.storable import checked_text
from limpet.ops.bulk import Decision
from limpet.ops.names import UnknownName
from limpet.stores.base import Store

USUAL_SILENCE: Final = "1h"
PATTERN_CHARS: Final = 300
_NONE: Final = "write [alerts.webhooks.NAME] in limpet.toml; a worker or a server that starts makes it known"
AGAIN_MS: Final = 500  # between the looks of a test that waits


class Alerts:
    """The alerts of one namespace, for people and programs."""

    def __init__(self, store: Store, actor: str, clock: Callable[[], int] | None = None) -> None:
        self.store = store
        self.actor = actor
        self._clock = clock

    async def now_ms(self) -> int:
        """The instant by which silences end: by the engine's clock."""
        return await self.store.now() if self._clock is None else self._clock()

    async def list(self, *, resolved: bool = True) -> tuple[AlertRecord, ...]:
        """Every alert, firing ones first; those that have resolved within a day, too."""
        book, now_ms = (await self._kept()).book, await self.now_ms()
        found = (AlertRecord.of(alert, book, now_ms) for alert in book.alerts)
        return tuple(alert for alert in found if resolved or alert.state != "resolved")

    async def rules(self) -> tuple[AlertRuleRecord, ...]:
        """The rules that are in force."""
        rules = read_rules(await self.store.controls(KIND))
        return tuple(AlertRuleRecord.of(rule, rules) for rule in rules.rules)

    async def silences(self) -> tuple[SilenceRecord, ...]:
        """Silences that have not ended, by their end."""
        book, now_ms = (await self._kept()).book, await self.now_ms()
        return tuple(SilenceRecord.of(silence) for silence in book.silences if now_ms < silence.until_ms)

    async def silence(self, pattern: str, lasts: Duration = USUAL_SILENCE, *, reason: str = "") -> SilenceRecord:
        """Tell nothing of alerts that begin to fire, for a time; what fires still at its end is told then.

        `pattern` is a rule, RULE:SUBJECT, or such with `*`. A silence of no time ends the one that is there. That an
        alert has resolved is told all the same, if it was told that it fires.
        """
        checked_pattern(pattern)
        lasts_ms = to_ms(lasts, what="the time of a silence")
        decision = Decision("alert.silence" if lasts_ms else "alert.unsilence", self.actor, reason)
        while True:
            kept, now_ms = await self._kept(), await self.now_ms()
            silence = Silence(pattern, now_ms + lasts_ms, self.actor, now_ms, reason)
            book = kept.book.silenced(silence, now_ms)
            if len(book.silences) > MOST_SILENCES:
                raise InvalidOption(f"there are {MOST_SILENCES} silences", fix="silence a whole rule, or use *")
            if not lasts_ms and pattern not in {one.pattern for one in kept.book.silences}:
                known = [one.pattern for one in kept.book.silences]
                raise UnknownName(f"there is no silence of {pattern!r:.80}", fix=did_you_mean(pattern, known))
            if await self.store.put_control(book.control(), expect=kept.version) is not None:
                break
        record = SilenceRecord.of(silence)
        facts = {"pattern": pattern, "until": record.to_dict()["until"]}
        await self.store.append([decision.entry(now_ms, None, **facts)])
        return record

    async def test(
        self,
        webhook: str | None = None,
        *,
        wait: Duration = 0,
        meanwhile: Callable[[], Awaitable[object]] | None = None,
    ) -> tuple[AlertTest, ...]:
        """Tell a webhook, or all of them, that this is a test: on the way that alerts take, as a job.

        Within `wait` it answers as soon as all have ended. `meanwhile` is called again and again: what a process does
        that can deliver them itself.
        """
        known = [ref.name for ref in read_rules(await self.store.controls(KIND)).webhooks]
        if webhook is not None and webhook not in known:
            raise UnknownName(f"there is no webhook {webhook!r:.80}", fix=did_you_mean(webhook, known))
        if not known:
            raise UnknownName("there are no webhooks", fix=_NONE)
        now_ms, wait_ms = await self.now_ms(), to_ms(wait, what="wait")
        text = f"{self.actor} tests whether alerts arrive"
        notice = Notice("test", "test", self.actor, text, now_ms, now_ms)
        names = known if webhook is None else [webhook]
        jobs = [delivery_job(notice, name) for name in names]
        await self.store.enqueue(jobs)
        await self.store.append([Decision("alert.test", self.actor, "", {"webhooks": names}).entry(now_ms)])
        views = await self._ended([job.id for job in jobs], wait_ms, meanwhile)
        return tuple(_tested(name, job.id, view) for name, job, view in zip(names, jobs, views, strict=True))

    async def _ended(
        self, ids: Sequence[bytes], wait_ms: int, meanwhile: Callable[[], Awaitable[object]] | None
    ) -> Sequence[JobView | None]:
        until_s = time.monotonic() + wait_ms / 1000
        while True:
            if meanwhile is not None:
                await meanwhile()
            views = await self.store.get(ids)
            open_ids = [view.id for view in views if view is not None and view.state not in FINISHED]
            left_ms = round((until_s - time.monotonic()) * 1000)
            if not open_ids or left_ms <= 0:
                return views
            try:
                await self.store.watch(open_ids[0], min(left_ms, AGAIN_MS if meanwhile is not None else left_ms))
            except ResultTimeout:
                await asyncio.sleep(0)

    async def _kept(self) -> KeptBook:
        return read_book(await self.store.controls(KIND))


async def publish_rules(store: Store, table: AlertsTable | None) -> AlertRules | None:
    """Write what a settings file says of alerts, so that every process looks by it; the newest start wins.

    A file that says nothing of alerts changes nothing.
    """
    if table is None:
        return None
    rules = table.published()
    known = {control.name: control.value for control in await store.controls(KIND)}
    if known.get(RULES) != rules.control().value:
        await store.put_control(rules.control())
    return rules


def checked_pattern(pattern: str) -> str:
    """What a silence is about: it names a rule that there is."""
    checked_text(pattern, what="the alert")
    rule = pattern.partition(":")[0]
    if len(pattern) > PATTERN_CHARS or ("*" not in rule and rule not in NAMES):
        raise InvalidOption(f"{pattern!r:.80} is no alert", fix=did_you_mean(rule, NAMES))
    return pattern


def _tested(webhook: str, id: bytes, view: JobView | None) -> AlertTest:
    state = State.succeeded if view is None else view.state
    delivered = state is State.succeeded
    waits = f"no process with the address of webhook {webhook} has taken it yet"
    if delivered:
        text = "the receiver has taken it"
    elif view is not None and view.reason:
        text = view.reason
    else:
        text = waits if state is State.ready else f"its job is {state.value}"
    return AlertTest(webhook=webhook, job=id_text(id), state=state, delivered=delivered, text=text)
