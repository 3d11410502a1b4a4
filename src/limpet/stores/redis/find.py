"""Answers questions about single jobs and pages of them: one index, and a bounded number of candidates."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from limpet.core.jobs.state import FINISHED, STATES, State
from limpet.core.jobs.view import AttemptView, JobView, Page, Query
from limpet.stores.match import needs_args, needs_clock
from limpet.stores.redis.definition_cache import DefinitionCache
from limpet.stores.redis.fields import ENDED, ID_BYTES, ITEM, SEQ_BYTES, SLOTS, TOKEN_BYTES
from limpet.stores.redis.find_cursor import Cursor
from limpet.stores.redis.find_scan import NAMED_BY, SHARED, chunks, name_of, scan, slots
from limpet.stores.redis.keys import K
from limpet.stores.redis.record import named_in, notes_of, parents_of
from limpet.stores.redis.scripts import script
from limpet.stores.redis.views import Parts, view_of
from limpet.stores.search import (
    CANDIDATES,
    LOOK_S,
    RESOLVE,
    SURE,
    Search,
    ended_from_ms,
    foreign_cursor,
    hex_suffix,
    named,
    read_cursor,
)

if TYPE_CHECKING:
    from limpet.stores.redis.client import Client

AT_ONCE: Final = 512  # jobs that are read in one step
AT_ONCE_WHOLE: Final = 64  # with arguments and results, each of which may be large
WHOLE: Final = "ahrnp"
_WIDTH: Final = 7

_decode_attempt = msgspec.msgpack.Decoder(tuple[int, str, int, int, str, str, str, str, str, str]).decode


# -- jobs by id


async def views(
    client: Client,
    key: bytes,
    definitions: DefinitionCache,
    ids: Sequence[bytes],
    *,
    what: str = WHOLE,
    verb: str = "get",
) -> list[JobView | None]:
    """The jobs with these ids, in order; None for one that is not there."""
    found: list[JobView | None] = []
    step = AT_ONCE_WHOLE if "a" in what else AT_ONCE
    for start in range(0, len(ids), step):
        found += await _views(client, key, definitions, ids[start : start + step], what, verb)
    return found


async def _views(
    client: Client, key: bytes, definitions: DefinitionCache, ids: Sequence[bytes], what: str, verb: str
) -> list[JobView | None]:
    flat: list[Any] = await client.script(verb, script("views"), key, ("", what, *ids))
    lanes, policies = await definitions.fetch_missing(client, *named_in(flat[::_WIDTH]), verb=verb)
    found: list[JobView | None] = []
    for id, at in zip(ids, range(0, len(flat), _WIDTH), strict=True):
        raw, run, session, args, result, notes, after = flat[at : at + _WIDTH]
        beside = notes_of(notes or []), parents_of(after or b"")
        parts = None if raw is None else Parts(raw, run, session, args, result, *beside)
        found.append(None if parts is None else view_of(id, parts, lanes, policies))
    return found


async def attempts(client: Client, key: bytes, id: bytes) -> list[AttemptView]:
    """Every recorded attempt, oldest first."""
    rows: list[bytes] = await client.call("inspect", "LRANGE", K.attempts.under(key, id), 0, -1)
    return [_attempt(*_decode_attempt(row)) for row in rows]


def _attempt(
    number: int, outcome: str, started: int, finished: int, session: str, kind: str, *rest: str
) -> AttemptView:
    return AttemptView(number, outcome, started, finished, session, kind or None, *rest)  # type: ignore[arg-type]


async def resolve(client: Client, key: bytes, suffix: str) -> list[bytes]:
    """Up to three ids that end in `suffix`, newest first."""
    plain = hex_suffix(suffix)
    if plain is None:
        return []
    if len(plain) == 32:
        raw = bytes.fromhex(plain)
        return [raw] if await client.call("find", "HEXISTS", K.jobs.under(key), raw) else []
    found: list[bytes] = []
    looked = 0
    async for _, blob in chunks(Cursor(client, key, verb="find"), None, 256):
        if plain in blob.hex():
            found += [id for _, id in slots(blob, newest_first=True) if id.hex().endswith(plain)]
        looked += SLOTS
        if len(found) >= 3 or looked >= RESOLVE:
            break
    return found[:3]


# -- pages


async def find(client: Client, key: bytes, definitions: DefinitionCache, query: Query, now_ms: int | None) -> Page:
    """One page: candidates by an index, then states and terms as a filter."""
    if query.suffix is not None:
        return named(await views(client, key, definitions, await resolve(client, key, query.suffix), verb="find"))
    if now_ms is None:
        seconds, micros = await client.call("find", "TIME") if needs_clock(query.terms) else (0, 0)
        now_ms = int(seconds) * 1000 + int(micros) // 1000
    index = name_of(query)
    search: Search[bytes] = Search(query, index, now_ms)
    after = None if query.cursor is None else _read_cursor(query.cursor, index)
    from_ms = ended_from_ms(query, now_ms) if index in FINISHED else None
    if after is None and from_ms is not None and not query.newest_first:
        after = (
            max(0, from_ms).to_bytes(ENDED.size, "big").ljust(_POSITIONS[index], b"\0")
        )  # before all that ended then
    at_once = AT_ONCE if query.terms else max(64, min(AT_ONCE, query.limit + 1))
    cursor = Cursor(client, key, query.newest_first, after, batch=at_once)
    what = "a" if needs_args(query.terms) else ""
    most = sys.maxsize if index in SHARED else CANDIDATES
    until_s = sys.maxsize if index in SHARED else time.monotonic() + LOOK_S
    looked, last, more = 0, b"", False
    async for batch in scan(query, cursor):
        some = batch[: most - looked]
        looked, last = looked + len(some), some[-1][0]
        found = await views(client, key, definitions, [id for _, id in some], what=what, verb="find")
        search.take(zip((position for position, _ in some), found, strict=True))
        past = from_ms is not None and query.newest_first and int.from_bytes(last[: ENDED.size], "big") < from_ms
        enough = looked >= most or (looked >= SURE and time.monotonic() >= until_s)
        more = search.full or (enough and not past)
        if more or past:
            break
    whole = await views(client, key, definitions, search.ids, verb="find")
    return search.page(whole, last if more else None)


def _read_cursor(cursor: str, index: str) -> bytes:
    position = read_cursor(cursor, index, bytes)
    if len(position) != _POSITIONS[index]:
        raise foreign_cursor()
    return position


# How long the positions of an index are.
_POSITIONS: Final = {
    "ledger": SEQ_BYTES,
    "flow": SEQ_BYTES,
    "unique": SEQ_BYTES,
    State.blocked.value: SEQ_BYTES,
    State.scheduled.value: 1 + ITEM.size,  # the priority comes first
    State.running.value: TOKEN_BYTES + ID_BYTES,
    **{state.value: NAMED_BY + 2 for state in STATES if state in FINISHED},  # and the place in the member
}
