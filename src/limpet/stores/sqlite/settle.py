"""Settles running jobs, each only while its token still holds it, and takes what their handlers note."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from limpet.core.endings.effect import NO_RESULT, effect_of
from limpet.core.endings.transition import Settled, Succeed, Transition
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import STATES, State
from limpet.stores.base import NOTHING_SPENT
from limpet.stores.sqlite.effect import Effects, Running
from limpet.stores.sqlite.tx import RUNNING, STALE, SUCCEEDED, WATCHED, Tx

_encode_answers = msgspec.json.Encoder().encode
_decode_answers = msgspec.json.Decoder(list[Settled]).decode

STALE_ANSWER = {state.code: Settled("stale", state) for state in STATES}
DONE = {state.code: Settled("done", state) for state in STATES}
GONE = Settled("gone")
CLEAN = ((1, 0, 0, None), (1, 0, WATCHED, None))  # attempt, lost, flags, charged of a job that only changes its state


def settle(
    tx: Tx,
    session: str,
    seq: int,
    transitions: Sequence[Transition],
    spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT,
) -> list[Settled]:
    """Apply each transition whose token matches; the same (session, seq) again changes nothing."""
    receipt, hooked = tx.row("receipt", (session, "settle", seq))
    if receipt is not None:
        return _decode_answers(receipt)
    if not hooked:
        tx.hooks = []
    answers = _apply(tx, session, transitions, spent)
    tx.run("receipt_put", (session, "settle", seq, _encode_answers(answers), tx.now_ms))
    return answers


def _apply(
    tx: Tx, session: str, transitions: Sequence[Transition], spent: Mapping[bytes, Mapping[str, int]]
) -> list[Settled]:
    clean = Clean()
    effects: Effects | None = None
    heads = {row[0]: row for row in tx.rows_in("heads", [t.id for t in transitions])}
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
        if type(transition) is Succeed and row[4:8] in CLEAN:
            clean.add(transition, row)
            state = SUCCEEDED
        else:
            effects = effects or Effects(tx, session, spent)
            state = effects.apply(Running(*row), effect_of(transition))
            if effects.touched:
                touched[len(answers)] = effects.touched
        heads[id] = (id, state, None)
        answers.append(DONE[state])
    if clean.tokens:
        clean.write(tx)
    if effects is not None:
        effects.write()
        for at, keys in touched.items():
            answers[at] = Settled("done", answers[at].state, effects.gates.shut_of(keys))
    return answers


class Clean:
    """First tries that simply worked, by far the most common end: the short way of what `Effects` does."""

    def __init__(self) -> None:
        self.tokens: dict[bytes, int] = {}
        self.results: list[tuple[bytes, bytes]] = []
        self.watched: list[bytes] = []
        self.lanes: Counter[int] = Counter()
        self.leases: Counter[int] = Counter()  # token → jobs that left its lease

    def add(self, success: Succeed, row: Sequence[Any]) -> None:
        """One more; `row` is its head."""
        self.tokens[success.id] = success.token
        if success.result is not None and success.result not in NO_RESULT:
            self.results.append((success.id, success.result))
        if row[6]:
            self.watched.append(success.id)
        self.lanes[row[3]] += 1
        self.leases[success.token] += 1

    def write(self, tx: Tx) -> None:
        tx.rows_in("job_succeeded", list(self.tokens), (tx.now_ms,))
        if self.results:
            tx.many("result_put", self.results)
        tx.leave_leases(self.leases)
        for lane_id, count in self.lanes.items():
            tx.move(tx.lane(lane_id), RUNNING, SUCCEEDED, count)
        if self.watched:
            tx.tell_finished(self.watched)
        if any(State.succeeded in hook.states for hook in tx.hooks):
            tx.ended.update(self.tokens)


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
