"""Commands about causes: list, show one, and say what becomes of it (acknowledge, snooze, resolve, assign and more)."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from limpet.cli.terminal import Terminal
from limpet.cli.words import Body, command, instant, since_option
from limpet.core.endings.review import STATUSES
from limpet.core.errors import InvalidOption, UsageError
from limpet.core.records.cause import CauseKey, CauseRecord
from limpet.core.records.record import plain
from limpet.core.text.duration import ago_ms, text_of_ms

if TYPE_CHECKING:
    from datetime import datetime

    from limpet.ops import Operator

_BARS: Final = "▁▂▃▄▅▆▇█"


@click.option("--queue", metavar="NAME", help="Only this queue.")
@click.option("--status", multiple=True, type=click.Choice(STATUSES), help="Only this status; repeatable.")
@click.option("--assignee", metavar="NAME", help="Only theirs.")
@click.option("--hours", is_flag=True, help="Deaths in each of the last 24 hours.")
@click.option("--limit", "-n", default=50, show_default=True, type=click.IntRange(1, 10_000), help="Causes at most.")
@since_option("Causes that killed a job")
async def causes_body(
    terminal: Terminal,
    queue: str | None,
    status: tuple[str, ...],
    assignee: str | None,
    hours: bool,
    limit: int,
    since: str | None,
) -> None:
    """Dead jobs grouped by what killed them, most frequent first.

    With --status also reviewed causes that have no dead job now.
    """
    async with terminal.operator() as operator:
        picked: Any = status or None
        found = await operator.desk.causes(
            queue,
            status=picked,
            assignee=assignee,
            limit=limit,
            since_ms=await instant(operator.store, since),
            hours=hours,
        )
        now_ms = operator.now_ms()
    columns = ("count", "cause", "status", "task", "error", "message", "last", "sample")
    more = [name for name, shown in _MORE.items() if any(map(shown, found))]
    rows = [(*_row(one, now_ms), *(_MORE[name](one) for name in more)) for one in found]
    terminal.table("causes", (*columns, *more), rows, found)


def _row(one: CauseRecord, now_ms: int) -> tuple[object, ...]:
    last = f"{text_of_ms(ago_ms(one.last_at, now_ms))} ago"
    return one.count, one.cause, one.status, one.task, one.error, one.message, last, one.sample


async def cause_body(terminal: Terminal, which: CauseKey) -> None:
    """Show one cause: its status, who has it, its deaths by the hour, and three of its jobs."""
    from limpet.ops.causes import jobs_of

    async with terminal.operator() as operator:
        found = await operator.desk.cause(which)
        if terminal.machine:
            terminal.answer(found)
            return
        show_cause(terminal, found, operator.now_ms())
        for job in (await operator.jobs(jobs_of(found.key, 3))).jobs:
            terminal.text(f"  job        {job.id}  attempt {job.attempt}/{job.attempts}")


def show_cause(terminal: Terminal, found: CauseRecord, now_ms: int) -> None:
    """A cause as a person reads it."""

    def at(moment: datetime) -> str:
        return f"{text_of_ms(ago_ms(moment, now_ms))} ago ({plain(moment)})"

    terminal.text(f"cause {found.cause}: {found.count:,} dead, {status_text(found)}")
    terminal.long_text(f"  error      {found.error}: {found.message}")
    terminal.text(f"  task       {found.task} (queue {found.queue})")
    terminal.text(f"  first      {at(found.first_at)}")
    terminal.text(f"  last       {at(found.last_at)}")
    terminal.text(f"  per hour   {found.per_hour:g}; last 24 hours: {hour_bars(found)}")
    if found.escalated_at is not None:
        terminal.text(f"  escalated  by {found.escalated_by} {at(found.escalated_at)}")
    if found.note:
        terminal.long_text(f"  note       {found.note}")


def status_text(found: CauseRecord) -> str:
    """The status in words: until when, and whose it is."""
    words: str = found.status
    if found.until is not None:
        words += f" until {plain(found.until)}"
    if found.status_by is not None and found.status != "regressed":
        words += f" by {found.status_by}"
    return words if found.assignee is None else f"{words}, assigned to {found.assignee}"


def said_text(said: CauseRecord, *, planned: bool = False) -> str:
    """What a cause is after a decision, or would be, in one line."""
    return f"cause {said.cause} of {said.task} in {said.queue}: {'would be ' * planned}{status_text(said)}"


def hour_bars(found: CauseRecord) -> str:
    """Deaths by the hour as a line of bars, a dot for none."""
    hours = found.hours or ()
    most = max(hours, default=0)
    return "".join(_BARS[(count * len(_BARS) - 1) // most] if count else "·" for count in hours)


# Columns that are shown when there is something in one of them.
_MORE: Final[dict[str, Callable[[CauseRecord], str]]] = {
    "assignee": lambda one: one.assignee or "",
    "per hour": lambda one: f"{one.per_hour:g}" if one.hours else "",
    "24 hours": hour_bars,
}


def naming(body: Callable[..., Any]) -> Body:
    """The argument that names a cause: its fingerprint, and queue and task where several have it."""

    @wraps(body)
    async def call(terminal: Terminal, cause: str, queue: str | None, task: str | None, **given: Any) -> Any:
        return await body(terminal, CauseKey(cause, queue, task), **given)

    made: Any = click.option("--task", metavar="NAME", help="Which, if several tasks have this cause.")(call)
    made = click.option("--queue", metavar="NAME", help="Which, if several queues have this cause.")(made)
    named: Body = click.argument("cause")(made)
    return named


def _saying(body: Callable[..., Any]) -> Body:
    """The options of what is said of a cause; tells what it is now."""

    @wraps(body)
    async def call(terminal: Terminal, which: CauseKey, if_version: int | None, **given: Any) -> None:
        async with terminal.operator() as operator:
            said: CauseRecord = await body(operator, which, version=if_version, **given)
        if terminal.machine:
            terminal.answer(said)
            return
        terminal.text(said_text(said, planned=given["dry_run"]))

    made: Any = naming(call)
    for option in (
        click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log."),
        click.option("--if-version", type=int, metavar="N", help="Only if it is still at this version; else exit 4."),
        click.option("--dry-run", is_flag=True, help="Say what it would be, change nothing."),
    ):
        made = option(made)
    declared: Body = made
    return declared


@_saying
async def acknowledge_body(operator: Operator, which: CauseKey, **how: Any) -> CauseRecord:
    """Say that a person takes care of a cause; it is no longer part of the review, and an escalation ends."""
    return await operator.desk.acknowledge(which, **how)


@_saying
@click.argument("until", metavar="TIME")
async def snooze_body(operator: Operator, which: CauseKey, until: str, **how: Any) -> CauseRecord:
    """Leave a cause alone for TIME (2h), or until an instant (2026-11-19T08:00Z); then it is open again."""
    return await operator.desk.snooze(which, time_of(until), **how)


@_saying
async def resolve_body(operator: Operator, which: CauseKey, **how: Any) -> CauseRecord:
    """Say that a cause is mended; the next job that dies of it makes it regressed."""
    return await operator.desk.resolve(which, **how)


@_saying
async def reopen_body(operator: Operator, which: CauseKey, **how: Any) -> CauseRecord:
    """Let a cause wait for a person again."""
    return await operator.desk.reopen(which, **how)


@_saying
@click.argument("assignee", required=False, metavar="[WHO]")
@click.option("--none", "none", is_flag=True, help="It is no person's any more.")
async def assign_body(operator: Operator, which: CauseKey, assignee: str | None, none: bool, **how: Any) -> CauseRecord:
    """Say whose a cause is: a name, an address, a team."""
    if (assignee is None) != none:
        raise UsageError("say whose it is", fix="limpet dead assign CAUSE WHO, or --none")
    return await operator.desk.assign(which, assignee, **how)


@_saying
@click.argument("text")
async def note_body(operator: Operator, which: CauseKey, text: str, **how: Any) -> CauseRecord:
    """Keep a note with a cause, in place of the one before; "" removes it."""
    return await operator.desk.note(which, text, **how)


@_saying
@click.option("--to", required=True, metavar="WHO", help="A name, an address, a team.")
async def escalate_body(operator: Operator, which: CauseKey, to: str, **how: Any) -> CauseRecord:
    """Hand a cause over to a person or a team who must look; the event log says so."""
    return await operator.desk.escalate(which, to, **how)


def time_of(text: str) -> str | datetime:
    """A duration as it is, or an instant."""
    from limpet.core.text.duration import to_ms
    from limpet.ops.since import moment_of

    try:
        to_ms(text, what="until")
    except InvalidOption:
        return moment_of(text, "write 2h, or 2026-11-19T08:00Z")
    return text


CAUSE_COMMANDS: Final = (
    command("causes", lists=True)(causes_body),
    command("cause")(naming(cause_body)),
    command("acknowledge")(acknowledge_body),
    command("snooze")(snooze_body),
    command("resolve")(resolve_body),
    command("reopen")(reopen_body),
    command("assign")(assign_body),
    command("note")(note_body),
    command("escalate")(escalate_body),
)
