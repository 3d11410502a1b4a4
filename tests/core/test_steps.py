"""What is remembered of durable calls, and how a change of the code is noticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.errors import InvalidStep, NotSerialisable, PayloadTooLarge, StepsChanged
from limpet.core.flows.steps import (
    MAX_STEPS,
    Approval,
    Asking,
    History,
    Record,
    StepKind,
    Waiting,
    approval_of,
    asking_of,
    check_event,
    encode_value,
    read_record,
    waits_of,
)
from limpet.core.gate import FOREVER_MS
from limpet.core.jobs.lease import Note


def notes(*calls: str, kind: StepKind = "step") -> list[Note]:
    """What a job remembers after its handler made these calls, one after the other."""
    return [Record(kind, place).note(name) for place, name in enumerate(calls, 1)]


def aside(*calls: str, place: int) -> list[Note]:
    """What it remembers of calls that tasks of it made beside the handler, one each."""
    return [Record("step", place, name).note(name) for name in calls]


def replay(history: History, *calls: str) -> list[bool]:
    """Make these calls; which of them are recorded."""
    return [history.call("step", name).record is not None for name in calls]


def test_recorded_calls_are_answered_and_later_ones_are_new() -> None:
    assert replay(History(notes("a", "b")), "a", "b", "c") == [True, True, False]


def test_notes_of_other_kinds_are_no_steps() -> None:
    history = History([Note("event", "a", b"1"), Note("checkpoint", "", b"{}"), Note("log", "a", b'""')])
    assert replay(history, "a") == [False]


@pytest.mark.parametrize(
    ("calls", "recorded", "called"),
    [
        (("z",), "step('a')", "step('z')"),  # renamed, or put before
        (("b",), "step('a')", "step('b')"),  # taken away, or in another order
        (("a", "z"), "step('b')", "step('z')"),
        (("a", "c"), "step('b')", "step('c')"),
    ],
)
def test_another_call_at_the_place_of_a_recorded_one_names_both(
    calls: tuple[str, ...], recorded: str, called: str
) -> None:
    history = History(notes("a", "b", "c"), job="0190")
    with pytest.raises(StepsChanged, match="the code changed") as raised:
        replay(history, *calls)
    assert (raised.value.recorded, raised.value.called) == (recorded, called)
    assert f"it called {recorded} here before, and now {called}" in raised.value.message


def test_the_error_says_which_steps_to_forget_and_the_other_ways_on() -> None:
    with pytest.raises(StepsChanged) as raised:
        replay(History(notes("a", "the b", "c"), job="0190"), "a", "z")
    assert "bring the old code back" in raised.value.fix
    assert "limpet dead retry 0190 --forget 'the b' --forget c" in raised.value.fix
    assert 'steps="by-name"' in raised.value.fix
    with pytest.raises(StepsChanged, match="--forget-all"):
        replay(History(notes(*"abcdefgh")), "z")


def test_a_step_that_became_a_sleep_is_a_change_even_by_name() -> None:
    for in_order in (True, False):
        with pytest.raises(StepsChanged) as raised:
            History(notes("a"), in_order=in_order).call("sleep", "a")
        assert (raised.value.recorded, raised.value.called) == ("step('a')", "sleep(name='a')")


def test_a_forgotten_step_may_run_again_be_replaced_or_be_gone() -> None:
    kept = [note for note in notes("a", "b", "c") if note.name != "b"]
    assert replay(History(kept), "a", "b", "c", "d") == [True, False, True, False]
    assert replay(History(kept), "a", "new", "c") == [True, False, True]
    assert replay(History(kept), "a", "c", "d") == [True, True, False]
    with pytest.raises(StepsChanged):
        replay(History(kept), "a", "new", "b", "c")  # one place is free, not two
    with pytest.raises(StepsChanged):
        replay(History([*kept, Record("step", 4).note("d")]), "a", "d")  # and what is recorded keeps its order


def test_a_new_call_in_a_free_place_takes_that_place() -> None:
    kept = [note for note in notes("a", "b", "c") if note.name != "b"]
    history = History(kept)
    replay(history, "a")
    assert history.call("step", "b").place == 2
    replay(history, "c")
    assert history.call("step", "d").place == 4


def test_a_failed_step_that_left_no_record_leaves_a_free_place() -> None:
    # "try" failed and was caught; "instead" is recorded at place 2.
    assert replay(History([Record("step", 2).note("instead")]), "try", "instead") == [False, True]


def test_by_name_the_order_does_not_matter() -> None:
    history = History(notes("a", "b", "c"), in_order=False)
    assert replay(history, "new", "c", "a") == [False, True, True]
    assert history.left_out() == ["b"]


def test_a_name_is_used_once() -> None:
    history = History(notes("a"))
    replay(history, "a", "b")
    for name in ("a", "b"):
        with pytest.raises(InvalidStep, match=f"'{name}' is used twice"):
            history.call("wait", name)


@pytest.mark.parametrize("name", ["", " ", "x" * 201, "nul\0", "half\ud800", 7, None])
def test_names_can_be_kept_and_shown(name: object) -> None:
    with pytest.raises(InvalidStep, match="the name of a step is"):
        History([]).call("step", name)  # type: ignore[arg-type]  # that is the point


def test_calls_beside_the_handler_have_no_order() -> None:
    recorded = [*notes("start"), *aside("a", "b", "c", place=1)]
    history = History(recorded)
    replay(history, "start")
    assert [history.call("step", name, beside=name).record is not None for name in "cab"] == [True, True, True]


def test_a_new_call_waits_for_recorded_ones_that_were_made_before_it_beside_the_handler() -> None:
    history = History([*notes("start"), *aside("a", "b", place=1)])
    replay(history, "start")
    new = history.call("step", "end")
    assert history.unreached(new) == ["a", "b"]
    history.call("step", "b", beside="b")
    assert history.unreached(new) == ["a"]
    missed = history.missed("a", new)
    assert (missed.recorded, missed.called) == ("step('a')", "step('end') without it")
    history.call("step", "a", beside="a")
    assert history.unreached(new) == []


def test_nobody_waits_for_calls_that_came_later() -> None:
    # A task was started, the handler made its first call, then the task made its own.
    history = History(aside("beside", place=1))
    assert history.unreached(history.call("step", "first")) == []
    assert history.unreached(history.call("step", "second")) == ["beside"]


def test_a_new_call_does_not_wait_for_what_its_own_task_calls_later() -> None:
    # Of a task that called "first" and "second" only the latter is recorded: the other failed, or was forgotten.
    recorded = [Record("step", 0, "first").note("second"), *aside("other", place=0)]
    history = History(recorded)
    assert history.unreached(history.call("step", "first", beside="first")) == ["other"]


def test_by_name_nobody_waits() -> None:
    history = History(aside("a", place=0), in_order=False)
    assert history.unreached(history.call("step", "new")) == []


def test_calls_may_move_between_the_handler_and_its_tasks() -> None:
    one_by_one = History(notes("a", "b"))
    assert all(one_by_one.call("step", name, beside=name).record for name in "ba")
    assert replay(one_by_one, "c") == [False]
    together = History([*aside("a", "b", place=0), Record("step", 1).note("c")])
    assert replay(together, "b", "a", "c", "d") == [True, True, True, False]


def test_a_job_keeps_a_bounded_number_of_steps() -> None:
    history = History([], in_order=False)
    replay(history, *(f"step-{n}" for n in range(MAX_STEPS)))
    with pytest.raises(InvalidStep, match="at most 1,000 steps"):
        history.call("step", "one more")


def test_a_job_keeps_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limpet.core.flows.steps.MAX_STEPS_BYTES", 150)
    history = History(notes("a", "b"))
    replay(history, "a", "b")
    call = history.call("step", "c")
    with pytest.raises(PayloadTooLarge, match=r"with step\('c'\) the steps of this job take .* bytes, over 150"):
        history.keep(call, call.recorded(question="x" * 100))
    history.keep(call, call.recorded())


@given(st.lists(st.text(min_size=1, max_size=5).filter(str.strip), unique=True, max_size=8), st.data())
def test_the_same_code_is_never_taken_for_another(names: list[str], data: st.DataObject) -> None:
    """Whatever was recorded of a run of calls (some forgotten, some never recorded), the same run goes on."""
    try:
        History([]).call("step", "".join(names))
    except InvalidStep:
        return
    kept = [note for note in notes(*names) if data.draw(st.booleans())]
    expected = {note.name for note in kept}
    history = History(kept)
    assert {name for name in names if history.call("step", name).record is not None} == expected


@given(st.permutations(["a", "b", "c", "d"]))
def test_every_other_order_is_noticed(order: list[str]) -> None:
    history = History(notes("a", "b", "c", "d"))
    if order == ["a", "b", "c", "d"]:
        assert all(replay(history, *order))
    else:
        with pytest.raises(StepsChanged):
            replay(history, *order)


def test_events_of_our_own_cannot_be_signalled() -> None:
    assert check_event("paid") == "paid"
    for event in ("approval:approval", "sleep:sleep-1"):
        with pytest.raises(InvalidStep, match="of Limpet's own"):
            check_event(event)


def test_what_a_job_waits_for_is_read_from_its_notes() -> None:
    asked = Record("approval", 1, event="approval:go", question="Pay 90 USD?").note("go")
    kept = [Note("step", "other release", b"[]"), asked, Note("waiting", "approval:go", b"1700")]
    assert waits_of(kept, 1700) == [Waiting("approval:go", FOREVER_MS, "Pay 90 USD?")]
    assert asking_of(kept) == [Asking("approval:go", "Pay 90 USD?")]
    assert asking_of(kept)[0].name == "go"
    assert waits_of(kept, 1701) == waits_of([], 1700) == []  # something else has put the job off
    assert read_record(kept[0]) is None


def test_what_a_job_waits_for_comes_in_the_order_of_its_code_and_has_its_own_ends() -> None:
    kept = [
        Record("wait", 2, "paid", event="paid", until_ms=3000).note("paid"),
        Record("sleep", 1, event="sleep:nap", until_ms=1700).note("nap"),
        Record("wait", 3, event="left", until_ms=900, over=True).note("left"),
        *(Note("waiting", event, b"1700") for event in ("of another release", "paid", "sleep:nap")),
    ]
    expected = [Waiting("sleep:nap", 1700), Waiting("paid", 3000), Waiting("of another release", 1700)]
    assert waits_of(kept, 1700) == expected


def test_what_was_decided_is_no_question_any_more() -> None:
    asked = [Record("approval", n, event=f"approval:{n}", question="?").note(str(n)) for n in (1, 2)]
    late = Record("approval", 3, event="approval:3", over=True).note("3")
    said = Note("event", "approval:1", b'{"approved":false,"by":"ada"}')
    assert [one.name for one in asking_of([*asked, late, said])] == ["2"]
    assert approval_of([said], "approval:1") == Approval(False, "ada")
    assert approval_of([said], "approval:2") is None
    assert approval_of([Note("event", "paid", b"1")], "paid") is None


def test_the_value_of_a_signal_is_small_plain_json() -> None:
    assert encode_value(Approval(True, "ada")) == b'{"approved":true,"by":"ada","comment":""}'
    with pytest.raises(PayloadTooLarge, match="the value of the signal takes 262,145 bytes"):
        encode_value("x" * 262_143)
    with pytest.raises(NotSerialisable, match=r"the value of the signal\.at is nan"):
        encode_value({"at": float("nan")})
