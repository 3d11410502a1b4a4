"""Decides what is public of attempts that ended within a time: rates, the share that failed, and how long they took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from limpet.core.jobs.minute import Tally, quantiles_s
from limpet.core.records.record import Record

RATED: Final = ("succeeded", "retried", "dead", "cancelled")  # the outcomes that rates are made of
SHARES: Final = (0.5, 0.95, 0.99)
RUNS: Final = ("run_p50_s", "run_p95_s", "run_p99_s")  # the fields of their times
WAITS: Final = ("wait_p50_s", "wait_p95_s", "wait_p99_s")


class RateRecord(Record, frozen=True, kw_only=True):
    """How attempts ended within a time. Run and wait times are known to within a fifth."""

    finished: float  # jobs a minute: succeeded, dead or cancelled
    failed: float  # attempts a minute that failed, retried or not
    failed_share: float | None  # of those that succeeded or failed; None: there were none
    ended: dict[str, int]  # attempts by outcome: succeeded, retried, dead, cancelled, released, snoozed, …
    run_p50_s: float | None
    run_p95_s: float | None
    run_p99_s: float | None
    wait_p50_s: float | None  # from the instant at which the job was due to its claim
    wait_p95_s: float | None
    wait_p99_s: float | None


def rates_of(whole: Tally, rates: Mapping[str, float]) -> dict[str, Any]:
    """The fields of such a record; `rates` has the attempts a minute by outcome."""
    succeeded, retried, dead, cancelled = (rates.get(outcome, 0.0) for outcome in RATED)
    failed = retried + dead
    tried = succeeded + failed
    return {
        "finished": round(succeeded + dead + cancelled, 1),
        "failed": round(failed, 1),
        "failed_share": round(failed / tried, 4) if tried else None,
        "ended": whole.ended,
        **dict(zip(RUNS, quantiles_s(whole.runs, SHARES), strict=True)),
        **dict(zip(WAITS, quantiles_s(whole.waits, SHARES), strict=True)),
    }


def rate_over(whole: Tally, minutes: float) -> RateRecord:
    """Of what ended within this number of minutes."""
    rates = {outcome: count / minutes for outcome, count in whole.ended.items()} if minutes else {}
    return RateRecord(**rates_of(whole, rates))
