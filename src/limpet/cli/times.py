"""Decides how the times and policies of schedules are written on the command line."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import click

from limpet.cli.words import amounts, complete_queue, duration
from limpet.core.errors import InvalidOption, UsageError
from limpet.core.text.duration import to_ms

if TYPE_CHECKING:
    from limpet.core.schedules.when import When


def times(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say when, and what becomes of ticks."""
    for option in (
        click.option(
            "--expires-in",
            type=expiry,
            metavar="DURATION|none",
            help="A tick that cannot start within this has no run.",
        ),
        click.option("--jitter", type=duration, help="Spread each tick over this time, before the next one."),
        click.option("--catch-up", metavar="skip|last|all|N", help="How many missed ticks fire late (last)."),
        click.option("--overlap", metavar="WORD", help="skip, queue-one, allow or cancel-running (skip)."),
        click.option("--tz", metavar="ZONE", help="With --cron, and for a --at without an offset (UTC)."),
        click.option("--at", metavar="ISO", help="Once at this instant (2026-01-31T08:00:00+01:00)."),
        click.option("--every", type=duration, help="In equal steps of time (5m)."),
        click.option("--cron", metavar="EXPR", help="At the times of a cron expression ('0 8 * * MON-FRI')."),
    ):
        function = option(function)
    return function


def expiry(text: str) -> int | str:
    """Milliseconds, or "none" for no expiry."""
    return "none" if text == "none" else duration(text)


def job_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a schedule's jobs."""
    for option in (
        click.option("--attempts", type=click.IntRange(1), help="Runs of each job in all."),
        click.option("--timeout", type=duration, help="Soft timeout of an attempt."),
        click.option("--cost", multiple=True, metavar="N|UNIT=AMOUNT", help="What a job takes of limits; repeatable."),
        click.option("--tenant", metavar="NAME", help="Whose job it is, such as a customer. Tenants take turns."),
        click.option("--tag", "tags", multiple=True, metavar="NAME", help="Repeatable."),
        click.option("--needs", multiple=True, metavar="NAME", help="A capability the worker must have; repeatable."),
        click.option("--priority", metavar="WORD|0-9", help="critical, high, normal or low; 0 is the most urgent."),
        click.option("--queue", metavar="NAME", shell_complete=complete_queue, help="Another than the task's own."),
    ):
        function = option(function)
    return function


def when_of(given: dict[str, Any], tz: str = "UTC") -> When | None:
    """What --cron, --every or --at say, with the policy beside them; None when none of them is there.

    `tz` is the zone that is meant where --tz is not given.
    """
    from limpet.core.schedules.when import Cron, Every, Once

    chosen = [name for name in ("cron", "every", "at") if given[name] is not None]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0]} and --{chosen[1]} contradict each other", fix="give one of them")
    if given["tz"] is not None and chosen == ["every"]:
        raise UsageError("--tz says nothing about --every", fix="equal steps are the same in every time zone")
    if not chosen:
        if given["tz"] is not None:
            raise UsageError("--tz alone does not say when", fix="give --cron too")
        return None
    policy = policy_of(given)
    if chosen == ["cron"]:
        return Cron(given["cron"], tz=given["tz"] or tz, **policy)
    if chosen == ["every"]:
        return Every(given["every"] / 1000, **policy)
    return Once(_instant(given["at"], zone_of(given["tz"] or tz), "--at", "2026-01-31T08:00:00+01:00"), **policy)


def policy_of(given: dict[str, Any]) -> dict[str, Any]:
    """What was given about overlap, missed ticks, jitter and expiry; durations in seconds."""
    found = {name: given[name] for name in ("overlap", "catch_up", "jitter", "expires_in") if given[name] is not None}
    for name in ("jitter", "expires_in"):
        if name in found:
            found[name] = None if found[name] == "none" else found[name] / 1000
    return found


def options_of(given: dict[str, Any]) -> dict[str, Any]:
    """What was given about the jobs, in the words of `@app.schedule`."""
    names = ("queue", "priority", "needs", "tags", "tenant", "cost", "timeout")
    found = {name: given[name] for name in names if given[name] not in (None, ())}
    if str(found.get("priority", "")).isdigit():
        found["priority"] = int(found["priority"])
    if "timeout" in found:
        found["timeout"] = found["timeout"] / 1000
    if "cost" in found:
        found["cost"] = amounts(found["cost"], "--cost")
    return found if given["attempts"] is None else {**found, "retry": given["attempts"]}


def instant_of(text: str, zone: tzinfo, what: str) -> datetime:
    """An instant, a date or local time in a zone, or a duration that has passed since."""
    try:
        return _instant(text, zone, what, "7d (so long ago), 2026-01-31 or 2026-01-31T08:00:00+01:00")
    except InvalidOption:
        with suppress(UsageError):
            return datetime.now(UTC) - timedelta(milliseconds=to_ms(text, what=what))
        raise


def _instant(text: str, zone: tzinfo, what: str, fix: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidOption(f"{what} {text!r} is not a time", fix=fix) from error
    return moment.replace(tzinfo=zone) if moment.tzinfo is None else moment


def zone_of(key: str) -> tzinfo:
    """The time zone of that name; one that is unknown is refused with the nearest."""
    from limpet.core.schedules.zone import Zone

    return UTC if Zone(key).never_changes else ZoneInfo(key)
