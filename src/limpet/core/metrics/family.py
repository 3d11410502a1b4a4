"""Decides the names, labels and meanings of metrics: of workers, and of a server. No metric belongs to both."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from limpet.core.jobs.minute import BOUNDS_S

OTHER: Final = "other"  # stands for whatever is beyond the bound of a label
MOST: Final = 200  # values of a label, or pairs of queue and task, that are told apart
FIRST_STEP: Final = 18  # of BOUNDS_S: half a millisecond; two hours and a half is the last bound
LAST_STEP: Final = 66
STEP: Final = 2  # a bucket for each doubling, half as many as are counted
LE: Final = tuple((step, BOUNDS_S[step]) for step in range(FIRST_STEP, LAST_STEP + 1, STEP))

Kind = Literal["counter", "gauge", "histogram"]


class Family(Struct, frozen=True):
    """One metric: what it is called, what it is about, and what it says."""

    name: str  # of a counter without `_total`
    kind: Kind
    labels: tuple[str, ...]
    help: str

    @property
    def exposed(self) -> str:
        """The name by which it is asked for."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


class Sample(Struct, frozen=True):
    """One value of a counter or a gauge."""

    name: str
    labels: tuple[str, ...]
    value: float


class Exemplar(Struct, frozen=True):
    """One measured time and the trace in which it was measured."""

    trace: str
    value_s: float
    at_s: float


class Times(Struct, frozen=True):
    """One histogram: how many times fell into each bucket of BOUNDS_S, and their sum."""

    name: str
    labels: tuple[str, ...]
    buckets: dict[int, int]
    sum_s: float
    exemplars: dict[int, Exemplar] = {}  # by the position of a bound in LE; len(LE): beyond all bounds


Value = Sample | Times


def cumulated(buckets: dict[int, int]) -> list[int]:
    """How many times lie below each bound of LE, and last how many there are at all."""
    found, below, counted = [], 0, sorted(buckets)
    at = 0
    for step, _ in LE:
        while at < len(counted) and counted[at] <= step:
            below += buckets[counted[at]]
            at += 1
        found.append(below)
    return [*found, sum(buckets.values())]


def le_of(value_s: float) -> int:
    """The position in LE of the first bound that is not below a time; len(LE): there is none."""
    return next((position for position, (_, bound) in enumerate(LE) if value_s <= bound), len(LE))


_TASK: Final = ("queue", "task")

# What workers do. Each worker exposes its own, so sums over all workers count everything once.
WORKER: Final = (
    Family("limpet_jobs", "counter", (*_TASK, "outcome"), "Attempts that ended here, by outcome."),
    Family("limpet_job_run_seconds", "histogram", _TASK, "How long attempts ran that succeeded or failed."),
    Family("limpet_job_wait_seconds", "histogram", _TASK, "From the instant a job was due to its claim."),
    Family("limpet_slots", "gauge", (), "Jobs that may run here at once."),
    Family("limpet_slots_busy", "gauge", (), "Jobs that run here now."),
    Family("limpet_jobs_held", "gauge", (), "Jobs that are claimed and wait here for a slot."),
    Family("limpet_handlers_stuck", "gauge", (), "Slots that do not come back: handlers past their hard timeout."),
    Family("limpet_settlements_refused", "counter", (), "Ends the store refused here: the lease had been lost."),
    Family("limpet_leases_recovered", "counter", (), "Jobs that were taken back from silent workers by this one."),
    Family("limpet_store_reconnects", "counter", (), "Times that the store answered again after it had not."),
    Family("limpet_loop_blocks", "counter", ("task",), "Times that code kept the event loop for over a second."),
    Family("limpet_worker_processes", "gauge", (), "Processes of this worker that claim jobs."),
    Family("limpet_worker_process_restarts", "counter", (), "Processes that ended and were started again."),
    Family("limpet_worker_memory_bytes", "gauge", (), "Resident memory of the processes of this worker."),
)

# What the store knows. Every server that asks it says the same, so take `max` over servers, never a sum.
STORE: Final = (
    Family("limpet_queue_jobs", "gauge", ("queue", "state"), "Stored jobs that are not finished, and dead ones."),
    Family("limpet_queue_oldest_ready_seconds", "gauge", ("queue",), "The age of the oldest ready job; 0: none."),
    Family("limpet_queue_paused", "gauge", ("queue",), "1: the queue is paused."),
    Family("limpet_dead_jobs", "gauge", _TASK, "Dead letters, by task."),
    Family("limpet_store_enqueued", "counter", (), "Jobs that were ever stored."),
    Family("limpet_store_finished", "counter", ("state",), "Jobs that ever succeeded, were cancelled or discarded."),
    Family("limpet_store_leases_lost", "counter", (), "Leases that ran out before their job had ended."),
    Family("limpet_store_ends_refused", "counter", (), "Ends that came after their lease was lost."),
    Family("limpet_workers", "gauge", (), "Live workers and agents, each process for itself."),
    Family("limpet_schedule_lag_seconds", "gauge", ("schedule",), "How late the next run of a schedule is; 0: not."),
    Family("limpet_breaker_open", "gauge", ("breaker",), "1: no job passes; 0.5: a probe may; 0: all pass."),
    Family("limpet_limit_free", "gauge", ("limit",), "Jobs or units that a limit admits now."),
    Family("limpet_limit_used", "gauge", ("limit",), "Jobs that hold a slot of a limit now."),
    Family("limpet_budget_spent_ratio", "gauge", ("budget", "unit"), "The share of a budget that is spent."),
    Family("limpet_alerts_firing", "gauge", ("rule",), "Alerts that fire now, by rule."),
)

FAMILIES: Final = {family.name: family for family in (*WORKER, *STORE)}


def sample(name: str, value: float, *labels: str) -> Sample:
    """One value; the labels in the order of the family."""
    return Sample(name, labels, value)
