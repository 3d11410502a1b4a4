"""Rollups add up, stay bounded and small, and keep what a scope hides to themselves."""

from __future__ import annotations

from limpet.core.jobs.minute import Tally
from limpet.core.jobs.rollup import (
    HOURS_OF_DAYS,
    MINUTES_OF_HOURS,
    MOST_LINES,
    MOST_QUEUES,
    OTHER,
    PARTS,
    Depth,
    Line,
    Look,
    Mark,
    Part,
    Rollup,
    hour_control,
    minute_control,
    narrowed,
    read,
    written,
)
from limpet.core.jobs.view import Control


def lines(queue: str, *, count: int) -> list[Line]:
    return [(queue, f"task{number:04}", Tally({"succeeded": number + 1})) for number in range(count)]


def total(rollup: Rollup) -> int:
    return sum(tally.total for _, _, tally in rollup.lines)


def test_the_busiest_tasks_stand_alone_and_none_is_left_out() -> None:
    rollup = Rollup.of(1, lines("mail", count=1_000))
    assert total(rollup) == 500_500
    named = [line for line in rollup.lines if line[1] != OTHER]
    assert len(named) == MOST_LINES
    assert min(tally.total for _, _, tally in named) == 1_000 - MOST_LINES + 1
    assert [line[0] for line in rollup.lines if line[1] == OTHER] == ["mail"], "the rest still knows its queue"
    again = Rollup.of(2, [*rollup.lines, *rollup.lines])
    assert total(again) == 2 * 500_500
    assert len(again.lines) == MOST_LINES + 1


def test_queues_without_number_stay_bounded_too() -> None:
    many = [(f"queue{number}", "send", Tally({"succeeded": 1})) for number in range(5_000)]
    rollup = Rollup.of(1, many)
    assert total(rollup) == 5_000
    assert len(rollup.lines) <= MOST_LINES + MOST_QUEUES + 1


def test_records_lie_in_a_bounded_number_of_places() -> None:
    def places(controls: list[Control]) -> set[tuple[str, str]]:
        return {(control.kind, control.name) for control in controls}

    minutes = places([minute_control(Rollup(at)) for at in range(29_000_000, 29_000_000 + 10_000)])
    hours = places([hour_control(Rollup(at)) for at in range(480_000, 480_000 + 3_000)])
    assert (len(minutes), len(hours)) == (MINUTES_OF_HOURS * 60, HOURS_OF_DAYS * 24)
    two_days = places([minute_control(Rollup(at)) for at in range(29_000_000, 29_000_000 + 48 * 60)])
    five_weeks = places([hour_control(Rollup(at)) for at in range(480_000, 480_000 + 35 * 24)])
    assert (len(two_days), len(five_weeks)) == (48 * 60, 35 * 24), "48 hours and 35 days never share a place"


def test_a_record_is_small_and_read_again_as_it_was() -> None:
    buckets = {bucket: 1_000 + 7 * bucket for bucket in range(15, 45)}  # from 100 µs to 4 s
    tally = Tally({"succeeded": 29_999, "retried": 12}, buckets, buckets, 123.4, 5.6)
    rollup = Rollup.of(7, [("mail", f"shop.tasks.task{number}", tally) for number in range(MOST_LINES)], [Look(1)])
    control = minute_control(rollup)
    assert len(control.value) < 20_000
    assert read(control, Rollup) == rollup
    assert read(Control("rollup", "mark", b"{}"), Mark) is None, "what a later release writes is not read"


def test_a_scope_sees_its_own_queues_and_no_counters() -> None:
    look = Look(1, enqueued=9, depths={"mail": Depth(ready=1), "pay": Depth(ready=2)})
    rollup = Rollup.of(7, [("mail", "send", Tally({"succeeded": 1})), ("pay", "charge", Tally({"dead": 1}))], [look])
    seen = read(narrowed(minute_control(rollup), frozenset({"mail"})), Rollup)
    assert seen is not None
    assert seen.look is not None
    assert [line[:2] for line in seen.lines] == [("mail", "send")]
    assert (seen.look.depths, seen.look.enqueued, seen.look.whole) == ({"mail": Depth(ready=1)}, 0, False)
    part = written(PARTS, "a", Part("host:1", {7: rollup.lines}))
    own = read(narrowed(part, frozenset({"pay"})), Part)
    assert own == Part("", {7: [("pay", "charge", Tally({"dead": 1}))]})
    unreadable = narrowed(Control("rollup:minutes:00", "00", b"?"), frozenset({"mail"}))
    assert unreadable.value == b""


def test_the_depth_of_an_hour_is_the_most_that_was_seen() -> None:
    looks = [
        Look(1, enqueued=5, depths={"mail": Depth(ready=9, oldest_ms=100), "old": Depth(dead=1)}),
        None,
        Look(2, enqueued=8, depths={"mail": Depth(ready=2, running=3)}),
    ]
    hour = Rollup.of(3, [], looks)
    assert hour.look is not None
    assert hour.look.enqueued == 8
    assert hour.look.depths == {"mail": Depth(ready=9, running=3, oldest_ms=100), "old": Depth(dead=1)}
