"""Answers questions about single jobs and pages of them: one index, and a bounded number of candidates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.job import Lane
from limpet.core.jobs.state import STATES
from limpet.core.jobs.view import AttemptView, JobView, Page, Query, Term
from limpet.stores.match import lane_match_of, needs_args, needs_clock
from limpet.stores.postgres.definition_cache import DefinitionCache
from limpet.stores.postgres.views import NOWHERE, Candidates, JobRow, Position, glances, view_of
from limpet.stores.search import CANDIDATES, LOOK_S, RESOLVE, Search, ended_from_ms, hex_suffix, named, read_cursor

if TYPE_CHECKING:
    from limpet.stores.postgres.client import Client

AT_ONCE: Final = 256  # whole jobs, each with arguments and a result, that one statement reads

# A search goes in growing steps, so that a page which is full soon costs little. It ends with the candidates it may
# look at, and sooner where they are large or come slowly (from a cold disk): the page says so and has a cursor.
LEAST, MOST, GROWTH = 64, 1_024, 4
CANDIDATE_BYTES: Final = 8 * 1024 * 1024  # of arguments and packed parts

JOBS: Final = "SELECT * FROM lp.jobs_1(%b::bytea[])"
ATTEMPTS: Final = "SELECT * FROM lp.attempts_1(%b::bytea)"
RESOLVED: Final = "SELECT * FROM lp.resolve_1(%b::bytea, %b::integer, %b::integer)"
NOW: Final = "SELECT lp.now_1(NULL)"
NEXT: Final = """SELECT * FROM lp.candidates_1(%b::smallint[], %b::boolean, %b::bigint, %b::bigint, %b::bytea,
  %b::integer, %b::boolean, %b::boolean, %b::bigint, %b::bytea, %b::bytea)"""

_PACKED: Final = frozenset({"age", "flow", "tag", "unique"})  # fields that are stored with the job and not its place


# -- jobs by id


async def views(
    client: Client, definitions: DefinitionCache, ids: Sequence[bytes], *, verb: str = "get"
) -> list[JobView | None]:
    """The jobs with these ids, in order; None for one that is not there."""
    found: dict[bytes, JobView] = {}
    wanted = list(dict.fromkeys(ids))
    for start in range(0, len(wanted), AT_ONCE):
        rows = [*map(JobRow._make, await client.rows(JOBS, (wanted[start : start + AT_ONCE],), verb=verb))]
        lanes, policies = await definitions.fetch_missing(
            client, {row.lane for row in rows}, {row.policy for row in rows}, verb=verb
        )
        found.update((row.id, view_of(row, lanes, policies)) for row in rows)
    return [found.get(id) for id in ids]


async def attempts(client: Client, id: bytes) -> list[AttemptView]:
    """Every recorded attempt, oldest first."""
    return [AttemptView(*row) for row in await client.rows(ATTEMPTS, (id,), verb="inspect")]


async def resolve(client: Client, suffix: str) -> list[bytes]:
    """Up to three ids that end in `suffix`, newest first."""
    plain = hex_suffix(suffix)
    if plain is None:
        return []
    half = int(plain[0], 16) if len(plain) % 2 else None
    end = bytes.fromhex(plain[len(plain) % 2 :])
    return [id for (id,) in await client.rows(RESOLVED, (end, half, RESOLVE), verb="find")]


# -- pages


async def find(client: Client, definitions: DefinitionCache, query: Query, now_ms: int | None) -> Page:
    """One page: candidates by an index, then states and terms as a filter."""
    if query.suffix is not None:
        return named(await views(client, definitions, await resolve(client, query.suffix), verb="find"))
    if now_ms is None:
        now_ms = (await client.row(NOW, verb="find"))[0] if needs_clock(query.terms) else 0
    by = _by(query)
    search: Search[Position] = Search(query, by.name, now_ms)
    after = None if query.cursor is None else read_cursor(query.cursor, by.name, Position)
    if (id := _only(query.terms)) is not None:
        return search.page(await views(client, definitions, [id], verb="find"), None)
    from_ms = None if by.named else ended_from_ms(query, now_ms)
    if after is None and from_ms is not None and not query.newest_first:
        after = Position(from_ms, 0, b"")  # before every job that ended then
    last = await _look(client, definitions, query, by, search, after, from_ms)
    return search.page(await views(client, definitions, search.ids, verb="find"), last)


async def _look(
    client: Client,
    definitions: DefinitionCache,
    query: Query,
    by: _By,
    search: Search[Position],
    last: Position | None,
    from_ms: int | None,
) -> Position | None:
    """Search on from behind `last`, until the page is full or a bound is hit; None when the index ends before.

    Jobs in the order of their ends, the newest first, end for the search with those that ended before `from_ms`. All
    that a flow or a key names are looked at, however many they are: bounds are for searches over all jobs.
    """
    codes = [state.code for state in (query.states if query.states is not None else STATES)]
    fits = _Fits(codes, lane_match_of(query.terms))
    args = needs_args(query.terms)
    packed = args or any(term.field in _PACKED for term in query.terms)
    left, bytes_left, step = CANDIDATES, CANDIDATE_BYTES, max(LEAST, min(MOST, query.limit + 1))
    loop = asyncio.get_running_loop()
    until = loop.time() + LOOK_S
    while codes:
        count = min(step, left)
        asked = (codes, query.newest_first, *(last or (0, 0, None)), count, packed, args, bytes_left, by.flow, by.key)
        seen, *arrays, size = await client.row(NEXT, asked, verb="find")
        if not seen:
            break
        candidates = Candidates._make(arrays)
        fits.lanes, _ = await definitions.fetch_missing(client, set(candidates.lanes), (), verb="find")
        search.take(glances(candidates, fits.lanes, fits))
        last = candidates.last
        taken = len(candidates.ids)
        step = min(MOST, count * GROWTH)
        if not by.named:
            left, bytes_left = left - taken, bytes_left - size
        if search.full:
            return last
        if taken == seen < count or (from_ms is not None and query.newest_first and last.a < from_ms):
            break
        if left <= 0 or bytes_left <= 0 or (loop.time() >= until and not by.named):
            return last
    return None


class _Fits:
    """Answers of a state and a lane whether a job of both can fit; each lane is asked about once."""

    def __init__(self, codes: Collection[int], match: Callable[[Lane], bool]) -> None:
        self.lanes: Mapping[int, Lane] = {}
        self._codes = frozenset(codes)
        self._match = match
        self._known: dict[int, bool] = {}

    def __call__(self, state: int, lane: int) -> bool:
        if state not in self._codes:
            return False
        fits = self._known.get(lane)
        if fits is None:
            fits = self._known[lane] = self._match(self.lanes.get(lane, NOWHERE))
        return fits


class _By(NamedTuple):
    """The index that a query follows (a cursor of one is none of another), and what is looked up in it."""

    name: str
    flow: bytes | None = None
    key: bytes | None = None  # a unique key, in whatever task

    @property
    def named(self) -> bool:
        return self.flow is not None or self.key is not None


def _by(query: Query) -> _By:
    plain = [term for term in query.terms if not term.negated]
    for term in plain:
        if term.field == "flow":
            return _By("flow", flow=id_bytes(term.value))
    for term in plain:
        if term.field == "unique" and "*" not in term.value:
            return _By("unique", key=term.value.encode())
    if query.states is not None and len(query.states) == 1:
        (state,) = query.states
        return _By(state.value)
    return _By("id")


def _only(terms: Sequence[Term]) -> bytes | None:
    """The one job that the terms allow, if they name it."""
    return next((id_bytes(term.value) for term in terms if term.field == "id" and not term.negated), None)
