"""A small model of a store: what each job should be, and whether what a store handed out was allowed.

It has no lanes, turns or wait lists, and does not foresee which job a claim gives; it judges the answer.
A job has at most one parent here, so the parent that cancelled a job is always known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from limpet.core.endings.transition import (
    Bury,
    Drop,
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
from limpet.core.gate import FOREVER_MS
from limpet.core.jobs.job import Job
from limpet.core.jobs.lease import Claimed, ClaimRequest, Note, Signal
from limpet.core.jobs.state import FINISHED, LIVE, State
from limpet.core.jobs.view import JobView
from limpet_contract.ledger import Ledger
from limpet_contract.model_job import ModelJob

NOTHING_SAID: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass
class Model:
    """All jobs, and the few totals that are never forgotten."""

    ledger: Ledger = field(default_factory=Ledger)
    jobs: dict[bytes, ModelJob] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)  # names of queues
    enqueued: int = 0
    discarded: int = 0
    lost: int = 0
    stale: int = 0
    # Every end: the job, its state, the token of its lease (0: it waited), and when.
    ends: set[tuple[bytes, State, int, int]] = field(default_factory=set)

    # -- producing

    def enqueue(self, job: Job, now_ms: int) -> tuple[bytes, bool]:
        """The id that a store should answer, and whether that job was there before."""
        if job.id in self.jobs:
            return job.id, True
        key = job.unique.key if job.unique else None
        if key is not None and (holder := self._holder(job.lane.task_scope, key)) is not None:
            return holder.id, True
        due_at_ms = now_ms + job.delay_ms
        entry = ModelJob(job.id, job.lane, _waiting(due_at_ms, now_ms), due_at_ms, job.policy.max_lost, key)
        entry.expires_at_ms = None if job.expires_ms is None else now_ms + job.expires_ms
        entry.flow = job.flow
        entry.costs = {"": job.cost, **job.costs}
        if job.after:
            entry.parent, entry.if_parent_fails = job.after[0], job.if_parent_fails
            self._meet_parent(entry, now_ms)
        self.jobs[job.id] = entry
        self.enqueued += 1
        return job.id, False

    def _holder(self, scope: str, key: str) -> ModelJob | None:
        holders = (job for job in self.jobs.values() if job.unique == key and job.lane.task_scope == scope)
        return next((job for job in holders if job.state in LIVE), None)

    def _meet_parent(self, job: ModelJob, now_ms: int) -> None:
        """Where a job stands that has just been enqueued, or whose parent has just ended."""
        parent = self.jobs[job.parent] if job.parent is not None else None
        if parent is None or parent.state is State.succeeded:
            job.state = _waiting(job.due_at_ms, now_ms)
        elif parent.state not in FINISHED or job.if_parent_fails == "wait":
            job.state = State.blocked
        elif job.if_parent_fails == "run":
            job.state = _waiting(job.due_at_ms, now_ms)
        else:
            job.felled_by = parent.id if parent.state is State.dead else parent.felled_by
            self._end(job, State.cancelled, now_ms)

    # -- working

    def eligible(self, job: ModelJob, request: ClaimRequest, now_ms: int) -> bool:
        """May this job be given to that worker now, as far as gates and abilities go?"""
        return self._able(job, request, now_ms) and self.ledger.admits(job, now_ms)

    def _able(self, job: ModelJob, request: ClaimRequest, now_ms: int) -> bool:
        """The same, whatever its limits say."""
        lane = job.lane
        waits = job.state is State.ready or (job.state is State.scheduled and job.due_at_ms <= now_ms)
        return (
            waits
            and not job.overdue(now_ms)
            and (
                lane.priority <= request.options.least_urgent
                or (request.options.aged > 0 and lane.priority >= request.options.most_urgent)
            )
            and lane.queue not in self.paused
            and (not request.options.needing or request.options.needing in lane.needs)
            and request.serves.can(lane.queue, lane.task, lane.needs)
        )

    def _timed(self, job: ModelJob) -> bool:
        """Ruled by a rate or a breaker: whether it may run is told by time, which the model does not foresee."""
        return job.lane.breaker is not None or self.ledger.is_rated(job)

    def claimed(
        self,
        given: list[Claimed],
        request: ClaimRequest,
        before: Mapping[bytes, JobView],
        *,
        wants: tuple[Mapping[str, int], Mapping[str, int]],
        all_given: bool,
        now_ms: int,
    ) -> None:
        """Check that what was given was allowed, and that nothing better was left behind.

        `wants`: by budget, the cost that a job waits for by the store's word, before the claim and after it.
        """
        assert len(given) <= request.limit
        lines = self._lines(before, now_ms)
        shut = self.ledger.awaited(wants[0], now_ms)
        urgent = sum(1 for claimed in given if claimed.lane.limited or claimed.lost)
        assert urgent <= request.slots, "more were given that must start at once than there are slots"
        no_slot = urgent == request.slots
        for claimed in given:
            job = self.jobs[claimed.id]
            assert self.eligible(job, request, now_ms), f"{job} was given though it may not run"
            assert shut.isdisjoint(job.gates), f"{job} was given although another job came first"
            line = lines.get(job.lane.id, [])
            if job.id in line:
                ahead = line[: line.index(job.id)]
                assert no_slot or not ahead, "a job was given before one that stood ahead of it in its lane"
                assert all(self.jobs[id].lost for id in ahead), "only a suspect that finds no slot may be passed over"
                line.remove(job.id)
            else:
                assert before[job.id].state is State.blocked, "a job was given that had not waited"
            job.state, job.token, job.session = State.running, claimed.token, request.session
            job.attempt += 1
            job.claimed_at_ms = now_ms
            self.ledger.start(job, probe=claimed.probe, now_ms=now_ms)
            assert (claimed.attempt, claimed.lost, claimed.held) == (job.attempt, job.lost, job.held)
            assert job.has(claimed.notes), f"{claimed.notes} were handed out for {job}"
            assert not job.cancel_requested
        heads = [self.jobs[line[0]] for line in lines.values() if line]
        heads = [job for job in heads if not self._timed(job) and (not no_slot or not job.must_start)]
        heads = [job for job in heads if self._able(job, request, now_ms) and self.ledger.has_room(job, now_ms)]
        self._somebody_waits(given, wants, lines)
        shut = self.ledger.awaited(wants[1], now_ms)
        self._nothing_better(given, request, heads, shut, all_given=all_given, now_ms=now_ms)
        if all_given and len(given) < request.limit:
            by_priority = [job for job in heads if job.lane.priority <= request.options.least_urgent]
            self._nobody_passes(by_priority, shut, now_ms)

    def handed(self, id: bytes, token: int, request: ClaimRequest, now_ms: int) -> None:
        """The step that stored this job has claimed it for a session that slept: check that this was allowed."""
        job = self.jobs[id]
        assert self.eligible(job, request, now_ms), f"{job} was handed though it may not run"
        plain = not job.lane.limited and job.unique is None and job.parent is None
        assert plain, f"{job} was handed though it is not plain"
        others = [other for other in self.jobs.values() if other is not job and self._able(other, request, now_ms)]
        certain = [other for other in others if not self._timed(other) and not self.ledger.is_budgeted(other)]
        passed = [other for other in certain if self.ledger.has_room(other, now_ms)]
        assert not passed, f"{job} was handed past {passed[0]}"
        got = [
            other for other in self.jobs.values() if (other.session, other.handed_in) == (request.session, request.seq)
        ]
        assert len(got) < request.takes.of(job.lane.priority), "more were handed than the session has places"
        job.state, job.token, job.session, job.handed_in = State.running, token, request.session, request.seq
        job.attempt, job.claimed_at_ms = 1, now_ms
        self.ledger.start(job, probe=False, now_ms=now_ms)

    def _lines(self, before: Mapping[bytes, JobView], now_ms: int) -> dict[int, list[bytes]]:
        """The waiting jobs of each lane in the order of (due, id), as the store's own views tell it."""
        lines: dict[int, list[bytes]] = {}
        for view in sorted(before.values(), key=lambda view: (view.due_at_ms, view.id)):
            expired = view.expires_at_ms is not None and view.expires_at_ms <= now_ms
            if view.state in (State.ready, State.scheduled) and not expired:
                lines.setdefault(view.lane.id, []).append(view.id)
        return lines

    def _nothing_better(
        self,
        given: list[Claimed],
        request: ClaimRequest,
        heads: Sequence[ModelJob],
        shut: set[str],
        *,
        all_given: bool,
        now_ms: int,
    ) -> None:
        """Of what could have been given, nothing is left that is better, nor anything at all when there was room."""
        passable = [job for job in heads if shut.isdisjoint(job.gates)]
        left = [job for job in passable if not self.ledger.too_dear_for(job, now_ms)]
        aged = _aged(given, request)
        others = [job for job in given if job not in aged]
        assert all(job.lane.priority <= request.options.least_urgent for job in others)
        strict = [job for job in left if job.lane.priority <= request.options.least_urgent]
        passing = [job for job in left if job.lane.priority >= request.options.most_urgent]
        for jobs, waiting, limit in (
            (others, strict, request.limit - len(aged)),
            (aged, passing, request.options.aged),
        ):
            best = min((job.lane.priority for job in waiting), default=None)
            if best is not None:
                worst = max((job.lane.priority for job in jobs), default=0)
                assert worst <= best, f"priority {worst} was given while priority {best} waits"
                assert len(jobs) >= min(limit, request.limit) or not all_given, f"{waiting[0]} was left behind"

    def _somebody_waits(
        self,
        given: Sequence[Claimed],
        wants: tuple[Mapping[str, int], Mapping[str, int]],
        lines: Mapping[int, Sequence[bytes]],
    ) -> None:
        """What is newly wanted of a budget is the cost of a job that stands first in its lane and was not served."""
        served = {key for claimed in given for key in self.jobs[claimed.id].gates}
        waiting = [job for line in lines.values() for job in _front([self.jobs[id] for id in line])]
        for key, wanted in wants[1].items():
            if key in served or wants[0].get(key) != wanted:
                unit = self.ledger.rules[key].unit
                costs = {max(1, job.cost_in(unit)) for job in waiting if key in job.gates}
                assert wanted in costs, f"{wanted} is wanted of {key}, and the waiting jobs cost {costs}"

    def _nobody_passes(self, heads: Sequence[ModelJob], shut: set[str], now_ms: int) -> None:
        """A job that only a budget stops has shut that budget, so that smaller jobs cannot pass it for ever."""
        for job in heads:
            budgets = self.ledger.too_dear_for(job, now_ms)
            used_up = [key for key in budgets if self.ledger.left(key, now_ms) <= 0]
            assert not budgets or used_up or not shut.isdisjoint(job.gates), f"{job} can be passed"

    def settle(self, transition: Transition, now_ms: int, said: Mapping[str, int] = NOTHING_SAID) -> str:
        """Apply a transition as a store should; the answer it should give. `said`: what the job says it cost."""
        job = self.jobs.get(transition.id)
        if job is None:
            return "gone"
        if not job.token or job.token != transition.token:
            self.stale += 1
            return "stale"
        if isinstance(transition, Lose):
            self.lost += 1
        if isinstance(transition, Hold):
            self.ledger.shut(job, transition, now_ms)
        self.ledger.end(job, transition, said, now_ms)
        if job.cancel_requested and not isinstance(transition, Succeed):
            job.attempt, job.lost = _spent(job, transition)
            self._end(job, State.cancelled, now_ms)
            return "done"
        self._apply(job, transition, now_ms)
        return "done"

    def _apply(self, job: ModelJob, transition: Transition, now_ms: int) -> None:
        job.attempt, job.lost = _spent(job, transition)
        if isinstance(transition, Refuse | Bury) and transition.lane is not None:
            job.lane = transition.lane
        if not isinstance(transition, Refuse) and (not isinstance(transition, Release) or transition.started):
            job.expires_at_ms = None  # it was started in time
        if isinstance(transition, Snooze | Hold):
            job.held += 1
        elif isinstance(transition, Suspend):
            job.held = 0
        if isinstance(transition, Succeed):
            self._end(job, State.succeeded, now_ms)
        elif isinstance(transition, Bury):
            self._end(job, State.dead, now_ms)
        elif isinstance(transition, Drop):
            self._end(job, State.cancelled, now_ms)
        elif isinstance(transition, Lose) and (transition.proven or job.lost >= job.max_lost):
            self._end(job, State.dead, now_ms)
        elif isinstance(transition, RetryAfter | Snooze) or (
            isinstance(transition, Hold) and transition.gate not in (*job.lane.class_gates, *job.lane.lane_gates)
        ):
            self._wait(job, now_ms + transition.delay_ms, now_ms)
        elif isinstance(transition, Suspend):
            self._suspend(job, transition, now_ms)
        else:
            self._wait(job, job.due_at_ms, now_ms)

    def _wait(self, job: ModelJob, due_at_ms: int, now_ms: int) -> None:
        job.token, job.session = 0, ""
        job.due_at_ms = due_at_ms
        job.state = _waiting(due_at_ms, now_ms)

    def _suspend(self, job: ModelJob, transition: Suspend, now_ms: int) -> None:
        due_at_ms = FOREVER_MS if transition.delay_ms is None else now_ms + transition.delay_ms
        job.waits_no_more()
        if any(("event", event) in job.notes for event in transition.events):
            due_at_ms = now_ms
        else:
            job.notes |= {("waiting", event): b"%d" % due_at_ms for event in transition.events}
        self._wait(job, due_at_ms, now_ms)

    def save(self, id: bytes, token: int, note: Note) -> bool:
        """Whether a store should take a note from this holder."""
        job = self.jobs.get(id)
        if job is None or job.token != token:
            self.stale += 1
            return False
        job.notes[note.kind, note.name] = note.body
        return True

    def _end(self, job: ModelJob, state: State, now_ms: int) -> None:
        self.ends.add((job.id, state, job.token, now_ms))
        job.token, job.session, job.state = 0, "", state
        for child in self.jobs.values():
            if child.parent == job.id and child.state is State.blocked:
                self._meet_parent(child, now_ms)

    # -- people

    def cancel(self, id: bytes, *, force: bool, now_ms: int) -> str:
        """The answer a store should give to a request to cancel."""
        job = self.jobs.get(id)
        if job is None:
            return "gone"
        if job.state in FINISHED:
            return "finished"
        if job.state is State.running and not force:
            job.cancel_requested = True
            for child in self.jobs.values():
                if child.parent == id and child.state is State.blocked and child.if_parent_fails == "cancel":
                    self._end(child, State.cancelled, now_ms)
            return "cancelling"
        if job.token:
            self.ledger.end(job, Drop(id, job.token, ""), NOTHING_SAID, now_ms, forced=True)
        self._end(job, State.cancelled, now_ms)
        return "cancelled"

    def signal(self, signal: Signal, now_ms: int) -> str:
        """The answer a store should give to an event for one job."""
        job = self.jobs.get(signal.id)
        if job is None:
            return "gone"
        if job.state in FINISHED:
            return "finished"
        if ("event", signal.event) in job.notes:
            return "already"
        if job.takes_no_more(signal.value):
            return "full"
        job.notes["event", signal.event] = signal.value
        if not job.waits_for(signal.event):
            return "kept"
        job.waits_no_more()
        self._wait(job, now_ms, now_ms)
        return "woken"

    def retry(self, id: bytes, forget: tuple[str, ...], now_ms: int) -> str:
        """The answer a store should give to a person who retries one job."""
        job = self.jobs.get(id)
        if job is None:
            return "gone"
        if job.state is State.scheduled and job.due_at_ms > now_ms:
            self._run_now(job, forget, now_ms)
            return "retried"
        if job.state is not State.dead:
            return "not_dead"
        if job.unique is not None and self._holder(job.lane.task_scope, job.unique) is not None:
            return "unique_held"
        job.attempt = job.lost = job.held = 0
        job.expires_at_ms = None
        self._run_now(job, forget, now_ms)
        for other in self.jobs.values():
            if other.felled_by == id and other.state is State.cancelled:
                other.state, other.felled_by = State.blocked, None
        return "retried"

    def _run_now(self, job: ModelJob, forget: tuple[str, ...], now_ms: int) -> None:
        forgotten = {key for key in job.notes if key[0] == "step" and (key[1] in forget or "*" in forget)}
        job.notes = {key: body for key, body in job.notes.items() if key not in forgotten}
        self._wait(job, now_ms, now_ms)

    def expire(self, id: bytes, now_ms: int) -> None:
        """A store has cancelled a job that was not started in time."""
        assert self.jobs[id].overdue(now_ms), "a job was cancelled without a reason"
        self._end(self.jobs[id], State.cancelled, now_ms)

    def discard(self, id: bytes, now_ms: int) -> int:
        """How many jobs a store should say it has removed."""
        job = self.jobs.get(id)
        if job is None or job.state is not State.dead:
            return 0
        self.remove(id, now_ms)
        self.discarded += 1
        return 1

    def remove(self, id: bytes, now_ms: int) -> None:
        """A finished job goes for good; jobs that still wait for it never could run."""
        assert self.jobs[id].state in FINISHED, "a job was removed that had not ended"
        del self.jobs[id]
        for child in [job for job in self.jobs.values() if job.parent == id and job.state is State.blocked]:
            self._end(child, State.cancelled, now_ms)

    # -- judging

    def told(self) -> Counter[tuple[bytes, State]]:
        """How often a hook for every end should have heard of which job and state."""
        return Counter((id, state) for id, state, _, _ in self.ends)

    def check(self, views: Mapping[bytes, JobView], now_ms: int) -> None:
        """Every job is where the model has it, and nothing is there that should not be."""
        assert views.keys() == self.jobs.keys(), "jobs have vanished or appeared"
        for id, job in self.jobs.items():
            view = views[id]
            assert _plain(view.state, view.due_at_ms, now_ms) is _plain(job.state, job.due_at_ms, now_ms), (
                f"the store says {view.state}, the model {job}"
            )
            assert (view.token or 0) == job.token, f"{view} is held otherwise than {job}"
            assert job.has(view.notes), f"{view.notes} are not the notes of {job}"
            if job.state not in FINISHED:
                counted = (view.attempt, view.lost, view.held, view.cancel_requested)
                assert counted == (job.attempt, job.lost, job.held, job.cancel_requested), f"{view} is not {job}"


def _aged(given: Sequence[Claimed], request: ClaimRequest) -> list[Claimed]:
    """Those that were taken past more urgent ones, if there were any."""
    return [job for job in given if job.lane.priority >= request.options.most_urgent][: request.options.aged]


def _front(line: Sequence[ModelJob]) -> Sequence[ModelJob]:
    """Who may have been looked at first: suspects are passed over when there is no slot for them."""
    plain = [number for number, job in enumerate(line) if not job.lost]
    return line[: plain[0] + 1] if plain else line


def _waiting(due_at_ms: int, now_ms: int) -> State:
    return State.scheduled if due_at_ms > now_ms else State.ready


def _plain(state: State, due_at_ms: int, now_ms: int) -> State:
    """A store may promote a due job whenever it likes: due is as good as ready."""
    return State.ready if state is State.scheduled and due_at_ms <= now_ms else state


def _spent(job: ModelJob, transition: Transition) -> tuple[int, int]:
    """Attempts and losses after a transition: only failures and successes keep the attempt."""
    refunded = isinstance(transition, Release | Snooze | Suspend | Hold | Refuse | Lose)
    return job.attempt - refunded, job.lost + isinstance(transition, Lose)
