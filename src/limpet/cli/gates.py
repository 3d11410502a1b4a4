"""Commands about limits and breakers: list, set, clear, history; list, trip, reset, history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from limpet.cli.terminal import Terminal
from limpet.cli.words import Listing, command, duration, instant, pairs, since_option
from limpet.core.errors import UsageError

if TYPE_CHECKING:
    from limpet.core.gate import Gate
    from limpet.core.records.limit import ChangeRecord
    from limpet.core.records.log import EventRecord


# Microseconds of what a rate is shown for: the first that has a round number of jobs, or of cents, in it.
_PER: Final = (("m", 60_000_000), ("h", 3_600_000_000), ("d", 86_400_000_000))
_CENT: Final = 10_000  # millionths of a dollar


@click.group(cls=Listing)
def limits() -> None:
    """Rates, ceilings and budgets, declared by code or set here."""


@click.group(cls=Listing)
def breakers() -> None:
    """Circuit breakers: what failed too often and is cut off."""


@click.argument("key", required=False, default="")
@click.option("--waiting", is_flag=True, help="Only limits that hold back jobs, or are closed now.")
async def limits_list_body(terminal: Terminal, key: str, waiting: bool) -> None:
    """List limits, buckets and budgets with their levels and waiting jobs: all, only KEY, or all whose
    keys begin with KEY."""
    from limpet.core.gate import room
    from limpet.ops.gate_reasons import opens_text
    from limpet.ops.limits import limit_records
    from limpet.stores.asking import MOST_GATES

    async with terminal.operator() as operator:
        gates, now_ms = await operator.gates.limits(key), operator.now_ms()
        behind = await operator.waiters(gates)
    if len(gates) >= MOST_GATES:
        terminal.say(f"note: only {MOST_GATES:,} limits and limits with waiting jobs are listed: name a key")
        gates += behind.beyond
    if key and not gates:
        terminal.say(f"note: no limit begins with {key!r}; a key made from arguments exists after its first job")
    if waiting:
        gates = [gate for gate in gates if behind.counts.get(gate.key) or room(gate, now_ms) <= 0]
    found = limit_records(gates, behind, now_ms)
    rows = []
    for gate, one in zip(gates, found, strict=True):
        opens = "" if room(gate, now_ms) > 0 else opens_text(gate, now_ms)
        # A gate that is open now has no waiting jobs that were not counted.
        unknown = not behind.complete and (room(gate, now_ms) <= 0 or gate.rule.cap is not None)
        count = f"{one.waiting:,}{'' if behind.complete else '+'}" if one.waiting or unknown else ""
        rows.append((gate.key, _slots(gate, now_ms), _level(gate, now_ms), opens, count, one.set_by))
    terminal.table("limits", ("limit", "slots", "level", "opens", "waiting", "set by"), rows, found)


def _slots(gate: Gate, now_ms: int) -> str:
    """How many run of how many that may: fewer than declared while the gate goes slower."""
    from limpet.core.gate import slots

    most = gate.rule.concurrency
    if most is None:
        return ""
    now = slots(gate, now_ms)
    return f"{gate.used}/{now}" + (f" of {most}" if now < most else "")


def _level(gate: Gate, now_ms: int) -> str:
    """What is left of a rate's bucket and of a budget, and whether it goes slower than declared."""
    from limpet.core.gate import budget_left
    from limpet.core.limits.period import ends_ms
    from limpet.core.limits.unit import MONEY, amount_text
    from limpet.core.records.limit import tokens_level
    from limpet.core.text.duration import text_of_ms
    from limpet.ops.gate_reasons import slower_text

    rule, money = gate.rule, gate.rule.unit == MONEY

    def words(stored: int) -> str:
        return amount_text(MONEY, stored) if money else f"{stored:,}"

    unit = "" if money or not rule.unit else f" {rule.unit.replace('_', ' ')}"
    level = ["no money or quota left"] if gate.breaker_open else []
    if rule.depth is not None:
        level.append(f"{rule.depth:,} may wait")
    if rule.tenant_depth is not None:
        level.append(f"{rule.tenant_depth:,} of each tenant may wait")
    if rule.interval_us is not None:
        level.append(f"{words(tokens_level(gate, now_ms))} of {words(rule.burst)}{unit} left")
        level += [
            f"{words(round(us / rule.interval_us))}/{name}"
            for whole in ((_CENT, 1) if money else (1,))
            for name, us in _PER
            if _is_round(us, rule.interval_us * whole)
        ][:1]
    if rule.cap is not None and rule.period is not None:
        ends = text_of_ms(ends_ms(rule.period, now_ms) - now_ms)
        spent = f"{words(rule.cap - budget_left(gate, now_ms))} of {words(rule.cap)}{unit} spent"
        level.append(f"{spent}, this {rule.period} ends in {ends}")
    if slower := slower_text(gate, now_ms):
        level.append(slower)
    return ", ".join(level)


def _is_round(us: int, interval_us: int) -> bool:
    count = us / interval_us
    return count >= 1 and (count > 100 or abs(count - round(count)) < 0.01)


@click.argument("key")
@click.option("--rate", metavar="N/UNIT", help="Such as 10/m, 5/s or 100/30s.")
@click.option(
    "--burst",
    type=click.IntRange(1),
    help="Jobs that may start together after a pause; the rate's number by default, or the code's burst if smaller.",
)
@click.option("--concurrency", type=click.IntRange(1), help="Jobs that run at the same time.")
@click.option("--depth", type=click.IntRange(1), help="Of a queue: jobs that may wait in it; more are refused.")
@click.option("--tenant-depth", type=click.IntRange(1), help="Of a queue: the same for each tenant of its jobs.")
@click.option(
    "--bucket", "buckets", multiple=True, metavar="UNIT=RATE", help="Such as input_tokens=200000/m; repeatable."
)
@click.option("--budget", "budgets", multiple=True, metavar="UNIT=CAP/PERIOD", help="Such as usd=50/day; repeatable.")
@click.option("--adaptive/--no-adaptive", default=None, help="Halve the speed after each pushback, then climb again.")
@click.option("--slowest", metavar="N/UNIT", help="The same, but not slower than this (a tenth of the rate).")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def limits_set_body(
    terminal: Terminal,
    key: str,
    rate: str | None,
    burst: int | None,
    concurrency: int | None,
    depth: int | None,
    tenant_depth: int | None,
    buckets: tuple[str, ...],
    budgets: tuple[str, ...],
    adaptive: bool | None,
    slowest: str | None,
    reason: str,
) -> None:
    """Set a limit on KEY (a limit key, queue:NAME or task:NAME); it wins over the code's until cleared."""
    from limpet.ops import LimitChange

    if slowest is not None and adaptive is False:
        raise UsageError(f"--slowest {slowest} is for a limit that adapts", fix="leave --no-adaptive out")
    adapts = adaptive if slowest is None else slowest
    numbers = (concurrency, adapts, depth, tenant_depth)
    nothing = all(number is None for number in numbers) and not buckets and not budgets
    if rate is None and (burst is not None or nothing):
        what = "a limit" if burst is None else "a burst"
        fix = "--rate 10/m, --concurrency 20, --depth 10000, --bucket tokens=200000/m or --budget usd=50/day"
        raise UsageError(f"{what} needs a number to hold to", fix=fix)
    change = LimitChange(
        rate=rate,
        burst=burst,
        concurrency=concurrency,
        buckets=pairs(buckets, "--bucket", "--bucket input_tokens=200000/m"),
        budgets=pairs(budgets, "--budget", "--budget usd=50/day"),
        adaptive=adapts,
        depth=depth,
        tenant_depth=tenant_depth,
    )
    async with terminal.operator() as operator:
        changed = await operator.set_limit(key, change, reason=reason)
    told(terminal, changed)


@click.argument("key")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def limits_clear_body(terminal: Terminal, key: str, reason: str) -> None:
    """Remove the operator's limits of KEY, its buckets and its budgets; the values of the code count again."""
    async with terminal.operator() as operator:
        changed = await operator.clear_limit(key, reason=reason)
    told(terminal, changed)


@click.argument("key", required=False)
@click.option("--limit", "-n", default=100, show_default=True, type=click.IntRange(1, 10_000), help="Events at most.")
@since_option("Events")
async def limits_history_body(terminal: Terminal, key: str | None, limit: int, since: str | None) -> None:
    """Show when KEY (or any limit) was held back, and how its budgets ran out; the newest last."""
    async with terminal.operator() as operator:
        since_ms = await instant(operator.store, since)
        show_events(terminal, await operator.limit_history(key, limit, since_ms=since_ms))


@click.argument("name", required=False)
@click.option("--limit", "-n", default=100, show_default=True, type=click.IntRange(1, 10_000), help="Events at most.")
@since_option("Events")
async def breakers_history_body(terminal: Terminal, name: str | None, limit: int, since: str | None) -> None:
    """Show when breaker NAME (or any) opened and closed; the newest last."""
    async with terminal.operator() as operator:
        since_ms = await instant(operator.store, since)
        show_events(terminal, await operator.breaker_history(name, limit, since_ms=since_ms))


def show_events(terminal: Terminal, events: Sequence[EventRecord]) -> None:
    """A list of events."""
    from limpet.core.records.record import plain

    terminal.newest_last = True
    if terminal.machine or not events:
        terminal.table("events", (), (), events)
        return
    for event in events:  # whole sentences: a table would cut them
        terminal.text(f"{plain(event.at)}  {event.text}")


@click.argument("prefix", required=False, default="")
@click.option("--open", "only_open", is_flag=True, help="Only open and half-open breakers.")
@click.option(
    "--limit", "-n", default=100, show_default=True, type=click.IntRange(1, 10_000), help="Breakers per page."
)
@click.option("--cursor", metavar="TEXT", help="Where the last page ended.")
async def breakers_list_body(terminal: Terminal, prefix: str, only_open: bool, limit: int, cursor: str | None) -> None:
    """List breakers with their states, open ones first: all, or those whose names begin with PREFIX.

    A breaker by key is listed while it is open or has counted failures.
    """
    from limpet.core.records.limit import BreakerPage, BreakerRecord
    from limpet.ops.gate_reasons import opens_text

    async with terminal.operator() as operator:
        page, now_ms = await operator.gates.breakers(prefix, limit=limit, cursor=cursor), operator.now_ms()
    gates = [gate for gate in page.breakers if gate.breaker_open or not only_open]
    more = page.cursor if len(gates) == len(page.breakers) else None  # open ones come first
    found = tuple(BreakerRecord.of(gate, now_ms) for gate in gates)
    rows = [
        (
            one.breaker,
            one.state,
            str(one.recent_failures) + ("" if one.recent_calls is None else f"/{one.recent_calls}"),
            one.opened,
            "under way" if one.probe_under_way else opens_text(gate, now_ms) if gate.breaker_open else "",
        )
        for gate, one in zip(gates, found, strict=True)
    ]
    if terminal.json:
        terminal.answer(BreakerPage(breakers=found, cursor=more))
        return
    terminal.table("breakers", ("breaker", "state", "failures", "opened", "probe"), rows, found)
    if more:
        terminal.say(f"more: --cursor {more}")


@click.argument("name")
@click.option("--for", "for_ms", type=duration, help="Admit a probe after this time; without it: open until reset.")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
@click.option("--new", is_flag=True, help="Allow a name that is not in use yet.")
async def trip_body(terminal: Terminal, name: str, for_ms: int | None, reason: str, new: bool) -> None:
    """Open breaker NAME by hand: its jobs wait at no cost."""
    async with terminal.operator() as operator:
        changed = await operator.trip(name, for_ms=for_ms, reason=reason, new=new)
    told(terminal, changed)


@click.argument("name")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def reset_body(terminal: Terminal, name: str, reason: str) -> None:
    """Close breaker NAME and forget its failures; limit:KEY or task:NAME reopens one without money."""
    async with terminal.operator() as operator:
        changed = await operator.reset(name, reason=reason)
    told(terminal, changed)


def told(terminal: Terminal, changed: ChangeRecord) -> None:
    """What has changed."""
    if terminal.machine:
        terminal.answer(changed)
        return
    for key in changed.changed:
        terminal.text(f"{key}: {changed.state}")
    for note in changed.notes:
        terminal.say(f"note: {note}")


limits.add_command(command("list", lists=True)(limits_list_body))
limits.add_command(command("set")(limits_set_body))
limits.add_command(command("clear")(limits_clear_body))
limits.add_command(command("history", lists=True)(limits_history_body))
breakers.add_command(command("list", lists=True)(breakers_list_body))
breakers.add_command(command("history", lists=True)(breakers_history_body))
breakers.add_command(command("trip")(trip_body))
breakers.add_command(command("reset")(reset_body))
