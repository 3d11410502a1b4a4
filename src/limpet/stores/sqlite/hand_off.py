"""Hands a lone job to a session that sleeps: claimed in the step that stores it, and carried by the wake-up.

While a session sleeps, nothing that it could run is ready: whatever becomes ready wakes it. So a plain job of a lane
that rests is what its next claim would get, and this step makes that claim. It is one in every respect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from limpet.core.endings.effect import effect_of
from limpet.core.endings.transition import Release
from limpet.core.gate import GateRule, is_silent, room
from limpet.core.jobs.job import URGENT, Enqueued, Job, Lane
from limpet.core.jobs.lease import Claimed, Handed
from limpet.core.jobs.state import State
from limpet.stores.sqlite import lanes
from limpet.stores.sqlite.effect import Effects, Running
from limpet.stores.sqlite.enqueue import extra_of, remember_policies
from limpet.stores.sqlite.library import library
from limpet.stores.sqlite.take import SLACK_MS
from limpet.stores.sqlite.tx import ENQUEUED, RUNNING, Tx
from limpet.stores.sqlite.wake import SMALL_BYTES
from limpet.stores.waiters import encode_handed

SMALL: Final = 512  # bytes of arguments, and of all else that a caller adds: a record must fit into a datagram
MOST_UNENDED: Final = 8  # a datagram socket queues ten
SLOW_TOKENS: Final = 1_000 * 2_048  # what tokens grow by in a second: a receiver that takes longer may stand still
MOST_CLASSES: Final = 64  # looked at; with more that have ready jobs it is no lone job


class Taker(NamedTuple):
    """A session that sleeps and takes jobs."""

    session: str
    asked: bytes
    address: str | None
    next_ms: int | None
    handed: int  # the number of the last one
    takes: int
    takes_urgent: int
    got: int  # jobs since it lay down that have not ended
    unended: int  # jobs that were handed to it and have not ended
    oldest: int | None  # the token of the oldest of those

    def has_place(self, priority: int) -> bool:
        places = self.takes_urgent if priority <= URGENT else self.takes
        return self.got < places and self.unended < MOST_UNENDED

    def is_slow(self, now_ms: int) -> bool:
        return self.oldest is not None and now_ms * 2_048 - self.oldest > SLOW_TOKENS


def hand_off(tx: Tx, jobs: Sequence[Job], rules: Sequence[GateRule]) -> list[Enqueued] | None:
    """Give a lone new job to a sleeper; None when it must become ready as always. No record is written then."""
    if len(jobs) != 1 or rules or not _may_be_handed(jobs[0]):
        return None
    job = jobs[0]
    takers = [Taker(*row) for row in tx.rows("takers", (tx.now_ms,))]
    if not takers or not _way_is_free(tx, job.lane):
        return None
    state = tx.row("lane_state", (job.lane.id,))
    if (state is not None and state[0]) or (tx.row("any_gone") and tx.rows_in("gone_states", [job.id])):
        return None
    taker = _best(tx, job.lane, takers)
    answer = None if taker is None else _claim(tx, job, taker)
    if answer is None:
        return None
    if state is None:
        lanes.remember(tx, [job.lane])
    return [answer]


def take_back(tx: Tx, handed: Handed, *, gone: bool) -> None:
    """The message was not delivered: the job becomes ready, unspent, and the session is handed nothing for now."""
    tx.run("session_takes_none", (handed.session,))
    if gone:
        tx.run("session_busy", (handed.session,))  # no process hears there; if it lives it asks by itself
    for row in tx.rows_in("heads", [handed.job.id]):
        if row[1] == RUNNING and row[2] == handed.job.token:
            effects = Effects(tx, handed.session)
            effects.apply(Running(*row), effect_of(Release(handed.job.id, handed.job.token)))
            effects.write()


def _may_be_handed(job: Job) -> bool:
    """Whether nothing about the job itself needs the ordinary way, and it is small."""
    return not (
        job.lane.limited
        or job.delay_ms
        or job.due_at_ms is not None
        or job.expires_ms is not None
        or job.flow is not None
        or job.unique is not None
        or job.after
        or len(job.args) > SMALL
        or len(job.meta) > SMALL
    )


def _way_is_free(tx: Tx, lane: Lane) -> bool:
    """Whether no gate on its way has a say, and nothing is due that could bring other jobs."""
    tx.load_gates(lane.class_gates)
    gates = [gate for key in lane.class_gates if (gate := tx.gate(key)) is not None]
    if not all(is_silent(gate, tx.now_ms) for gate in gates):
        return False
    gates_due, jobs_due, fans, _ = tx.row("chores", (tx.now_ms,))
    return not (gates_due or jobs_due or fans)


def _best(tx: Tx, lane: Lane, takers: Sequence[Taker]) -> Taker | None:
    """The sleeper with the fewest jobs to which a claim would give this one, and nothing else.

    One that has not ended what it was handed before may stand still: it gets more only if no other one sleeps.
    """
    able = [taker for taker in takers if _can(tx, taker.asked, lane) and taker.has_place(lane.priority)]
    able = [taker for taker in able if taker.next_ms is None or taker.next_ms > tx.now_ms]
    if not able:
        return None
    ready = _ready(tx)
    if ready is None:
        return None
    able = [taker for taker in able if not any(_can(tx, taker.asked, other) for other in ready)]
    best = min(able, key=lambda taker: (taker.is_slow(tx.now_ms), taker.unended), default=None)
    if best is not None and best.is_slow(tx.now_ms):
        others = tx.rows("sleeping", (best.session, tx.now_ms))
        if any(_can(tx, asked, lane) for (asked,) in others):
            return None
    return best


def _ready(tx: Tx) -> list[Lane] | None:
    """A lane of each class that has jobs ready and is not stopped as a whole; None when there are very many."""
    active = tx.rows("active_classes")
    if len(active) > MOST_CLASSES:
        return None
    found = [tx.lane(row[2]) for row in active]
    tx.load_gates({key for lane in found for key in lane.class_gates})
    return [lane for lane in found if not any(_is_shut(tx, key) for key in lane.class_gates)]


def _is_shut(tx: Tx, key: str) -> bool:
    gate = tx.gate(key)
    return gate is not None and room(gate, tx.now_ms) <= 0


def _can(tx: Tx, asked: bytes, lane: Lane) -> bool:
    return tx.serves(asked).can(lane.queue, lane.task, lane.needs)


def _claim(tx: Tx, job: Job, taker: Taker) -> Enqueued | None:
    """Store the job as running under a lease of its own, and have its record sent."""
    now_ms, lane, policy = tx.now_ms, job.lane, job.policy
    token = int(tx.row("next_token", (now_ms * 2048,))[0])
    awake = taker.got + 1 >= taker.takes
    number = taker.handed + 1
    message = encode_handed(Handed(taker.session, number, _claimed(job, token, now_ms), awake))
    if taker.address is None or len(message) >= SMALL_BYTES:
        return None
    row: tuple[Any, ...] = (token, now_ms, lane.id, lane.priority, now_ms, now_ms, policy.id)
    try:
        tx.run("job_handed", (*row, job.id, job.args, extra_of(job)))
    except library.IntegrityError:
        return None  # it was there before
    hard_ms = policy.hard_timeout_ms
    tx.run("lease_handed", (token, taker.session, None if hard_ms is None else now_ms + hard_ms + SLACK_MS, number))
    tx.run("session_hand", (number, awake, taker.session))
    remember_policies(tx, {policy})
    tx.lane_jobs[lane.id] += 1
    tx.tally(ENQUEUED)
    tx.move(lane, None, RUNNING)
    tx.hand(taker.address, message)
    return Enqueued(job.id, False, State.running)


def _claimed(job: Job, token: int, now_ms: int) -> Claimed:
    return Claimed(
        job.id,
        token,
        1,
        0,
        job.lane,
        job.policy,
        job.args,
        now_ms,
        now_ms,
        now_ms,
        cost=job.cost,
        tags=job.tags,
        meta=job.meta,
        costs=job.costs,
    )
