"""Turns sessions into arguments of scripts and back: beats, what a session holds, who is alive, and the sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from limpet.core.jobs.lease import Beat, Held, Pulse, Serves, SessionView
from limpet.core.jobs.state import STATES, State
from limpet.stores.base import READER
from limpet.stores.redis.scripts import call_name, script

if TYPE_CHECKING:
    from limpet.stores.redis.client import Client
    from limpet.stores.redis.connection import Word

_pack = msgspec.msgpack.Encoder().encode
_json = msgspec.json.Encoder().encode
_serves = msgspec.json.Decoder(Serves).decode


def signature_bytes(serves: Serves) -> bytes:
    """The name under which workers of equal abilities are known."""
    return serves.signature.to_bytes(8, "big", signed=True)


def packed_serves(serves: Serves) -> bytes:
    """What a worker can run, as scripts read it: [queues, tasks, capabilities]."""
    return _pack((serves.queues, serves.tasks, serves.capabilities))


async def beat(client: Client, key: bytes, beat: Beat, mailbox: str, now_ms: int | None) -> Pulse:
    """Open or keep a session and take its notes."""
    serves = beat.serves
    args: list[Word] = [
        _now(now_ms),
        beat.session,
        beat.ttl_ms,
        signature_bytes(serves),
        packed_serves(serves),
        _json(serves),
        beat.info,
        mailbox,
        call_name(),
        *READER,
    ]
    for id, token, note in beat.notes:
        args += (id, token, note.kind, note.name, note.body)
    fresh, store, newest, listened, handed, *wanted = await client.script("beat", script("sessions_beat"), key, args)
    cancels = tuple((id, int(token)) for id, token in zip(wanted[::2], wanted[1::2], strict=True))
    return Pulse(bool(fresh), cancels, store.decode(), int(newest), bool(listened), int(handed))


async def now(client: Client, key: bytes) -> int:
    """The engine's time in ms."""
    return int(await client.script("now", script("sessions_now"), key, ("",)))


async def leave(client: Client, key: bytes, session: str, now_ms: int | None) -> None:
    """Close a session and release what it still holds."""
    await client.script("leave", script("sessions_leave"), key, (_now(now_ms), session))


async def held(client: Client, key: bytes, session: str) -> list[Held]:
    """What a session holds."""
    answer: list[Any] = await client.script("held", script("sessions_held"), key, ("", session))
    return [Held(id, int(token), lost, int(handed)) for id, token, lost, handed in _rows(answer, 4)]


async def expire(client: Client, key: bytes, limit: int, keep: int, now_ms: int | None) -> int:
    """Take back what silent sessions hold; how many jobs."""
    taken: int = await client.script("expire", script("sessions_expire"), key, (_now(now_ms), limit, keep))
    return taken


async def watch(client: Client, key: bytes, id: bytes, mailbox: str) -> State | None:
    """Have the end of a job told to `mailbox`; its state now, None when it is gone."""
    code: int | None = await client.script("watch", script("wake_watch"), key, ("", id, mailbox))
    return None if code is None else STATES[code]


async def view(client: Client, key: bytes) -> list[SessionView]:
    """Live sessions, by name."""
    answer: list[Any] = await client.script("sessions", script("sessions"), key, ("",))
    return sorted((_view(*row) for row in _rows(answer, 8)), key=lambda each: each.session)


def _view(
    name: bytes, serves: bytes, info: bytes, started: bytes, beaten: bytes, deadline: bytes, idle: int, running: int
) -> SessionView:
    return SessionView(
        name.decode(), _serves(serves), info, int(started), int(beaten), int(deadline), bool(idle), running
    )


def _rows(flat: list[Any], width: int) -> list[tuple[Any, ...]]:
    """An answer of equal rows, cut into them."""
    return list(zip(*(flat[column::width] for column in range(width)), strict=True))


def _now(now_ms: int | None) -> int | str:
    return "" if now_ms is None else now_ms
