"""Sums in a supervisor what its children have counted: for one port, and so that a dead child's counts stay."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from limpet.core.jobs.minute import Key, Tally
from limpet.core.metrics.family import MOST, OTHER, Exemplar, Times, Value, le_of, sample
from limpet.runtime.child_messages import Counted

GAUGES = (
    "limpet_slots",
    "limpet_slots_busy",
    "limpet_jobs_held",
    "limpet_handlers_stuck",
    "limpet_worker_memory_bytes",
)


class MetricsBook:
    """Takes numbered reports of children, each once; answers what Prometheus asks.

    Counters only grow, so a task that has a line of its own keeps it: the first ones do, the others are one line for
    each queue.
    """

    def __init__(self) -> None:
        self._tallies: dict[Key, Tally] = {}
        self._counts: Counter[str] = Counter()
        self._blocks: Counter[str] = Counter()
        self._gauges: dict[str, dict[str, float]] = {}  # of live children, by session
        self._numbers: dict[str, int] = {}  # of the last report of each
        self._exemplars: dict[tuple[str, Key, int], Exemplar] = {}
        self.restarts = 0

    def take(self, session: str, report: Counted) -> None:
        """Add what a child has counted since its last report; one that comes twice counts once."""
        if report.number <= self._numbers.get(session, 0):
            return
        self._numbers[session] = report.number
        self._gauges[session] = dict(zip(GAUGES, report.gauges, strict=False))
        self._counts.update(report.counts)
        for task, count in report.blocks.items():
            self._blocks[task if task in self._blocks or len(self._blocks) < MOST else OTHER] += count
        for queue, task, tally in report.lines:
            key = self._key(queue, task)
            self._tallies.setdefault(key, Tally()).add(tally)
        at_s = time.time()
        for queue, task, trace, run_s, wait_s in report.exemplars:
            key = self._key(queue, task)
            for name, seconds in (("limpet_job_run_seconds", run_s), ("limpet_job_wait_seconds", wait_s)):
                self._exemplars[name, key, le_of(seconds)] = Exemplar(trace, seconds, at_s)

    def gone(self, session: str) -> None:
        """The child has ended: what it was about to do is over, what it has counted stays."""
        self._gauges.pop(session, None)
        self._numbers.pop(session, None)

    def _key(self, queue: str, task: str) -> Key:
        for key in ((queue, task), (queue, OTHER)):
            if key in self._tallies or len(self._tallies) < MOST:
                return key
        return OTHER, OTHER

    def values(self) -> list[Value]:
        """Everything, as it is now. From the supervisor's loop: it is copied, and may be written elsewhere."""
        return [*self._of_tasks(), *self._of_worker()]

    def _of_tasks(self) -> Iterator[Value]:
        for key, tally in self._tallies.items():
            for outcome, count in tally.ended.items():
                yield sample("limpet_jobs", count, *key, outcome)
            for name, buckets, sum_s in (
                ("limpet_job_run_seconds", tally.runs, tally.run_s),
                ("limpet_job_wait_seconds", tally.waits, tally.wait_s),
            ):
                seen = {at: found for (of, whose, at), found in self._exemplars.items() if (of, whose) == (name, key)}
                yield Times(name, key, buckets.copy(), sum_s, seen)

    def _of_worker(self) -> Iterator[Value]:
        for name in GAUGES:
            yield sample(name, sum(gauges.get(name, 0) for gauges in self._gauges.values()))
        for name in ("limpet_settlements_refused", "limpet_leases_recovered", "limpet_store_reconnects"):
            yield sample(name, self._counts[name])
        for task, count in self._blocks.items():
            yield sample("limpet_loop_blocks", count, task)
        yield sample("limpet_worker_processes", len(self._gauges))
        yield sample("limpet_worker_process_restarts", self.restarts)
