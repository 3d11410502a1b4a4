"""Where a job goes that does not fit the code of its worker: by who lives, and who has refused it."""

from __future__ import annotations

import msgspec
import pytest

from limpet.core.endings.refusal import (
    LONGEST_MS,
    About,
    about,
    code_needed,
    code_of,
    for_any_code,
    is_code,
    left_alone,
    place,
)
from limpet.core.endings.transition import Bury, Failure, Refuse
from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.lease import Claimed, Serves, SessionView
from limpet.core.jobs.view import AttemptView

NOW_MS = 1_800_000_000_000
ID = b"i" * 16
WHY = Failure("permanent", "limpet.InvalidArguments", "send() has no parameter 'cc'")
LANE = Lane("mail", "send", needs=("eu",))
CODES = {name: code_of({"send": name}) for name in ("a", "b", "c")}


def job(lane: Lane = LANE, now_ms: int = NOW_MS) -> Claimed:
    return Claimed(ID, 7, 1, 0, lane, Policy(), b"{}", NOW_MS, NOW_MS, now_ms)


def waiting_for(name: str) -> Lane:
    return Lane("mail", "send", needs=tuple(sorted(("eu", CODES[name]))))


def refuse(by: str, lane: Lane | None = None) -> Refuse:
    return Refuse(ID, 7, WHY, by, lane)


def worker(name: str, started_ms: int = 0, serves: Serves | None = None) -> SessionView:
    serves = serves or Serves(("mail",), ("send",), ("eu", CODES[name]))
    info = msgspec.json.encode({"signatures": {"send": name}, "host": "h", "pid": 1})
    return SessionView(name, serves, info, started_ms, NOW_MS, NOW_MS, idle=False, running=0)


def refusal(by: str, at_ms: int = NOW_MS, outcome: str = "refused") -> AttemptView:
    return AttemptView(1, outcome, at_ms, at_ms, "s", message=WHY.message, type=WHY.type, cause=by)


def test_it_goes_to_the_newest_code_that_has_not_refused_it() -> None:
    live = [worker("a", 3), worker("b", 1), worker("c", 2)]
    assert place(job(), refuse("a"), (), live) == refuse("a", waiting_for("c"))
    assert place(job(waiting_for("c")), refuse("c"), [refusal("a")], live) == refuse("c", waiting_for("b"))


def test_when_all_have_refused_it_is_dead_where_it_came_from() -> None:
    live = [worker("a"), worker("b")]
    assert place(job(), refuse("a"), (), live[:1]) == Bury(ID, 7, WHY)
    assert place(job(waiting_for("b")), refuse("b"), [refusal("a")], live) == Bury(ID, 7, WHY, LANE)


@pytest.mark.parametrize(
    "other",
    [
        worker("b", serves=Serves(("other",), ("send",), ("eu", CODES["b"]))),
        worker("b", serves=Serves(("mail",), ("other",), ("eu", CODES["b"]))),
        worker("b", serves=Serves(("mail",), ("send",), (CODES["b"],))),
        worker("b", serves=Serves(("mail",), ("send",), ("eu",))),
        SessionView("agent", Serves(), b"an agent", 0, NOW_MS, NOW_MS, idle=False, running=0),
    ],
    ids=["queue", "task", "needs", "no code", "agent"],
)
def test_only_workers_that_may_claim_it_count(other: SessionView) -> None:
    assert isinstance(place(job(), refuse("a"), (), [other]), Bury)


def test_a_day_after_the_first_refusal_it_is_dead() -> None:
    live = [worker("c")]
    in_time, late = (job(waiting_for("b"), NOW_MS + LONGEST_MS + more_ms) for more_ms in (-1, 0))
    assert isinstance(place(in_time, refuse("b"), [refusal("a")], live), Refuse)
    assert isinstance(place(late, refuse("b"), [refusal("a")], live), Bury)


def test_what_a_person_has_retried_begins_anew() -> None:
    before = [refusal("a", NOW_MS - LONGEST_MS), refusal("b", NOW_MS - LONGEST_MS, "dead")]
    live = [worker("a"), worker("b")]
    assert place(job(), refuse("a"), before, live) == refuse("a", waiting_for("b"))
    again = place(job(waiting_for("b")), refuse("b"), [*before, refusal("c")], live)
    assert again == refuse("b", waiting_for("a"))


def test_a_job_that_was_left_alone_is_placed_by_what_was_said_before() -> None:
    alone = left_alone(job(waiting_for("b")), [refusal("a")])
    assert alone.signature == "a"
    assert alone.failure.message == "send() has no parameter 'cc'; no live worker has the code that it waited for"
    said = AttemptView(1, "refused", NOW_MS, NOW_MS, "s", message=alone.failure.message, cause="a")
    assert left_alone(job(waiting_for("b")), [said]).failure.message == alone.failure.message
    assert left_alone(job(waiting_for("b")), ()).signature == ""


def test_a_code_is_a_capability_of_its_own_kind() -> None:
    assert code_of({"a": "1", "b": "2"}) == code_of({"b": "2", "a": "1"}) != code_of({"a": "1"})
    assert is_code(CODES["a"])
    assert not any(map(is_code, ("code", "code:review", "code:" + "g" * 16, CODES["a"] + "0")))
    assert code_needed(waiting_for("a")) == CODES["a"]
    assert for_any_code(waiting_for("a")) == LANE
    assert for_any_code(LANE) is LANE


def test_what_a_session_says_is_taken_as_it_comes() -> None:
    assert about(worker("a")) == About("", {"send": "a"})
    assert about(SessionView("x", Serves(), b"?", 0, 0, 0, idle=False, running=0)) == About()
