"""Turns sessions into arguments of functions and back: beats, what a session holds, who is alive, and the sweep."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import msgspec

from limpet.core.jobs.lease import Beat, Held, Pulse, Serves, SessionView
from limpet.core.jobs.state import STATES, State
from limpet.stores.base import READER
from limpet.stores.postgres.wire import clean

if TYPE_CHECKING:
    from limpet.stores.postgres.client import Client

BEAT: Final = """SELECT * FROM lp.beat_1(
  %b::text, %b::bigint, %b::text[], %b::text[], %b::text[], %b::bytea, %b::bytea, %b::text, %b::bigint,
  %b::bytea[], %b::bigint[], %b::text[], %b::text[], %b::bytea[], %b::text, %b::text, %b::bigint)"""
NOW: Final = "SELECT lp.now_1(NULL)"
LEAVE: Final = "SELECT * FROM lp.leave_1(%b::text, %b::bigint)"
HELD: Final = "SELECT * FROM lp.held_1(%b::text)"
EXPIRE: Final = "SELECT * FROM lp.expire_1(%b::integer, %b::bigint)"
FOLD: Final = "SELECT lp.fold_1(%b::integer)"
WATCH: Final = "SELECT lp.watch_1(%b::bytea, %b::text)"
SESSIONS: Final = "SELECT * FROM lp.sessions_1(NULL)"

FOLD_ROWS: Final = 2_000  # tallies that one step folds: a few milliseconds
FOLDS: Final = 20  # steps of folding that one call takes

_json = msgspec.json.Encoder().encode
_serves = msgspec.json.Decoder(Serves).decode


async def beat(client: Client, beat: Beat, address: str | None, now_ms: int | None) -> Pulse:
    """Open or keep a session and take its notes."""
    serves = beat.serves
    notes = sorted(beat.notes, key=lambda note: note[0])  # rows are locked in the order of ids
    values = (
        clean(beat.session),
        beat.ttl_ms,
        None if serves.queues is None else list(serves.queues),
        None if serves.tasks is None else list(serves.tasks),
        list(serves.capabilities),
        _json(serves),
        beat.info,
        address,
        int.from_bytes(os.urandom(7), "big"),  # made again when its answer is lost, it says again what it did
        [id for id, _, _ in notes],
        [token for _, token, _ in notes],
        [clean(note.kind) for _, _, note in notes],
        [clean(note.name) for _, _, note in notes],
        [note.body for _, _, note in notes],
        *READER,
        now_ms,
    )
    fresh, ids, tokens, store, newest, listened = await client.row(BEAT, values, verb="beat")
    return Pulse(fresh, tuple(zip(ids or (), tokens or (), strict=True)), store, newest, listened)


async def now(client: Client) -> int:
    """The engine's time in ms."""
    (now_ms,) = await client.row(NOW, verb="now")
    return int(now_ms)


async def leave(client: Client, session: str, now_ms: int | None) -> None:
    """Close a session and release what it still holds."""
    await client.change(LEAVE, (clean(session), now_ms), verb="leave", now_ms=now_ms)


async def held(client: Client, session: str) -> list[Held]:
    """What a session holds."""
    columns: tuple[Any, ...] = await client.row(HELD, (clean(session),), verb="held")
    return [Held(*row) for row in zip(*(column or () for column in columns), strict=True)]


async def expire(client: Client, limit: int, now_ms: int | None) -> int:
    """Take back what silent sessions hold; how many jobs."""
    taken, much = await client.change(EXPIRE, (limit, now_ms), verb="expire", now_ms=now_ms)
    if much:
        await fold(client, verb="expire")
    return int(taken)


async def fold(client: Client, *, verb: str) -> None:
    """Sum up what was counted, in small steps."""
    for _ in range(FOLDS):
        (folded,) = await client.row(FOLD, (FOLD_ROWS,), verb=verb)
        if folded < FOLD_ROWS:
            return


async def watch(client: Client, id: bytes, address: str | None) -> State | None:
    """Have the end of a job told to `address`; its state now, None when it is gone."""
    (code,) = await client.row(WATCH, (id, address), verb="watch")
    return None if code is None else STATES[code]


async def view(client: Client) -> list[SessionView]:
    """Live sessions, by name."""
    rows = await client.rows(SESSIONS, verb="sessions")
    return [SessionView(name, _serves(serves), *rest) for name, serves, *rest in rows]
