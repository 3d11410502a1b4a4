"""Tallies add up, times fall into their buckets, and what one worker says stays small."""

from __future__ import annotations

from bisect import bisect

import msgspec
import pytest

from limpet.core.jobs.minute import BOUNDS_S, MOST_TASKS, Minute, Tally, quantile_s, summed
from limpet.core.records.task import MinuteRecord


def filled(*times_s: float) -> dict[int, int]:
    found: dict[int, int] = {}
    for time_s in times_s:
        bucket = bisect(BOUNDS_S, time_s)
        found[bucket] = found.get(bucket, 0) + 1
    return found


@pytest.mark.parametrize("time_s", [0.000_002, 0.001, 0.05, 1.0, 59.9, 3_600.0, 86_400.0])
def test_a_time_is_known_to_within_a_fifth(time_s: float) -> None:
    for share in (0.5, 0.95):
        said = quantile_s(filled(time_s), share)
        assert said is not None
        assert time_s / 2**0.5 <= said * 1.05
        assert said <= time_s * 2**0.5 * 1.05


def test_quantiles() -> None:
    assert quantile_s({}, 0.5) is None
    assert quantile_s(filled(0.0, 1e-7), 0.95) == 0.0
    times = filled(*[0.01] * 90, *[1.0] * 10)
    assert quantile_s(times, 0.5) == pytest.approx(0.01, rel=0.25)
    assert quantile_s(times, 0.95) == pytest.approx(1.0, rel=0.25)
    assert quantile_s(filled(1e9), 0.95) == pytest.approx(BOUNDS_S[-1], rel=0.5), "what takes too long counts as that"


def test_tallies_add_up() -> None:
    one = Tally({"succeeded": 2}, {3: 1, 4: 1}, {0: 2})
    other = Tally({"succeeded": 1, "dead": 1}, {4: 2}, {})
    assert summed([one, other]) == Tally({"succeeded": 3, "dead": 1}, {3: 1, 4: 3}, {0: 2})
    assert one == Tally({"succeeded": 2}, {3: 1, 4: 1}, {0: 2}), "none of them was changed"
    assert Tally() == Tally({}, {}, {})


def test_only_the_busiest_tasks_stand_alone_and_none_is_left_out() -> None:
    tallies = {f"task{number:04}": Tally({"succeeded": number + 1}) for number in range(1_000)}
    minute = Minute.of(tallies, 60.0)
    assert len(minute.tasks) == MOST_TASKS
    assert min(tally.total for tally in minute.tasks.values()) == 1_000 - MOST_TASKS + 1
    assert minute.others is not None
    assert sum(tally.total for tally in minute.tasks.values()) + minute.others.total == 500_500
    assert MinuteRecord.of([minute]).ended == {"succeeded": 500_500}


def test_what_is_said_in_a_beat_is_small() -> None:
    buckets = dict.fromkeys(range(15, 45), 1_000)  # from 100 µs to 4 s
    tallies = {f"shop.tasks.task{number}": Tally({"succeeded": 9_999}, buckets, buckets) for number in range(1_000)}
    assert len(msgspec.json.encode(Minute.of(tallies, 60.0))) < 40_000


def test_rates_are_those_of_a_minute_and_add_up_over_workers() -> None:
    long = Minute(120.0, {"a": Tally({"succeeded": 90, "retried": 30})})
    young = Minute(5.0, {"a": Tally({"succeeded": 10, "dead": 5}), "b": Tally({"cancelled": 1})})
    found = MinuteRecord.of([long, young], ["a"])
    assert (found.finished, found.failed) == (60.0, 20.0), "a worker that began just now is not projected"
    assert found.failed_share == pytest.approx(20 / 75, abs=1e-4)
    assert MinuteRecord.of([long, young]).finished == 61.0
    nothing = MinuteRecord.of([], ["a"])
    assert (nothing.finished, nothing.failed_share, nothing.run_p95_s, nothing.ended) == (0.0, None, None, {})
