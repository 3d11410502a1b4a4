"""Shows the demo while it runs: bars and events on a terminal, plain lines anywhere else; always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from limpet.cli.demo.plan import TASKS, Plan, Task

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

NAMES: Final[Mapping[Task, str]] = {
    "email.welcome": "welcome emails (critical)",
    "pdf.export": "PDF exports (low)",
    "export.row": "rows of 6 tenants (low)",
    "webhook.deliver": "webhooks",
}
LINE_EVERY_S: Final = 4.0


def some(count: int, what: str) -> str:
    """A number with its noun: 1 job, 2 jobs."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


class Screen:
    """Where events and progress go."""

    def __init__(self, plan: Plan) -> None:
        self._began_s = time.monotonic()
        self._totals = dict.fromkeys(TASKS, 0)
        for wanted in plan.jobs:
            self._totals[wanted.task] += 1
        self._bars: Progress | None = None
        self._ids: dict[Task, TaskID] = {}
        self._last_line_s = 0.0

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (TextColumn("{task.description:<26}"), BarColumn(bar_width=None), MofNCompleteColumn())
            self._bars = Progress(*columns, TextColumn("{task.fields[beside]}"), console=Console(stderr=True))
            self._ids = {task: self._bars.add_task(NAMES[task], total=self._totals[task], beside="") for task in TASKS}
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def say(self, event: str, style: str = "") -> None:
        """Something happened."""
        line = f"{time.monotonic() - self._began_s:6.1f} s  {event}"
        if self._bars is not None:
            self._bars.console.print(line, style=style or None, highlight=False, markup=False)
        else:
            print(line, file=sys.stderr, flush=True)

    def show(self, ended: Mapping[Task, int], beside: Mapping[Task, str]) -> None:
        """How far each story is."""
        if self._bars is not None:
            for task, id in self._ids.items():
                self._bars.update(id, completed=ended[task], beside=beside.get(task, ""))
            return
        now_s = time.monotonic()
        if now_s - self._last_line_s >= LINE_EVERY_S:
            self._last_line_s = now_s
            shares = (f"{NAMES[task].partition(' (')[0]} {ended[task]:,}/{self._totals[task]:,}" for task in TASKS)
            self.say(" · ".join(shares))
