"""What becomes of a job after one attempt: each outcome has one answer, and no job is tried for ever."""

from __future__ import annotations

import random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.endings.decide import (
    HOLD_CAP_MS,
    NOT_COMMITTED,
    SPENT_PROBE_MS,
    awaits_commit,
    decide,
    is_last,
    unjudgeable,
    unwritable,
)
from limpet.core.endings.outcome import (
    CancelAsked,
    CancelledByRequest,
    Completed,
    Crashed,
    DeadAsked,
    HandedBack,
    LaterAsked,
    Limited,
    Outcome,
    Raised,
    Returned,
    SnoozeAsked,
    Suspended,
    TimedOut,
    Unfit,
)
from limpet.core.endings.retry import Retry
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
from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.lease import Claimed
from limpet.core.text.duration import LONGEST_WAIT_MS

ID, TOKEN, NOW_MS = b"i" * 16, 77, 1_700_000_000_000
DAY_MS = 86_400_000
PLAIN = Policy(jitter="none")


def failure(kind: ErrorKind = "transient", message: str = "boom") -> Failure:
    return Failure(kind, "x.Boom", message, "trace", "cafe")


def job(attempt: int = 1, *, policy: Policy = PLAIN, lane: Lane | None = None, **more: Any) -> Claimed:
    return Claimed(
        id=ID,
        token=TOKEN,
        attempt=attempt,
        lost=0,
        lane=lane or Lane("q", "email"),
        policy=policy,
        args=b"{}",
        enqueued_at_ms=NOW_MS - 10,
        due_at_ms=NOW_MS - 10,
        claimed_at_ms=NOW_MS,
        **more,
    )


def decided(claimed: Claimed, outcome: Outcome, **more: Any) -> Transition:
    return decide(claimed, outcome, rng=random.Random(1), **more)


DIRECT: list[tuple[Outcome, Transition]] = [
    (Returned(b"1"), Succeed(ID, TOKEN, b"1")),
    (Returned(), Succeed(ID, TOKEN, None)),
    (Completed(), RetryAfter(ID, TOKEN, NOT_COMMITTED, 1_000)),
    (Raised(failure()), RetryAfter(ID, TOKEN, failure(), 1_000)),
    (Raised(failure("timeout")), RetryAfter(ID, TOKEN, failure("timeout"), 1_000)),
    (Raised(failure("cancelled")), RetryAfter(ID, TOKEN, failure("cancelled"), 1_000)),
    (Raised(failure("permanent")), Bury(ID, TOKEN, failure("permanent"))),
    (Raised(failure(), fatal=True), Bury(ID, TOKEN, failure())),
    (Raised(failure(), retry_after_ms=5_000), RetryAfter(ID, TOKEN, failure(), 5_000)),
    (Raised(failure(), retry_after_ms=5), RetryAfter(ID, TOKEN, failure(), 1_000)),
    (Raised(failure(), retry_after_ms=10**12), RetryAfter(ID, TOKEN, failure(), DAY_MS)),
    (LaterAsked(7, failure()), RetryAfter(ID, TOKEN, failure(), 7)),
    (SnoozeAsked(9, "later"), Snooze(ID, TOKEN, 9, "later")),
    (Suspended(9, ("sleep:a",)), Suspend(ID, TOKEN, 9, ("sleep:a",))),
    (Suspended(None, ("paid", "left")), Suspend(ID, TOKEN, None, ("paid", "left"))),
    (DeadAsked("bad address", failure("permanent")), Bury(ID, TOKEN, failure("permanent"))),
    (DeadAsked("bad"), Bury(ID, TOKEN, Failure("permanent", "limpet.Dead", "bad"))),
    (CancelAsked("why"), Drop(ID, TOKEN, "why")),
    (CancelledByRequest("ann"), Drop(ID, TOKEN, "ann")),
    (HandedBack(started=False), Release(ID, TOKEN, started=False)),
    (HandedBack(started=True), Release(ID, TOKEN, started=True)),
    (Crashed(proven=True, reason="SIGSEGV"), Lose(ID, TOKEN, proven=True, reason="SIGSEGV")),
    (Crashed(), Lose(ID, TOKEN)),
    (Unfit(failure("permanent"), "1a2b"), Refuse(ID, TOKEN, failure("permanent"), "1a2b")),
]


@pytest.mark.parametrize(("outcome", "transition"), DIRECT, ids=lambda value: type(value).__name__)
def test_each_outcome_has_its_transition(outcome: Outcome, transition: Transition) -> None:
    assert decided(job(), outcome) == transition


def test_every_kind_of_outcome_is_in_the_table_or_has_tests_of_its_own() -> None:
    assert {type(outcome) for outcome, _ in DIRECT} | {TimedOut, Limited} == set(get_args(Outcome))


def test_only_a_completed_handler_that_returned_waits_for_its_commit() -> None:
    assert [awaits_commit(decided(job(attempt), Completed())) for attempt in (1, 5)] == [True, True]
    assert not any(awaits_commit(decided(job(), outcome)) for outcome, _ in DIRECT if outcome != Completed())


@pytest.mark.parametrize(
    "outcome", [Raised(failure()), Completed(), LaterAsked(7, failure()), TimedOut(hard=True, after_ms=9)]
)
def test_the_last_attempt_is_the_last(outcome: Outcome) -> None:
    assert isinstance(decided(job(4), outcome), RetryAfter)
    assert isinstance(decided(job(5), outcome), Bury)
    assert isinstance(decided(job(1, policy=Policy(attempts=1)), outcome), Bury)


@pytest.mark.parametrize("retry", [Retry(attempts=3), Retry.of([0, 0]), Retry.of(None), Retry.of(lambda *_: 0.0)])
@pytest.mark.parametrize("attempt", [1, 2, 3, 99, 100])
def test_what_a_handler_is_told_of_its_last_attempt_is_what_is_decided(retry: Retry, attempt: int) -> None:
    claimed = job(attempt, policy=Policy(**retry.policy_fields()))
    for outcome in (Raised(failure()), Completed(), LaterAsked(7, failure()), TimedOut(hard=False, after_ms=9)):
        end = decided(claimed, outcome, retry_function=retry.function, error=ValueError())
        assert is_last(claimed) == isinstance(end, Bury)


@pytest.mark.parametrize("outcome", [SnoozeAsked(1), Limited(), HandedBack(), Crashed()])
def test_what_spends_no_attempt_is_not_stopped_by_attempts(outcome: Outcome) -> None:
    assert not isinstance(decided(job(99), outcome), Bury | RetryAfter)


def test_timeouts_say_how_long_and_keep_where_it_was() -> None:
    soft = decided(job(), TimedOut(hard=False, after_ms=30_000))
    assert isinstance(soft, RetryAfter)
    assert (soft.failure.kind, soft.failure.message) == ("timeout", "timed out after 30s")
    hard = decided(job(5), TimedOut(hard=True, after_ms=40_000))
    assert isinstance(hard, Bury)
    assert hard.failure.message == "hard timeout: no end after 40s"
    assert hard.failure.cause != soft.failure.cause
    known = decided(job(), TimedOut(hard=False, after_ms=1, failure=failure("transient")))
    assert isinstance(known, RetryAfter)
    assert known.failure == failure("timeout")


# -- functions


def test_a_function_says_how_long_or_stop() -> None:
    error = ValueError("x")
    asked: list[tuple[int, BaseException]] = []

    def function(attempt: int, why: BaseException) -> float | None:
        asked.append((attempt, why))
        return 2.5 if attempt < 3 else None

    again = decided(job(2), Raised(failure()), retry_function=function, error=error)
    assert again == RetryAfter(ID, TOKEN, failure(), 2_500)
    assert isinstance(decided(job(3), Raised(failure()), retry_function=function, error=error), Bury)
    assert asked == [(2, error), (3, error)]


@pytest.mark.parametrize("answer", [-1, float("nan"), float("inf"), "soon", [], RuntimeError("broken")])
def test_a_function_that_fails_itself_falls_back_to_the_policy(answer: Any) -> None:
    def function(attempt: int, error: BaseException) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert decided(job(), Raised(failure()), retry_function=function, error=ValueError()) == RetryAfter(
        ID, TOKEN, failure(), 1_000
    )


def test_a_function_is_not_asked_about_permanent_errors() -> None:
    def function(attempt: int, error: BaseException) -> float | None:
        raise AssertionError

    assert isinstance(decided(job(), Raised(failure("permanent")), retry_function=function, error=KeyError()), Bury)


# -- pushback

LIMITED = Lane("q", "email", limits=("smtp",), keys=("customer:acme",))


@pytest.mark.parametrize(
    ("lane", "key", "learns", "gate"),
    [
        (LIMITED, "openai", None, "limit:openai"),
        (LIMITED, "openai", "customer:acme", "limit:openai"),
        (LIMITED, None, "customer:acme", "limit:customer:acme"),
        (LIMITED, None, None, "limit:smtp"),
        (Lane("q", "email", keys=("customer:acme",)), None, None, "limit:customer:acme"),
        (Lane("q", "email"), None, None, "task:email"),
        (Lane("q", "ask", limits=("usd/day:llm", "openai", "tokens:openai")), None, None, "limit:openai"),
        (Lane("q", "ask", limits=("usd/day:llm",)), None, None, "task:ask"),
    ],
)
def test_pushback_holds_the_right_gate(lane: Lane, key: str | None, learns: str | None, gate: str) -> None:
    held = decided(job(lane=lane), Limited(1_000, key, "slow down"), learns=learns)
    assert isinstance(held, Hold)
    assert held.gate == gate
    assert held.reason == "slow down"


@given(st.integers(0, 99), st.integers(0, 2**32))
def test_pushback_without_a_time_waits_longer_each_time(held: int, seed: int) -> None:
    found = decide(job(held=held), Limited(), rng=random.Random(seed))
    assert isinstance(found, Hold)
    least = min(HOLD_CAP_MS, 1_000 * 2**held)
    assert least <= found.delay_ms <= least * 1.1


@given(st.integers(0, 10**9), st.integers(0, 2**32))
def test_a_named_time_is_kept_with_a_little_jitter_and_a_day_at_most(asked_ms: int, seed: int) -> None:
    found = decide(job(), Limited(asked_ms), rng=random.Random(seed))
    assert isinstance(found, Hold)
    least = min(asked_ms, DAY_MS)
    assert least <= found.delay_ms <= max(least + 1, min(least * 1.1, least + 10_000))


@pytest.mark.parametrize("asked_ms", [0, 5, 700, 30_000])
def test_a_job_that_is_refused_again_and_again_comes_back_ever_slower(asked_ms: int) -> None:
    waits = []
    for held in (0, 3, 7, 99):
        found = decided(job(held=held), Limited(asked_ms))
        assert isinstance(found, Hold)
        waits.append(found.delay_ms)
    for wait, least in zip(waits, (0, 80, 1_000, 1_000), strict=True):
        assert max(asked_ms, least) <= wait <= max(asked_ms, least) * 1.1 + 1


def test_workers_held_together_do_not_come_back_together() -> None:
    rng = random.Random(3)
    found = [decide(job(), Limited(10_000), rng=rng) for _ in range(50)]
    assert len({hold.delay_ms for hold in found if isinstance(hold, Hold)}) > 20


def test_a_function_may_ask_for_no_wait_at_all() -> None:
    found = decided(job(), Raised(failure()), retry_function=lambda attempt, error: 0, error=ValueError())
    assert found == RetryAfter(ID, TOKEN, failure(), 0)


def test_an_error_of_that_kind_is_pushback_too() -> None:
    found = decided(job(lane=LIMITED), Raised(failure("rate_limited"), retry_after_ms=500))
    assert isinstance(found, Hold)
    assert found.gate == "limit:smtp"


@pytest.mark.parametrize("limits", [LIMITED, Lane("q", "email")], ids=["limited", "unlimited"])
@pytest.mark.parametrize("asked_ms", [None, 5, 10**12])
def test_no_money_opens_the_gate_and_probes_in_ten_minutes(limits: Lane, asked_ms: int | None) -> None:
    gate = "limit:smtp" if limits is LIMITED else "task:email"
    why = "no money or quota left: You exceeded your current quota"
    expected = Hold(ID, TOKEN, gate, SPENT_PROBE_MS, why, trips=True)
    said = failure("spent", "You exceeded your current quota")
    assert decided(job(lane=limits), Limited(asked_ms, None, said.message, said, spent=True)) == expected
    assert decided(job(attempt=5, lane=limits), Raised(said, asked_ms)) == expected  # no attempt is spent


def test_no_money_holds_the_limit_that_learns_or_is_named() -> None:
    def gate(key: str | None, learns: str | None) -> str:
        found = decided(job(lane=LIMITED), Limited(None, key, spent=True), learns=learns)
        assert isinstance(found, Hold)
        assert "the provider gave no message" in found.reason
        return found.gate

    assert [gate(None, "openai"), gate("mine", "openai")] == ["limit:openai", "limit:mine"]


@pytest.mark.parametrize(
    "outcome", [Limited(1), SnoozeAsked(1, "not yet"), Raised(failure("rate_limited")), Raised(failure("spent"))]
)
@pytest.mark.parametrize(
    ("held", "since_ms", "buried"),
    [(0, None, False), (99, NOW_MS - DAY_MS + 1, False), (100, NOW_MS, True), (1, NOW_MS - DAY_MS, True)],
)
def test_who_is_put_off_too_often_or_too_long_is_buried(
    outcome: Outcome, held: int, since_ms: int | None, buried: bool
) -> None:
    found = decided(job(held=held, held_since_ms=since_ms), outcome)
    assert isinstance(found, Bury) is buried
    if isinstance(found, Bury):
        assert f"put off {held} times" in found.failure.message
        assert found.failure.cause


def test_a_buried_429_keeps_what_it_said() -> None:
    found = decided(job(held=100), Limited(1, None, "slow", failure("rate_limited", "slow")))
    assert isinstance(found, Bury)
    assert (found.failure.type, found.failure.traceback, found.failure.cause) == ("x.Boom", "trace", "cafe")
    assert found.failure.message.endswith(": slow")


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 2**32))
def test_a_failing_job_ends(attempts: int, start: int, seed: int) -> None:
    rng, policy = random.Random(seed), Policy(attempts=attempts)
    runs = start
    while isinstance(decide(job(runs, policy=policy), Raised(failure()), rng=rng), RetryAfter):
        runs += 1
    assert runs == max(attempts, start)


BAD = "caf\udce9\0"
TOLD = "caf\\udce9\\x00"


@pytest.mark.parametrize(
    ("outcome", "transition"),
    [
        (SnoozeAsked(5, BAD), Snooze(ID, TOKEN, 5, TOLD)),
        (CancelAsked(BAD), Drop(ID, TOKEN, TOLD)),
        (CancelledByRequest(BAD), Drop(ID, TOKEN, TOLD)),
        (DeadAsked(BAD), Bury(ID, TOKEN, Failure("permanent", "limpet.Dead", TOLD))),
        (Crashed(False, BAD), Lose(ID, TOKEN, False, TOLD)),
    ],
)
def test_every_text_can_be_stored(outcome: Outcome, transition: Transition) -> None:
    assert decided(job(), outcome) == transition


def test_a_key_and_a_message_of_a_429_can_be_stored() -> None:
    held = decided(job(), Limited(5, BAD, BAD))
    assert isinstance(held, Hold)
    assert (held.gate, held.reason) == (f"limit:{TOLD}", TOLD)
    buried = decided(job(held=100, held_since_ms=NOW_MS), SnoozeAsked(5, BAD))
    assert isinstance(buried, Bury)
    assert buried.failure.message.endswith(TOLD)


@pytest.mark.parametrize("wait", [10**30, 1e300, 2.0**80])
def test_no_wait_is_longer_than_ten_years(wait: Any) -> None:
    policy = Policy(jitter="none", max_held_ms=2**62)
    asked = [
        decided(job(policy=policy), Raised(failure()), retry_function=lambda attempt, error: wait, error=ValueError()),
        decided(job(policy=policy), LaterAsked(wait, failure())),
        decided(job(policy=policy), SnoozeAsked(wait)),
        decided(job(policy=policy), Limited(wait)),
    ]
    for transition in asked:
        assert isinstance(transition, RetryAfter | Snooze | Hold)
        assert LONGEST_WAIT_MS <= transition.delay_ms <= 1.1 * LONGEST_WAIT_MS + 1
        assert isinstance(transition.delay_ms, int)


def test_what_cannot_be_judged_or_written_is_buried_in_plain_words() -> None:
    class Trouble(Exception): ...

    Trouble.__name__ = "Troublé"
    judged = unjudgeable(job(), Trouble())
    written = unwritable(Snooze(ID, TOKEN, 5), Trouble())
    for buried, name in ((judged, "limpet.Unjudgeable"), (written, "limpet.Unwritable")):
        assert (buried.id, buried.token, buried.failure.kind, buried.failure.type) == (ID, TOKEN, "permanent", name)
        assert buried.failure.message.isascii()
        assert "Troubl\\xe9" in buried.failure.message
        assert buried.failure.cause
