"""Commands about jobs that wait: signal; approvals (list, approve, reject), approve, reject."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from limpet.cli.terminal import Terminal
from limpet.cli.words import Asking, Listing, command, complete_query, json_value
from limpet.core.text.duration import instant_ms
from limpet.ops.codes import CONFLICT, OK, REFUSED

if TYPE_CHECKING:
    from limpet.core.records.wait import SignalRecord
    from limpet.ops import Waits

_EXITS: Final = {"woken": OK, "kept": OK, "already": CONFLICT, "finished": REFUSED}


@click.argument("id")
@click.argument("event")
@click.argument("value", required=False, type=json_value, metavar="[JSON]")
@click.option("--task", metavar="NAME", help="ID is a unique key of this task.")
async def signal_body(terminal: Terminal, id: str, event: str, value: bytes | None, task: str | None) -> int:
    """Give job ID the EVENT that it waits for, or will wait for, with a value (JSON, @FILE or -).

    ID may be the unique end of an id, or the unique key that the job was enqueued with.
    """
    import msgspec

    async with terminal.operator() as operator:
        waits = _waits(operator)
        given = None if value is None else msgspec.json.decode(value)
        return tell(terminal, await waits.signal(await waits.typed(id, task=task), event, given))


@click.group(cls=Listing)
def approvals() -> None:
    """What jobs ask of people, and the answers."""


@click.argument("query", nargs=-1, shell_complete=complete_query)
@click.option("--limit", "-n", default=50, show_default=True, type=click.IntRange(1, 1_000), help="About this number.")
@click.option("--cursor", metavar="TEXT", help="Where the last page ended.")
async def list_body(terminal: Terminal, query: tuple[str, ...], limit: int, cursor: str | None) -> None:
    """List jobs that wait for a person, those with the nearest end on top; QUERY narrows it."""
    from limpet.ops.query import line_of, parse_query
    from limpet.ops.reason import when_text

    asked = parse_query(line_of(query), limit=limit, cursor=cursor, newest_first=False)
    async with terminal.operator() as operator:
        page = await _waits(operator).approvals(asked)
        now_ms = operator.now_ms()
    if terminal.json:
        terminal.answer(page.to_dict())
        return
    rows = [
        (
            one.id,
            one.task,
            one.kind,
            one.name,
            one.question,
            "" if one.until is None else when_text(instant_ms(one.until), now_ms),
        )
        for one in page.approvals
    ]
    terminal.table(
        "approvals",
        ("id", "task", "kind", "name", "question", "until"),
        rows,
        [one.to_dict() for one in page.approvals],
    )
    if page.cursor:
        terminal.say(f"there may be more: --cursor {page.cursor}")


def _deciding(function: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments of a decision."""
    for option in (
        click.option("--task", metavar="NAME", help="ID is a unique key of this task."),
        click.option("--name", metavar="NAME", help="Which approval, if several; or one that will be asked for."),
        click.option("--comment", default="", metavar="TEXT", help="For the job, and kept in the audit log."),
        click.argument("id"),
    ):
        function = option(function)
    return function


@_deciding
async def approve_body(terminal: Terminal, id: str, comment: str, name: str | None, task: str | None) -> int:
    """Say yes to what job ID asks (`limpet approvals` lists them)."""
    async with terminal.operator() as operator:
        waits = _waits(operator)
        job = await waits.typed(id, task=task)
        return tell(terminal, await waits.approve(job, comment=comment, name=name))


@_deciding
async def reject_body(terminal: Terminal, id: str, comment: str, name: str | None, task: str | None) -> int:
    """Say no to what job ID asks."""
    async with terminal.operator() as operator:
        waits = _waits(operator)
        job = await waits.typed(id, task=task)
        return tell(terminal, await waits.reject(job, comment=comment, name=name))


def _waits(operator: Any) -> Waits:
    from limpet.ops import Waits

    return Waits(operator.store, operator.actor)


def tell(terminal: Terminal, said: SignalRecord) -> int:
    if terminal.machine:
        terminal.answer(said.to_dict())
    else:
        done = said.answer in ("woken", "kept")
        (terminal.text if done else terminal.say)(said.text)
    return _EXITS[said.answer].exit


signal = command("signal")(signal_body)
approve = command("approve")(approve_body)
reject = command("reject")(reject_body)
approvals.add_command(command("list", lists=True, cls=Asking)(list_body))
approvals.add_command(approve)
approvals.add_command(reject)
