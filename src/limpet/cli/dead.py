"""Commands about the dead-letter queue: list, show, retry, edit, discard, review, log, and those about causes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from limpet.cli.bulk import is_query, run_action, words_to_which
from limpet.cli.care import Care, careful, run_operation
from limpet.cli.causes import CAUSE_COMMANDS
from limpet.cli.decisions import log
from limpet.cli.edit import edit
from limpet.cli.jobs import JOB_COLUMNS, job, job_row, retry_options, run_retry
from limpet.cli.review import review
from limpet.cli.terminal import Terminal
from limpet.cli.words import Asking, Listing, bulk_options, command, complete_query, since_option
from limpet.core.errors import UsageError
from limpet.core.jobs.state import State


@click.group(cls=Listing)
def dead() -> None:
    """Jobs that failed for good and wait for a person."""


@click.argument("query", nargs=-1, shell_complete=complete_query)
@click.option("--limit", "-n", default=50, show_default=True, type=click.IntRange(1, 1_000), help="Jobs per page.")
@click.option("--cursor", metavar="TEXT", help="Where the last page ended.")
@since_option("Jobs that died")
async def list_body(
    terminal: Terminal, query: tuple[str, ...], limit: int, cursor: str | None, since: str | None
) -> None:
    """List dead jobs, newest first."""
    from limpet.ops.query import line_of, parse_query
    from limpet.ops.select import guarded
    from limpet.ops.since import narrowed

    asked = guarded(parse_query(line_of(query), limit=limit, cursor=cursor), frozenset({State.dead}), "dead list")
    async with terminal.operator() as operator:
        page = await operator.jobs(await narrowed(operator.store, asked, "finished", since))
    if terminal.json:
        terminal.answer(page)
        return
    rows = [job_row(job, operator.now_ms()) for job in page.jobs]
    terminal.table("dead_jobs", JOB_COLUMNS, rows, page.jobs)
    if page.cursor:
        terminal.say(f"more: --cursor {page.cursor}")


def _wanted(which: Sequence[str], everything: bool) -> tuple[str, ...]:
    """All dead jobs only when someone says so."""
    if bool(which) == everything:
        raise UsageError("say which dead jobs", fix="ids, a query such as error:Timeout, or --all")
    if everything:
        return ("state:dead",)
    return ("state:dead", *which) if is_query(which) else tuple(which)


@click.argument("which", nargs=-1, metavar="(ID... | QUERY)", shell_complete=complete_query)
@click.option("--all", "everything", is_flag=True, help="Every dead job.")
@retry_options
async def dead_retry_body(terminal: Terminal, which: tuple[str, ...], everything: bool, **how: Any) -> int:
    """Run dead jobs again with new attempts, with the same or with other arguments."""
    return await run_retry(terminal, _wanted(which, everything), **how)


@click.argument("which", nargs=-1, metavar="(ID... | QUERY)", shell_complete=complete_query)
@click.option("--all", "everything", is_flag=True, help="Every dead job.")
@bulk_options
@careful(replays=False)
async def discard_body(
    terminal: Terminal, which: tuple[str, ...], care: Care, everything: bool, dry_run: bool, yes: bool, reason: str
) -> int:
    """Remove dead jobs for good; the audit log keeps the user and the reason."""
    words = _wanted(which, everything)
    if care.asked:
        return await run_operation(terminal, "discard", words, care, dry_run=dry_run, yes=yes, reason=reason)
    async with terminal.operator() as operator:

        async def act(**how: Any) -> Any:
            return await operator.discard(words_to_which(words), reason=reason, **how)

        return await run_action(terminal, act, words, dry_run=dry_run, yes=yes)


dead.add_command(command("list", lists=True, cls=Asking)(list_body))
dead.add_command(job, "show")
dead.add_command(review)
for each in CAUSE_COMMANDS:
    dead.add_command(each)
dead.add_command(command("retry", cls=Asking)(dead_retry_body))
dead.add_command(edit)
dead.add_command(command("discard", cls=Asking)(discard_body))
dead.add_command(log)
