"""Runs an action on many jobs as an operation: throttled, a sample first, in the background; Ctrl-C pauses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from limpet.cli.bulk import is_query, jobs_text, previewed, tell, words_to_which
from limpet.cli.terminal import Terminal
from limpet.core.text.duration import ago_ms, text_of_ms
from limpet.ops.codes import CONFLICT, OK, REFUSED

if TYPE_CHECKING:
    from limpet.core.records.operation import OperationRecord
    from limpet.ops.operations import Operations

INTERRUPTED: Final = 130  # as of any command that Ctrl-C ends


class Care(NamedTuple):
    """How carefully many jobs are acted on; without any of it, at once and in this process."""

    per_second: float | None = None
    background: bool = False
    sample: int | None = None
    stop_after: int | None = None

    @property
    def asked(self) -> bool:
        """True when an operation is asked for."""
        return self != Care()

    @property
    def how(self) -> dict[str, Any]:
        """The options of the operation."""
        said = {"per_second": self.per_second, "sample": self.sample, "stop_after": self.stop_after}
        return {name: value for name, value in said.items() if value is not None}


def careful(*, replays: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options of an operation; a verb whose jobs run afterwards has two more. The body gets them as `care`."""
    options = [
        click.option("--background", is_flag=True, help="Leave it to a server, or to `limpet operations run`."),
        click.option(
            "--per-second", type=click.FloatRange(0, min_open=True), metavar="N", help="The most jobs a second."
        ),
    ]
    if replays:
        stop_help = "Pause when N of these jobs have died again."
        sample_help = "Only N jobs first; go on with `limpet operations continue`."
        options = [
            click.option("--stop-after", type=click.IntRange(1), metavar="N", help=stop_help),
            click.option("--sample", type=click.IntRange(1), metavar="N", help=sample_help),
            *options,
        ]

    def declare(body: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(body)
        async def call(
            terminal: Terminal, *words: Any, background: bool, per_second: float | None, **given: Any
        ) -> Any:
            replay = {name: given.pop(name) for name in ("sample", "stop_after") if replays}
            return await body(terminal, *words, care=Care(per_second, background, **replay), **given)

        made: Any = call
        for option in options:
            made = option(made)
        declared: Callable[..., Any] = made
        return declared

    return declare


async def run_operation(
    terminal: Terminal,
    verb: str,
    words: Sequence[str],
    care: Care,
    *,
    dry_run: bool,
    yes: bool,
    reason: str,
    **how: Any,
) -> int:
    """Store an operation, and run it here unless it shall run in the background."""
    which, options = words_to_which(words), {**how, **care.how}
    async with terminal.operator() as operator:
        operations = operator.operations

        async def preview(**_: Any) -> Any:
            return await operations.preview(verb, which, **options)

        report = await previewed(terminal, preview, words, dry_run=dry_run, yes=yes)
        if report is not None and (dry_run or not report.matched):
            if terminal.machine:
                terminal.answer(report)
            else:
                tell(terminal, report)
            return OK.exit
        started = await operations.start(verb, which, reason=reason, **options)
        if care.background:
            told(terminal, started)
            return OK.exit
        return await carried_out(terminal, operations, started.id, named=not is_query(words))


async def carried_out(terminal: Terminal, operations: Operations, id: str, *, named: bool = False) -> int:
    """Run it, or follow the process that does, with a bar; Ctrl-C pauses it and says how it is continued."""
    terminal.say(f"operation {id}: Ctrl-C pauses it")
    stop, interrupted = asyncio.Event(), False
    with terminal.progress("working") as progress:
        work = asyncio.create_task(operations.run(id, progress=progress, stop=stop))
        try:
            one = await asyncio.shield(work)
        except asyncio.CancelledError:
            interrupted = True
            one = await _paused(operations, id, stop, work)
    told(terminal, one)
    return INTERRUPTED if interrupted else _exit(one, named=named)


async def _paused(
    operations: Operations, id: str, stop: asyncio.Event, work: asyncio.Task[OperationRecord]
) -> OperationRecord:
    """Pause it, and wait until this process has finished the jobs that it is at."""
    from limpet.ops.operations import OperationOver

    with suppress(OperationOver):
        await operations.pause(id, reason="Ctrl-C")
    stop.set()
    await work
    return await operations.get(id)


def told(terminal: Terminal, one: OperationRecord) -> None:
    """Print an operation, and what can be done about it."""
    if terminal.machine:
        terminal.answer(one)
        return
    show_operation(terminal, one)
    if one.state in ("paused", "failed"):
        terminal.say(f"continue: limpet operations continue {one.id}; end it: limpet operations cancel {one.id}")
    elif one.state == "waiting":
        terminal.say(f"it waits for a server (limpet serve), or: limpet operations run {one.id}")


def show_operation(terminal: Terminal, one: OperationRecord) -> None:
    """An operation as a person reads it."""
    terminal.text(f"operation {one.id}: {one.state}{f' ({one.why})' if one.why else ''}")
    for label, words in _facts(one):
        if words:
            terminal.long_text(f"  {label:<10} {words}")


def _facts(one: OperationRecord) -> list[tuple[str, str]]:
    sample, jobs = one.sample, "jobs that were named" if one.query is None else one.query
    ended = (
        []
        if sample is None
        else [
            f"{count:,} {words}"
            for count, words in (
                (sample.succeeded, "succeeded"),
                (sample.dead, "dead again"),
                (sample.cancelled, "cancelled"),
                (sample.unfinished, "unfinished"),
                (sample.gone, "gone"),
            )
            if count
        ]
    )
    return [
        (one.verb, jobs),
        ("how", how_text(one)),
        ("done", far_text(one)),
        ("answers", ", ".join(f"{count:,} {word.replace('_', ' ')}" for word, count in sorted(one.answers.items()))),
        ("sample", ", ".join(ended)),
        ("died again", "" if not one.died_again else jobs_text(one.died_again)),
        *(("problem", problem_text(one, at)) for at in range(len(one.problems))),
        ("started", f"by {one.actor}{f': {one.reason}' if one.reason else ''}"),
        ("last said", "" if one.by is None else f"by {one.by}"),
        ("runs in", one.runner or ""),
    ]


def how_text(one: OperationRecord) -> str:
    """What was asked for beside the verb and the jobs."""
    size = None if one.sample is None else one.sample.size
    said: Mapping[str, object] = {
        **one.options,
        "jobs a second": None if one.per_second is None else f"{one.per_second:g}",
        "sample": size,
        "stop after": one.stop_after,
    }
    return ", ".join(f"{name} {_plain(value)}" for name, value in said.items() if value is not None)


def _plain(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value).lower()


def far_text(one: OperationRecord) -> str:
    """How far it is."""
    if not one.counted:
        return f"0, counting: {one.matched:,} so far"
    return f"{one.done:,} of {one.matched:,}"


def problem_text(one: OperationRecord, at: int) -> str:
    """One of its problems."""
    problem = one.problems[at]
    holder = "" if problem.holder is None else f": job {problem.holder} holds its unique key"
    return f"{problem.job} {problem.answer.replace('_', ' ')}{holder}"


def line_of(one: OperationRecord, now_ms: int) -> tuple[object, ...]:
    """An operation as a line of a table."""
    jobs = "(named jobs)" if one.query is None else one.query
    age = f"{text_of_ms(ago_ms(one.started_at, now_ms))} ago"
    return one.id, one.state, one.verb, jobs, far_text(one), one.died_again, one.actor, age


def _exit(one: OperationRecord, *, named: bool) -> int:
    """A sample that waits for a person is a good end; deaths, and a query of which no job was changed, are not."""
    if one.state == "paused" and one.pause != "stop_after":
        return OK.exit
    if one.state != "done":
        return REFUSED.exit
    if one.changed == one.matched or (one.changed and not named):
        return OK.exit
    return CONFLICT.exit if "unique_held" in one.answers else REFUSED.exit
