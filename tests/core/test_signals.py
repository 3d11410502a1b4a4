"""Signals carry what the handler asks for and refuse what cannot be asked."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest

from limpet.core.endings.classify import outcome_of
from limpet.core.endings.outcome import Limited
from limpet.core.endings.signals import Cancel, Dead, JobSignal, RateLimited, RetryLater, Snooze
from limpet.core.errors import InvalidOption


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


def test_all_are_signals_and_none_is_a_limpet_error() -> None:
    assert all(issubclass(kind, JobSignal) for kind in (RetryLater, Snooze, Dead, Cancel, RateLimited))


@pytest.mark.parametrize("make", [RetryLater, Snooze, RateLimited])
@pytest.mark.parametrize("time", [float("nan"), True])
def test_times_that_make_no_sense_are_refused(make: type[RetryLater], time: Any) -> None:
    with pytest.raises(InvalidOption, match=make.__name__):
        make(time)


@pytest.mark.parametrize("make", [RetryLater, Snooze])
@pytest.mark.parametrize("time", [-1, "soon"])
def test_a_time_in_the_past_or_in_words_is_refused(make: type[RetryLater], time: Any) -> None:
    with pytest.raises(InvalidOption, match=make.__name__):
        make(time)


@pytest.mark.parametrize("retry_after", [-0.002, -5, timedelta(seconds=-1)])
def test_a_reset_that_has_passed_when_it_is_raised_is_no_mistake(retry_after: Any) -> None:
    assert RateLimited(retry_after).retry_after_ms == 0


def test_what_a_header_says_may_be_passed_on_as_it_is() -> None:
    assert RateLimited("12").retry_after_ms == 12_000
    limited = RateLimited("Tue, 14 Nov 2023 22:13:50 GMT")
    assert (limited.retry_after_ms, limited.retry_at_ms) == (None, 1_700_000_030_000)
    assert str(limited) == "rate limited, retry after Tue, 14 Nov 2023 22:13:50 GMT"
    outcome = outcome_of(limited, now_ms=1_700_000_000_000)
    assert isinstance(outcome, Limited)
    assert outcome.retry_after_ms == 30_000


@pytest.mark.parametrize(
    ("said", "wait_ms"),
    [
        ("6m0s", 360_000),
        ("1w", 604_800_000),
        ("12, 30", 30_000),
        ("1700000030", 30_000),
        ("1700000030000", 30_000),
        ("Tue, 14 Nov 2023 22:13:10 GMT", 0),
    ],
)
def test_a_header_names_its_time_in_many_ways(said: str, wait_ms: int) -> None:
    outcome = outcome_of(RateLimited(said), now_ms=1_700_000_000_000)
    assert isinstance(outcome, Limited)
    assert outcome.retry_after_ms == wait_ms


@pytest.mark.parametrize("said", ["", "soon", "-5", "NaN", "inf"])
def test_a_header_that_cannot_be_read_names_no_time(said: str) -> None:
    limited = RateLimited(said, key="openai")
    assert (limited.retry_after_ms, limited.retry_at_ms, limited.key) == (None, None, "openai")


class Refused(RateLimited):
    """A signal of the user's own, which is made in another way."""

    def __init__(self, model: str) -> None:
        super().__init__(30, key=f"model:{model}")
        self.model = model


@pytest.mark.parametrize(
    "signal", [RetryLater(30), Snooze(60, "not yet"), Dead("why"), Cancel(), RateLimited(12, "openai"), Refused("big")]
)
def test_a_signal_from_another_process_is_the_same(signal: JobSignal) -> None:
    came = pickle.loads(pickle.dumps(signal))  # as pools of processes do
    assert (type(came), str(came), vars(came)) == (type(signal), str(signal), vars(signal))
