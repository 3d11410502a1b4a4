"""Explanations: from the facts of a standing to the words an operator reads."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from limpet.core.endings.transition import ErrorKind
from limpet.core.gate import FOREVER_MS, BreakerRule, Gate, GateRule, Pause
from limpet.core.jobs.blocked_loop import FIELD, BlockedLoop, Blocker
from limpet.core.jobs.ids import IdMaker, id_text
from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.lease import Serves, SessionView
from limpet.core.jobs.state import State
from limpet.core.jobs.view import AttemptView, Inspection, JobView, Page
from limpet.core.records.explanation import Explanation
from limpet.ops.explain import explain

NOW = 1_700_000_000_000
ID, PARENT = IdMaker().make_many(2, NOW)
VIEW = JobView(
    id=ID,
    state=State.ready,
    lane=Lane("mail", "send", needs=("gpu", "eu")),
    policy=Policy(),
    args=b"{}",
    attempt=0,
    lost=0,
    enqueued_at_ms=NOW - 5_000,
    due_at_ms=NOW - 5_000,
)
STANDING = Inspection(VIEW, "active", (), 0, False, (), 1, 1, 1)


def session(**serves: tuple[str, ...]) -> SessionView:
    return SessionView("w1", Serves(**serves), b"{}", NOW, NOW, NOW + 15_000, True, 0)


def ask(
    standing: Inspection, *attempts: AttemptView, sessions: tuple[SessionView, ...] = (), urgent: Page | None = None
) -> Explanation:
    return explain(standing, now_ms=NOW, attempts=attempts, sessions=sessions, urgent=urgent)


def codes(found: Explanation) -> list[str]:
    return [reason.code for reason in found.reasons]


def attempt(outcome: str, kind: ErrorKind = "transient", message: str = "") -> AttemptView:
    return AttemptView(1, outcome, NOW - 100, NOW, "w1", kind, "X", message)


def gated(gate: Gate) -> Explanation:
    return ask(replace(STANDING, gates=(gate,), lane_state="waiting"))


# -- budgets


def budget(cost: int, spent: int = 0, reserved_for: int = 0) -> Explanation:
    rule = GateRule("limit:usd/day:llm:acme", unit="usd", cap=50_000_000, period="day")
    gate = Gate(rule, period_ms=1_699_920_000_000, spent=spent, reserved_for=reserved_for)
    view = replace(VIEW, costs={"usd": cost})
    return ask(replace(STANDING, view=view, gates=(gate,), lane_state="waiting"))


def test_a_job_that_waits_for_money_says_how_much_is_left_and_when_it_goes_on() -> None:
    found = budget(500_000, spent=49_600_000)
    assert codes(found) == ["budget", "position"]
    says = "the budget 'llm:acme' has $0.40 of $50 left today; this job needs $0.50; it continues in"
    assert found.reasons[0].text.startswith(says)
    assert found.reasons[0].until is not None
    assert found.reasons[0].until.isoformat() == "2023-11-15T00:00:00+00:00"
    assert found.reasons[0].data["left"] == 0.4
    assert codes(budget(400_000, spent=49_600_000)) == ["next"]


def test_a_job_behind_a_dearer_one_says_so() -> None:
    found = budget(100_000, spent=49_600_000, reserved_for=500_000)
    assert "$0.40 of $50 left today; a job that came first needs $0.50, and no other job passes it" in str(found)


def test_a_job_that_can_never_fit_says_so_even_before_it_is_due() -> None:
    found = budget(50_000_001)
    assert codes(found) == ["never_fits", "position"]
    assert "it needs $50.000001, and the budget 'llm:acme' is $50 a day: it never fits" in str(found)
    assert "cancel it, or raise the budget: limpet limits set llm:acme --budget usd=50.000001/day" in str(found)


def test_a_job_behind_one_that_can_never_fit_does_not_wait_for_the_end_of_the_period() -> None:
    found = budget(100_000, reserved_for=60_000_000)
    assert found.reasons[0].text == (
        "the budget 'llm:acme' is $50 a day, and a job that came first needs $60, more than all of it; no job passes "
        "it before it is cancelled and the budget reset (limpet breakers reset limit:usd/day:llm:acme), or the "
        "budget raised: limpet limits set llm:acme --budget usd=60/day"
    )
    assert found.reasons[0].until is None


def test_a_bucket_is_named_after_its_limit() -> None:
    rule = GateRule("limit:input_tokens:openai", interval_us=1_000_000, burst=10, unit="input_tokens")
    found = gated(Gate(rule, full_at_us=(NOW + 20_000) * 1000))
    assert "limit openai (input tokens) has no room; it frees in" in str(found)


def test_a_free_job_at_the_front_only_waits_for_a_slot() -> None:
    found = ask(STANDING)
    assert codes(found) == ["next"]
    assert id_text(ID) in str(found)
    assert str(found).endswith("is the next of its kind and starts when a worker that can run it has a free place.")


def worker(per_second: float = 0.0, **places: int) -> SessionView:
    """One that can run the job, and what its last beat said."""
    said = {"per_second": per_second, **({"places": {"job": places}} if places else {})}
    serves = Serves(("mail", "default"), ("send",), ("gpu", "eu"))
    return SessionView("w1", serves, msgspec.json.encode(said), NOW, NOW, NOW + 15_000, False, 0)


def test_full_workers_say_how_many_places_are_taken_and_kept() -> None:
    full = worker(places=2, reserve=1, ordinary=2)
    found = ask(STANDING, sessions=(full,))
    assert "all 2 places of the one worker that can run it are taken, and 1 more is kept for urgent jobs" in str(found)
    assert found.reasons[0].data["running"] == 2
    urgent = replace(STANDING, view=replace(VIEW, lane=replace(VIEW.lane, priority=0)))
    assert "starts when" in str(ask(urgent, sessions=(full,)))
    assert "all 4 places of the 2 workers" in str(ask(STANDING, sessions=(full, full)))
    for free in (worker(places=3, reserve=1, ordinary=2), worker()):
        assert "taken" not in str(ask(STANDING, sessions=(full, free)))
    alone = worker(places=1, ordinary=1)
    assert "the only place of the one worker that can run it is taken." in str(ask(STANDING, sessions=(alone,)))


def blocked(by: str | None) -> SessionView:
    """A worker that can run the job, whose loop had been blocked for 3 s when it beat 2 s ago."""
    now = Blocker(3_000, None if by is None else "pay", by)
    return replace(worker(), info=msgspec.json.encode({FIELD: BlockedLoop(now)}), beat_at_ms=NOW - 2_000)


def test_a_job_says_that_the_loops_of_all_workers_that_could_run_it_are_blocked() -> None:
    found = ask(STANDING, sessions=(blocked("018f"),))
    assert codes(found) == ["loop_blocked", "next"]
    text = "the loop of the one worker that can run it is blocked for 5s by job 018f of task pay"
    assert found.reasons[0].text == text
    both = ask(STANDING, sessions=(blocked("018f"), blocked(None)))
    assert both.reasons[0].text == "the loops of all 2 workers that can run it are blocked, for up to 5s, by pay"
    assert codes(ask(STANDING, sessions=(blocked("018f"), worker()))) == ["next"]
    assert codes(ask(STANDING, sessions=(blocked("018f"), session(tasks=("other",))))) == ["loop_blocked", "next"]


def test_a_running_job_says_that_it_or_another_one_blocks_the_loop_of_its_worker() -> None:
    view = replace(VIEW, state=State.running, session="w1", claimed_at_ms=NOW - 6_000, attempt=1)
    found = ask(replace(STANDING, view=view), sessions=(blocked(id_text(ID)),))
    assert codes(found) == ["running", "loop_blocked"]
    assert found.reasons[1].text.startswith(
        "it blocks the loop of its worker for 5s, and no other job runs there: await"
    )
    other = ask(replace(STANDING, view=view), sessions=(blocked("018f"),))
    assert other.reasons[1].text.startswith("job 018f of task pay blocks the loop of its worker")


def test_threads_and_job_processes_are_places_too() -> None:
    said = {"job": {"places": 100, "ordinary": 4}, "thread": {"places": 4, "reserve": 1, "ordinary": 4}}
    busy = replace(worker(), info=msgspec.json.encode({"places": said}))
    assert "starts when" in str(explain(STANDING, now_ms=NOW, sessions=(busy,), executor="async"))
    found = explain(STANDING, now_ms=NOW, sessions=(busy,), executor="thread")
    words = "all 4 threads of the one worker that can run it are taken, and 1 more is kept for urgent jobs"
    assert words in str(found)
    assert (found.reasons[0].data["kind"], found.reasons[0].data["places"]) == ("threads", 4)
    said = {"job": {"places": 100}, "process": {"places": 1, "ordinary": 1}}
    busy = replace(busy, info=msgspec.json.encode({"places": said}))
    found = explain(STANDING, now_ms=NOW, sessions=(busy,), executor="process")
    assert "the only job process of the one worker that can run it is taken" in str(found)


def test_workers_that_are_full_each_in_a_way_of_its_own_are_full() -> None:
    slots = {"job": {"places": 2, "ordinary": 2}, "thread": {"places": 4}}
    threads = {"job": {"places": 2}, "thread": {"places": 4, "ordinary": 4}}
    busy = [replace(worker(), info=msgspec.json.encode({"places": said})) for said in (slots, threads)]
    found = explain(STANDING, now_ms=NOW, sessions=busy, executor="thread")
    assert str(found).endswith("it is the next of its kind; every worker that can run it is full.")


def test_without_a_worker_all_that_is_more_urgent_goes_first() -> None:
    other = replace(VIEW, lane=Lane("default", "other", priority=0))
    assert "1 job is more urgent" in str(ask(STANDING, urgent=Page((other,))))


def test_more_urgent_jobs_that_the_same_workers_run_go_first() -> None:
    lane = Lane("default", "send", priority=0)
    others = [replace(VIEW, lane=each) for each in (lane, lane, replace(lane, task="unknown here"))]
    found = ask(replace(STANDING, ahead=3), sessions=(worker(per_second=0.5),), urgent=Page(tuple(others)))
    assert codes(found) == ["position"]
    assert "2 jobs are more urgent and 3 jobs like it are ahead of it; that takes about 12s" in str(found)
    data = found.reasons[0].data
    assert (data["more_urgent"], data["ahead"], data["estimate_seconds"]) == (2, 3, 12)
    assert "1 or more job is more urgent" in str(ask(STANDING, sessions=(worker(),), urgent=Page((others[0],), "more")))


def test_a_position_is_counted() -> None:
    found = ask(replace(STANDING, ahead=1000, ahead_capped=True))
    assert found.reasons[0].data["ahead"] == 1000
    assert "1,000 or more jobs like it are ahead" in str(found)


def test_a_blocked_job_names_its_parents_and_their_states() -> None:
    view = replace(VIEW, state=State.blocked)
    found = ask(replace(STANDING, view=view, parents=((PARENT, State.running),)))
    assert codes(found) == ["parent"]
    assert f"waits for parent {id_text(PARENT)} (running)" in str(found)
    waits = ask(replace(STANDING, view=view, parents=((PARENT, State.dead),)))
    assert codes(waits) == ["parent_failed"]


def test_of_very_many_parents_it_is_said_how_many_and_the_failed_ones_come_first() -> None:
    ids = IdMaker().make_many(1_000, NOW)
    parents = tuple((id, State.dead if n == 500 else State.ready) for n, id in enumerate(ids))
    found = ask(replace(STANDING, view=replace(VIEW, state=State.blocked), parents=parents))
    assert found.reasons[0].text == "it waits for 1,000 parents (1 dead, 999 ready)"
    assert codes(found)[:3] == ["parents", "parent_failed", "parent"]
    assert id_text(ids[500]) in found.reasons[1].text
    assert len(found.reasons) < 15


def test_a_scheduled_job_says_until_when() -> None:
    found = ask(replace(STANDING, view=replace(VIEW, state=State.scheduled, due_at_ms=NOW + 90_000)))
    assert codes(found) == ["scheduled"]
    assert "in 1m30s" in str(found)
    until = found.reasons[0].until
    assert until is not None
    assert round(until.timestamp() * 1000) == NOW + 90_000


def test_a_retry_wait_says_what_failed() -> None:
    view = replace(
        VIEW, state=State.scheduled, due_at_ms=NOW + 4_000, attempt=2, error_type="TimeoutError", reason="no answer"
    )
    found = ask(replace(STANDING, view=view), attempt("retried"))
    assert codes(found) == ["retry"]
    assert "attempt 2 of 5 failed (TimeoutError: no answer)" in str(found)


def test_a_snooze_says_why() -> None:
    view = replace(VIEW, state=State.scheduled, due_at_ms=NOW + 4_000, held=1)
    found = ask(replace(STANDING, view=view), attempt("snoozed", message="not yet open"))
    assert codes(found) == ["snoozed"]
    assert "not yet open" in str(found)


def test_a_pause_says_who_and_why() -> None:
    pause = Pause("ada", "provider is down", NOW - 60_000)
    for key, code in (("all", "all_paused"), ("queue:mail", "queue_paused"), ("task:send", "task_paused")):
        found = gated(Gate(GateRule(key), paused=pause))
        assert codes(found)[0] == code
        assert "paused by ada 1m ago because: provider is down" in str(found)


def test_a_pause_is_also_said_of_a_job_that_is_not_due_yet() -> None:
    gate = Gate(GateRule("queue:mail", concurrency=1), used=1, paused=Pause("ada", "", NOW))
    view = replace(VIEW, state=State.scheduled, due_at_ms=NOW + 4_000)
    assert codes(ask(replace(STANDING, view=view, gates=(gate,)))) == ["scheduled", "queue_paused"]


def test_what_outlasts_the_wait_of_a_retry_is_said_too() -> None:
    rule = GateRule("breaker:send", breaker=BreakerRule())
    view = replace(VIEW, state=State.scheduled, due_at_ms=NOW + 30_000, attempt=1, error_type="X", reason="no")
    for open_until_ms, shut in ((NOW + 60_000, True), (FOREVER_MS, True), (NOW + 20_000, False)):
        found = ask(replace(STANDING, view=view, gates=(Gate(rule, open_until_ms=open_until_ms),)))
        assert codes(found) == ["retry", *["breaker_open"] * shut]
        assert "the next one is due in 30s" in str(found)
    held = Gate(GateRule("limit:smtp"), held_until_ms=NOW + 60_000)
    assert codes(ask(replace(STANDING, view=view, gates=(held,)))) == ["retry", "held"]


def test_a_rate_says_when_it_frees() -> None:
    gate = Gate(GateRule("limit:smtp", interval_us=6_000_000), full_at_us=(NOW + 12_000) * 1000)
    found = gated(gate)
    assert codes(found) == ["rate", "position"]
    assert "limit smtp has no room; it frees in 12s" in str(found)


def test_slots_are_counted() -> None:
    found = gated(Gate(GateRule("limit:smtp", concurrency=3), used=3))
    assert "limit smtp has 3 of 3 slots taken" in str(found)
    assert found.reasons[0].until is None


def test_a_hold_says_until_when() -> None:
    assert "opens in 30s" in str(gated(Gate(GateRule("limit:openai"), held_until_ms=NOW + 30_000)))


def test_a_key_that_begins_slowly_says_so() -> None:
    gate = Gate(GateRule("task:send"), used=2, pace=0, paced_at_ms=NOW - 1_000)
    found = gated(gate)
    assert codes(found) == ["slow", "position"]
    assert "task send starts slowly after it was held back: 2 run, and one more may in 500ms" in str(found)
    assert found.reasons[0].until is not None
    assert codes(gated(replace(gate, paced_at_ms=NOW - 10_000))) == ["next"]


def test_a_breaker_is_open_half_open_or_probing() -> None:
    gate = Gate(GateRule("breaker:api", breaker=BreakerRule()), open_until_ms=NOW + 30_000)
    assert "breaker api is open; one job is let through as a probe in 30s" in str(gated(gate))
    assert codes(gated(replace(gate, open_until_ms=NOW - 1))) == ["breaker_half_open", "position"]
    assert codes(gated(replace(gate, open_until_ms=NOW - 1, probe_token=7)))[0] == "breaker_probe"
    assert "until it is reset" in str(gated(replace(gate, open_until_ms=FOREVER_MS)))


def test_nobody_to_run_it() -> None:
    nobody = replace(STANDING, able=0, able_without_needs=0, knows_task=0)
    assert "no worker is alive" in str(ask(nobody))
    assert codes(ask(nobody))[0] == "no_workers"
    strangers = ask(nobody, sessions=(session(tasks=("other",)),))
    assert "no live worker knows task send" in str(strangers)
    assert codes(strangers)[0] == "unknown_task"
    elsewhere = replace(nobody, knows_task=1)
    assert "serves queue mail" in str(ask(elsewhere, sessions=(session(tasks=("send",), queues=("pdf",)),)))
    weak = replace(elsewhere, able_without_needs=1)
    found = ask(weak, sessions=(session(capabilities=("eu",)),))
    assert found.reasons[0].data["missing"] == ["gpu"]
    assert "no live worker has capability gpu" in str(found)


def test_a_job_that_was_given_up_says_what_it_keeps() -> None:
    policy = replace(VIEW.policy, hard_timeout_ms=10_000)
    view = replace(VIEW, state=State.running, session="web-1:77", claimed_at_ms=NOW - 11_000, policy=policy)
    found = ask(replace(STANDING, view=view), sessions=(replace(session(), session="web-1:77"),))
    assert codes(found) == ["running", "given_up"]
    assert "keeps its slots" in str(found)


def test_a_running_job_says_where_and_since_when() -> None:
    view = replace(
        VIEW, state=State.running, session="web-1:77", claimed_at_ms=NOW - 3_000, attempt=1, cancel_requested=True
    )
    found = ask(replace(STANDING, view=view), sessions=(replace(session(), session="web-1:77"),))
    assert codes(found) == ["running", "cancelling"]
    assert "runs on web-1:77" in str(found)


def test_a_job_whose_worker_has_gone_silent_does_not_run() -> None:
    view = replace(VIEW, state=State.running, session="web-1:77", claimed_at_ms=NOW - 21_000, attempt=1)
    found = ask(replace(STANDING, view=view))
    assert codes(found) == ["worker_lost"]
    assert "its worker web-1:77, which started it 21s ago" in str(found)
    assert "it runs again once a worker is alive" in str(found)
    assert "a live worker takes it back" in str(ask(replace(STANDING, view=view), sessions=(session(),)))


def test_finished_jobs_say_what_became_of_them() -> None:
    done = replace(VIEW, finished_at_ms=NOW, attempt=1)
    assert codes(ask(replace(STANDING, view=replace(done, state=State.succeeded)))) == ["succeeded"]
    cancelled = replace(done, state=State.cancelled, reason="expired")
    assert "expired" in str(ask(replace(STANDING, view=cancelled)))
    dead = replace(done, state=State.dead, reason="bad address", error_type="ValueError", cause="abc")
    found = ask(replace(STANDING, view=dead), attempt("dead", "permanent"))
    assert found.reasons[0].data["cause"] == "abc"
    assert "permanent error" in str(found)
    assert "ValueError: bad address" in str(found)


def test_an_expiry_is_foretold() -> None:
    view = replace(VIEW, expires_at_ms=NOW + 5_000)
    assert codes(ask(replace(STANDING, view=view))) == ["next", "expires"]
