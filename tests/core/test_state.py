"""The table of states is closed: every move leads somewhere, and nothing leaves by a door that is not there."""

from __future__ import annotations

from itertools import product

import pytest

from limpet.core.jobs.state import FINISHED, GROUPS, LIVE, MOVES, STATES, WAITING, State, may_move

ALLOWED = {
    ("blocked", "ready"),
    ("blocked", "scheduled"),
    ("blocked", "cancelled"),
    ("blocked", "dead"),
    ("scheduled", "ready"),
    ("scheduled", "scheduled"),
    ("scheduled", "cancelled"),
    ("scheduled", "dead"),
    ("ready", "running"),
    ("ready", "ready"),
    ("ready", "scheduled"),
    ("ready", "cancelled"),
    ("ready", "dead"),
    ("running", "succeeded"),
    ("running", "scheduled"),
    ("running", "ready"),
    ("running", "dead"),
    ("running", "cancelled"),
    ("dead", "ready"),
    ("dead", "scheduled"),
    ("cancelled", "blocked"),
}


@pytest.mark.parametrize(("old", "new"), list(product(State, State)))
def test_the_table_allows_exactly_these_moves(old: State, new: State) -> None:
    assert may_move(old, new) == ((old.value, new.value) in ALLOWED)


def test_every_state_has_a_row_and_every_move_a_reason() -> None:
    assert set(MOVES) == set(State)
    assert all(reason for moves in MOVES.values() for reason in moves.values())


def test_success_is_for_ever() -> None:
    assert MOVES[State.succeeded] == {}


def test_every_state_can_be_reached() -> None:
    reached = {new for moves in MOVES.values() for new in moves}
    assert reached == set(State)


def test_running_is_entered_only_by_a_claim() -> None:
    assert [old for old in State if State.running in MOVES[old]] == [State.ready]


def test_the_sets_part_the_states() -> None:
    assert WAITING | {State.running} == LIVE
    assert set(State) == LIVE | FINISHED
    assert not LIVE & FINISHED


def test_the_words_for_people_cover_each_state_once() -> None:
    assert sorted(state for states in GROUPS.values() for state in states) == sorted(State)


def test_codes_are_small_and_stay_what_stored_rows_say() -> None:
    assert {state.value: state.code for state in STATES} == {
        "blocked": 0,
        "scheduled": 1,
        "ready": 2,
        "running": 3,
        "succeeded": 4,
        "dead": 5,
        "cancelled": 6,
    }
