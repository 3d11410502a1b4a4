"""Remembers who is alive: beats keep leases, silence gives them back."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from limpet.core.endings.effect import LEFT, OVERDUE, silent
from limpet.core.gate import Pause
from limpet.core.jobs.lease import Beat, Held, Pulse, SessionView
from limpet.stores.base import READER
from limpet.stores.sqlite import gates, graph, settle
from limpet.stores.sqlite.effect import Running, apply_all
from limpet.stores.sqlite.tx import BLOCKED, READY, RUNNING, SCHEDULED, Tx

GAP_MS = 5_000  # longer than this without a sweep, and live workers may not have been able to beat
CALM_MS = 15_000  # one lease time
MARK_MS = 2_000  # an idle worker sweeps each second: it need not write as often

_encode = msgspec.json.Encoder().encode


def beat(tx: Tx, beat: Beat, ear: str) -> Pulse:
    """Open or keep a session and take its notes."""
    now_ms = tx.now_ms
    serves = _encode(beat.serves)
    store, token = tx.row("store_now")
    known = tx.row("session_handed", (beat.session,))
    # One that is past its deadline but not yet swept still holds its leases: the beat saves them.
    fresh = known is None
    if fresh:
        # Its numbers begin above those of a session with its name that was lost: a late message is known as such.
        tx.run("session_open", (beat.session, serves, beat.info, now_ms, now_ms, now_ms + beat.ttl_ms, ear, token))
    else:
        tx.run("session_beat", (serves, beat.info, now_ms, now_ms + beat.ttl_ms, ear, beat.session))
    for id, token, note in beat.notes:
        settle.save(tx, id, token, note)
    cancels = () if fresh else tuple((id, token) for id, token in tx.rows("cancelling", (beat.session,)))
    reader = tx.row("control_value", READER)
    listened = reader is not None and int(reader[0]) > now_ms
    return Pulse(fresh, cancels, store, token, listened, token if known is None else known[0])


def leave(tx: Tx, session: str) -> None:
    """Close a session and release what it still holds."""
    heads = [Running(*row) for row in tx.rows("held_heads", (session, -1))]
    apply_all(tx, heads, session, LEFT)
    forget(tx, session)


def forget(tx: Tx, session: str) -> None:
    """Remove a session that holds nothing."""
    tx.run("session_close", (session,))
    tx.run("receipts_close", (session,))


def held(tx: Tx, session: str) -> list[Held]:
    """What a session holds."""
    return [Held(*row) for row in tx.rows("held", (session,))]


def expire(tx: Tx, limit: int) -> int:
    """Take back what silent sessions hold, unless the sweeps themselves had been away."""
    now_ms = tx.now_ms
    swept_at_ms, calm_until_ms = tx.row("sweep_state")
    if swept_at_ms is None:
        calm_until_ms = now_ms + CALM_MS  # it is unknown how long no worker swept
    elif now_ms - swept_at_ms > GAP_MS:
        calm_until_ms = now_ms + CALM_MS
        # Time while everything stood still does not count: a suspended machine must not make all jobs overdue.
        tx.run("leases_later", (now_ms - swept_at_ms,))
    if swept_at_ms is None or not 0 <= now_ms - swept_at_ms < MARK_MS:
        tx.run("sweep_mark", (now_ms, calm_until_ms))
    taken = 0
    if now_ms >= calm_until_ms:
        taken += _silent(tx, limit, now_ms)
        taken += _overdue(tx, limit - taken)
    elif swept_at_ms is not None and now_ms - swept_at_ms >= CALM_MS:
        # Sweeps are rare here (agents only, no worker): who was silent at the last one has had its lease time.
        taken += _silent(tx, limit, swept_at_ms)
    _unstarted(tx, limit)
    _drained(tx)
    return taken


def _silent(tx: Tx, limit: int, since_ms: int) -> int:
    """Take back what sessions hold whose time was over at `since_ms`."""
    taken = 0
    for (session,) in tx.rows("silent_sessions", (since_ms,)):
        heads = [Running(*row) for row in tx.rows("held_heads", (session, limit - taken))]
        apply_all(tx, heads, session, silent(session))
        taken += len(heads)
        if taken >= limit:
            return taken
        forget(tx, session)
    return taken


def _overdue(tx: Tx, limit: int) -> int:
    heads = [Running(*row) for row in tx.rows("overdue_heads", (tx.now_ms, max(0, limit)))]
    apply_all(tx, heads, "", OVERDUE)
    return len(heads)


def _unstarted(tx: Tx, limit: int) -> None:
    """Jobs that were not started in time are cancelled, whether or not a worker would claim them."""
    for (id,) in tx.rows("expired_jobs", (tx.now_ms, limit)):
        graph.cancel_waiting(tx, id, "expired")


def _drained(tx: Tx) -> None:
    """A draining queue, task or store with nothing left ends paused."""
    for prefix in ("queue:", "task:", "all"):
        for gate in gates.gates(tx, prefix):
            if gate.draining and gate.paused is None:
                name = gate.key.removeprefix(prefix)
                live = tx.row("live_of", (prefix, name, name, BLOCKED, SCHEDULED, READY, RUNNING))
                if not live[0]:
                    tx.put_gate(replace(gate, paused=Pause("drain", "drained", tx.now_ms)))


def view(tx: Tx) -> list[SessionView]:
    """Live sessions, by name."""
    return [
        SessionView(id, tx.serves(serves), info, started, beat_at, deadline, bool(idle), running)
        for id, serves, info, started, beat_at, deadline, idle, running in tx.rows("session_views", (tx.now_ms,))
    ]
