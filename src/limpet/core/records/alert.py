"""Decides what of alerts is public: where each stands, which are silenced, which rules are in force."""

from __future__ import annotations

from datetime import datetime

from limpet.core.alerts.book import Alert, AlertState, Book, Silence
from limpet.core.alerts.rule import AlertRules, Measure, Rule, RuleName, Subject, fix_of
from limpet.core.jobs.state import State
from limpet.core.records.record import Record, instant, moment, seconds


class AlertRecord(Record, frozen=True, kw_only=True):
    """One alert: pending while its condition has not held for long enough, then firing, then resolved."""

    alert: str  # RULE:SUBJECT
    rule: RuleName
    subject: str
    state: AlertState
    text: str
    fix: str
    queue: str | None  # that it is about, if it is about one
    since: datetime  # its condition was first seen
    fired_at: datetime | None
    resolved_at: datetime | None
    told: bool  # a webhook was told, or would have been
    silenced_until: datetime | None

    @classmethod
    def of(cls, alert: Alert, book: Book, now_ms: int) -> AlertRecord:
        """The public face of an alert."""
        silence = book.silence_of(alert.rule, alert.subject, now_ms)
        return cls(
            alert=alert.key,
            rule=alert.rule,
            subject=alert.subject,
            state=alert.state,
            text=alert.text,
            fix=fix_of(alert.rule, alert.subject),
            queue=alert.queue,
            since=moment(alert.since_ms),
            fired_at=instant(alert.fired_ms),
            resolved_at=instant(alert.resolved_ms),
            told=alert.told,
            silenced_until=None if silence is None else moment(silence.until_ms),
        )


class SilenceRecord(Record, frozen=True, kw_only=True):
    """A person wants to hear nothing of some alerts for a time."""

    pattern: str  # RULE, RULE:SUBJECT, or such with *
    until: datetime
    by: str
    at: datetime
    reason: str | None

    @classmethod
    def of(cls, silence: Silence) -> SilenceRecord:
        """The public face of a silence."""
        return cls(
            pattern=silence.pattern,
            until=moment(silence.until_ms),
            by=silence.by,
            at=moment(silence.at_ms),
            reason=silence.reason or None,
        )


class AlertRuleRecord(Record, frozen=True, kw_only=True):
    """A rule that is in force, and the webhooks that hear of it."""

    rule: RuleName
    subject: Subject
    measure: Measure
    at_least: float | None  # in the unit of its measure, times in seconds
    each: dict[str, float]
    ignore: tuple[str, ...]
    for_s: float
    clear_after_s: float
    text: str
    webhooks: tuple[str, ...]

    @classmethod
    def of(cls, rule: Rule, rules: AlertRules) -> AlertRuleRecord:
        """The public face of a rule."""
        scale = 1000 if rule.measure == "time" else 1
        told = rule.told(rule.at_least)
        return cls(
            rule=rule.name,
            subject=rule.subject,
            measure=rule.measure,
            at_least=None if rule.at_least is None else rule.at_least / scale,
            each={subject: number / scale for subject, number in rule.each.items()},
            ignore=rule.ignore,
            for_s=seconds(rule.for_ms) or 0,
            clear_after_s=seconds(rule.clear_after_ms) or 0,
            text=f"from {told} on" if told else "only those named" if rule.measure else "",
            webhooks=tuple(ref.name for ref in rules.webhooks if ref.hears(rule.name)),
        )


class AlertTest(Record, frozen=True, kw_only=True):
    """What became of a test of one webhook: its job, and what the receiver answered so far."""

    webhook: str
    job: str
    state: State
    delivered: bool
    text: str
