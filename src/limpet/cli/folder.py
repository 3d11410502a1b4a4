"""Commands about a folder of JSON files, as agents keep a queue: export and import."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from limpet.cli.terminal import Terminal
from limpet.cli.watch import with_interval
from limpet.cli.words import Exemplified, command, duration
from limpet.ops.codes import OK, REFUSED

if TYPE_CHECKING:
    from limpet.core.records.folder import FolderExport

LOOK: Final = "500ms"  # how often a watched queue is looked at
_FOLDER = click.Path(file_okay=False, path_type=Path)


class Watching(Exemplified):
    """A command whose `--watch` may stand alone, and then looks often."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_interval(args, alone=LOOK))


@click.option("--folder", type=_FOLDER, required=True, help="Where the files are written.")
@click.option(
    "--finished", type=click.IntRange(0, 50_000), default=1_000, show_default=True, help="The newest of each end."
)
@click.option("--watch", type=duration, metavar="[TIME]", help=f"Keep the files current until Ctrl-C ({LOOK}).")
@click.option("--looks", "times", type=click.IntRange(1), metavar="N", help="With --watch: end after N looks.")
async def export_body(terminal: Terminal, folder: Path, finished: int, watch: int | None, times: int | None) -> int:
    """Write the queue as JSON files: pending, in-progress, completed, cancelled, dead-letter, circuit-breakers.

    Each file is written as a whole, beside the old one and then in its place, and only when it has changed.
    """
    from limpet.ops.folder_export import FolderWatch, export_folder
    from limpet.runtime.signals import obeyed

    async with terminal.operator() as operator:
        if watch is None:
            _tell(terminal, await export_folder(operator, folder, finished))
            return OK.exit
        stop = asyncio.Event()
        with obeyed(stop.set):
            watched = FolderWatch(operator, folder, finished, lambda report: _tell(terminal, report))
            await watched.run(stop, look_s=max(100, watch) / 1000, looks=times)
    return OK.exit


@click.option("--folder", type=_FOLDER, required=True, help="Where the files are.")
async def import_body(terminal: Terminal, folder: Path) -> int:
    """Take over a folder of JSON files, such as .loki/queue: each entry becomes a job once, however often this runs.

    Damaged files and entries are told and kept in rejected.json; then the exit code is 1. What was in progress is
    pending again.
    """
    from limpet.ops.folder_import import import_folder

    async with terminal.store(create=True) as store:
        report = await import_folder(store, folder, terminal.actor)
    if terminal.json:
        terminal.answer(report)
    else:
        for problem in report.problems:
            entry = f" {problem.entry}" if problem.entry else ""
            terminal.say(f"{problem.file}{entry}: {problem.text}")
        counts = ", ".join(f"{count:,} {name}" for name, count in report.stored.items() if count) or "none"
        terminal.text(f"new jobs: {counts}; {report.existing:,} were there; {report.refused:,} refused")
    return REFUSED.exit if report.refused else OK.exit


def _tell(terminal: Terminal, report: FolderExport) -> None:
    if terminal.json:
        terminal.answer(report)
    elif report.written:
        terminal.text(f"wrote {', '.join(f'{name}.json' for name in report.written)}")
    else:
        terminal.say("nothing has changed")


export = command("export", cls=Watching)(export_body)
vars()["import"] = command("import")(import_body)  # found by its name, which is a word of Python's
