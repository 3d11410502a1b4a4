"""Runs a repair from the command line: what differs, the question, what was put right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limpet.cli.terminal import Terminal
from limpet.ops.codes import OK

if TYPE_CHECKING:
    from limpet.core.records.log import RepairReport


async def run_repair(terminal: Terminal, *, dry_run: bool, yes: bool, reason: str) -> int:
    """Show where the store differs from its records, then set it by them."""
    async with terminal.operator() as operator:
        report = None if yes and not dry_run else await operator.repair(dry_run=True)
        if report is not None and report.differences and not dry_run:
            _show(terminal, report)
            terminal.confirm(f"repair {_differences(report)}?", yes=yes)
        if not dry_run and (report is None or report.differences):
            report = await operator.repair(reason=reason)
    assert report is not None
    if terminal.machine:
        terminal.answer(report)
    elif not report.differences:
        terminal.text("nothing to repair: counters, slots and indexes say what the records say")
    else:
        terminal.text(f"{'would repair' if report.dry_run else 'repaired'} {_differences(report)}")
        _show(terminal, report)
    return OK.exit


def _differences(report: RepairReport) -> str:
    count = len(report.differences)
    return f"{count:,} difference{'' if count == 1 else 's'}"


def _show(terminal: Terminal, report: RepairReport) -> None:
    from limpet.ops.repair import words_of

    for difference in report.differences:
        terminal.say(f"  {words_of(difference)}")
