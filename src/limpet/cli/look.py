"""Commands that look at the whole: workers, stats, events, audit, doctor."""

from __future__ import annotations

from typing import Final

import click
import msgspec

from limpet.cli.rates import series_options, show_series
from limpet.cli.terminal import Terminal
from limpet.cli.words import command, complete_query, instant, since_option
from limpet.core.errors import UsageError
from limpet.core.jobs.state import STATES
from limpet.core.records.record import plain
from limpet.core.text.duration import ago_ms, text_of_ms
from limpet.ops.codes import DOCTOR_ERRORS, DOCTOR_WARNINGS, OK
from limpet.ops.events import ANY_LINE, AuditFilter

_NUMBERS: Final = ("rate", "burst", "concurrency", "depth", "tenant_depth", "adaptive", "weight")
_THINGS: Final = ("key", "cause", "queue", "flow", "schedule", "operation", "name")  # what an entry may be about
_LONGEST: Final = 60  # characters of an argument that a person changed

COLOURS: Final = {"ok": "green", "warning": "yellow", "error": "red"}


async def workers_body(terminal: Terminal) -> None:
    """List live workers and agents: their queues and their running jobs."""
    from limpet.ops.code import differing

    async with terminal.operator() as operator:
        found, now_ms = await operator.workers(), operator.now_ms()
        notes = differing(await operator.store.sessions())
    rows = [
        (
            one.session,
            "any" if one.queues is None else ",".join(one.queues),
            "any" if one.tasks is None else str(len(one.tasks)),
            ",".join(one.capabilities),
            one.code_version,
            f"{text_of_ms(ago_ms(one.started_at, now_ms))} ago",
            f"{one.running} ({one.stuck} stuck)" if one.stuck else one.running,
            f"{text_of_ms(ago_ms(one.beat_at, now_ms))} ago",
            one.loop,
        )
        for one in found
    ]
    columns = ("worker", "queues", "tasks", "capabilities", "code", "started", "running", "beat", "loop")
    terminal.table("workers", columns, rows, found)
    for each in notes:
        terminal.say(f"note: {each}")


@series_options
async def stats_body(terminal: Terminal, last: str | None, **over_time: str | None) -> None:
    """Show the counters: jobs stored now, and jobs ever enqueued or ended; and the last minute.

    Rates and times of the last minute are those of live workers; --watch adds the changes since the look before.
    With --last they are of that time, by what workers have counted: by queue, by task, or step by step.
    """
    chosen = {name: said for name, said in over_time.items() if said is not None}
    if last is not None:
        await show_series(terminal, {"last": last, **chosen})
        return
    if chosen:
        raise UsageError(f"--{', --'.join(sorted(chosen))} choose among counts over time", fix="add --last 1h")
    from limpet.cli.tasks import minute_text

    async with terminal.operator() as operator:
        found, now_ms = await operator.stats(), operator.now_ms()
    shape = found.to_dict()
    rates = _per_second(terminal, shape["ever"], now_ms)
    if terminal.machine:
        terminal.answer(shape if rates is None else {**shape, "per_second": rates})
        return
    now = {state: shape[state] for state in STATES}
    for words, counts in (("now", now), ("ever", shape["ever"])):
        terminal.long_text(
            f"{words}: " + ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
        )
    terminal.long_text(f"last minute, live workers: {minute_text(found.last_minute)}")
    if rates is not None:
        said = ", ".join(f"{rate:,.1f} {name.replace('_', ' ')}" for name, rate in rates.items() if rate) or "no change"
        terminal.long_text(f"a second, since the look before: {said}")


def _per_second(terminal: Terminal, ever: dict[str, int], now_ms: int) -> dict[str, float] | None:
    """How fast each counter has grown since the look before; None at the first look."""
    before, terminal.seen = terminal.seen, {"at_ms": now_ms, "ever": ever}
    if not before or now_ms <= before["at_ms"]:
        return None
    passed_s = (now_ms - before["at_ms"]) / 1000
    return {name: round((count - before["ever"][name]) / passed_s, 2) for name, count in ever.items()}


@click.option("--after", type=int, metavar="SEQ", help="The first lines after this one, instead of the newest.")
@click.option("--kind", default="", help="Only of this kind, or how it begins: job.cancel, job.")
@click.option("--who", default="", help="Only of those with this in their name.")
@click.option("--job", default="", metavar="ID", help="Only about this job, by its id or the end of it.")
@click.option("--limit", "-n", default=100, show_default=True, type=click.IntRange(1, 10_000), help="Lines at most.")
@since_option("Lines")
async def audit_body(
    terminal: Terminal, after: int | None, kind: str, who: str, job: str, limit: int, since: str | None
) -> None:
    """Show the newest lines of the audit log, the newest last: who did what, to which job, queue or limit, and why."""
    if after is not None and since is not None:
        raise UsageError("--after and --since both say where to begin", fix="give one of them")
    wanted = AuditFilter(kind, who, job)
    if after is not None and wanted != ANY_LINE:
        raise UsageError("--after reads line by line", fix="leave out --kind, --who and --job, or --after")
    async with terminal.operator() as operator:
        entries = await operator.audit(after, limit, since_ms=await instant(operator.store, since), wanted=wanted)
    terminal.newest_last = after is None
    rows = [
        (
            one.seq,
            plain(one.at),
            one.actor,
            one.kind,
            one.job or _thing(one.data or {}),
            _numbers(one.data or {}),
            one.reason,
        )
        for one in entries
    ]
    terminal.table("entries", ("seq", "at", "who", "what", "on", "change", "why"), rows, entries)


@click.argument("query", nargs=-1, shell_complete=complete_query)
@click.option("--limit", "-n", default=100, show_default=True, type=click.IntRange(1, 10_000), help="Events at most.")
@click.option("--follow", "-f", is_flag=True, help="Go on until Ctrl-C, and show what happens to jobs as well.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="With --follow: end after N lines.")
@since_option("Events")
async def events_body(
    terminal: Terminal, query: tuple[str, ...], limit: int, follow: bool, count: int | None, since: str | None
) -> int:
    """Show the newest events, the newest last: breakers that opened, limits that were held, budgets that ran out.

    With --follow also live events: jobs that are enqueued, claimed and ended, from now on. Those are told within 5 s
    of the beginning, each at most once; where some are lost, a line says "gap". The log ("log") has no gaps. A QUERY
    by state, queue, task or id chooses among live events, and leaves out the log.
    """
    if follow:
        return await _followed(terminal, query, limit, count, since)
    if query or count is not None:
        raise UsageError("a query and --count choose among live events", fix="add --follow")
    from limpet.cli.gates import show_events

    async with terminal.operator() as operator:
        show_events(terminal, await operator.events(limit, since_ms=await instant(operator.store, since)))
    return OK.exit


async def _followed(
    terminal: Terminal, query: tuple[str, ...], limit: int, count: int | None, since: str | None
) -> int:
    from limpet.cli.follow import Follower
    from limpet.ops.query import line_of

    if terminal.json or terminal.watches:
        other = "--watch" if terminal.watches else "--json"
        raise UsageError(f"--follow has no end, so {other} does not go with it", fix="leave it out, or use --jsonl")
    async with terminal.operator() as operator:
        since_ms = await instant(operator.store, since)
        follower = Follower(terminal, operator, log=not query, most=count)
        return await follower.follow(line_of(query), limit, since_ms)


def _numbers(data: dict[str, object]) -> str:
    """What a limit, a weight or a breaker was set to, and which arguments became what; all else is in --json."""
    words = [str(data[name]) for name in ("bucket", "budget") if name in data]
    words += [f"{name}={data[name]}" for name in _NUMBERS if name in data]
    words += [f"for {text_of_ms(for_ms)}"] if isinstance(for_ms := data.get("for_ms"), int) else []
    words += [f"as {data['new']}"] if "new" in data else []
    before, after = data.get("before"), data.get("after")
    if isinstance(before, dict) and isinstance(after, dict):
        words += [f"{name}: {_shown(before, name)} → {_shown(after, name)}" for name in {**before, **after}]
    return " ".join(words)


def _shown(args: dict[str, object], name: str) -> str:
    text = msgspec.json.encode(args[name]).decode() if name in args else "nothing"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _thing(data: dict[str, str]) -> str:
    """What an entry is about when it is not about one job."""
    return next((data[name] for name in _THINGS if data.get(name)), "")


@click.option("--quiet", "-q", is_flag=True, help="Show only warnings and errors.")
@click.option("--repair", is_flag=True, help="Correct counters, slots and indexes from the stored records; asks first.")
@click.option("--dry-run", is_flag=True, help="With --repair: say what would change, and change nothing.")
@click.option("--yes", "-y", is_flag=True, help="With --repair: do not ask.")
@click.option("--reason", default="", metavar="TEXT", help="With --repair: why; kept in the audit log.")
async def doctor_body(terminal: Terminal, quiet: bool, repair: bool, dry_run: bool, yes: bool, reason: str) -> int:
    """Report problems and risks: the engine, queues without workers, stuck jobs, settings of tasks.

    Exit 10 with warnings, 11 with errors.
    """
    if repair:
        from limpet.cli.repair import run_repair

        return await run_repair(terminal, dry_run=dry_run, yes=yes, reason=reason)
    if dry_run or yes or reason:
        raise UsageError("--dry-run, --yes and --reason belong to a repair", fix="add --repair")
    async with terminal.operator() as operator:
        findings = await operator.doctor(terminal.config.file.server)
    levels = {finding.level for finding in findings}
    shown = [finding for finding in findings if not quiet or finding.level != "ok"]
    if terminal.jsonl:
        terminal.lines(shown)
    elif terminal.json:
        worst = next((level for level in ("error", "warning", "ok") if level in levels), "ok")
        about = {"url": terminal.place, "namespace": terminal.config.namespace.value, "worst": worst}
        terminal.answer({**about, "findings": [finding.to_dict() for finding in shown]})
    else:
        if not quiet:
            terminal.text(f"{'store':<8} {terminal.place}, namespace {terminal.config.namespace.value}")
        for finding in shown:
            click.secho(f"{finding.level:<8} ", fg=COLOURS[finding.level], nl=False)  # plain when piped
            terminal.text(finding.text)
            if finding.fix and finding.level != "ok":
                terminal.text(f"         → {finding.fix}")
    if "error" in levels:
        return DOCTOR_ERRORS.exit
    return DOCTOR_WARNINGS.exit if "warning" in levels else OK.exit


workers = command("workers", lists=True)(workers_body)
stats = command("stats", lists=True)(stats_body)
audit = command("audit", lists=True)(audit_body)
events = command("events", lists=True)(events_body)
doctor = command("doctor", lists=True)(doctor_body)
