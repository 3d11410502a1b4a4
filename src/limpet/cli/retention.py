"""Commands about how long the finished jobs of single queues stay: list, set, clear."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from limpet.cli.terminal import Terminal
from limpet.cli.words import Listing, command, complete_queue
from limpet.core.errors import UsageError

if TYPE_CHECKING:
    from limpet.core.records.queue import RetentionChange, RetentionRecord

ENDS: Final = ("succeeded", "cancelled", "dead")


@click.group(cls=Listing)
def retention() -> None:
    """How long finished jobs of single queues stay."""


async def list_body(terminal: Terminal) -> None:
    """List queues with their own retention of finished jobs."""
    async with terminal.operator() as operator:
        found = await operator.retention()
    rows = [(kept.queue, *_times(kept)) for kept in found]
    terminal.table("retention", ("queue", *ENDS), rows, found)


def _times(kept: RetentionRecord) -> list[str]:
    from limpet.core.jobs.state import State
    from limpet.core.text.duration import text_of_ms

    words = []
    for state in map(State, ENDS):
        stays_s = kept.keep.get(state)
        text = "" if state not in kept.keep else "forever" if stays_s is None else text_of_ms(round(stays_s * 1000))
        words.append(f"{text} (set)" if kept.set_by.get(state) == "operator" else text)
    return words


@click.argument("queue", shell_complete=complete_queue)
@click.option("--succeeded", metavar="TIME", help="Such as 1h or 7d; or forever.")
@click.option("--cancelled", metavar="TIME", help="The same for cancelled jobs.")
@click.option("--dead", metavar="TIME", help="The same for dead ones.")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def set_body(
    terminal: Terminal, queue: str, succeeded: str | None, cancelled: str | None, dead: str | None, reason: str
) -> None:
    """Set how long finished jobs of QUEUE stay; it wins over the code and the settings files until cleared."""
    given = dict(zip(ENDS, (succeeded, cancelled, dead), strict=True))
    keep = {name: value for name, value in given.items() if value is not None}
    if not keep:
        raise UsageError("say how long which jobs stay", fix="--succeeded 7d, --cancelled 1d or --dead forever")
    async with terminal.operator() as operator:
        kept = await operator.set_retention(queue, keep, reason=reason)
    _told(terminal, kept)


@click.argument("queue", shell_complete=complete_queue)
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def clear_body(terminal: Terminal, queue: str, reason: str) -> None:
    """Forget what was set here for QUEUE; what the code and settings files say counts again."""
    async with terminal.operator() as operator:
        kept = await operator.clear_retention(queue, reason=reason)
    _told(terminal, kept)


def _told(terminal: Terminal, kept: RetentionChange) -> None:
    if terminal.machine:
        terminal.answer(kept)
        return
    said = [f"{name} {text}" for name, text in zip(ENDS, _times(kept), strict=True) if text]
    terminal.text(f"{kept.queue}: {', '.join(said) or 'as all queues'}")
    for note in kept.notes:
        terminal.say(f"note: {note}")


retention.add_command(command("list", lists=True)(list_body))
retention.add_command(command("set")(set_body))
retention.add_command(command("clear")(clear_body))
