"""Compares the counters, lanes and leases of a store with its jobs, and sets them by the jobs.

What is looked for is read in a snapshot, beside the writer. A counter and the jobs it counts move together, so that the
difference between them stays the same whatever others do meanwhile: it is added, in a step that is a few rows long. All
else is looked at again in the step that changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from limpet.core.endings.transition import Failure
from limpet.core.jobs.job import Lane
from limpet.core.jobs.repair import Difference, count_name, of_accounts, off_balance, tenant_name, wrong
from limpet.core.jobs.state import STATES, State
from limpet.stores.packed import extra_or_none
from limpet.stores.sqlite import gates, graph, lanes, unique
from limpet.stores.sqlite.tx import (
    CANCELLED,
    DEAD,
    DISCARDED,
    ENQUEUED,
    EVER_CANCELLED,
    EVER_SUCCEEDED,
    OF_TENANT,
    SUCCEEDED,
    Tx,
)

AT_ONCE: Final = 256  # entries that one step changes

NOWHERE: Final = Lane("unreadable", "unreadable")
UNDECODABLE: Final = Failure("permanent", "limpet.Undecodable", "its queue, task and limits are not stored")
_TOTALS: Final = {
    "enqueued": ENQUEUED,
    "succeeded": EVER_SUCCEEDED,
    "cancelled": EVER_CANCELLED,
    "discarded": DISCARDED,
}
_BESIDE: Final = ("erase_body", "erase_result", "erase_notes", "erase_attempts", "erase_deps", "erase_watch")


class Found(NamedTuple):
    """What one look has found: in words, and what a step needs to put it right."""

    differences: list[Difference]
    keys: list[Any]


class Stage(NamedTuple):
    """One sort of difference."""

    look: Callable[[Tx], Found]
    mend: Callable[[Tx, Sequence[Any]], None]


# -- jobs


def _look_nowhere(tx: Tx) -> Found:
    ids = [id for (id,) in tx.rows("repair_nowhere")]
    return Found(wrong("unreadable", "jobs whose queue, task and limits are not stored", ids), ids)


def _mend_nowhere(tx: Tx, ids: Sequence[Any]) -> None:
    lanes.remember(tx, [NOWHERE])
    for id in ids:
        state, flags = tx.row("mend_nowhere", (NOWHERE.id, NOWHERE.priority, id))
        if state in (SUCCEEDED, CANCELLED):
            continue  # what has succeeded or was cancelled stays so
        failure = UNDECODABLE
        tx.run("mend_buried", (failure.message, failure.type, failure.type, tx.now_ms, id))
        tx.run("attempt_add", (id, id, 0, "dead", tx.now_ms, tx.now_ms, "", *graph.failure_row(failure)))
        if state != DEAD:
            tx.end(id)
        graph.after_end(tx, id, flags, DEAD)


def _look_left(tx: Tx) -> Found:
    ids = [id for (id,) in tx.rows("repair_left")]
    return Found(wrong("vanished", "jobs that left traces and no record", ids), ids)


def _mend_left(tx: Tx, ids: Sequence[Any]) -> None:
    stored = {id for (id,) in tx.rows_in("mend_stored", ids)}
    gone = [id for id in ids if id not in stored]
    for id in gone:
        graph.orphan(tx, id, released=False)
        for name in (*_BESIDE, "mend_settled"):
            tx.run(name, (id,))
    tx.rows_in("repair_unique", gone)


def _look_blocked(tx: Tx) -> Found:
    ids = [id for (id,) in tx.rows("repair_blocked")]
    return Found(wrong("index", "blocked jobs that wait for no parent", ids), ids)


def _look_keys(tx: Tx) -> Found:
    rows = [
        (id, lane_id, packed)
        for id, lane_id, state, packed in tx.rows("repair_keys")
        if (extra := extra_or_none(packed)) is not None and extra.unique_states >> state & 1
    ]
    return Found(wrong("index", "unique keys that their jobs do not hold", (row[0] for row in rows)), rows)


def _mend_keys(tx: Tx, rows: Sequence[Any]) -> None:
    for id, lane_id, packed in rows:
        unique.reclaim(tx, id, tx.lane(lane_id), packed)


# -- who runs what


def _look_leases(tx: Tx) -> Found:
    tokens = [token for (token,) in tx.rows("repair_leases", (tx.now_ms,))]
    return Found(wrong("lease", "leases that do not say what runs under them", count=len(tokens)), tokens)


def _mend_leases(tx: Tx, tokens: Sequence[Any]) -> None:
    for token in tokens:
        running = tx.row("mend_running", (token,))[0]
        if running:  # one that no session holds is over: the next sweep takes its jobs back
            tx.run("mend_lease", (token, tx.now_ms, running))
        else:
            tx.run("mend_lease_gone", (token,))


def _look_gates(tx: Tx) -> Found:
    found = of_accounts(gates.accounted(tx))
    return Found(found, [found] if found else [])


def _mend_gates(tx: Tx, _: Sequence[Any]) -> None:
    for account in gates.accounted(tx):
        if account.leaked or account.stuck:
            probe = 0 if account.stuck else account.gate.probe_token
            tx.put_gate(replace(account.gate, used=account.slots, probe_token=probe))


# -- lanes


def _look_idle(tx: Tx) -> Found:
    ids = [id for (id,) in tx.rows("repair_idle")]
    return Found(wrong("index", "lists of ready jobs that no claim sees", count=len(ids)), ids)


def _mend_idle(tx: Tx, ids: Sequence[Any]) -> None:
    for id in ids:
        if tx.row("mend_lane_unseated", (id,)) is None:
            continue
        tx.run("mend_lane_idle", (id,))
        ready = tx.row("mend_lane_ready", (id,))[0]
        if ready:
            lanes.activate(tx, tx.lane(id), ready)


def _look_seats(tx: Tx) -> Found:
    seats = tx.rows("repair_seats")
    return Found(wrong("index", "turns of lists that hold no ready job", count=len(seats)), seats)


def _mend_seats(tx: Tx, seats: Sequence[Any]) -> None:
    tx.many("seat_leave", seats)


def _look_gateless(tx: Tx) -> Found:
    keys = [key for (key,) in tx.rows("repair_gateless")]
    return Found(wrong("index", "limits that jobs wait for and that are not there", count=len(keys)), keys)


def _mend_gateless(tx: Tx, keys: Sequence[Any]) -> None:
    tx.wake_lanes_now(keys)


# -- numbers


def _look_lanes(tx: Tx) -> Found:
    rows = tx.rows("repair_lanes")
    return Found(wrong("index", "lists that count other jobs than they hold", count=len(rows)), rows)


def _mend_lanes(tx: Tx, rows: Sequence[Any]) -> None:
    tx.many("lane_count", [(more, lane) for lane, more in rows])


def _look_causes(tx: Tx) -> Found:
    rows = tx.rows("repair_causes")
    return Found(wrong("index", "origins that count other dead jobs than there are", count=len(rows)), rows)


def _mend_causes(tx: Tx, rows: Sequence[Any]) -> None:
    for cause, queue, task, counted, dead, type, message, sample in rows:
        at_ms = tx.now_ms
        tx.run("mend_cause", (cause, queue, task, dead - counted, type, message, at_ms, at_ms, sample or b""))
        tx.run("cause_clean", (cause, queue, task))


def _look_counts(tx: Tx) -> Found:
    rows = tx.rows("repair_counts")
    differences = [
        Difference("count", count_name(queue, task, STATES[what]), counted, jobs)
        for queue, task, what, counted, jobs in rows
    ]
    return Found(differences, [(queue, task, what, jobs - counted) for queue, task, what, counted, jobs in rows])


def _mend_counts(tx: Tx, rows: Sequence[Any]) -> None:
    tx.many("count_add", rows)


def _look_tenants(tx: Tx) -> Found:
    rows = tx.rows("repair_tenants")
    differences = [
        Difference("count", tenant_name(queue, tenant), counted, jobs) for queue, tenant, counted, jobs in rows
    ]
    return Found(differences, [(queue, tenant, OF_TENANT, jobs - counted) for queue, tenant, counted, jobs in rows])


def _mend_tenants(tx: Tx, rows: Sequence[Any]) -> None:
    tx.many("count_add", rows)
    tx.many("tenant_gone", [row[:2] for row in rows])


def _look_totals(tx: Tx) -> Found:
    stored: dict[State, int] = {STATES[state]: count for state, count in tx.rows("repair_stored")}
    known = dict(tx.rows("repair_totals"))
    found = off_balance(stored, {name: known.get(what, 0) for name, what in _TOTALS.items()})
    if found is None:
        return Found([], [])
    return Found([found], [("", "", _TOTALS[found.what], found.right - found.found)])


# In this order: what a step changes is counted by those after it.
STAGES: Final = (
    Stage(_look_nowhere, _mend_nowhere),
    Stage(_look_left, _mend_left),
    Stage(_look_blocked, graph.release),
    Stage(_look_keys, _mend_keys),
    Stage(_look_leases, _mend_leases),
    Stage(_look_gates, _mend_gates),
    Stage(_look_idle, _mend_idle),
    Stage(_look_seats, _mend_seats),
    Stage(_look_gateless, _mend_gateless),
    Stage(_look_lanes, _mend_lanes),
    Stage(_look_causes, _mend_causes),
    Stage(_look_counts, _mend_counts),
    Stage(_look_tenants, _mend_tenants),
    Stage(_look_totals, _mend_counts),
)
