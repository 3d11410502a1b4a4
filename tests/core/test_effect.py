"""What a transition does is one record: a table of them, and what every record must keep."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import asdict, fields

from limpet.core.endings.effect import (
    COUNT,
    FORCED,
    LEFT,
    MADE,
    OVERDUE,
    SESSION,
    STOPPED,
    SUCCESS,
    UNREADABLE,
    Effect,
    Otherwise,
    actual_cost,
    counted,
    effect_of,
    silent,
    success,
)
from limpet.core.endings.transition import (
    Bury,
    Drop,
    ErrorKind,
    Failure,
    Hold,
    Lose,
    Refuse,
    Release,
    RetryAfter,
    Snooze,
    Succeed,
    Suspend,
    Transition,
)
from limpet.core.gate import FOREVER_MS, GateRule
from limpet.core.jobs.job import Lane
from limpet.core.jobs.state import FINISHED, MOVES, STATES, State

ID: Final = bytes(16)
BROKE: Final = Failure("transient", "ValueError", "it broke", "Traceback", "broke")
WRONG: Final = Failure("permanent", "TypeError", "it is wrong")
LANE: Final = Lane("q", "t", needs=("code:new",))

TRANSITIONS: Final[dict[str, Transition]] = {
    "succeed": Succeed(ID, 1),
    "succeed with a result": Succeed(ID, 1, b"7"),
    "retry": RetryAfter(ID, 1, BROKE, 5_000),
    "retry at once": RetryAfter(ID, 1, BROKE, 0),
    "bury": Bury(ID, 1, WRONG),
    "drop": Drop(ID, 1, "no use"),
    "release": Release(ID, 1),
    "release started": Release(ID, 1, started=True),
    "snooze": Snooze(ID, 1, 5_000, "later"),
    "sleep": Suspend(ID, 1, 5_000),
    "yield": Suspend(ID, 1, 0),
    "wait": Suspend(ID, 1, None, ("go", "stop")),
    "hold": Hold(ID, 1, "limit:a", 5_000, "429"),
    "trip": Hold(ID, 1, "limit:a", 5_000, "no money", trips=True),
    "refuse": Refuse(ID, 1, WRONG, "1a2b", LANE),
    "refuse for good": Refuse(ID, 1, WRONG, "1a2b"),
    "bury elsewhere": Bury(ID, 1, WRONG, LANE),
    "lose": Lose(ID, 1, reason="killed"),
    "lose silently": Lose(ID, 1),
    "prove": Lose(ID, 1, proven=True, reason="killed"),
}
EFFECTS: Final = {**{name: effect_of(one) for name, one in TRANSITIONS.items()}, **MADE}


class Row(Struct):
    """What a person would ask of an effect."""

    state: State
    word: str
    attempt: str = "spent"
    record: str = "always"
    held: str = "same"
    lost: bool = False
    refund: str = "nothing"
    verdict: str = "neutral"


TABLE: Final = {
    "succeed": Row(State.succeeded, "succeeded", record="again", verdict="ok"),
    "succeed with a result": Row(State.succeeded, "succeeded", record="again", verdict="ok"),
    "retry": Row(State.scheduled, "retried", verdict="failed"),
    "retry at once": Row(State.ready, "retried", verdict="failed"),
    "bury": Row(State.dead, "dead"),
    "drop": Row(State.cancelled, "cancelled", refund="unsaid"),
    "release": Row(State.ready, "released", "unspent", record="never", refund="all"),
    "release started": Row(State.ready, "released", "unspent"),
    "snooze": Row(State.scheduled, "snoozed", "unspent", held="more", refund="unsaid"),
    "sleep": Row(State.scheduled, "suspended", "unspent", record="never", held="none", refund="unsaid"),
    "yield": Row(State.ready, "suspended", "unspent", record="never", held="none", refund="unsaid"),
    "wait": Row(State.scheduled, "suspended", "unspent", record="never", held="none", refund="unsaid"),
    "hold": Row(State.ready, "held", "unspent", held="more", refund="unsaid"),
    "trip": Row(State.ready, "held", "unspent", held="more", refund="unsaid"),
    "refuse": Row(State.ready, "refused", "unspent", refund="all"),
    "refuse for good": Row(State.dead, "dead"),
    "bury elsewhere": Row(State.dead, "dead"),
    "lose": Row(State.ready, "lost", "unspent", lost=True),
    "lose silently": Row(State.ready, "lost", "unspent", lost=True),
    "prove": Row(State.dead, "dead", "unspent", lost=True),
    "success": Row(State.succeeded, "succeeded", record="again", verdict="ok"),
    "silent": Row(State.ready, "lost", "unspent", lost=True),
    "overdue": Row(State.ready, "lost", "unspent", lost=True),
    "left": Row(State.ready, "released", "unspent"),
    "forced": Row(State.cancelled, "cancelled"),
    "unreadable": Row(State.dead, "dead"),
}


def row_of(effect: Effect) -> Row:
    attempt = "unspent" if effect.unspent else "spent"
    told = (effect.record, effect.held, effect.lost, effect.refund, effect.verdict)
    return Row(STATES[effect.state], effect.word, attempt, *told)


@pytest.mark.parametrize("name", EFFECTS)
def test_what_a_transition_does(name: str) -> None:
    assert row_of(EFFECTS[name]) == TABLE[name]


def alternatives(effect: Effect) -> list[Otherwise]:
    """The fields that are different, by what only a store can know."""
    found = (effect.if_lost_too_often, effect.if_foreign_gate, effect.if_signalled)
    return [STOPPED[effect.if_cancelling], *(each for each in found if each is not None)]


def outcomes(effect: Effect) -> list[Effect]:
    """All that may come of one effect."""
    return [effect, *map(effect.otherwise, alternatives(effect))]


@pytest.mark.parametrize("name", EFFECTS)
def test_an_alternative_has_fields_of_an_effect_and_their_types(name: str) -> None:
    for effect in outcomes(EFFECTS[name]):
        assert msgspec.convert(asdict(effect), Effect, from_attributes=True) == effect
        assert STATES[effect.state] in MOVES[State.running]


@pytest.mark.parametrize("name", EFFECTS)
def test_an_alternative_never_takes_a_value_away(name: str) -> None:
    """Engines lay it over the effect: in Lua a field without a value is one that is not there."""
    found = [field for each in alternatives(EFFECTS[name]) for field, value in each.items() if value is None]
    assert found == []


@pytest.mark.parametrize("name", EFFECTS)
def test_text_and_numbers_are_all_that_goes_to_an_engine(name: str) -> None:
    effect = EFFECTS[name]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(effect), type=Effect).state == effect.state
    said = msgspec.json.decode(msgspec.json.encode(effect))
    assert set(said) <= {field.name for field in fields(Effect)}
    assert {"state", "word"} <= set(said)


@pytest.mark.parametrize("name", TRANSITIONS)
def test_a_job_that_was_asked_to_stop_is_cancelled_unless_it_has_worked(name: str) -> None:
    effect = EFFECTS[name]
    stopped = effect.otherwise(STOPPED[effect.if_cancelling])
    if isinstance(TRANSITIONS[name], Succeed):
        assert stopped is effect
        return
    assert row_of(stopped) == Row(
        State.cancelled,
        "cancelled",
        "unspent" if effect.lost else "spent",
        lost=effect.lost,
        refund=effect.refund,
        verdict=effect.verdict,
    )
    assert (stopped.reason, stopped.own_reason, stopped.gate) == ("cancelled", True, effect.gate)


def test_the_failure_of_a_job_that_was_asked_to_stop_is_recorded_but_not_a_loss() -> None:
    retry, lose = (effect_of(TRANSITIONS[name]) for name in ("retry", "lose"))
    stopped, lost = (each.otherwise(STOPPED[each.if_cancelling]) for each in (retry, lose))
    assert (stopped.failure, stopped.hides_failure, stopped.blame) == (BROKE, False, False)
    assert lost.hides_failure


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("transient", "failed"),
        ("timeout", "failed"),
        ("permanent", "neutral"),
        ("rate_limited", "neutral"),
        ("spent", "neutral"),
        ("lost", "neutral"),
        ("cancelled", "neutral"),
    ],
)
def test_breakers_learn_from_what_another_try_may_cure(kind: ErrorKind, verdict: str) -> None:
    failure = Failure(kind, "E", "m")
    assert effect_of(RetryAfter(ID, 1, failure, 1)).verdict == verdict
    assert effect_of(Bury(ID, 1, failure)).verdict == verdict


@pytest.mark.parametrize("result", [None, b"null"])
def test_null_is_no_result_and_costs_no_record(result: bytes | None) -> None:
    assert effect_of(Succeed(ID, 1, result)) is success(result) is SUCCESS


def test_a_result_is_kept() -> None:
    assert effect_of(Succeed(ID, 1, b"[7]")).result == b"[7]"


def test_a_loss_too_many_is_poison_and_says_how_many() -> None:
    effect = effect_of(Lose(ID, 1, reason="killed"))
    assert (effect.failure, effect.reason) == (Failure("lost", "limpet.LeaseLost", "killed"), "killed")
    poison = effect.otherwise(effect.if_lost_too_often)
    assert poison.failure is not None
    assert counted(poison.failure, 3) == Failure("lost", "limpet.Poison", "killed; lost 3 times", cause="poison")
    assert row_of(poison) == Row(State.dead, "dead", "unspent", lost=True)
    assert poison.blame


def test_the_number_goes_where_core_left_room_whatever_else_is_said() -> None:
    effect = effect_of(Lose(ID, 1, reason=f"it printed {COUNT}"))
    assert effect.if_lost_too_often is not None
    assert counted(effect.if_lost_too_often["failure"], 3).message == f"it printed {COUNT}; lost 3 times"
    assert counted(WRONG, 3) is WRONG


def test_a_job_proven_guilty_is_poison_at_once() -> None:
    effect = effect_of(Lose(ID, 1, proven=True, reason="killed"))
    assert effect.failure == Failure("lost", "limpet.Poison", "killed; proven alone in its process", cause="poison")
    assert effect.if_lost_too_often is None


def test_a_loss_without_a_reason_has_one() -> None:
    assert effect_of(Lose(ID, 1)).reason == "its worker died"


def test_a_gate_that_is_not_the_jobs_own_needs_a_wait_beside_it() -> None:
    effect = effect_of(Hold(ID, 1, "limit:a", 5_000, "429"))
    assert (effect.gate, effect.gate_ms, effect.delay_ms, effect.trips) == ("limit:a", 5_000, None, False)
    foreign = effect.otherwise(effect.if_foreign_gate)
    assert (STATES[foreign.state], foreign.delay_ms, foreign.gate_ms) == (State.scheduled, 5_000, 5_000)


def test_a_refused_job_is_told_by_whom_and_why() -> None:
    effect = effect_of(TRANSITIONS["refuse"])
    assert (effect.lane, effect.reason, effect.unstarted) == (LANE, "it is wrong", True)
    assert effect.failure == Failure("permanent", "TypeError", "it is wrong", cause="1a2b")
    assert effect_of(TRANSITIONS["bury elsewhere"]).lane == LANE


def test_an_event_that_has_come_ends_a_wait_before_it_begins() -> None:
    effect = effect_of(Suspend(ID, 1, None, ("go", "stop")))
    assert (effect.delay_ms, effect.events, effect.reason) == (FOREVER_MS, ("go", "stop"), "")
    signalled = effect.otherwise(effect.if_signalled)
    assert (STATES[signalled.state], signalled.delay_ms, signalled.events) == (State.ready, 0, ())


@pytest.mark.parametrize(
    "transition",
    [RetryAfter(ID, 1, BROKE, 1 << 70), Snooze(ID, 1, 1 << 70), Suspend(ID, 1, 1 << 70), Hold(ID, 1, "g", 1 << 70)],
)
def test_a_time_however_long_is_shorter_than_for_ever(transition: Transition) -> None:
    for effect in outcomes(effect_of(transition)):
        assert (effect.delay_ms or 0) < FOREVER_MS
        assert effect.gate_ms < FOREVER_MS


def test_only_a_job_that_goes_on_waiting_has_a_time_and_events() -> None:
    for effect in EFFECTS.values():
        if STATES[effect.state] in FINISHED:
            assert (effect.delay_ms, effect.events) == (None, None)


@pytest.mark.parametrize(
    ("name", "spent", "real"),
    [
        ("release", {"usd": 3}, 0),
        ("release started", {}, None),
        ("retry", {}, None),
        ("retry", {"usd": 3}, 3),
        ("snooze", {}, 0),
        ("snooze", {"usd": 3}, 3),
        ("forced", {}, None),
    ],
)
def test_what_an_attempt_cost(name: str, spent: dict[str, int], real: int | None) -> None:
    budget = GateRule("limit:b", unit="usd", cap=10, period="day")
    assert actual_cost(EFFECTS[name], budget, spent) == real


def test_the_words_of_sweeps() -> None:
    assert silent("w1").reason == "session w1 went silent"
    assert OVERDUE.reason == "the lease passed its hard deadline"
    assert (LEFT.reason, FORCED.reason, FORCED.own_reason) == (None, "cancelled", True)
    assert UNREADABLE.failure is not None
    assert UNREADABLE.failure.type == "limpet.Undecodable"


def places(value: Any) -> int:
    """How many texts of an effect have room for the name of a session."""
    if isinstance(value, Failure):
        return places(asdict(value))
    if isinstance(value, dict):
        return sum(map(places, value.values()))
    return isinstance(value, str) and SESSION in value


def test_the_name_of_a_session_is_asked_for_in_three_texts() -> None:
    """Lua and SQL fill in these: the reason, what the attempt's record tells, and what poison says."""
    effect = MADE["silent"]
    assert places(asdict(effect)) == 3
    assert SESSION in (effect.reason or "")
    assert effect.failure is not None
    assert SESSION in effect.failure.message
    assert effect.if_lost_too_often is not None
    assert SESSION in effect.if_lost_too_often["failure"].message


def test_what_is_no_transition_has_no_effect() -> None:
    thing: Any = "succeeded"
    with pytest.raises(TypeError, match="unknown transition 'succeeded'"):
        effect_of(thing)
