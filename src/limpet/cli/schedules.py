"""Commands about schedules: list, show, next, add, change, remove, pause, resume, reset, run, backfill."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from limpet.cli.terminal import Terminal
from limpet.cli.times import instant_of, job_options, options_of, policy_of, times, when_of, zone_of
from limpet.cli.words import Listing, command, complete_schedule, complete_task, json_object
from limpet.core.errors import UsageError
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import PRIORITIES, priority_text
from limpet.core.records.record import moment
from limpet.ops.codes import CONFLICT, OK

if TYPE_CHECKING:
    from limpet.core.jobs.job import Enqueued
    from limpet.core.records.schedule import ScheduleDetail, ScheduleRecord, TickRecord
    from limpet.ops import Schedules

SHOWN_TICKS = 20

reason_option = click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")


@click.group(cls=Listing)
def schedules() -> None:
    """What runs at times: declared by code with @app.schedule, or added here."""


@asynccontextmanager
async def _schedules(terminal: Terminal) -> AsyncIterator[Schedules[Enqueued]]:
    from limpet.ops import Schedules

    async with terminal.store() as store:
        yield Schedules(store, terminal.actor, handle=lambda answer, task: answer)


# -- looking


async def list_body(terminal: Terminal) -> None:
    """List schedules: what they run, when, and the next run."""
    async with _schedules(terminal) as known:
        views, now = await known.list(), moment(await known.store.now())
    rows = [
        (view.name, view.state, view.task, view.when, view.note or next(iter(view.next_in_words(now)), ""))
        for view in views
    ]
    terminal.table("schedules", ("schedule", "state", "task", "when", "next"), rows, [view.to_dict() for view in views])
    if not terminal.machine:
        for view in views:
            if view.state in ("absent", "unreadable"):
                terminal.say(f"{view.note}\n  → {view.fix}")


@click.argument("name", shell_complete=complete_schedule)
async def show_body(terminal: Terminal, name: str) -> None:
    """Show schedule NAME: its next runs, and what became of its last ticks."""
    async with _schedules(terminal) as known:
        view, now = await known.get(name), moment(await known.store.now())
    if terminal.machine:
        terminal.answer(view.to_dict())
        return
    for line in _described(view, now):
        terminal.text(line)


@click.argument("name", required=False, shell_complete=complete_schedule)
@click.option("--count", "-n", default=5, show_default=True, type=click.IntRange(1, 1_000), help="How many.")
async def next_body(terminal: Terminal, name: str | None, count: int) -> None:
    """List the next runs of schedule NAME, or of all schedules together."""
    async with _schedules(terminal) as known:
        runs = await known.next(count, name=name)
    rows = [(run.in_words, run.schedule, run.task) for run in runs]
    terminal.table("runs", ("next", "schedule", "task"), rows, [run.to_dict() for run in runs])


def _described(view: ScheduleDetail, now: datetime) -> list[str]:
    words = [f"{view.name}: {view.when or view.state}"]
    if view.state != "on":
        words.append(f"  state     {view.state}")
    if view.note:
        words.append(f"  note      {view.note}\n            → {view.fix}")
    if view.state == "unreadable":
        return words
    words.append(f"  task      {view.task} {_json(view.args)}")
    if view.options:
        words.append(f"  options   {_options(view.options)}")
    policy = f"overlap {view.overlap}, catch up {view.catch_up}"
    policy += f", jitter {view.jitter_s:g} s" if view.jitter_s else ""
    policy += f", expires in {view.expires_in_s:g} s" if view.expires_in_s else ""
    words += [f"  policy    {policy}", f"  from      {'code' if view.source == 'code' else 'run time'}"]
    words += [f"  {'next' if not number else '':<9} {run}" for number, run in enumerate(view.next_in_words(now))]
    if view.ticks:
        words.append("  last ticks")
        words += [f"    {_tick(tick)}" for tick in view.ticks[:SHOWN_TICKS]]
    return words


def _tick(tick: TickRecord) -> str:
    at = tick.at.strftime("%a %Y-%m-%d %H:%M:%S %Z")
    late = f", {tick.late_s:g} s late" if tick.late_s >= 1 else ""
    if tick.fired:
        return f"{at}  fired{late}  {tick.job}  {tick.state or 'no longer stored'}"
    many = f" with {tick.count - 1:,} before it" if tick.count > 1 else ""
    beside = f"  job {tick.job} is in its way" if tick.job else ""
    return f"{at}  dropped: {tick.why}{many}{beside}"


def _options(options: Mapping[str, Any]) -> str:
    """What was given for its jobs; a priority in words."""
    shown = dict(options)
    if "priority" in shown:
        shown["priority"] = priority_text(PRIORITIES.get(str(shown["priority"]), shown["priority"]))
    return _json(shown)


def _json(value: object) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


# -- changing


@click.argument("task", shell_complete=complete_task)
@click.argument("args", type=json_object, default="{}")
@click.option("--name", metavar="NAME", help="What the schedule is called; like its task by default.")
@click.option("--paused", is_flag=True, help="Add it paused.")
@times
@job_options
@reason_option
async def add_body(
    terminal: Terminal, task: str, args: dict[str, Any], name: str | None, paused: bool, reason: str, **given: Any
) -> None:
    """Run TASK with ARGS, one JSON object by parameter name, at times: --cron, --every or --at."""
    from limpet.ops.names import known_names

    when = when_of(given)
    if when is None:
        raise UsageError("when?", fix="--cron '0 8 * * *', --every 5m or --at 2026-01-31T08:00:00+01:00")
    async with _schedules(terminal) as known:
        unknown = task not in await known_names(known.store, "task")
        options = options_of(given)
        view = await known.add(when, task, args, name=name, paused=paused, reason=reason, **options)
        note = "only JSON and size of the arguments were checked, not the task's signature" if args else ""
        await _told(terminal, known, view, "added", f"no worker has published task {task!r} yet" if unknown else note)


@click.argument("name", shell_complete=complete_schedule)
@click.option("--args", "args", type=json_object, help="Other arguments, one JSON object by parameter name.")
@times
@job_options
@reason_option
async def change_body(terminal: Terminal, name: str, args: dict[str, Any] | None, reason: str, **given: Any) -> None:
    """Change what is given about schedule NAME; the rest stays."""
    async with _schedules(terminal) as known:
        when = when_of(given, (await known.get(name)).rule.get("tz", "UTC"))
        rule = None if when is None else when.rule
        changes = {**policy_of(given), **options_of(given)}
        view = await known.change(name, None, args, rule=rule, reason=reason, **changes)
        await _told(terminal, known, view, "changed")


@click.argument("name", shell_complete=complete_schedule)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@reason_option
async def remove_body(terminal: Terminal, name: str, yes: bool, reason: str) -> None:
    """Remove schedule NAME. Its runs stay as they are."""
    async with _schedules(terminal) as known:
        view = await known.get(name)
        terminal.confirm(f"remove schedule {name} ({view.when or view.note})?", yes=yes)
        removed = await known.remove(name, reason=reason)
    if terminal.machine:
        terminal.answer(removed.to_dict())
    else:
        terminal.text(f"{name}: removed")


@click.argument("name", shell_complete=complete_schedule)
@reason_option
async def pause_body(terminal: Terminal, name: str, reason: str) -> None:
    """Let no tick of schedule NAME fire. Runs continue."""
    async with _schedules(terminal) as known:
        view = await known.pause(name, reason=reason)
        await _told(terminal, known, view, "paused")


@click.argument("name", shell_complete=complete_schedule)
@reason_option
async def resume_body(terminal: Terminal, name: str, reason: str) -> None:
    """Let schedule NAME tick from now on; ticks during the pause are not caught up."""
    async with _schedules(terminal) as known:
        view = await known.resume(name, reason=reason)
        await _told(terminal, known, view, "resumed")


@click.argument("name", shell_complete=complete_schedule)
@reason_option
async def reset_body(terminal: Terminal, name: str, reason: str) -> None:
    """Give schedule NAME, changed by hand, back to the code that declares it."""
    async with _schedules(terminal) as known:
        view = await known.reset(name, reason=reason)
        await _told(terminal, known, view, "given back to the code")


# -- running


@click.argument("name", shell_complete=complete_schedule)
@click.option("--existing-ok", is_flag=True, help="Exit 0, not 4, when a run is not finished yet.")
@reason_option
async def run_body(terminal: Terminal, name: str, existing_ok: bool, reason: str) -> int:
    """Run schedule NAME now, whatever the time; prints the job's id."""
    async with _schedules(terminal) as known:
        answer = await known.run_now(name, reason=reason)
    id = id_text(answer.id)
    if terminal.machine:
        terminal.answer({"schedule": name, "id": id, "existing": answer.existing})
    else:
        terminal.text(id)
        if answer.existing:
            terminal.say(f"job {id} of {name} is not finished yet")
    return CONFLICT.exit if answer.existing and not existing_ok else OK.exit


@click.argument("name", shell_complete=complete_schedule)
@click.option("--from", "start", required=True, metavar="TIME", help="The first tick: 7d (ago), a date, an instant.")
@click.option("--to", "end", metavar="TIME", help="The last tick; now by default.")
@click.option("--again", is_flag=True, help="Ticks whose job is stored, too.")
@click.option("--dry-run", is_flag=True, help="Count, change nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@reason_option
async def backfill_body(
    terminal: Terminal, name: str, start: str, end: str | None, again: bool, dry_run: bool, yes: bool, reason: str
) -> None:
    """Run schedule NAME for each tick of a range in the past. A date is midnight in the schedule's time zone."""
    async with _schedules(terminal) as known:
        zone = zone_of((await known.get(name)).rule.get("tz", "UTC"))
        first = instant_of(start, zone, "--from")
        last = None if end is None else instant_of(end, zone, "--to")
        report = await known.backfill(name, first, last, dry_run=True)
        if not dry_run:
            if report.ticks:
                terminal.confirm(f"run {name} for {_ticks(report.ticks)} from {first.isoformat()}?", yes=yes)
            with terminal.progress(f"backfilling {name}") as progress:
                report = await known.backfill(name, first, last, again=again, reason=reason, progress=progress)
    if terminal.machine:
        terminal.answer(report.to_dict())
    elif dry_run or not report.ticks:
        terminal.text(f"{name} has {_ticks(report.ticks)} there")
    else:
        there = f", {report.existing:,} are stored already (--again runs them too)" if report.existing else ""
        terminal.text(f"{name}: {report.enqueued:,} runs enqueued{there}")


def _ticks(count: int) -> str:
    return f"{count:,} tick{'' if count == 1 else 's'}" if count else "no tick"


async def _told(
    terminal: Terminal, known: Schedules[Enqueued], view: ScheduleRecord, word: str, note: str = ""
) -> None:
    if terminal.machine:
        terminal.answer({**view.to_dict(), "notes": [note] if note else []})
        return
    terminal.text(f"{view.name}: {word}; {view.when}")
    for words in view.next_in_words(moment(await known.store.now()))[:1]:
        terminal.text(f"  next {words}")
    if note:
        terminal.say(f"note: {note}")


schedules.add_command(command("list", lists=True)(list_body))
schedules.add_command(command("show")(show_body))
schedules.add_command(command("next", lists=True)(next_body))
schedules.add_command(command("add")(add_body))
schedules.add_command(command("change")(change_body))
schedules.add_command(command("remove")(remove_body))
schedules.add_command(command("pause")(pause_body))
schedules.add_command(command("resume")(resume_body))
schedules.add_command(command("reset")(reset_body))
schedules.add_command(command("run")(run_body))
schedules.add_command(command("backfill")(backfill_body))
