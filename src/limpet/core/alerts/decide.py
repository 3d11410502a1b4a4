"""Decides, by what a look has found, which alerts begin, fire and resolve, and what is to be told of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from limpet.core.alerts.book import Alert, Book, Condition, Notice
from limpet.core.alerts.rule import AlertRules, Rule

MOST_SUBJECTS: Final = 50  # of one rule that have an alert at once: a broken provider opens thousands of breakers
MOST_RESOLVED: Final = 100  # alerts that are kept for people
KEPT_MS: Final = 86_400_000
MOST_UNTOLD: Final = 500  # notices that wait for a store which takes no jobs, as while everything is drained

Found = Mapping[str, Sequence[Condition]]  # by rule: a rule that was not looked at is not in it


def decide(book: Book, found: Found, rules: AlertRules, now_ms: int, untold: Sequence[Notice] = ()) -> Book:
    """The book after a look. Its revision grows when there is something to tell, `untold` from before included."""
    standing = [alert for alert in book.alerts if alert.state != "resolved"]
    ended = [alert for alert in book.alerts if alert.state == "resolved"]
    changed: list[Alert | None] = []
    for alert in standing:
        if rules.of(alert.rule) is None:
            changed.append(_switched_off(alert, now_ms))
        elif alert.rule not in found:
            changed.append(alert)
    for name, conditions in found.items():
        rule = next((rule for rule in rules.rules if rule.name == name), None)
        if rule is not None:
            changed += _of_rule(rule, [alert for alert in standing if alert.rule == name], conditions, now_ms)
    told = [_told(alert, book, now_ms) for alert in changed if alert is not None]
    notices = [*untold, *(notice for _, notice in told if notice is not None)][-MOST_UNTOLD:]
    return replace(
        book,
        alerts=tuple(_ordered([*_recent(ended, now_ms), *(alert for alert, _ in told)])),
        notices=tuple(notices),
        revision=book.revision + 1 if notices else book.revision,
    )


def _of_rule(rule: Rule, mine: Sequence[Alert], conditions: Sequence[Condition], now_ms: int) -> list[Alert | None]:
    holding = {one.subject: one for one in conditions}
    old = [
        _quiet(rule, alert, now_ms)
        if (one := holding.pop(alert.subject, None)) is None
        else _held(rule, alert, one, now_ms)
        for alert in mine
    ]
    worst_first = sorted(holding.values(), key=lambda one: -(one.number or 0))
    new = worst_first[: max(0, MOST_SUBJECTS - len(mine))]
    return [*old, *(_held(rule, Alert(one.rule, one.subject, one.text, now_ms), one, now_ms) for one in new)]


def _held(rule: Rule, alert: Alert, one: Condition, now_ms: int) -> Alert:
    """Its condition holds: a pending one fires once it has held for long enough."""
    alert = replace(alert, text=one.text, number=one.number, queue=one.queue, quiet_since_ms=None)
    if alert.fired_ms is None and now_ms - alert.since_ms >= rule.for_ms:
        return replace(alert, fired_ms=now_ms)
    return alert


def _quiet(rule: Rule, alert: Alert, now_ms: int) -> Alert | None:
    """Its condition does not hold: a pending one is forgotten, a firing one resolves once that has lasted."""
    if alert.fired_ms is None:
        return None
    since_ms = now_ms if alert.quiet_since_ms is None else alert.quiet_since_ms
    alert = replace(alert, quiet_since_ms=since_ms)
    return replace(alert, resolved_ms=now_ms) if now_ms - since_ms >= rule.clear_after_ms else alert


def _switched_off(alert: Alert, now_ms: int) -> Alert | None:
    """No rule watches it any more: what was told as firing is told to be over."""
    return None if alert.fired_ms is None else replace(alert, resolved_ms=now_ms)


def _told(alert: Alert, book: Book, now_ms: int) -> tuple[Alert, Notice | None]:
    """The alert, and what is told of it now. The end of what was told is told under a silence, too."""
    if alert.state == "resolved":
        return alert, alert.notice("resolved", now_ms) if alert.told else None
    if alert.state == "firing" and not alert.told and book.silence_of(alert.rule, alert.subject, now_ms) is None:
        return replace(alert, told=True), alert.notice("firing", alert.fired_ms or now_ms)
    return alert, None


def _recent(ended: Iterable[Alert], now_ms: int) -> list[Alert]:
    kept = [alert for alert in ended if now_ms - (alert.resolved_ms or 0) < KEPT_MS]
    return sorted(kept, key=lambda alert: alert.resolved_ms or 0)[-MOST_RESOLVED:]


def _ordered(alerts: Iterable[Alert]) -> list[Alert]:
    """Firing ones first, then pending ones, then the newest that have resolved."""
    places = {"firing": 0, "pending": 1, "resolved": 2}
    return sorted(alerts, key=lambda alert: (places[alert.state], -(alert.resolved_ms or 0), alert.rule, alert.subject))
