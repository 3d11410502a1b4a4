"""Says in words what the demo showed."""

from __future__ import annotations

from limpet.cli.demo.screen import some
from limpet.cli.demo.verify import Summary, Wait
from limpet.core.text.duration import text_of_ms


def words(summary: Summary) -> str:
    """The summary for people: one line per promise."""
    jobs, effects, workers, letters = summary.jobs, summary.effects, summary.workers, summary.dead_letters
    waits = summary.waits_ms
    lines = {
        "jobs": f"{jobs.enqueued:,} enqueued = {jobs.succeeded:,} succeeded + {jobs.dead:,} dead"
        f" + {jobs.discarded:,} discarded; {jobs.lost:,} lost",
        "effects": f"{effects.recorded:,} recorded; {effects.lost:,} lost, {effects.duplicated:,} duplicated",
        "runs": f"{effects.runs:,} reached their effect; {effects.repeated:,} were repeats after a kill"
        " and changed nothing",
        "workers": f"{workers.started} started, {workers.terminated} terminated, {workers.killed} killed;"
        f" {some(workers.recovered_leases, 'lease')} recovered, {workers.attempts_spent_by_kills} attempts spent",
        "email wait": f"{_wait(waits.emails)} (critical, beside everything below)",
        "PDF wait": f"{_wait(waits.pdfs)} (low, at most 4 at once)",
        "fairness": f"small tenants waited {_wait(waits.small_tenants)}; the greedy one {_wait(waits.greedy_tenant)}",
        "breaker": f"opened {some(summary.breaker_openings, 'time')}; " + "; ".join(_spells(summary)),
        "dead letters": f"{letters.before} before the review, {letters.corrected} corrected and run again,"
        f" {letters.discarded} discarded, {letters.after} left",
    }
    again = f", resumed {some(summary.resumed, 'time')}" if summary.resumed else ""
    head = f"Summary, from the store ({summary.seconds:g} s, seed {summary.seed}{again})"
    return "\n".join([head, *(f"  {name:<13} {line}" for name, line in lines.items())])


def _wait(wait: Wait) -> str:
    return f"p50 {text_of_ms(wait.p50)}, p95 {text_of_ms(wait.p95)}"


def _spells(summary: Summary) -> list[str]:
    return [
        f"open from {spell.opened_s:g} s to {'the end' if spell.closed_s is None else f'{spell.closed_s:g} s'}"
        for spell in summary.breaker
    ]
