"""Commands about tasks: tasks (a list, or one with its options); and the words of the last minute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from limpet.cli.terminal import Terminal
from limpet.cli.words import command, complete_task
from limpet.core.jobs.job import Policy, priority_text
from limpet.core.jobs.state import State
from limpet.core.text.duration import text_of_ms

if TYPE_CHECKING:
    from limpet.core.records.rate import RateRecord
    from limpet.core.records.task import TaskDetail, TaskRecord
    from limpet.ops.operator import Operator

COLUMNS: Final = (
    *("task", "queue", "waiting", "running", "dead"),
    *("done/min", "failed", "p95", "workers", "options"),
)
DURATIONS: Final = frozenset({"timeout", "hard_timeout", "max_held", "unique_for"})
UNDECLARED: Final = "no code has declared it yet"
WAITING: Final = (State.blocked, State.scheduled, State.ready)


@click.argument("name", required=False, shell_complete=complete_task)
@click.option("--last", metavar="TIME", help="Rates of the last so long instead: 1h, 24h, up to 35d.")
async def tasks_body(terminal: Terminal, name: str | None, last: str | None) -> None:
    """List tasks: where their jobs are, how they ended, the live workers that know them; or show task NAME.

    Rates, failures and run times are of the last minute, by what live workers say in their heartbeats; with --last
    they are of that time, by what workers have counted (`stats --last 24h --by task` shows more of them).
    """
    async with terminal.operator() as operator:
        rates = {} if last is None else await _rates(operator, last, name)
        if name is not None:
            _show(terminal, await operator.task(name), rates, last)
            return
        found = await operator.tasks()
    rows = [_row(task, task.last_minute if last is None else rates.get(task.task)) for task in found]
    terminal.table("tasks", COLUMNS, rows, [_shape(task, rates) for task in found])


async def _rates(operator: Operator, last: str, name: str | None) -> dict[str, RateRecord]:
    """By task, over that time."""
    series = await operator.series(last, by="task", task=name)
    return {line.task: line.whole for line in series.lines if line.task is not None}


def _shape(task: TaskRecord, rates: dict[str, RateRecord]) -> dict[str, Any]:
    rate = rates.get(task.task)
    return task.to_dict() if rate is None else {**task.to_dict(), "over_time": rate.to_dict()}


def _row(task: TaskRecord, rate: RateRecord | None) -> tuple[object, ...]:
    finished, failed, p95 = ("", "", "") if rate is None else rate_words(rate)
    return (
        task.task,
        task.queue,
        sum(task.states[state.value] for state in WAITING),
        task.states[State.running.value],
        task.states[State.dead.value],
        finished,
        failed,
        p95,
        task.workers,
        _options(task),
    )


def _options(task: TaskRecord) -> str:
    """The main ones, in a few words."""
    if task.priority is None:
        return UNDECLARED
    words = [priority_text(task.priority), f"{task.attempts} attempt{'' if task.attempts == 1 else 's'}"]
    timeout_ms = None if task.timeout_s is None else round(task.timeout_s * 1000)
    if timeout_ms != Policy().timeout_ms:
        words.append("no timeout" if timeout_ms is None else f"timeout {text_of_ms(timeout_ms)}")
    words += [f"limit {limit}" for limit in task.limits]
    words += [] if task.breaker is None else [f"breaker {task.breaker}"]
    return "; ".join(words)


def _show(terminal: Terminal, task: TaskDetail, rates: dict[str, RateRecord], last: str | None) -> None:
    if terminal.machine:
        terminal.answer(_shape(task, rates))
        return
    rate = rates.get(task.task)
    terminal.text(f"task {task.task}")
    facts = {
        "aliases": ", ".join(task.aliases),
        "jobs": ", ".join(f"{count:,} {state}" for state, count in task.states.items() if count) or "none",
        "last minute": minute_text(task.last_minute),
        f"last {last}": "" if rate is None else minute_text(rate),
        "workers": f"{task.workers:,} live {'one knows' if task.workers == 1 else 'ones know'} it",
        "hooks": ", ".join(task.hooks),
        **{name.replace("_", " "): _option(name, value) for name, value in task.options.items()},
        "arguments": _json(task.arguments.get("properties")) if task.declared else UNDECLARED,
    }
    for label, words in facts.items():
        if words:
            terminal.text(f"  {label:<17} {words}")


def _option(name: str, value: Any) -> str:
    if value in (None, [], {}, False, ""):
        return ""
    if name == "priority":
        return priority_text(value)
    if name in DURATIONS:
        return text_of_ms(round(value * 1000))
    return value if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def rate_words(rate: RateRecord) -> tuple[str, str, str]:
    """Jobs a minute, the share that failed, and how long the slower ones ran."""
    return count_text(rate.finished), share_text(rate.failed_share), time_text(rate.run_p95_s)


def minute_text(minute: RateRecord) -> str:
    """Rates by the minute in one line."""
    words = [f"{count_text(minute.finished) or '0'} finished"]
    if minute.failed_share is not None:
        words.append(f"{share_text(minute.failed_share)} of attempts failed")
    for label, p50_s, p95_s in (
        ("run", minute.run_p50_s, minute.run_p95_s),
        ("wait", minute.wait_p50_s, minute.wait_p95_s),
    ):
        if p95_s is not None:
            words.append(f"{label} p50 {time_text(p50_s)}, p95 {time_text(p95_s)}")
    return "; ".join(words)


def count_text(per_minute: float) -> str:
    """A rate; nothing for none."""
    return f"{per_minute:,.0f}" if per_minute >= 1 else f"{per_minute:.1g}" if per_minute else ""


def share_text(share: float | None) -> str:
    """A share in percent; a small one is not shown as none."""
    if share is None:
        return ""
    return f"{share:.0%}" if not share or share >= 0.01 else "<1%"


def time_text(seconds: float | None) -> str:
    """A time of a histogram."""
    if seconds is None:
        return ""
    return "<1ms" if seconds < 0.001 else text_of_ms(round(seconds * 1000))


tasks = command("tasks", lists=True)(tasks_body)
