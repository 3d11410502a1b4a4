"""Hands out ready jobs under a lease, in one atomic step that can be asked again."""

from __future__ import annotations

import msgspec

from limpet.core.flows.refs import MAX_INPUT_BYTES
from limpet.core.gate import tightest
from limpet.core.jobs.lease import Claim, Claimed, ClaimRequest, Input, Note
from limpet.stores.packed import PLAIN, Extra, extra_or_none
from limpet.stores.sqlite import graph, lanes
from limpet.stores.sqlite.give_back import charges_of
from limpet.stores.sqlite.take import Row, Taking
from limpet.stores.sqlite.tx import INPUTS, NOTES, Tx

NO_INPUTS: dict[bytes, Input] = {}

_encode = msgspec.json.Encoder().encode


def claim(tx: Tx, request: ClaimRequest) -> Claim:
    """One atomic claim. The same (session, claimer, seq) again gets the same jobs again."""
    row = tx.row("session_claiming", (request.claimer, request.seq, request.session, tx.now_ms))
    if row is None:
        return Claim((), tx.now_ms)
    receipt, *session = row
    if receipt is not None:
        return _repeat(tx, msgspec.json.decode(receipt, type=list[int]))
    if not request.limit:
        tx.run("session_busy", (request.session,))
        return Claim((), tx.now_ms)
    gates_due, jobs_due, fans, tx.guests = tx.row("chores", (tx.now_ms,))
    if gates_due:
        lanes.open_due_gates(tx)
    more_due = bool(jobs_due and _promote(tx, request)) | bool(fans and graph.fan_out(tx))
    taking = Taking(tx, request)
    again = taking.fill() or (more_due and len(taking.rows) < request.limit)
    if not taking.rows:
        return _nothing(tx, request, taking, known=tuple(session), again=again)
    taking.lease()
    tx.run("receipt_put", (request.session, request.claimer, request.seq, _encode(taking.tokens), tx.now_ms))
    if session[0] and request.options.takes_all:
        tx.run("session_busy", (request.session,))
    return Claim(tuple(_claimed(tx, *taken) for taken in taking.rows), tx.now_ms, again=again)


def _promote(tx: Tx, request: ClaimRequest) -> bool:
    """Make due jobs ready, also those that a crowd of more urgent ones stands before."""
    if request.options.aged:
        lanes.promote(tx, request.options.most_urgent)
    return lanes.promote(tx)


def _nothing(tx: Tx, request: ClaimRequest, taking: Taking, *, known: tuple[object, ...], again: bool) -> Claim:
    """Mark the session idle in the same step, so that the next job of what it asked for wakes it."""
    instants = [tx.row("next_due")[0], tx.row("next_gate")[0], *taking.reopening]
    next_at_ms = min((at for at in instants if at is not None), default=None)
    sleeps = (next_at_ms, _encode(request.serves), request.slots, request.takes.ordinary, request.takes.urgent)
    if request.options.takes_all and not again and known != (1, *sleeps):
        tx.run("session_idle", (*sleeps, request.session))
    return Claim((), tx.now_ms, next_at_ms=next_at_ms, again=again)


def _repeat(tx: Tx, tokens: list[int]) -> Claim:
    """The answer of a claim that was made before: what is still held of it."""
    jobs: list[Claimed] = []
    for token in tokens:
        charges = {id: charges_of(charged) for id, charged in tx.rows("charges_of_token", (token,)) if charged}
        for row in map(Row._make, tx.rows("rows_of_token", (token,))):
            spent = row._replace(attempt=row.attempt - 1)
            charged = charges.get(row.id, [])
            together = tightest(tx.gate_or_new(each.gate) for each in charged if each.slot)
            probe = any(each.probe for each in charged)
            jobs.append(_claimed(tx, spent, token, extra_or_none(row.extra) or PLAIN, probe, together))
    jobs.sort(key=lambda job: (job.lane.priority, job.due_at_ms, job.id))
    return Claim(tuple(jobs), tx.now_ms)


def _claimed(tx: Tx, row: Row, token: int, extra: Extra, probe: bool, together: int) -> Claimed:
    """The job under its lease, with what its parents and earlier attempts left for it."""
    inputs: dict[bytes, Input] = NO_INPUTS
    notes: tuple[Note, ...] = ()
    if row.flags & INPUTS:
        found = tx.rows("inputs", (row.id, MAX_INPUT_BYTES))
        inputs = {parent: Input(result, failed) for parent, result, failed in found}
    if row.flags & NOTES:
        notes = tuple(Note(*each) for each in tx.rows("notes_handed_out", (row.id,)))
    return Claimed(
        row.id,
        token,
        row.attempt + 1,
        row.lost,
        tx.lane(row.lane),
        tx.policy(row.policy),
        row.args,
        row.enqueued_ms,
        row.due_ms,
        tx.now_ms,
        row.held,
        row.held_since_ms,
        extra.cost,
        extra.tags,
        extra.meta,
        extra.flow,
        probe,
        inputs,
        notes,
        extra.after,
        extra.costs,
        together,
    )
