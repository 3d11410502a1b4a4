"""The stored schedule: one blob that comes back the same, a fingerprint, and what pausing and changing mean."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from limpet.core.endings.retry import Retry
from limpet.core.errors import InvalidArguments, InvalidOption
from limpet.core.jobs.options import Options
from limpet.core.jobs.view import Control
from limpet.core.schedules.plan import Plan
from limpet.core.schedules.rule import EveryRule
from limpet.core.schedules.schedule import Schedule, Unreadable, checked_options, read_schedule, removal
from limpet.core.schedules.when import Cron, Every, Once, When

HOUR = 3_600_000
NOON = 20_000 * 24 * HOUR + 12 * HOUR

DIGEST = Schedule.declare(
    Cron("0 8 * * *", tz="Europe/Paris", overlap="queue one", catch_up=3, jitter=60, expires_in="1h"),
    task="mail.digest",
    name="digest",
    args=b'{"to": "a@b.c", "n": 123456789012345678901234567890}',
    options={"priority": "low", "tags": ["daily"]},
)


@pytest.mark.parametrize(
    "schedule",
    [
        DIGEST,
        Schedule.declare(Every("5m"), task="tidy"),
        Schedule.declare(Once(datetime(2030, 1, 1, tzinfo=UTC)), task="t", source="runtime"),
        DIGEST.pause("ann", "too many mails"),
        DIGEST.replacing(None, NOON),
    ],
)
def test_a_schedule_survives_being_stored(schedule: Schedule) -> None:
    control = schedule.control()
    assert (control.kind, control.name) == ("schedule", schedule.name)
    again = read_schedule(control)
    assert again == schedule
    assert isinstance(again, Schedule)
    assert again.fingerprint == schedule.fingerprint
    assert again.control() == control
    assert bytes(again.args) == bytes(schedule.args)


def test_the_record_is_plain_json() -> None:
    assert msgspec.json.decode(DIGEST.control().value) == {
        "name": "digest",
        "task": "mail.digest",
        "rule": {"type": "cron", "expr": "0 8 * * *", "tz": "Europe/Paris"},
        "policy": {"overlap": "queue_one", "catch_up": 3, "jitter_ms": 60_000, "expires_ms": HOUR},
        "args": {"to": "a@b.c", "n": 123456789012345678901234567890},
        "options": {"priority": "low", "tags": ["daily"]},
    }


def test_fields_of_a_newer_release_are_ignored() -> None:
    record = msgspec.json.decode(DIGEST.control().value) | {"colour": "blue"}
    assert read_schedule(Control("schedule", "digest", msgspec.json.encode(record))) == DIGEST


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"{", "truncated"),
        (b'{"name": "x", "task": "t", "rule": {"type": "moon"}}', "moon"),
        (b'{"name": "x", "task": "t", "rule": {"type": "every", "every_ms": 0}}', ">= 1"),
        (b'{"name": "x", "task": "t", "rule": {"type": "cron", "expr": "0 0 L * *"}}', "'L'"),
        (b'{"name": "x", "task": "t", "rule": {"type": "cron", "expr": "@daily", "tz": "Mars/Base"}}', "Mars/Base"),
    ],
)
def test_a_record_that_cannot_be_worked_out_here_says_why(value: bytes, why: str) -> None:
    found = read_schedule(Control("schedule", "x", value))
    assert isinstance(found, Unreadable)
    assert found.name == "x"
    assert why in found.why


def test_a_removed_schedule_is_no_schedule() -> None:
    assert removal("digest").name == "digest"
    assert read_schedule(removal("digest")) is None


def test_the_name_is_the_tasks_unless_given() -> None:
    assert Schedule.declare(Every(60), task="mail.digest").name == "mail.digest"


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"when": "0 8 * * *"}, InvalidOption, "does not say when"),
        ({"when": Cron}, InvalidOption, "does not say when"),
        ({"name": "two words"}, InvalidOption, "name='two words'"),
        ({"name": ""}, InvalidOption, "name=''"),
        ({"task": ""}, InvalidOption, "task=''"),
        ({"args": b"[1]"}, InvalidArguments, "no JSON object"),
        ({"args": b"{"}, InvalidArguments, "not JSON"),
        ({"options": {"delay": 5}}, InvalidOption, "no option 'delay'"),
        ({"options": {"prioritty": "low"}}, InvalidOption, "no option 'prioritty'"),
        ({"options": {"overlap": "skip"}}, InvalidOption, 'write Every("5m", overlap=...)'),
        ({"options": {"priority": "lowest"}}, InvalidOption, "priority='lowest'"),
        ({"options": {"retry": Retry(attempts=2)}}, InvalidOption, "cannot be stored"),
        ({"options": {"retry": lambda attempt, error: 1}}, InvalidOption, "cannot be stored"),
    ],
)
def test_what_cannot_work_is_refused_by_name(given: dict[str, Any], error: type[Exception], said: str) -> None:
    asked: dict[str, Any] = {"when": Every(60), "task": "t"}
    with pytest.raises(error) as caught:
        Schedule.declare(**asked | given)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("options", "stored"),
    [
        ({"timeout": timedelta(seconds=90)}, {"timeout": 90.0}),
        ({"timeout": None}, {"timeout": None}),
        ({"tags": {"b", "a"}}, {"tags": ["a", "b"]}),
        ({"needs": ("gpu",)}, {"needs": ["gpu"]}),
        ({"retry": [1, timedelta(seconds=10)]}, {"retry": [1, 10.0]}),
        ({"retry": 3, "cost": 2, "queue": "q", "tenant": "g"}, {"retry": 3, "cost": 2, "queue": "q", "tenant": "g"}),
    ],
)
def test_options_are_stored_as_json_that_means_the_same(options: dict[str, Any], stored: dict[str, Any]) -> None:
    assert checked_options(options) == stored
    Options().replace(**stored)  # can be read back


# Fingerprints


def test_the_fingerprint_is_the_same_in_every_release() -> None:
    assert DIGEST.fingerprint == "ad19d6129bf85868"


@pytest.mark.parametrize(
    "other",
    [
        DIGEST.pause("ann"),
        DIGEST.resume(NOON),
        DIGEST.replacing(None, NOON),
        msgspec.structs.replace(DIGEST, name="renamed"),
        msgspec.structs.replace(DIGEST, source="runtime"),
        msgspec.structs.replace(DIGEST, args=msgspec.Raw(b'{"n":123456789012345678901234567890,"to":"a@b.c"}')),
        msgspec.structs.replace(DIGEST, options={"tags": ["daily"], "priority": "low"}),
    ],
)
def test_what_does_the_same_has_the_same_fingerprint(other: Schedule) -> None:
    assert other.fingerprint == DIGEST.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"task": "other"},
        {"rule": EveryRule(60_000)},
        {"policy": Every(60).policy},
        {"args": msgspec.Raw(b"{}")},
        {"options": {}},
    ],
)
def test_what_does_something_else_has_another(change: dict[str, Any]) -> None:
    assert msgspec.structs.replace(DIGEST, **change).fingerprint != DIGEST.fingerprint


# Time


def hourly(**given: Any) -> Schedule:
    when: When = Every("1h", catch_up="all")
    return msgspec.structs.replace(Schedule.declare(when, task="t"), since_at_ms=NOON - 1, **given)


def fired(plan: Plan) -> list[int]:
    return [(firing.tick_at_ms - NOON) // HOUR for firing in plan.fire]


def test_ticks_count_from_when_it_was_stored() -> None:
    assert fired(hourly().plan(None, NOON + HOUR)) == [0, 1]
    assert fired(hourly().plan(NOON, NOON + HOUR)) == [1]


def test_a_paused_schedule_has_nothing_to_do() -> None:
    assert hourly().pause("ann").plan(NOON, NOON + 5 * HOUR) == Plan()


def test_what_a_pause_held_back_does_not_fire_late() -> None:
    resumed = hourly().pause("ann", "why").resume(NOON + 5 * HOUR + 1)
    assert (resumed.paused, resumed.paused_by, resumed.paused_reason) == (False, "", "")
    assert fired(resumed.plan(NOON, NOON + 7 * HOUR)) == [6, 7]
    assert resumed.plan(NOON, NOON + 5 * HOUR + 1).wake_at_ms == NOON + 6 * HOUR


def test_the_same_definition_again_keeps_its_ticks_and_its_pause() -> None:
    stored = hourly().pause("ann", "why")
    again = Schedule.declare(Every("1h", catch_up="last"), task="t").replacing(stored, NOON + 5 * HOUR)
    assert again.since_at_ms == stored.since_at_ms
    assert (again.paused, again.paused_by, again.paused_reason) == (True, "ann", "why")
    assert again.policy.catch_up == 1


def test_a_changed_rule_has_missed_nothing() -> None:
    changed = Schedule.declare(Every("30m", catch_up="all"), task="t").replacing(hourly(), NOON + 5 * HOUR)
    assert changed.plan(NOON, NOON + 5 * HOUR) == Plan(wake_at_ms=NOON + 5 * HOUR + HOUR // 2)
