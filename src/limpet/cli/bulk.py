"""Runs an action on many jobs from the command line: dry run, question, progress bar, report."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from limpet.cli.terminal import Terminal
from limpet.ops.codes import CONFLICT, NOT_FOUND, OK, REFUSED
from limpet.ops.query import line_of, looks_like_query
from limpet.ops.select import Which, may_be_id

if TYPE_CHECKING:
    from limpet.core.records.bulk import BulkReport
    from limpet.core.records.job import JobRecord

Act = Callable[..., Awaitable["BulkReport"]]

_SHOWN: Final = 200  # characters of a value in a preview
_LISTED: Final = 20  # jobs that are named one by one after an action


def is_query(words: Sequence[str]) -> bool:
    """True when the words of a command line are conditions, not ids."""
    return any(looks_like_query(word) for word in words)


def words_to_which(words: Sequence[str]) -> Which:
    """What the words mean to the operator API: beside a condition a word is searched for, unless it may be an id."""
    if is_query(words) and not any(may_be_id(word) for word in words):
        return line_of(words)
    return list(words)


async def run_action(terminal: Terminal, act: Act, words: Sequence[str], *, dry_run: bool, yes: bool) -> int:
    """Do it, or say what would be done. Jobs named one by one need no question."""
    report: Any = await previewed(terminal, act, words, dry_run=dry_run, yes=yes)
    if not dry_run and (report is None or report.matched):
        with terminal.progress("working") as progress:
            report = await act(progress=progress)
    if terminal.machine:
        terminal.answer(report)
    else:
        tell(terminal, report)
        for note in report.notes:
            terminal.say(f"note: {note}")
    return _exit(report, named=not is_query(words))


async def previewed(
    terminal: Terminal, act: Act, words: Sequence[str], *, dry_run: bool, yes: bool
) -> BulkReport | None:
    """What it would do, if that is asked for, or has to be asked before; the person has agreed then."""
    if not dry_run and (yes or not is_query(words)):
        return None
    report = await act(dry_run=True)
    if not dry_run and report.matched:
        _show(terminal, report)
        terminal.confirm(f"{report.action} {jobs_text(report.matched)}?", yes=yes)
    return report


def jobs_text(count: int) -> str:
    """A number of jobs, in words."""
    return f"{count:,} job{'' if count == 1 else 's'}"


def _show(terminal: Terminal, report: BulkReport) -> None:
    for place, job in enumerate(report.samples):
        why = f"  {job.failure}" if job.error else ""
        terminal.say(f"  {job.id}  {job.state}  {job.task}  ({job.queue}){why}")
        if place < len(report.edits):
            show_edit(terminal, job, report.edits[place])
    if report.matched > len(report.samples):
        terminal.say(f"  … and {report.matched - len(report.samples):,} more")


def show_edit(terminal: Terminal, job: JobRecord, edit: Mapping[str, Any]) -> None:
    """The arguments as they will be, with what they were where they change."""
    before, after = edit["before"], edit["after"]
    for name, value in job.args.items():
        was = "" if name not in after else f"  (was {_json(before[name])})" if name in before else "  (new)"
        terminal.say(f"    {name}: {_json(value)}{was}")
    for name in before.keys() - after.keys():
        terminal.say(f"    {name}: left out  (was {_json(before[name])})")


def _json(value: object) -> str:
    import msgspec

    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def tell(terminal: Terminal, report: BulkReport) -> None:
    """What was done, or would be, as a person reads it."""
    if report.dry_run:
        terminal.text(f"would {report.action} {jobs_text(report.matched)}")
        _show(terminal, report)
        return
    words = ", ".join(f"{count:,} {answer.replace('_', ' ')}" for answer, count in sorted(report.answers.items()))
    terminal.text(f"{report.action}: {words or 'no job matched'}")
    for id, new in list(report.made.items())[:_LISTED]:
        terminal.say(f"  {id}: runs again as job {new}")
    if len(report.made) > _LISTED:
        terminal.say(f"  … and {len(report.made) - _LISTED:,} more")
    for id, holder in list(report.holders.items())[:_LISTED]:
        terminal.say(f"  {id}: job {holder} holds its unique key")


def _exit(report: BulkReport, *, named: bool) -> int:
    """A query that matches nothing is no failure; a job asked for by name that could not be changed is.

    So is a query that could change nothing of what it matched.
    """
    if report.dry_run or report.done == report.matched or (report.done and not named):
        return OK.exit
    if "unique_held" in report.answers:
        return CONFLICT.exit
    return NOT_FOUND.exit if set(report.answers) == {"gone"} else REFUSED.exit
