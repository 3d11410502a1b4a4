"""Applies effects to running jobs whose tokens were compared: the one way in which a job leaves `running`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from limpet.core.endings.effect import STOPPED, Effect, counted, success
from limpet.core.gate import FOREVER_MS
from limpet.core.jobs.job import Lane
from limpet.stores.base import NOTHING_SPENT
from limpet.stores.sqlite import graph, lanes, notes
from limpet.stores.sqlite.give_back import GivingBack
from limpet.stores.sqlite.tx import (
    CANCELLING,
    DEAD,
    EVER_LOST,
    KIDS,
    NOTES,
    READY,
    RUNNING,
    SCHEDULED,
    SETTLED,
    SUCCEEDED,
    WATCHED,
    Tx,
)


class Running(NamedTuple):
    """A running job's head, as its end needs it."""

    id: bytes
    state: int
    token: int | None
    lane: int
    attempt: int
    lost: int
    flags: int
    charged: bytes | None
    claimed_ms: int
    reason: str | None


class Effects:
    """Applies effects one after the other, and gathers the writes of one step."""

    def __init__(self, tx: Tx, session: str, spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT) -> None:
        self.tx = tx
        self.session = session
        self.spent = spent
        self.touched: list[str] = []  # gates at which the last job failed, or that it held
        self.left: Counter[int] = Counter()  # token → jobs that left its lease
        self.waiting: list[tuple[object, ...]] = []
        self.stopped: list[tuple[object, ...]] = []  # dead or cancelled
        self.succeeded: list[bytes] = []
        self.results: list[tuple[bytes, bytes]] = []
        self.attempts: list[tuple[object, ...]] = []
        self.ended: list[tuple[Running, Effect]] = []  # with dependents or watchers

    @cached_property
    def gates(self) -> GivingBack:
        """What the gates of these jobs have got back so far: most jobs have none."""
        return GivingBack(self.tx, self.spent)

    def apply(self, head: Running, effect: Effect) -> int:
        """Apply an effect that is known to be allowed; the code of the state that the job is in now."""
        assert head.token is not None
        if head.flags & SETTLED:
            effect = self._noted(head, effect)
        self.left[head.token] += 1
        self.touched = []
        if effect.gate:  # what the job was told of a key counts for other jobs, should it stop or not
            self.gates.hold(effect, head.token)
            self.touched.append(effect.gate)
        effect = self._resolved(head, effect)
        if effect.lane is not None:
            head = self._moved(head, effect.lane)
        assert head.token is not None
        self._write_job(head, effect)
        lane = self.tx.lane(head.lane)
        self.tx.move(lane, RUNNING, effect.state)
        if effect.state == READY:
            lanes.activate(self.tx, lane, 1)
        if head.charged is not None:
            self.touched += self.gates.take(head.id, head.token, head.charged, head.claimed_ms, effect)
        if effect.state >= SUCCEEDED:
            self.tx.end(head.id, head.token)
            if head.flags & (KIDS | WATCHED):
                self.ended.append((head, effect))
        return effect.state

    def _moved(self, head: Running, lane: Lane) -> Running:
        """The job is in this lane from now on; its queue, task and tenant are the same, and so are their counters."""
        lanes.remember(self.tx, [lane])
        self.tx.run("job_lane", (lane.id, head.id))
        self.tx.lane_jobs[head.lane] -= 1
        self.tx.lane_jobs[lane.id] += 1
        return head._replace(lane=lane.id)

    def _noted(self, head: Running, effect: Effect) -> Effect:
        """What the handler noted in its own transaction is the truth, whatever is asked here."""
        rows = self.tx.rows("settled_take", (head.id,))
        return success(rows[0][0]) if rows else effect

    def _resolved(self, head: Running, effect: Effect) -> Effect:
        """The effect with the answers to what only this step knows."""
        tx = self.tx
        if head.flags & CANCELLING:
            return effect.otherwise(STOPPED[effect.if_cancelling])
        if effect.if_lost_too_often and head.lost + 1 >= self._max_lost(head):
            poison = effect.otherwise(effect.if_lost_too_often)
            assert poison.failure is not None
            return replace(poison, failure=counted(poison.failure, head.lost + 1))
        if effect.if_foreign_gate:
            lane = tx.lane(head.lane)
            is_own = effect.gate in (*lane.class_gates, *lane.lane_gates)
            return effect if is_own else effect.otherwise(effect.if_foreign_gate)
        if effect.events and notes.is_signalled(tx, head.id, effect.events):
            return effect.otherwise(effect.if_signalled)
        return effect

    def _max_lost(self, head: Running) -> int:
        (policy,) = self.tx.row("job_policy", (head.id,))
        return self.tx.policy(int(policy)).max_lost

    def _write_job(self, head: Running, effect: Effect) -> None:
        """Write what became of the job, and the record of its attempt."""
        if effect.lost:
            self.tx.tally(EVER_LOST)
        reason = _reason(head, effect)
        if effect.record == "always" or (effect.record == "again" and (head.attempt > 1 or head.lost)):
            self._record(head, effect, reason)
        if effect.state < RUNNING:
            self._waits(head, effect, reason)
        elif effect.state == SUCCEEDED:
            self.succeeded.append(head.id)
        else:
            self._ends(head, effect, reason)
        if effect.result is not None:
            self.results.append((head.id, effect.result))

    def _waits(self, head: Running, effect: Effect, reason: str | None) -> None:
        tx, failure, events = self.tx, effect.failure, effect.events
        due_ms = None if effect.delay_ms is None else min(tx.now_ms + effect.delay_ms, FOREVER_MS)
        if events is not None:
            notes.wait_for(tx, head.id, events, FOREVER_MS if due_ms is None else due_ms)
        self.waiting.append(
            (
                effect.state,
                due_ms,
                1 if effect.unstarted else 0,  # a driver takes numbers much faster than truths
                1 if effect.unspent else 0,
                1 if effect.lost else 0,
                effect.held,
                tx.now_ms,
                reason,
                1 if effect.blame else 0,
                None if failure is None else failure.cause,
                None if failure is None else failure.type,
                NOTES if events else 0,
                head.id,
            )
        )
        if effect.state == SCHEDULED and due_ms is not None and due_ms < FOREVER_MS:
            tx.note_timer(head.lane, due_ms)

    def _ends(self, head: Running, effect: Effect, reason: str | None) -> None:
        failure, cause, type = effect.failure, None, None
        if effect.blame and failure is not None:
            cause, type = failure.cause, failure.type
            if effect.state == DEAD:
                cause = graph.count_dead(self.tx, head.id, self.tx.lane(head.lane), failure)
        counts = (1 if effect.unspent else 0, 1 if effect.lost else 0)
        blame = 1 if effect.blame else 0
        self.stopped.append((effect.state, self.tx.now_ms, *counts, reason, blame, cause, type, head.id))

    def _record(self, head: Running, effect: Effect, reason: str | None) -> None:
        told: tuple[str | None, ...] = (None, "", ("" if effect.reason is None else reason) or "", "", "")
        if effect.failure is not None and not effect.hides_failure:
            told = graph.failure_row(effect.failure)
        self.attempts.append(
            (head.id, head.id, head.attempt, effect.word, head.claimed_ms, self.tx.now_ms, self.session, *told)
        )

    def write(self) -> None:
        """Write what was gathered; dependents are moved last, when every parent's row is true."""
        tx = self.tx
        tx.rows_in("job_succeeded", self.succeeded, (tx.now_ms,))
        if self.waiting:
            tx.many("job_waits", self.waiting)
        if self.stopped:
            tx.many("job_ends", self.stopped)
        if self.results:
            tx.many("result_put", self.results)
        if self.attempts:
            tx.many("attempt_add", self.attempts)
        tx.leave_leases(self.left)
        for head, effect in self.ended:
            graph.after_end(tx, head.id, head.flags, effect.state, effect.result)


def _reason(head: Running, effect: Effect) -> str | None:
    """The job's reason after this."""
    if effect.blame:
        return None if effect.failure is None else effect.failure.message
    if effect.reason is None or (effect.own_reason and head.reason):
        return head.reason
    return effect.reason or None


def apply_all(tx: Tx, heads: Sequence[Running], session: str, effect: Effect) -> list[int]:
    """Apply one effect to jobs that no worker has settled; the codes of their states."""
    effects = Effects(tx, session)
    states = [effects.apply(head, effect) for head in heads]
    effects.write()
    return states
