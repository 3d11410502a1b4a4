"""Whose word is in force: deployments that roll, rollbacks, hands, and schedules that the code has dropped."""

from __future__ import annotations

import msgspec
import pytest

from limpet.core.jobs.lease import Serves, SessionView
from limpet.core.schedules.declared import Absent, absent, declared_by, redeclared, returned
from limpet.core.schedules.schedule import Schedule
from limpet.core.schedules.when import Every

NOW = 1_800_000_000_000


def version(minutes: int, name: str = "digest") -> Schedule:
    return Schedule.declare(Every(f"{minutes}m"), task="mail.digest", name=name)


OLD, NEW, NEWEST = version(1), version(2), version(3)


def stored(*versions: Schedule) -> Schedule:
    """What is stored after these were declared one after the other."""
    found: Schedule | None = None
    for each in versions:
        found = redeclared(each, found, (), NOW) or found
    assert found is not None
    return found


def test_the_first_word_is_stored_and_ticks_from_now_on() -> None:
    first = stored(OLD)
    assert (first.rule, first.since_at_ms, first.declared) == (OLD.rule, NOW, OLD.fingerprint)
    assert redeclared(OLD, first, (), NOW + 5) is None


def test_a_new_word_replaces_the_one_that_is_stored() -> None:
    second = redeclared(NEW, stored(OLD), {OLD.fingerprint}, NOW + 5)
    assert second is not None
    assert (second.rule, second.since_at_ms, second.older) == (NEW.rule, NOW + 5, (OLD.fingerprint,))


def test_an_old_worker_that_starts_again_during_a_deployment_changes_nothing() -> None:
    assert redeclared(OLD, stored(OLD, NEW), {OLD.fingerprint, NEW.fingerprint}, NOW) is None


def test_who_is_still_starting_replaces_nothing_that_live_workers_declare() -> None:
    assert redeclared(NEW, stored(OLD), {OLD.fingerprint}, NOW, lives=False) is None
    assert redeclared(NEW, stored(OLD), (), NOW, lives=False) is not None
    assert redeclared(NEW, None, (), NOW, lives=False) is not None


def test_after_a_rollback_the_old_word_returns() -> None:
    back = redeclared(OLD, stored(OLD, NEW), {OLD.fingerprint}, NOW + 5)
    assert back is not None
    assert (back.rule, back.declared, back.older) == (OLD.rule, OLD.fingerprint, (NEW.fingerprint,))
    assert redeclared(NEW, back, {OLD.fingerprint, NEW.fingerprint}, NOW + 9) is None


def test_versions_that_start_in_any_order_settle_on_one() -> None:
    record = stored(OLD, NEW, NEWEST)
    everyone = {each.fingerprint for each in (OLD, NEW, NEWEST)}
    for each in (NEW, OLD, NEWEST, OLD, NEW):
        assert redeclared(each, record, everyone, NOW) is None


def test_few_earlier_words_are_remembered() -> None:
    record = stored(*(version(minutes) for minutes in range(1, 30)))
    assert record.older == tuple(version(minutes).fingerprint for minutes in range(28, 20, -1))


def test_a_pause_outlives_a_deployment() -> None:
    paused = stored(OLD).pause("ann", "why")
    again = redeclared(NEW, paused, (), NOW + 5)
    assert again is not None
    assert (again.paused, again.paused_by) == (True, "ann")


def test_what_a_person_changed_stays_until_the_code_says_something_new() -> None:
    mine = stored(OLD).changed("ann", NOW + 5, rule=NEWEST.rule)
    assert (mine.changed_by, mine.since_at_ms) == ("ann", NOW + 5)
    assert redeclared(OLD, mine, {OLD.fingerprint}, NOW + 9) is None
    again = redeclared(NEW, mine, {OLD.fingerprint}, NOW + 9)
    assert again is not None
    assert (again.rule, again.changed_by) == (NEW.rule, "")


def test_what_a_person_gives_back_is_what_the_code_says() -> None:
    mine = returned(stored(OLD, NEW).changed("ann", NOW, rule=NEWEST.rule))
    again = redeclared(NEW, mine, {NEW.fingerprint}, NOW + 9)
    assert again is not None
    assert (again.rule, again.changed_by) == (NEW.rule, "")


def test_code_may_take_over_what_was_added_at_run_time() -> None:
    added = Schedule.declare(Every(5), task="mail.digest", name="digest", source="runtime")
    taken = redeclared(OLD, added, {OLD.fingerprint}, NOW)
    assert taken is not None
    assert (taken.source, taken.older) == ("code", ())


def test_a_change_at_run_time_of_what_was_added_so_is_nobodys_takeover() -> None:
    added = Schedule.declare(Every(5), task="t", source="runtime")
    assert added.changed("ann", NOW, rule=OLD.rule).changed_by == ""


# What is no longer declared


def session(info: bytes) -> SessionView:
    return SessionView("w1", Serves(), info, 0, 0, 0, True, 0)


def test_what_live_workers_declare_is_read_off_their_sessions() -> None:
    said = msgspec.json.encode({"host": "h", "schedules": {"digest": "f1", "tidy": "f2"}})
    other = msgspec.json.encode({"schedules": {"digest": "f3"}})
    sessions = [session(said), session(other), session(b"{}"), session(b"[]"), session(b'{"schedules": 7}')]
    assert declared_by(sessions) == {"digest": {"f1", "f3"}, "tidy": {"f2"}}


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"digest": {OLD.fingerprint}}, []),
        ({"digest": {"another"}}, []),
        ({}, [Absent("digest")]),
        ({"other": {"another"}}, [Absent("digest")]),
        ({"morning": {OLD.fingerprint}}, [Absent("digest", "morning")]),
    ],
)
def test_what_the_code_has_dropped_or_renamed_is_named(declared: dict[str, set[str]], expected: list[Absent]) -> None:
    added = Schedule.declare(Every(5), task="t", name="mine", source="runtime")
    assert absent([stored(OLD), added], declared) == expected


def test_an_absent_schedule_says_what_to_do() -> None:
    gone = Absent("digest", "morning")
    assert str(gone) == (
        "schedule digest is no longer in the code of any live worker (renamed to morning?), so it does not run"
    )
    assert gone.fix == "limpet schedules remove digest"
