"""Commands about alerts: what fires, by which rules, who is told; a silence, and a test of the webhooks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from limpet.cli.terminal import Terminal
from limpet.cli.words import Listing, command, duration
from limpet.core.jobs.state import State
from limpet.core.text.duration import ago_ms, instant_ms, text_of_ms
from limpet.ops.codes import OK, REFUSED, TIMED_OUT

if TYPE_CHECKING:
    from limpet.core.records.alert import AlertRecord, AlertRuleRecord
    from limpet.ops.courier import Courier
    from limpet.stores.base import Store


@click.group(cls=Listing)
def alerts() -> None:
    """Alerts: what fires, by which rules; silence some, test the webhooks."""


@click.option("--open", "is_open", is_flag=True, help="Only those that have not resolved.")
async def list_body(terminal: Terminal, is_open: bool) -> None:
    """List alerts, firing ones first; those that have resolved within a day, too."""
    async with terminal.operator() as operator:
        found, now_ms = await operator.alerts.list(resolved=not is_open), operator.now_ms()
    columns = ("alert", "state", "for", "silenced", "what")
    terminal.table("alerts", columns, [_line(one, now_ms) for one in found], found)


def _line(one: AlertRecord, now_ms: int) -> tuple[object, ...]:
    since = one.resolved_at or one.fired_at or one.since
    left_ms = 0 if one.silenced_until is None else instant_ms(one.silenced_until) - now_ms
    return one.alert, one.state, text_of_ms(ago_ms(since, now_ms)), text_of_ms(left_ms) if left_ms > 0 else "", one.text


async def rules_body(terminal: Terminal) -> None:
    """List the rules that are in force, and the webhooks that hear of each."""
    async with terminal.operator() as operator:
        found = await operator.alerts.rules()
    columns = ("rule", "fires", "after", "resolves after", "webhooks")
    terminal.table("rules", columns, [_rule_line(one) for one in found], found)


def _rule_line(one: AlertRuleRecord) -> tuple[object, ...]:
    waits, clears = (text_of_ms(round(seconds * 1000)) for seconds in (one.for_s, one.clear_after_s))
    fires = f"{one.text}; {len(one.each)} of their own" if one.each else one.text
    return one.rule, fires or f"for each {one.subject}", waits, clears, ", ".join(one.webhooks) or "none"


async def silences_body(terminal: Terminal) -> None:
    """List the silences that have not ended."""
    async with terminal.operator() as operator:
        found = await operator.alerts.silences()
    rows = [(one.pattern, one.to_dict()["until"], one.by, one.reason or "") for one in found]
    terminal.table("silences", ("alerts", "until", "by", "reason"), rows, found)


@click.argument("alert")
@click.option("--for", "lasts_ms", type=duration, default="1h", show_default=True, metavar="TIME", help="How long.")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def silence_body(terminal: Terminal, alert: str, lasts_ms: int, reason: str) -> None:
    """Tell nothing of an alert that begins to fire: a rule, RULE:SUBJECT, or such with *."""
    async with terminal.operator() as operator:
        made = await operator.alerts.silence(alert, lasts_ms / 1000, reason=reason)
    if terminal.machine:
        terminal.answer(made)
    else:
        terminal.text(f"{made.pattern}: silenced until {made.to_dict()['until']}")


@click.argument("alert")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def unsilence_body(terminal: Terminal, alert: str, reason: str) -> None:
    """End a silence; what fires is told at the next look."""
    async with terminal.operator() as operator:
        ended = await operator.alerts.silence(alert, 0, reason=reason)
    if terminal.machine:
        terminal.answer(ended)
    else:
        terminal.text(f"{ended.pattern}: not silenced")


@click.argument("webhook", required=False)
@click.option("--wait", "wait_ms", type=duration, default="30s", show_default=True, metavar="TIME", help="At most.")
async def test_body(terminal: Terminal, webhook: str | None, wait_ms: int) -> int:
    """Tell a webhook, or all of them, that this is a test; says what the receiver answered."""
    async with terminal.operator() as operator:
        courier = await _courier(terminal, operator.store)
        meanwhile = None if courier is None else courier.deliver
        found = await operator.alerts.test(webhook, wait=wait_ms / 1000, meanwhile=meanwhile)
    rows = [(one.webhook, "delivered" if one.delivered else one.state, one.text) for one in found]
    terminal.table("tests", ("webhook", "state", "what"), rows, found)
    if all(one.delivered for one in found):
        return OK.exit
    return REFUSED.exit if any(one.state is State.dead for one in found) else TIMED_OUT.exit


async def _courier(terminal: Terminal, store: Store) -> Courier | None:
    """What delivers in this process, where its settings have the addresses; rules that no process published yet are."""
    from limpet.core.alerts.rule import KIND, RULES
    from limpet.ops.alerts import publish_rules
    from limpet.ops.courier import Courier

    table = terminal.config.file.alerts
    if table is None:
        return None
    if RULES not in {control.name for control in await store.controls(KIND)}:
        await publish_rules(store, table)
    return Courier(store, table.receivers(os.environ), terminal.config.namespace.value)


alerts.add_command(command("list", lists=True)(list_body))
alerts.add_command(command("rules", lists=True)(rules_body))
alerts.add_command(command("silences", lists=True)(silences_body))
alerts.add_command(command("silence")(silence_body))
alerts.add_command(command("unsilence")(unsilence_body))
alerts.add_command(command("test")(test_body))
