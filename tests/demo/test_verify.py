"""Every promise of the demo has a number that turns wrong when the promise is broken."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from limpet.cli.demo.folder import Folder
from limpet.cli.demo.ledger import Ledger
from limpet.cli.demo.plan import GREEDY, Plan
from limpet.cli.demo.report import words
from limpet.cli.demo.verify import Facts, verify
from limpet.core.gate import Gate, GateRule
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Counts, JobView

PLAN = Plan(seed=1, scale=0.01, made_at_ms=1_800_000_000_000)
OPENED, CLOSED = {"at_ms": PLAN.made_at_ms + 2_000, "kind": "breaker.opened"}, {"kind": "breaker.closed"}
NOTES: list[dict[str, Any]] = [
    OPENED,
    {"at_ms": PLAN.made_at_ms + 5_000, **CLOSED},
    {"at_ms": PLAN.made_at_ms + 9_000, "kind": "review.began", "dead": 14},
]


def good() -> Facts:
    """What a demo looks like that kept every promise."""
    views: dict[str, JobView | None] = {}
    now: dict[tuple[str, str, State], int] = {}
    for wanted in PLAN.jobs:
        if wanted.fate == "discarded":
            views[wanted.id] = None
            continue
        state = State.dead if wanted.fate == "left" else State.succeeded
        wait_ms = 900 if wanted.args.get("tenant") == GREEDY else 10
        views[wanted.id] = JobView(
            id=id_bytes(wanted.id),
            state=state,
            lane=Lane(queue="q", task=wanted.task, priority=5),
            policy=Policy(),
            args=b"{}",
            attempt=1,
            lost=0,
            enqueued_at_ms=PLAN.made_at_ms,
            due_at_ms=PLAN.made_at_ms,
            claimed_at_ms=PLAN.made_at_ms + wait_ms,
        )
        now["q", wanted.task, state] = now.get(("q", wanted.task, state), 0) + 1
    ended = [id for id, view in views.items() if view is not None and view.state is State.succeeded]
    return Facts(
        counts=Counts(now, len(PLAN.jobs), len(ended), 0, 2, 5, 0),
        views=views,
        effects=ended,
        runs=[(id, 1) for id in ended],
        breaker=Gate(GateRule("breaker:provider"), opened=1),
        notes=NOTES,
    )


def first_email(facts: Facts, **changed: Any) -> dict[str, JobView | None]:
    wanted = next(wanted for wanted in PLAN.emails if wanted.fate == "succeeds")
    view = facts.views[wanted.id]
    assert view is not None
    return {**facts.views, wanted.id: replace(view, **changed)}


def test_a_demo_that_kept_every_promise_has_no_wrong_number() -> None:
    summary = verify(PLAN, good())
    assert summary.wrong == []
    assert (summary.jobs.lost, summary.effects.duplicated, summary.dead_letters.before) == (0, 0, 14)
    assert "0 lost, 0 duplicated" in words(summary)


@pytest.mark.parametrize(
    ("broken", "wrong"),
    [
        (lambda f: replace(f, effects=f.effects[1:]), "effects lost: 1, should be 0"),
        (lambda f: replace(f, effects=[*f.effects, f.effects[0]]), "effects duplicated: 1, should be 0"),
        (lambda f: replace(f, effects=[*f.effects, "x"]), "effects of jobs that did not succeed: 1, should be 0"),
        (lambda f: replace(f, runs=[*f.runs, f.runs[0]]), "leases that ran a job twice: 1, should be 0"),
        (lambda f: replace(f, counts=replace(f.counts, enqueued=1)), "jobs enqueued: 1, should be"),
        (lambda f: replace(f, counts=replace(f.counts, discarded=1)), "jobs lost: 1, should be 0"),
        (lambda f: replace(f, counts=replace(f.counts, cancelled=3)), "jobs cancelled: 3, should be 0"),
        (lambda f: replace(f, views=first_email(f, attempt=2)), "attempts spent by deployments and kills: 1"),
        (lambda f: replace(f, views=first_email(f, state=State.dead)), "jobs that ended otherwise than planned: 1"),
        (lambda f: replace(f, notes=NOTES[:2]), "dead letters before the review: 0, should be 14"),
        (lambda f: replace(f, notes=NOTES[2:]), "breaker openings: 0, should be at least 1"),
        (lambda f: replace(f, notes=[OPENED, *NOTES[2:]]), "breaker: open, should be closed"),
        (lambda f: replace(f, leaked=1), "slots of limits that were not given back: 1, should be 0"),
    ],
)
def test_a_broken_promise_is_named(broken: Callable[[Facts], Facts], wrong: str) -> None:
    summary = verify(PLAN, broken(good()))
    assert not summary.ok
    assert any(line.startswith(wrong) for line in summary.wrong), summary.wrong


@pytest.mark.parametrize("lost", [0, 1])
def test_waits_tell_the_order_of_work_but_not_of_what_a_killed_worker_ran(lost: int) -> None:
    facts = good()
    id = next(wanted.id for wanted in PLAN.rows if wanted.args["tenant"] != GREEDY)
    view = facts.views[id]
    assert view is not None
    late = replace(view, claimed_at_ms=PLAN.made_at_ms + 20_000, lost=lost)
    said = verify(PLAN, replace(facts, views={**facts.views, id: late})).wrong
    assert [line.partition(":")[0] for line in said] == ([] if lost else ["wait of small tenants' rows"])


def test_a_second_run_of_a_job_has_no_second_effect(tmp_path: Path) -> None:
    with Ledger(tmp_path / "effects.db", create=True) as ledger:
        assert ledger.record("job", 1, "task") is True
        assert ledger.record("job", 2, "task") is False
        assert (ledger.effects(), ledger.runs()) == (["job"], [("job", 1), ("job", 2)])


def test_the_same_plan_has_the_same_jobs_in_growing_order() -> None:
    again = msgspec.json.decode(msgspec.json.encode(PLAN), type=Plan)
    assert again.jobs == PLAN.jobs
    ids = [wanted.id for wanted in PLAN.rows]
    assert ids == sorted(ids)
    assert len({wanted.id for wanted in PLAN.jobs}) == len(PLAN.jobs)
    assert Plan(2, 0.01, PLAN.made_at_ms).rows[0].id != ids[0]


def test_a_new_demo_forgets_the_last_one(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.begin(PLAN)
    folder.note("finished")
    shutil.copy(__file__, tmp_path / "jobs.db")
    folder.begin(replace(PLAN, seed=2))
    assert folder.plan() == replace(PLAN, seed=2)
    assert folder.notes() == []
    assert not (tmp_path / "jobs.db").exists()
