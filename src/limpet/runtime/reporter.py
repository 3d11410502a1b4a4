"""Tells a supervisor, once a second, what its child has counted since: over the socket between the two."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from limpet.core.jobs.meta import trace_of
from limpet.runtime.child_messages import Counted
from limpet.runtime.minute_counter import Reading
from limpet.runtime.worker import Measured, Worker

REPORT_S: Final = 1.0  # what a child has counted since is lost when it is killed
MOST_EXEMPLARS: Final = 100  # in one report


class Reporter:
    """Sends numbered reports of a worker, each about what has come since the one before."""

    def __init__(self, worker: Worker, send: Callable[[Counted], None]) -> None:
        self._worker = worker
        self._send = send
        self._reading: Reading | None = None
        self._number = 0
        self._before = Measured()

    async def live(self) -> None:
        """Report until cancelled."""
        while True:
            await asyncio.sleep(REPORT_S)
            self.report()

    def report(self) -> None:
        """Say what there is to say."""
        now, counter = self._worker.measured(), self._worker.counter
        if now is None or counter is None:
            return  # it has not begun
        if self._reading is None:
            self._reading = Reading(counter)
        seen, counter.exemplars = counter.exemplars or {}, {}
        exemplars = []
        for (queue, task, _), (meta, run_s, wait_s) in list(seen.items())[-MOST_EXEMPLARS:]:
            if (trace := trace_of(meta)) is not None:
                exemplars.append((queue, task, trace, run_s, wait_s))
        self._number += 1
        self._send(
            Counted(
                number=self._number,
                lines=[(*key, tally) for key, tally in self._reading.news().items()],
                counts={name: more for name, n in now.counts.items() if (more := n - self._before.counts.get(name, 0))},
                blocks={task: more for task, n in now.blocks.items() if (more := n - self._before.blocks.get(task, 0))},
                gauges=now.gauges,
                exemplars=exemplars,
            )
        )
        self._before = now
