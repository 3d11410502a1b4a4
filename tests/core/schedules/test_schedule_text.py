"""Schedules in words: short where people have a phrase, exact everywhere."""

from __future__ import annotations

import pytest

from limpet.core.schedules.rule import CronRule, EveryRule, OnceRule
from limpet.core.schedules.schedule_text import of_tick
from limpet.core.schedules.zone import Zone


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 9 * * MON-FRI", "every weekday at 09:00 Europe/Berlin"),
        ("0 8 * * *", "every day at 08:00 Europe/Berlin"),
        ("30 0 9 * * *", "every day at 09:00:30 Europe/Berlin"),
        ("0,30 9,17 * * *", "every day at 09:00, 09:30, 17:00 and 17:30 Europe/Berlin"),
        (
            "0 0,2,5,8,9,11,14,20 * * *",
            "every day at 00:00, 02:00, 05:00, 08:00, 09:00, 11:00, 14:00 and 20:00 Europe/Berlin",
        ),
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("0,15,30,45 * * * *", "every 15 minutes"),
        ("*/40 * * * *", "at minutes 0 and 40 of every hour"),  # not every 40 minutes
        ("5-59/15 * * * *", "at minutes 5, 20, 35 and 50 of every hour"),
        ("0 * * * *", "every hour"),
        ("30 * * * *", "at minute 30 of every hour"),
        ("0-10,50 * * * *", "at minutes 0 to 10 and 50 of every hour"),
        ("0 */2 * * *", "every 2 hours, Europe/Berlin"),
        ("30 */2 * * *", "at minute 30, every 2 hours, Europe/Berlin"),
        ("0 9-17 * * *", "every hour from 09:00 to 17:00 Europe/Berlin"),
        ("*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:59, every weekday, Europe/Berlin"),
        ("*/5 1,3,9 * * *", "every 5 minutes in hours 1, 3 and 9, Europe/Berlin"),
        ("10,20 1,3,5,9 * * *", "at minutes 10 and 20 of hours 1, 3, 5 and 9, Europe/Berlin"),
        ("* * * * * *", "every second"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("*/10 * 9 * * *", "every 10 seconds from 09:00 to 09:59 Europe/Berlin"),
        ("*/10 30 * * * *", "every 10 seconds in minute 30 of every hour"),
        ("30 * * * * *", "at second 30, every minute"),
        ("15 */5 9-17 * * *", "at second 15, every 5 minutes from 09:00 to 17:59 Europe/Berlin"),
        ("5,7 1,2 * * * *", "at seconds 5 and 7 of minutes 1 and 2 of every hour"),
        ("@weekly", "every Sunday at 00:00 Europe/Berlin"),
        ("0 0 * * SAT,SUN", "every Saturday and Sunday at 00:00 Europe/Berlin"),
        ("0 0 * * TUE-SAT", "every Tuesday to Saturday at 00:00 Europe/Berlin"),
        ("0 0 * * FRI-SUN", "every Friday to Sunday at 00:00 Europe/Berlin"),
        ("@monthly", "on day 1 of every month at 00:00 Europe/Berlin"),
        ("@yearly", "on day 1 of January at 00:00 Europe/Berlin"),
        ("0 0 1,15 JAN,JUL *", "on days 1 and 15 of January and July at 00:00 Europe/Berlin"),
        ("0 0 * 6-8 *", "every day in June to August at 00:00 Europe/Berlin"),
        ("0 0 * 6 MON", "every Monday in June at 00:00 Europe/Berlin"),
        ("0 0 13 * FRI", "on day 13 of every month or every Friday at 00:00 Europe/Berlin"),
        ("0 0 13 6 FRI", "on day 13 of June or every Friday in June at 00:00 Europe/Berlin"),
        ("0 0 */13 * FRI", "on days 1, 14 and 27 of every month if that is a Friday at 00:00 Europe/Berlin"),
        ("0 0 13 * 0-6", "every day at 00:00 Europe/Berlin"),  # either day is enough, and every day is one
        ("0 0 1-31 6 FRI", "every day in June at 00:00 Europe/Berlin"),
    ],
)
def test_cron_in_words(expression: str, words: str) -> None:
    assert CronRule(expression, "Europe/Berlin").describe() == words


@pytest.mark.parametrize(
    ("every_ms", "words"),
    [
        (1_000, "every second"),
        (60_000, "every minute"),
        (300_000, "every 5 minutes"),
        (5_400_000, "every 1 hour 30 minutes"),
        (86_400_000, "every day"),
        (1_500, "every 1 second 500 milliseconds"),
    ],
)
def test_intervals_in_words(every_ms: int, words: str) -> None:
    assert EveryRule(every_ms).describe() == words
    assert EveryRule(every_ms, 7 * every_ms).describe() == words


def test_an_anchor_is_told_when_it_matters() -> None:
    assert EveryRule(3_600_000, 1_774_000_000_000).describe() == "every hour, counted from Fri 2026-03-20 09:46:40 UTC"


def test_one_instant_in_words() -> None:
    assert OnceRule(1_774_000_000_000).describe() == "once at Fri 2026-03-20 09:46:40 UTC"


@pytest.mark.parametrize(
    ("at_ms", "words"),
    [
        (1_792_887_300_000, "Sun 2026-10-25 02:15 CEST, in 15m"),
        (1_792_890_900_000, "Sun 2026-10-25 02:15 CET, in 1h15m"),  # the same time again
        (1_792_886_340_000, "Sun 2026-10-25 01:59 CEST, 1m ago"),
    ],
)
def test_a_tick_in_words(at_ms: int, words: str) -> None:
    assert of_tick(at_ms, Zone("Europe/Berlin"), 1_792_886_400_000) == words
