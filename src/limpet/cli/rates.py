"""Words about rates over time, as counts that the store keeps say: the options --last and --by, and their tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from limpet.cli.tasks import count_text, share_text, time_text
from limpet.cli.terminal import Terminal
from limpet.core.records.record import plain
from limpet.core.text.duration import text_of_ms

if TYPE_CHECKING:
    from limpet.core.records.rate import RateRecord
    from limpet.core.records.series import LineRecord, SeriesRecord

LAST: Final = click.option("--last", metavar="TIME", help="Rates of the last so long: 1h, 24h, up to 35d.")
COLUMNS: Final = ("done/min", "failed", "p50", "p95", "p99", "wait p50", "wait p95", "ended")
POINTS: Final = ("at", "done", "failed", "p50", "p95", "p99", "wait p95", "ready", "running", "oldest")
OTHERS: Final = "(others)"


def series_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that ask for counts over time."""
    for option in (
        click.option("--ago", metavar="TIME", help="With --last: end so long ago, such as 7d."),
        click.option("--task", metavar="NAME", help="With --last: only of this task."),
        click.option("--queue", metavar="NAME", help="With --last: only of this queue."),
        click.option("--by", type=click.Choice(["queue", "task"]), help="With --last: a line for each."),
        click.option("--step", metavar="TIME", help="With --last: a line for each 1m, 15m, 1h."),
        LAST,
    ):
        function = option(function)
    return function


async def show_series(terminal: Terminal, asked: dict[str, Any]) -> None:
    """Rates over time: a line for each queue or task, or for each point."""
    if asked.get("by") is None and asked.get("step") is None and not terminal.machine:
        asked = {**asked, "by": "queue"}
    async with terminal.operator() as operator:
        found = await operator.series(**asked)
    if terminal.machine:
        terminal.answer(found.to_dict())
    elif asked.get("step") is not None and asked.get("by") is None:
        terminal.table("points", POINTS, _point_rows(found), [])
    else:
        rows = [
            ("all", *_rates(found.total.whole)),
            *((_name(line, asked), *_rates(line.whole)) for line in found.lines),
        ]
        terminal.table("rates", (asked["by"], *COLUMNS), rows, [])
        if found.lines_left_out:
            terminal.say(f"and {found.lines_left_out:,} more, which are in the first line")


def _name(line: LineRecord, asked: dict[str, Any]) -> str:
    return (line.task if asked["by"] == "task" else line.queue) or OTHERS


def _rates(rate: RateRecord) -> tuple[object, ...]:
    return (
        count_text(rate.finished),
        share_text(rate.failed_share),
        *(time_text(value) for value in (rate.run_p50_s, rate.run_p95_s, rate.run_p99_s)),
        *(time_text(value) for value in (rate.wait_p50_s, rate.wait_p95_s)),
        ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(rate.ended.items(), key=lambda each: -each[1])),
    )


def _point_rows(found: SeriesRecord) -> list[tuple[object, ...]]:
    total = found.total
    depth = total.depth

    def ended(point: int, *outcomes: str) -> str:
        count = sum(total.ended[outcome][point] for outcome in outcomes if outcome in total.ended)
        return f"{count:,}" if count else ""

    return [
        (
            plain(at),
            ended(point, "succeeded", "dead", "cancelled"),
            ended(point, "retried", "dead"),
            *(time_text(times[point]) for times in (total.run_p50_s, total.run_p95_s, total.run_p99_s)),
            time_text(total.wait_p95_s[point]),
            *(
                ("", "", "")
                if depth is None
                else (depth.ready[point], depth.running[point], _age(depth.oldest_ready_s[point]))
            ),
        )
        for point, at in enumerate(found.at)
    ]


def _age(seconds: float | None) -> str:
    return "" if seconds is None else text_of_ms(round(seconds * 1000))
