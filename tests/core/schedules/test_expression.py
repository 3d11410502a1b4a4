"""Cron expressions: what each field stands for, how days combine, and what is refused with the field and the fix."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from limpet.core.errors import InvalidOption
from limpet.core.schedules.expression import ALIASES, Expression
from limpet.core.schedules.field import DAY, HOUR, MINUTE, MONTH, WEEKDAY, Field


def local(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def first(expression: str, since: str) -> str:
    found = Expression(expression).first_from(local(since))
    assert found is not None
    return datetime.fromtimestamp(found, UTC).isoformat(" ")[:19]


@pytest.mark.parametrize(
    ("field", "text", "values"),
    [
        (MINUTE, "*", tuple(range(60))),
        (MINUTE, "5", (5,)),
        (MINUTE, "05", (5,)),
        (MINUTE, "5,3,5", (3, 5)),
        (MINUTE, "10-13", (10, 11, 12, 13)),
        (MINUTE, "7-7", (7,)),
        (MINUTE, "*/20", (0, 20, 40)),
        (MINUTE, "*/59", (0, 59)),
        (MINUTE, "5/20", (5, 25, 45)),
        (MINUTE, "10-20/4", (10, 14, 18)),
        (MINUTE, "0-10/5,58,*/30", (0, 5, 10, 30, 58)),
        (HOUR, "22-23,0-1", (0, 1, 22, 23)),
        (DAY, "*/10", (1, 11, 21, 31)),
        (MONTH, "JAN,mar,Dec", (1, 3, 12)),
        (MONTH, "NOV-DEC", (11, 12)),
        (MONTH, "*/5", (1, 6, 11)),
        (WEEKDAY, "*", (0, 1, 2, 3, 4, 5, 6)),
        (WEEKDAY, "0,7", (0,)),
        (WEEKDAY, "SUN", (0,)),
        (WEEKDAY, "mon-fri", (1, 2, 3, 4, 5)),
        (WEEKDAY, "FRI-SUN", (0, 5, 6)),
        (WEEKDAY, "5-0", (0, 5, 6)),
        (WEEKDAY, "SAT-7", (0, 6)),
        (WEEKDAY, "SUN-TUE", (0, 1, 2)),
        (WEEKDAY, "*/2", (0, 2, 4, 6)),
        (WEEKDAY, "1-5/2", (1, 3, 5)),
    ],
)
def test_what_a_field_stands_for(field: Field, text: str, values: tuple[int, ...]) -> None:
    assert field.values(text) == values


@pytest.mark.parametrize(
    ("expression", "field", "value", "fix"),
    [
        ("60 * * * *", "minute", "'60'", "0 to 59"),
        ("* 24 * * *", "hour", "'24'", "0 to 23"),
        ("* * 0 * *", "day of month", "'0'", "1 to 31"),
        ("* * 32 * *", "day of month", "'32'", "1 to 31"),
        ("* * * 13 *", "month", "'13'", "1 to 12"),
        ("* * * * 8", "day of week", "'8'", "0 to 7"),
        ("60 * * * * *", "second", "'60'", "0 to 59"),
        ("-5 * * * *", "minute", "'-5'", "a range 1-5"),
        ("5- * * * *", "minute", "'5-'", "a range 1-5"),
        ("1,,2 * * * *", "minute", "''", "a list 1,2"),
        ("1.5 * * * *", "minute", "'1.5'", "a step"),
        ("² * * * *", "minute", "'²'", "0 to 59"),
        ("99999 * * * *", "minute", "'99999'", "0 to 59"),
        ("MON * * * *", "minute", "'MON'", "0 to 59"),
        ("*/0 * * * *", "minute", "'*/0'", "*/5"),
        ("*/ * * * *", "minute", "'*/'", "*/5"),
        ("*/x * * * *", "minute", "'*/x'", "*/5"),
        ("*/90 * * * *", "minute", "'*/90'", 'Every("90m")'),
        ("* */24 * * *", "hour", "'*/24'", "the one number"),
        ("50-10 * * * *", "minute", "'50-10'", "50-59,0-10"),
        ("* * * DEC-JAN *", "month", "'DEC-JAN'", "12-12,1-1"),
        ("* * * * FRI-MON", "day of week", "'FRI-MON'", "5-7,0-1"),
        ("* * * JANUARY *", "month", "'JANUARY'", "did you mean 'JAN'?"),
        ("* * * * Monday", "day of week", "'Monday'", "did you mean 'MON'?"),
        ("0 0 L * *", "day of month", "'L'", "not part of this syntax"),
        ("0 0 15W * *", "day of month", "'15W'", "not part of this syntax"),
        ("0 0 LW * *", "day of month", "'LW'", "not part of this syntax"),
        ("0 0 ? * MON", "day of month", "'?'", "not part of this syntax"),
        ("0 0 * * MON#2", "day of week", "'MON#2'", "not part of this syntax"),
        ("0 0 * * 5L", "day of week", "'5L'", "not part of this syntax"),
    ],
)
def test_a_refusal_names_the_expression_the_field_the_value_and_the_fix(
    expression: str, field: str, value: str, fix: str
) -> None:
    with pytest.raises(InvalidOption) as caught:
        Expression(expression)
    assert repr(expression) in caught.value.message
    assert f"the {field} {value}" in caught.value.message
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "not a cron expression"),
        ("   ", "not a cron expression"),
        (None, "not a cron expression"),
        (5, "not a cron expression"),
        ("1," * 1000 + "1 * * * *", "not a cron expression"),
        ("* * * *", "4 fields"),
        ("0 0 0 1 1 * 2030", "7 fields"),
        ("@dayly", "did you mean '@daily'"),
        ("@reboot", "known: "),
    ],
)
def test_what_is_no_expression_is_refused(expression: Any, said: str) -> None:
    with pytest.raises(InvalidOption, match="Cron") as caught:
        Expression(expression)
    assert said in str(caught.value)


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 30-31 FEB *", "0 0 30 2 */2"])
def test_an_expression_that_never_fires_is_refused(expression: str) -> None:
    with pytest.raises(InvalidOption, match="never fires"):
        Expression(expression)


@pytest.mark.parametrize(
    ("expression", "since", "found"),
    [
        ("* * * * *", "2026-01-01 00:00:00", "2026-01-01 00:00:00"),
        ("* * * * *", "2026-01-01 00:00:01", "2026-01-01 00:01:00"),
        ("* * * * * *", "2026-01-01 00:00:01", "2026-01-01 00:00:01"),
        ("59 59 23 31 12 *", "2026-01-01 00:00:00", "2026-12-31 23:59:59"),
        ("0 0 1 1 *", "2026-01-01 00:00:01", "2027-01-01 00:00:00"),
        ("30 8 * * *", "2026-01-01 08:30:01", "2026-01-02 08:30:00"),
        ("30 8 * * *", "2026-01-01 08:29:59", "2026-01-01 08:30:00"),
        ("0,30 8,17 * * *", "2026-01-01 08:31:00", "2026-01-01 17:00:00"),
        ("15 10 * * * *", "2026-01-01 10:10:16", "2026-01-01 11:10:15"),
        ("0 0 31 * *", "2026-02-01 00:00:00", "2026-03-31 00:00:00"),
        ("0 0 29 2 *", "2026-01-01 00:00:00", "2028-02-29 00:00:00"),
        ("0 0 29 2 *", "2096-03-01 00:00:00", "2104-02-29 00:00:00"),  # 2100 has none
        ("0 0 29 2 */7", "2026-01-01 00:00:00", "2032-02-29 00:00:00"),  # the next that is a Sunday
        ("0 0 30 2 MON", "2026-01-01 00:00:00", "2026-02-02 00:00:00"),  # either day: Mondays in February
        ("0 0 13 * FRI", "2026-01-03 00:00:00", "2026-01-09 00:00:00"),  # a Friday, although not the 13th
        ("0 0 13 * FRI", "2026-01-10 00:00:00", "2026-01-13 00:00:00"),  # the 13th, although a Tuesday
        ("0 0 */13 * FRI", "2026-01-03 00:00:00", "2026-02-27 00:00:00"),  # both: a Friday that is the 1st, 14th, 27th
        ("0 0 13 * */5", "2026-01-01 00:00:00", "2026-02-13 00:00:00"),  # both: a 13th that is a Sunday or a Friday
        ("0 12 * 6-8 MON", "2026-09-01 00:00:00", "2027-06-07 12:00:00"),
    ],
)
def test_the_first_local_time(expression: str, since: str, found: str) -> None:
    assert first(expression, since) == found


@pytest.mark.parametrize(
    ("alias", "found"),
    [
        ("@yearly", "2027-01-01 00:00:00"),
        ("@annually", "2027-01-01 00:00:00"),
        ("@monthly", "2026-06-01 00:00:00"),
        ("@weekly", "2026-05-10 00:00:00"),
        ("@daily", "2026-05-07 00:00:00"),
        ("@midnight", "2026-05-07 00:00:00"),
        ("@hourly", "2026-05-06 08:00:00"),
        ("@HOURLY", "2026-05-06 08:00:00"),
    ],
)
def test_aliases(alias: str, found: str) -> None:
    assert first(alias, "2026-05-06 07:08:09") == found
    assert alias.lower() in ALIASES


def test_five_fields_begin_at_second_zero() -> None:
    assert Expression("1 2 3 4 5").fields == Expression("0 1 2 3 4 5").fields


def test_spaces_do_not_count() -> None:
    assert Expression("  0\t8  * *   * ").text == "0 8 * * *"


def test_the_calendar_has_an_end() -> None:
    assert Expression("0 0 1 1 *").first_from(local("9998-06-01 00:00:00")) is None
