"""Commands about jobs: jobs, job, explain, cancel, retry, rerun."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import click

from limpet.cli.bulk import run_action, words_to_which
from limpet.cli.care import Care, careful, run_operation
from limpet.cli.terminal import Terminal, patience_ms
from limpet.cli.words import (
    Asking,
    Exemplified,
    bulk_options,
    command,
    complete_query,
    duration,
    json_object,
    since_option,
)
from limpet.core.errors import JobError, UsageError
from limpet.core.jobs.state import STATES
from limpet.core.text.duration import ago_ms, text_of_ms

if TYPE_CHECKING:
    from limpet.core.records.job import JobRecord


@click.argument("query", nargs=-1, shell_complete=complete_query)
@click.option("--limit", "-n", default=50, show_default=True, type=click.IntRange(1, 1_000), help="Jobs per page.")
@click.option("--cursor", metavar="TEXT", help="Where the last page ended.")
@click.option("--oldest", is_flag=True, help="Oldest first.")
@since_option("Jobs enqueued")
async def jobs_body(
    terminal: Terminal, query: tuple[str, ...], limit: int, cursor: str | None, oldest: bool, since: str | None
) -> None:
    """List jobs that match QUERY: state:dead queue:mail task:send_* args.amount>100 finished<1h -task:noop timeout.

    A word without a field is looked for in the task's name and in the error.
    """
    from limpet.ops.query import line_of, parse_query
    from limpet.ops.since import narrowed

    asked = parse_query(line_of(query), limit=limit, cursor=cursor, newest_first=not oldest)
    async with terminal.operator() as operator:
        page = await operator.jobs(await narrowed(operator.store, asked, "age", since))
        hint = "" if page.jobs else await _hint(operator.store, asked)
    if terminal.json:
        terminal.answer(page)
    else:
        rows = [job_row(job, operator.now_ms()) for job in page.jobs]
        terminal.table("jobs", JOB_COLUMNS, rows, page.jobs)
        if page.cursor:
            terminal.say(f"more: --cursor {page.cursor}")
    if hint:
        terminal.say(hint)


JOB_COLUMNS: Final = ("id", "state", "task", "queue", "attempt", "age", "error")


def job_row(job: JobRecord, now_ms: int) -> tuple[object, ...]:
    """One job as a line of a table."""
    age = text_of_ms(ago_ms(job.enqueued_at, now_ms))
    return job.id, job.state, job.task, job.queue, f"{job.attempt}/{job.attempts}", age, job.failure or ""


async def _hint(store: Any, query: Any) -> str:
    """A query that finds nothing because a name is misspelt should say so."""
    from limpet.core.tasks.naming import did_you_mean
    from limpet.ops.names import known_names

    for term in query.terms:
        if term.field in ("queue", "task") and "*" not in term.value and not term.negated:
            names = await known_names(store, term.field)
            if term.value not in names:
                return f"no {term.field} is called {term.value!r}; {did_you_mean(term.value, names)}"
        if term.field == "word" and term.value.lower() in STATES:
            return f"no task and no error says {term.value!r}; write state:{term.value.lower()} for a state"
    return ""


FOREVER: Final = "forever"
FOREVER_MS: Final = -1


class Waiting(Exemplified):
    """A command in which `--wait` may stand alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from limpet.cli.watch import with_interval

        return super().parse_args(ctx, with_interval(args, "--wait", FOREVER))


def _patience(text: str) -> int:
    return FOREVER_MS if text == FOREVER else duration(text)


@click.argument("id")
@click.option("--full", is_flag=True, help="Whole tracebacks.")
@click.option("--wait", type=_patience, metavar="[TIME]", help="Show a bar, and print the result; exit 7 after TIME.")
async def job_body(terminal: Terminal, id: str, full: bool, wait: int | None) -> None:
    """Show one job (ID, or the unique end of one) with its arguments, result and attempts."""
    from limpet.cli.detail import show_job

    if wait is not None:
        await _waited(terminal, id, None if wait == FOREVER_MS else wait)
        return
    async with terminal.operator() as operator:
        found = await operator.job(id)
    if terminal.json:
        terminal.answer(found)
    else:
        show_job(terminal, found.to_dict(), full=full)


async def _waited(terminal: Terminal, id: str, wait_ms: int | None) -> None:
    """Print the job's result once it has one; with --json the whole job, however it ends."""
    from limpet.cli.waiting import result_of
    from limpet.ops.select import resolve

    async with terminal.operator(wait_ms=patience_ms(wait_ms)) as operator:
        raw = await resolve(operator.store, id)
        failed: JobError | None = None
        try:
            result = await result_of(terminal, operator.store, raw, wait_ms)
        except JobError as error:
            failed = error
        detail = await operator.job(raw) if terminal.json else None
    if detail is not None:
        terminal.answer(detail)
    if failed is not None:
        raise failed
    if detail is None:
        terminal.text(bytes(result).decode())


@click.argument("id")
async def explain_body(terminal: Terminal, id: str) -> None:
    """Say why job ID does not run: what it waits for, which limit is full, which worker could run it."""
    async with terminal.operator() as operator:
        found = await operator.explain(id)
    if terminal.json:
        terminal.answer(found)
    else:
        terminal.text(str(found))


@click.argument("which", nargs=-1, required=True, metavar="(ID... | QUERY)", shell_complete=complete_query)
@click.option("--force", is_flag=True, help="Take running jobs away from their workers.")
@bulk_options
@careful(replays=False)
async def cancel_body(
    terminal: Terminal, which: tuple[str, ...], care: Care, force: bool, dry_run: bool, yes: bool, reason: str
) -> int:
    """Cancel jobs and their dependents; running ones are asked to stop."""
    if care.asked:
        return await run_operation(
            terminal, "cancel", which, care, dry_run=dry_run, yes=yes, reason=reason, force=force
        )
    async with terminal.operator() as operator:

        async def act(**how: Any) -> Any:
            return await operator.cancel(words_to_which(which), reason=reason, force=force, **how)

        return await run_action(terminal, act, which, dry_run=dry_run, yes=yes)


def retry_options(function: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    """The options of `retry` and `dead retry`."""
    made: Callable[..., Any] = bulk_options(careful(replays=True)(function))
    for option in (
        click.option("--forget-all", is_flag=True, help="Run every recorded step again."),
        click.option("--forget", multiple=True, metavar="STEP", help="Run this recorded step again; repeatable."),
        click.option("--delay", type=duration, default=0, help="Run them not before this time has passed (5m)."),
        click.option("--patch", type=json_object, help="Change some arguments: a JSON object, @FILE or -."),
        click.option("--args", type=json_object, help="Replace all arguments: a JSON object, @FILE or -."),
    ):
        made = option(made)
    return made


@click.argument("which", nargs=-1, required=True, metavar="(ID... | QUERY)", shell_complete=complete_query)
@retry_options
async def retry_body(terminal: Terminal, which: tuple[str, ...], **how: Any) -> int:
    """Run dead jobs again with new attempts; with state:scheduled, start waiting jobs now."""
    return await run_retry(terminal, which, **how)


async def run_retry(
    terminal: Terminal,
    which: tuple[str, ...],
    care: Care,
    *,
    dry_run: bool,
    yes: bool,
    reason: str,
    delay: int,
    args: dict[str, Any] | None,
    patch: dict[str, Any] | None,
    forget: tuple[str, ...],
    forget_all: bool,
) -> int:
    """Bring dead jobs back."""
    if args is not None and patch is not None:
        raise UsageError("--args and --patch exclude each other", fix="--args replaces all, --patch changes some")
    steps = ("*",) if forget_all else forget
    if care.asked:
        edit = {"delay_ms": delay, "args": args, "patch": patch, "forget": steps}
        return await run_operation(terminal, "retry", which, care, dry_run=dry_run, yes=yes, reason=reason, **edit)
    async with terminal.operator() as operator:

        async def act(**how: Any) -> Any:
            return await operator.retry(
                words_to_which(which), reason=reason, delay_ms=delay, args=args, patch=patch, forget=steps, **how
            )

        return await run_action(terminal, act, which, dry_run=dry_run, yes=yes)


@click.argument("which", nargs=-1, required=True, metavar="(ID... | QUERY)", shell_complete=complete_query)
@click.option("--no-unique", is_flag=True, help="Do not take the unique key: run even if another job holds it.")
@bulk_options
@careful(replays=True)
async def rerun_body(
    terminal: Terminal, which: tuple[str, ...], care: Care, no_unique: bool, dry_run: bool, yes: bool, reason: str
) -> int:
    """Run succeeded and cancelled jobs again, as new jobs with the same arguments.

    Queue, tenant, limits and retries are those of the task today; the new job has no parents and no dependents.
    Dead jobs keep their id: use `retry`.
    """
    if care.asked:
        return await run_operation(
            terminal, "rerun", which, care, dry_run=dry_run, yes=yes, reason=reason, unique=not no_unique
        )
    async with terminal.operator() as operator:

        async def act(**how: Any) -> Any:
            return await operator.rerun(words_to_which(which), reason=reason, unique=not no_unique, **how)

        return await run_action(terminal, act, which, dry_run=dry_run, yes=yes)


jobs = command("jobs", lists=True, cls=Asking)(jobs_body)
job = command("job", cls=Waiting)(job_body)
explain = command("explain")(explain_body)
cancel = command("cancel", cls=Asking)(cancel_body)
retry = command("retry", cls=Asking)(retry_body)
rerun = command("rerun", cls=Asking)(rerun_body)
