"""Applies what became of running jobs, each only while its token still holds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from limpet.core.endings.stopping import verdict_of
from limpet.core.endings.transition import (
    Bury,
    Drop,
    Failure,
    Hold,
    Lose,
    Release,
    RetryAfter,
    Settled,
    Snooze,
    Succeed,
    Suspend,
    Transition,
)
from limpet.core.gate import FOREVER_MS, Charge, cut_off, give_back, is_shut, push_back, real_cost, returned_us
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import STATES
from limpet.stores.base import NOTHING_SPENT
from limpet.stores.sqlite import graph, lanes, suspension
from limpet.stores.sqlite.tx import (
    CANCELLED,
    CANCELLING,
    DEAD,
    EVER_LOST,
    KIDS,
    READY,
    RUNNING,
    SCHEDULED,
    SETTLED,
    STALE,
    SUCCEEDED,
    WATCHED,
    Tx,
)

_decode_charges = msgspec.json.Decoder(list[Charge]).decode
_encode_answers = msgspec.json.Encoder().encode
_decode_answers = msgspec.json.Decoder(list[Settled]).decode

STALE_ANSWER = {state.code: Settled("stale", state) for state in STATES}
DONE = {state.code: Settled("done", state) for state in STATES}
GONE = Settled("gone")
CLEAN = (1, 0, 0, None)  # attempt, lost, flags, charged of a job that needs no more than a change of state


class Running(NamedTuple):
    """A job's head, as settling needs it."""

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


def charges_of(charged: bytes) -> list[Charge]:
    """What a running job took of its gates; nothing when that cannot be read, or its lease could never end."""
    try:
        return _decode_charges(charged)
    except msgspec.DecodeError:
        return []


def settle(
    tx: Tx,
    session: str,
    seq: int,
    transitions: Sequence[Transition],
    spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT,
) -> list[Settled]:
    """Apply each transition whose token matches; the same (session, seq) again changes nothing."""
    receipt = tx.row("receipt", (session, "settle", seq))
    if receipt is not None:
        return _decode_answers(receipt[0])
    answers = Settling(tx, session, spent).apply(transitions)
    tx.run("receipt_put", (session, "settle", seq, _encode_answers(answers), tx.now_ms))
    return answers


class Settling:
    """The gathered writes of one settlement."""

    def __init__(self, tx: Tx, session: str, spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT) -> None:
        self.tx = tx
        self.session = session
        self.spent = spent
        self.forced = False  # whoever runs the job has not been asked, and may spend more
        self.touched: list[str] = []  # gates at which the last one failed, or that it held
        self.returned: dict[str, Counter[int]] = {}  # gate → what came back to its rate, by when it was charged
        self.left: Counter[int] = Counter()  # token → jobs that left its lease
        self.succeeded: list[bytes] = []
        self.results: list[tuple[bytes, bytes]] = []
        self.attempts: list[tuple[object, ...]] = []
        self.ended: list[tuple[Running, int, bytes | None]] = []  # with dependents or watchers

    def apply(self, transitions: Sequence[Transition]) -> list[Settled]:
        tx = self.tx
        heads = {row[0]: row for row in tx.rows_in("heads", [t.id for t in transitions])}
        plain: Counter[int] = Counter()
        touched: dict[int, list[str]] = {}  # by position
        answers = []
        for transition in transitions:
            id, token = transition.id, transition.token
            row = heads.get(id)
            if row is None:
                answers.append(GONE)
                continue
            if row[2] != token or row[1] != RUNNING:
                tx.tally(STALE)
                answers.append(STALE_ANSWER[row[1]])
                continue
            if row[4:8] == CLEAN and type(transition) is Succeed and transition.result is None:
                # By far the most common end, a first try that simply worked, takes the short way.
                self.succeeded.append(id)
                self.left[token] += 1
                plain[row[3]] += 1
                state = SUCCEEDED
            else:
                state = self.one(Running(*row), transition)
                if self.touched:
                    touched[len(answers)] = self.touched
            heads[id] = (id, state, None)
            answers.append(DONE[state])
        for lane_id, count in plain.items():
            tx.move(tx.lane(lane_id), RUNNING, SUCCEEDED, count)
        self.write()
        for at, keys in touched.items():
            shut = tuple(key for key in keys if is_shut(tx.gate_or_new(key), tx.now_ms))
            answers[at] = Settled("done", answers[at].state, shut)
        return answers

    def one(self, head: Running, transition: Transition) -> int:
        """Apply a transition that is known to be allowed; the state code the job is in now."""
        if head.flags & SETTLED:
            transition = self._noted(head, transition)
        self.left[transition.token] += 1
        self.touched = []
        lane = self.tx.lane(head.lane)
        if isinstance(transition, Hold):  # what it was told of a key counts for the others, should it stop or not
            self._shut(transition)
        if isinstance(transition, Succeed):
            state = self._succeed(head, transition)
        elif head.flags & CANCELLING:
            state = self._cancelled(head, transition, head.reason or "cancelled")
        else:
            state = self._other(head, transition)
        self.tx.move(lane, RUNNING, state)
        if state == READY:
            lanes.activate(self.tx, lane, 1)
        if head.charged is not None:
            self._give_back(head, transition)
        if state >= SUCCEEDED and head.flags & (KIDS | WATCHED):
            self.ended.append((head, state, transition.result if isinstance(transition, Succeed) else None))
        return state

    def _noted(self, head: Running, transition: Transition) -> Transition:
        """What the handler noted in its own transaction is the truth, whatever is asked here."""
        rows = self.tx.rows("settled_take", (head.id,))
        return Succeed(head.id, transition.token, rows[0][0]) if rows else transition

    def _succeed(self, head: Running, transition: Succeed) -> int:
        self.succeeded.append(head.id)
        if transition.result is not None and transition.result != b"null":
            self.results.append((head.id, transition.result))
        if head.attempt > 1 or head.lost:  # a clean first-try success writes no attempt row
            self._attempt(head, "succeeded")
        return SUCCEEDED

    def _cancelled(self, head: Running, transition: Transition, reason: str) -> int:
        failure = transition.failure if isinstance(transition, (RetryAfter, Bury)) else None
        if isinstance(transition, Lose):
            self.tx.tally(EVER_LOST)
            self.tx.run("job_lost_count", (head.lost + 1, head.id))
        self._attempt(head, "cancelled", failure, reason)
        self.tx.run("job_cancelled", (reason, self.tx.now_ms, head.id))
        return CANCELLED

    def _other(self, head: Running, transition: Transition) -> int:
        tx = self.tx
        match transition:
            case RetryAfter():
                self._attempt(head, "retried", transition.failure)
                state = SCHEDULED if transition.delay_ms > 0 else READY
                failure = transition.failure
                tx.run(
                    "job_retry",
                    (state, tx.now_ms + transition.delay_ms, failure.message, failure.cause, failure.type, head.id),
                )
                if state == SCHEDULED:
                    tx.note_timer(head.lane, tx.now_ms + transition.delay_ms)
                return state
            case Bury():
                return self._bury(head, transition.failure)
            case Drop():
                return self._cancelled(head, transition, transition.reason)
            case Release():
                if transition.started:
                    self._attempt(head, "released")
                tx.run("job_release", (transition.started, head.id))
                return READY
            case Snooze():
                return self._put_off(head, "snoozed", transition.delay_ms, transition.reason)
            case Suspend():
                return suspension.suspend(tx, head.id, head.lane, transition)
            case Hold():
                lane = tx.lane(head.lane)
                if transition.gate not in (*lane.class_gates, *lane.lane_gates):
                    # The gate holds others, not this job: without a wait of its own it would come back at once.
                    return self._put_off(head, "held", transition.delay_ms, transition.reason)
                self._attempt(head, "held", None, transition.reason)
                tx.run("job_hold", (transition.reason, tx.now_ms, head.id))
                return READY
            case Lose():
                return self.lose(head, transition.reason or "its worker died", proven=transition.proven)
        raise TypeError(f"unknown transition {transition!r}")

    def _shut(self, hold: Hold) -> None:
        gate, until_ms = self.tx.gate_or_new(hold.gate), min(FOREVER_MS, self.tx.now_ms + hold.delay_ms)
        shut = cut_off if hold.trips else push_back
        self.tx.put_gate(shut(gate, until_ms, hold.token, self.tx.now_ms))
        self.touched.append(hold.gate)

    def _put_off(self, head: Running, outcome: str, delay_ms: int, reason: str) -> int:
        self._attempt(head, outcome, None, reason)
        due_ms = self.tx.now_ms + delay_ms
        self.tx.run("job_snooze", (due_ms, reason, self.tx.now_ms, head.id))
        self.tx.note_timer(head.lane, due_ms)
        return SCHEDULED

    def lose(self, head: Running, reason: str, *, proven: bool) -> int:
        """A lost lease: back to the front with one more loss, or to the dead letters as poison."""
        self.tx.tally(EVER_LOST)
        lost = head.lost + 1
        max_lost = self.tx.policy(int(self.tx.row("job_policy", (head.id,))[0])).max_lost
        if proven or lost >= max_lost:
            words = "proven alone in its process" if proven else f"lost {lost} times"
            failure = Failure("lost", "limpet.Poison", f"{reason}; {words}", cause="poison")
            self.tx.run("job_lost_count", (lost, head.id))
            return self._bury(head, failure)
        self._attempt(head, "lost", Failure("lost", "limpet.LeaseLost", reason))
        self.tx.run("job_lost", (lost, reason, head.id))
        return READY

    def _bury(self, head: Running, failure: Failure) -> int:
        lane = self.tx.lane(head.lane)
        self._attempt(head, "dead", failure)
        graph.bury(self.tx, head.id, lane, failure)
        return DEAD

    def _attempt(self, head: Running, outcome: str, failure: Failure | None = None, message: str = "") -> None:
        columns = graph.failure_row(failure) if failure is not None else (None, "", message, "", "")
        self.attempts.append(
            (head.id, head.id, head.attempt, outcome, head.claimed_ms, self.tx.now_ms, self.session, *columns)
        )

    def _give_back(self, head: Running, transition: Transition | None) -> None:
        assert head.charged is not None
        assert head.token is not None
        verdict = verdict_of(transition)
        unstarted = isinstance(transition, Release) and not transition.started
        unfinished = isinstance(transition, (Hold, Snooze, Suspend, Drop)) and not self.forced
        spent = self.spent.get(head.id, {})
        for taken in charges_of(head.charged):
            gate = self.tx.gate(taken.gate)
            if gate is None:
                continue
            if verdict == "failed" and (taken.probe or gate.rule.breaker is not None):
                self.touched.append(gate.key)
            real = 0 if unstarted else real_cost(gate.rule, spent, unfinished=unfinished)
            returned = self.returned.setdefault(gate.key, Counter())
            after = give_back(
                gate,
                taken,
                token=head.token,
                verdict=verdict,
                unstarted=unstarted,
                now_ms=self.tx.now_ms,
                charged_at_ms=head.claimed_ms,
                real=real,
                beside=returned,
            )
            returned[head.claimed_ms] += returned_us(gate, taken, real, head.claimed_ms)
            self.tx.put_gate(after)

    def write(self) -> None:
        """Write what was gathered; dependents are moved last, when every parent's row is true."""
        tx = self.tx
        tx.rows_in("job_succeeded", self.succeeded, (tx.now_ms,))
        if self.results:
            tx.many("result_put", self.results)
        if self.attempts:
            tx.many("attempt_add", self.attempts)
        for token, count in self.left.items():
            if not tx.run("lease_done", (token, count)):
                tx.run("lease_less", (count, token))
        for head, state, result in self.ended:
            graph.after_end(tx, head.id, head.flags, state, result)


def take_back(tx: Tx, heads: Sequence[Running], session: str, reason: str) -> None:
    """Lost leases: as if each job had been settled with Lose."""
    settling = Settling(tx, session)
    for head in heads:
        assert head.token is not None
        settling.one(head, Lose(head.id, head.token, reason=reason))
    settling.write()


def release_all(tx: Tx, heads: Sequence[Running], session: str) -> None:
    """A session that leaves in order gives back what it holds, unspent."""
    settling = Settling(tx, session)
    for head in heads:
        assert head.token is not None
        settling.one(head, Release(head.id, head.token, started=True))
    settling.write()


def revoke(tx: Tx, head: Running, reason: str) -> int:
    """A forced cancel: the lease is over at once, and its holder's late success is stale. The state it ends in."""
    assert head.token is not None
    settling = Settling(tx, "")
    settling.forced = True
    drop = Drop(head.id, head.token, reason)
    state = settling.one(head._replace(flags=head.flags | CANCELLING, reason=reason), drop)
    settling.write()
    return state


def note_success(tx: Tx, id: bytes, token: int, result: bytes | None) -> bool:
    """A running job has succeeded, if and when this transaction of its handler's commits; False for a stale token."""
    return tx.run("job_flag_settled", (id, token)) > 0 and tx.run("settled_put", (id, token, result)) > 0


def save(tx: Tx, id: bytes, token: int, note: Note) -> bool:
    """Write a note of a running job while its token holds."""
    if tx.run("job_flag_notes", (id, token)) == 0:
        tx.tally(STALE)
        return False
    tx.run("note_put", (id, note.kind, note.name, note.body))
    return True
