"""Answers questions about single jobs and pages of them: one index, and a bounded number of candidates."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.errors import InvalidOption
from holdfast.core.state import STATES, State
from holdfast.core.view import AttemptView, JobView, Page, Query
from holdfast.stores.redis.candidates import SLOTS, Candidate, Walk, chunks, name_of, slots, walk
from holdfast.stores.redis.known import Known
from holdfast.stores.redis.match import match_of, needs_args, needs_clock, queue_of
from holdfast.stores.redis.record import notes_of
from holdfast.stores.redis.scripts import script
from holdfast.stores.redis.view import Parts, view_of

if TYPE_CHECKING:
    from holdfast.stores.redis.route import Route

CANDIDATES: Final = 10_000  # jobs that one page may look at
RESOLVE: Final = 1_000_000  # ids that the end of one is looked for among
AT_ONCE: Final = 512  # jobs that are read in one step
AT_ONCE_WHOLE: Final = 64  # with arguments and results, each of which may be large
WHOLE: Final = "ahrn"
_WIDTH: Final = 6

_decode_attempt = msgspec.msgpack.Decoder(tuple[int, str, int, int, str, str, str, str, str, str]).decode


# -- jobs by id


async def views(
    route: Route, key: bytes, known: Known, ids: Sequence[bytes], *, what: str = WHOLE, verb: str = "get"
) -> list[JobView | None]:
    """The jobs with these ids, in order; None for one that is not there."""
    found: list[JobView | None] = []
    step = AT_ONCE_WHOLE if "a" in what else AT_ONCE
    for start in range(0, len(ids), step):
        found += await _views(route, key, known, ids[start : start + step], what, verb)
    return found


async def _views(
    route: Route, key: bytes, known: Known, ids: Sequence[bytes], what: str, verb: str
) -> list[JobView | None]:
    flat: list[Any] = await route.script(verb, script("views"), key, ("", what, *ids))
    lanes, policies = await known.learn(route, key, flat[::_WIDTH], verb)
    found: list[JobView | None] = []
    for id, at in zip(ids, range(0, len(flat), _WIDTH), strict=True):
        raw, run, session, args, result, notes = flat[at : at + _WIDTH]
        parts = None if raw is None else Parts(raw, run, session, args, result, notes_of(notes or []))
        found.append(None if parts is None else view_of(id, parts, lanes, policies))
    return found


async def attempts(route: Route, key: bytes, id: bytes) -> list[AttemptView]:
    """Every recorded attempt, oldest first."""
    rows: list[bytes] = await route.call("attempts", "LRANGE", key[:-1] + b"at:" + id, 0, -1)
    return [_attempt(*_decode_attempt(row)) for row in rows]


def _attempt(
    number: int, outcome: str, started: int, finished: int, session: str, kind: str, *rest: str
) -> AttemptView:
    return AttemptView(number, outcome, started, finished, session, kind or None, *rest)  # type: ignore[arg-type]


async def resolve(route: Route, key: bytes, suffix: str) -> list[bytes]:
    """Up to three ids that end in `suffix`, newest first."""
    plain = suffix.replace("-", "").lower()
    if not plain or any(c not in "0123456789abcdef" for c in plain) or len(plain) > 32:
        return []
    if len(plain) == 32:
        raw = bytes.fromhex(plain)
        return [raw] if await route.call("resolve", "HEXISTS", key[:-1] + b"J", raw) else []
    found: list[bytes] = []
    looked = 0
    async for _, blob in chunks(Walk(route, key[:-1], verb="resolve"), None, 256):
        if plain in blob.hex():
            found += [id for _, id in slots(blob, newest_first=True) if id.hex().endswith(plain)]
        looked += SLOTS
        if len(found) >= 3 or looked >= RESOLVE:
            break
    return found[:3]


# -- pages


async def find(route: Route, key: bytes, known: Known, query: Query, now_ms: int | None) -> Page:
    """One page: candidates by an index, then states and terms as a filter."""
    if now_ms is None:
        seconds, micros = await route.call("find", "TIME") if needs_clock(query.terms) else (0, 0)
        now_ms = int(seconds) * 1000 + int(micros) // 1000
    search = _Search(query, now_ms)
    way = Walk(route, key[:-1], query.newest_first, search.after, batch=max(64, min(AT_ONCE, query.limit + 1)))
    what = "a" if needs_args(query.terms) else ""
    looked, last = 0, b""
    async for batch in walk(query.states, queue_of(query.terms), way):
        some = batch[: CANDIDATES - looked]
        looked, last = looked + len(some), some[-1][0]
        found = await views(route, key, known, [id for _, id in some], what=what, verb="find")
        search.take(some, found)
        if search.full or looked >= CANDIDATES:
            break
    whole = await views(route, key, known, [id for _, id in search.found[: query.limit]], verb="find")
    # Between the two looks a job may have gone, or gone on: the page shows what is true by now.
    jobs = tuple(job for job in whole if job is not None and search.wants(job))
    if search.full:
        return Page(jobs, search.cursor(search.found[query.limit - 1][0] if query.limit else last), complete=True)
    complete = looked < CANDIDATES
    return Page(jobs, None if complete else search.cursor(last), complete=complete)


class _Search:
    """What a query wants, and what of it was found."""

    def __init__(self, query: Query, now_ms: int) -> None:
        self.found: list[Candidate] = []
        self._limit = query.limit
        self._states = query.states
        self._name = name_of(query.states)
        self._match = match_of(query.terms, now_ms)
        self._seen: set[bytes] = set()
        self.after = None if query.cursor is None else self._read_cursor(query.cursor)

    @property
    def full(self) -> bool:
        """True when there is more than fits on the page."""
        return len(self.found) > self._limit

    def wants(self, job: JobView) -> bool:
        return (self._states is None or job.state in self._states) and self._match(job)

    def take(self, candidates: Sequence[Candidate], jobs: Sequence[JobView | None]) -> None:
        for candidate, job in zip(candidates, jobs, strict=True):
            if job is not None and job.id not in self._seen and self.wants(job):
                self._seen.add(job.id)
                self.found.append(candidate)
                if self.full:
                    return

    def cursor(self, position: bytes) -> str:
        return base64.urlsafe_b64encode(msgspec.msgpack.encode((self._name, position))).decode()

    def _read_cursor(self, cursor: str) -> bytes:
        try:
            name, position = msgspec.msgpack.decode(base64.urlsafe_b64decode(cursor), type=tuple[str, bytes])
        except (ValueError, msgspec.DecodeError) as error:
            raise InvalidOption(f"{cursor!r} is not a cursor", fix="pass the cursor of the page before") from error
        if name != self._name or len(position) != _POSITIONS[name]:
            raise InvalidOption("the cursor belongs to another query", fix="pass the cursor of the page before")
        return position


# How long the positions of an index are.
_POSITIONS: Final = {
    "ledger": 6,
    State.blocked.value: 6,
    State.scheduled.value: 29,
    State.running.value: 23,
    **{state.value: 24 for state in STATES[4:]},
}
