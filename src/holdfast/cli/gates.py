"""Commands about limits and breakers: list, set, clear; list, trip, reset."""

from __future__ import annotations

import click

from holdfast.cli.terminal import Terminal
from holdfast.cli.words import Listing, command, duration
from holdfast.core.errors import UsageError


@click.group(cls=Listing)
def limits() -> None:
    """Rates and ceilings, declared by code or set here."""


@click.group(cls=Listing)
def breakers() -> None:
    """Circuit breakers: what failed too often and is cut off."""


@click.option("--waiting", is_flag=True, help="Only those that admit nobody now.")
async def limits_list_body(terminal: Terminal, waiting: bool) -> None:
    """List limits with their levels."""
    from holdfast.core.gate import room
    from holdfast.ops.explain import opens_text
    from holdfast.ops.shape import gate_shape

    async with terminal.operator() as operator:
        gates, now_ms = await operator.limits(), operator.now_ms()
    if waiting:
        gates = [gate for gate in gates if not room(gate, now_ms)]
    shapes = [gate_shape(gate, now_ms) for gate in gates]
    rows = []
    for gate, shape in zip(gates, shapes, strict=True):
        slots = "" if shape["concurrency"] is None else f"{shape['used']}/{shape['concurrency']}"
        rate = "" if shape["per_second"] is None else f"{shape['per_second']:g}/s burst {shape['burst']}"
        opens = "" if room(gate, now_ms) else opens_text(gate, now_ms)
        rows.append((gate.key, slots, rate, opens, shape["set_by"]))
    terminal.table("limits", ("limit", "slots", "rate", "opens", "set by"), rows, shapes)


@click.argument("key")
@click.option("--rate", metavar="N/UNIT", help="Such as 10/m, 5/s or 100/30s.")
@click.option("--burst", type=click.IntRange(1), help="Jobs at once after a pause; the rate's number by default.")
@click.option("--concurrency", type=click.IntRange(1), help="Jobs running at once.")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def limits_set_body(
    terminal: Terminal, key: str, rate: str | None, burst: int | None, concurrency: int | None, reason: str
) -> None:
    """Set a limit on KEY (a limit key, queue:NAME or task:NAME); it wins over the code's until cleared."""
    from holdfast.ops import LimitChange
    from holdfast.ops.known import strange
    from holdfast.ops.limits import limit_gate_key

    if rate is None and (concurrency is None or burst is not None):
        what = "a limit" if burst is None else "a burst"
        raise UsageError(f"{what} needs a number to hold to", fix="--rate 10/m, --concurrency 20 or both")
    change = LimitChange(rate=rate, burst=burst, concurrency=concurrency)
    async with terminal.operator() as operator:
        note = await strange(operator.store, limit_gate_key(key))
        gate = await operator.set_limit(key, change, reason=reason)
    _told(terminal, gate.key, "set", note)


@click.argument("key")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def limits_clear_body(terminal: Terminal, key: str, reason: str) -> None:
    """Forget a limit that was set here; what the code declares rules again."""
    async with terminal.operator() as operator:
        gate = await operator.clear_limit(key, reason=reason)
    _told(terminal, gate.key, "cleared")


@click.option("--open", "only_open", is_flag=True, help="Only those that are not closed.")
async def breakers_list_body(terminal: Terminal, only_open: bool) -> None:
    """List breakers with their states."""
    from holdfast.ops.explain import opens_text
    from holdfast.ops.shape import breaker_shape

    async with terminal.operator() as operator:
        gates, now_ms = await operator.breakers(), operator.now_ms()
    gates = [gate for gate in gates if gate.breaker_open or not only_open]
    shapes = [breaker_shape(gate, now_ms) for gate in gates]
    rows = [
        (
            shape["breaker"],
            shape["state"],
            shape["recent_failures"],
            shape["opened"],
            "under way" if shape["probe_under_way"] else opens_text(gate, now_ms) if gate.breaker_open else "",
        )
        for gate, shape in zip(gates, shapes, strict=True)
    ]
    terminal.table("breakers", ("breaker", "state", "failures", "opened", "probe"), rows, shapes)


@click.argument("name")
@click.option("--for", "for_ms", type=duration, help="Let a probe through after this time; without it: until reset.")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
@click.option("--new", is_flag=True, help="Allow a name that is not in use yet.")
async def trip_body(terminal: Terminal, name: str, for_ms: int | None, reason: str, new: bool) -> None:
    """Open breaker NAME by hand: its jobs wait at no cost."""
    async with terminal.operator() as operator:
        gate = await operator.trip(name, for_ms=for_ms, reason=reason, new=new)
    _told(terminal, gate.key, "open")


@click.argument("name")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def reset_body(terminal: Terminal, name: str, reason: str) -> None:
    """Close breaker NAME and forget its failures; limit:KEY or task:NAME is one that ran out of money."""
    async with terminal.operator() as operator:
        gate = await operator.reset(name, reason=reason)
    _told(terminal, gate.key, "closed")


def _told(terminal: Terminal, key: str, word: str, note: str = "") -> None:
    if terminal.machine:
        terminal.answer({"gate": key, "state": word, "notes": [note] if note else []})
        return
    terminal.text(f"{key}: {word}")
    if note:
        terminal.say(f"note: {note}")


limits.add_command(command("list", lists=True)(limits_list_body))
limits.add_command(command("set")(limits_set_body))
limits.add_command(command("clear")(limits_clear_body))
breakers.add_command(command("list", lists=True)(breakers_list_body))
breakers.add_command(command("trip")(trip_body))
breakers.add_command(command("reset")(reset_body))
