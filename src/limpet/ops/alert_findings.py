"""Decides what `doctor` says of alerts: what fires, whether a process looks, and what could not be told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from limpet.core.alerts.book import Book
from limpet.core.alerts.delivery import QUEUE
from limpet.core.alerts.rule import AlertRules
from limpet.core.jobs.lease import SessionView
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Counts, Finding
from limpet.core.text.duration import text_of_ms

IDLE_LOOKS: Final = 10  # that were missed: another process would have taken over long ago
UNTOLD_MS: Final = 60_000  # a process with the address takes a job within one look


def alert_findings(
    book: Book, rules: AlertRules, counts: Counts, sessions: tuple[SessionView, ...], now_ms: int
) -> Iterator[Finding]:
    """Every finding; `counts` has the queues."""
    firing = [alert.key for alert in book.alerts if alert.state == "firing"]
    if firing:
        some = ", ".join(firing[:5]) + (f" and {len(firing) - 5} more" if len(firing) > 5 else "")
        words = "1 alert fires" if len(firing) == 1 else f"{len(firing)} alerts fire"
        yield Finding("warning", "alerts_firing", f"{words}: {some}", "limpet alerts")
    idle_ms = now_ms - book.looked_ms
    if sessions and book.looked_ms and idle_ms > IDLE_LOOKS * max(rules.every_ms, 1_000):
        text = f"no process has looked for alerts for {text_of_ms(idle_ms)}"
        fix = "workers and limpet serve do: look for a line of limpet.alerts in their logs"
        yield Finding("warning", "alerts_idle", text, fix)
    yield from _untold(counts, now_ms)
    if not firing and book.looked_ms:
        yield Finding("ok", "alerts", f"no alert fires; {len(rules.rules)} rules, {len(rules.webhooks)} webhooks")


def _untold(counts: Counts, now_ms: int) -> Iterator[Finding]:
    dead = sum(n for (queue, _, state), n in counts.now.items() if queue == QUEUE and state is State.dead)
    if dead:
        notices = "1 notice of an alert" if dead == 1 else f"{dead} notices of alerts"
        text = f"{notices} could not be told, and will not be tried again"
        yield Finding("warning", "alerts_untold", text, f"limpet dead list queue:{QUEUE}; then limpet alerts test")
    oldest_ms = next((view.oldest_ready_at_ms for view in counts.queues if view.queue == QUEUE), None)
    if oldest_ms is not None and now_ms - oldest_ms > UNTOLD_MS:
        text = f"what is to be told to webhooks has waited {text_of_ms(now_ms - oldest_ms)}: no process takes it"
        fix = "start limpet serve, or a worker, whose settings and environment have the address of the webhook"
        yield Finding("warning", "alerts_waiting", text, fix)
