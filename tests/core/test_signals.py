"""Signals carry what the handler asks for and refuse what cannot be asked."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.core.errors import InvalidOption
from holdfast.core.signals import Cancel, Dead, JobSignal, RateLimited, RetryLater, Snooze


def test_signals_say_what_they_ask() -> None:
    assert RetryLater(30).delay_ms == 30_000
    assert RetryLater("5m", "busy").reason == "busy"
    assert str(RetryLater(30)) == "retry in 30 s"
    assert Snooze(timedelta(minutes=1)).delay_ms == 60_000
    assert str(Snooze(60, "not yet")) == "not yet"
    assert Dead("bad address").reason == "bad address"
    assert Cancel("no longer wanted").reason == "no longer wanted"
    assert Cancel().reason == ""
    limited = RateLimited(retry_after=12, key="openai")
    assert (limited.retry_after_ms, limited.key) == (12_000, "openai")
    assert str(limited) == "rate limited on 'openai', retry after 12 s"
    assert RateLimited().retry_after_ms is None


def test_all_are_signals_and_none_is_a_holdfast_error() -> None:
    assert all(issubclass(kind, JobSignal) for kind in (RetryLater, Snooze, Dead, Cancel, RateLimited))


@pytest.mark.parametrize("make", [RetryLater, Snooze, RateLimited])
def test_times_that_make_no_sense_are_refused(make: type[RetryLater]) -> None:
    with pytest.raises(InvalidOption, match=make.__name__):
        make(-1)
