"""The memory of ticks: the newest few, in order, each once."""

from __future__ import annotations

from limpet.core.jobs.view import Control
from limpet.core.schedules.history import KEPT, Tick, kind_of, read_ticks, remembered


def test_ticks_come_back_in_order() -> None:
    ticks = [Tick(3, 5, "overlap", beside="j"), Tick(1, 5), Tick(2, 5, "missed", count=9)]
    assert read_ticks([remembered("digest", ticks)]) == [ticks[1], ticks[2], ticks[0]]
    assert [tick.fired for tick in ticks] == [False, True, False]


def test_a_tick_that_is_told_twice_is_kept_once() -> None:
    assert read_ticks([remembered("digest", [Tick(1, 5), Tick(1, 9, "missed")])]) == [Tick(1, 9, "missed")]


def test_only_the_newest_are_kept() -> None:
    kept = read_ticks([remembered("digest", [Tick(n, n) for n in range(200)])])
    assert [tick.at_ms for tick in kept] == list(range(200 - KEPT, 200))


def test_what_cannot_be_read_is_no_history() -> None:
    assert read_ticks([]) == []
    assert read_ticks([Control(kind_of("digest"), "recent", b"{")]) == []
