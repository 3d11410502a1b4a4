"""Commands about types: what agents do without Python code, with contracts; list, show, set, reset, remove, apply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from limpet.cli.terminal import Terminal
from limpet.cli.words import Listing, command, json_object
from limpet.core.jobs.job import priority_text
from limpet.core.text.duration import text_of_ms

if TYPE_CHECKING:
    from limpet.core.records.agent_type import TypeChange, TypeRecord
    from limpet.ops import Types
    from limpet.ops.operator import Operator


@click.group(cls=Listing)
def types() -> None:
    """Types: tasks without code, whose jobs agents do, with contracts for arguments and results."""


async def list_body(terminal: Terminal) -> None:
    """List the types: those of configuration files, and those made at run time."""
    async with terminal.operator() as operator:
        found = await _types(operator).list()
    rows = [
        (
            one.type,
            one.queue,
            priority_text(one.priority),
            ", ".join(one.capabilities),
            text_of_ms(round(one.lease_s * 1000)),
            "yes" if isinstance(one.result, dict) else "",
            "operator" if "operator" in one.set_by.values() else "file",
        )
        for one in found
    ]
    terminal.table("types", ("type", "queue", "priority", "needs", "lease", "contract", "set by"), rows, found)


@click.argument("name")
async def show_body(terminal: Terminal, name: str) -> None:
    """Show type NAME: all its keys, and which of them were set at run time."""
    async with terminal.operator() as operator:
        _tell(terminal, await _types(operator).get(name))


@click.argument("name")
@click.argument("changes", type=json_object, metavar="JSON")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def set_body(terminal: Terminal, name: str, changes: dict[str, Any], reason: str) -> None:
    """Make type NAME, or change the keys in JSON (or @FILE, or -), which are those of limpet.toml.

    Jobs to come are stored as it says then; contracts hold for all jobs, within ten seconds. null takes a change back.
    """
    async with terminal.operator(create=True) as operator:
        _changed(terminal, await _types(operator).set(name, changes, reason=reason))


@click.argument("name")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def reset_body(terminal: Terminal, name: str, reason: str) -> None:
    """Take back what was changed at run time: type NAME is as its file says."""
    async with terminal.operator() as operator:
        _changed(terminal, await _types(operator).reset(name, reason=reason))


@click.argument("name")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def remove_body(terminal: Terminal, name: str, reason: str) -> None:
    """Forget type NAME: its jobs stay, without a contract. A file that declares it makes it again."""
    async with terminal.operator() as operator:
        record = await _types(operator).remove(name, reason=reason)
    if terminal.json:
        terminal.answer(record)
    else:
        terminal.text(f"type {name} is removed")


async def apply_body(terminal: Terminal) -> None:
    """Publish the types of limpet.toml now; otherwise that happens before their first job and when a worker starts."""
    from limpet.client.file_types import publish_types

    tables = terminal.config.file.types
    async with terminal.store(create=True) as store:
        written = await publish_types(store, tables)
    if terminal.json:
        terminal.answer({"types": [*tables], "written": written})
    else:
        terminal.text(f"{len(tables)} types in the file, {written} of them new or changed")


def _types(operator: Operator) -> Types:
    from limpet.ops import Types

    return Types(operator.store, operator.actor)


def _changed(terminal: Terminal, record: TypeChange) -> None:
    _tell(terminal, record)
    terminal.say(f"changed: {', '.join(record.changed)}" if record.changed else "nothing is changed: it was so already")


def _tell(terminal: Terminal, record: TypeRecord) -> None:
    if terminal.json:
        terminal.answer(record)
        return
    terminal.text(f"type {record.type}")
    for key, value in record.to_dict().items():
        if key not in ("type", "set_by") and value not in (None, "", [], {}, True):
            by = f"  ({record.set_by[key]})" if key in record.set_by else ""
            words = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            terminal.text(f"  {key:<13} {words}{by}")


types.add_command(command("list", lists=True)(list_body))
types.add_command(command("show")(show_body))
types.add_command(command("set")(set_body))
types.add_command(command("reset")(reset_body))
types.add_command(command("remove")(remove_body))
types.add_command(command("apply")(apply_body))
