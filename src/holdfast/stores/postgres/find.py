"""Answers questions about single jobs and pages of them: one index, and a bounded number of candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from holdfast.core.ids import id_bytes
from holdfast.core.state import STATES
from holdfast.core.view import AttemptView, JobView, Page, Query, Term
from holdfast.stores.match import needs_args, needs_clock
from holdfast.stores.postgres.known import Known
from holdfast.stores.postgres.view import Position, glances, view_of
from holdfast.stores.search import CANDIDATES, RESOLVE, Search, hex_suffix, read_cursor

if TYPE_CHECKING:
    from holdfast.stores.postgres.route import Route

AT_ONCE: Final = 256  # whole jobs, each with arguments and a result, that one statement reads
GROWTH: Final = 4  # how much larger each step of a search is than the one before
CANDIDATE_BYTES: Final = 8 * 1024 * 1024  # of arguments and packed parts that one page may look at

JOBS: Final = "SELECT * FROM hf.jobs_1(%b::bytea[])"
ATTEMPTS: Final = "SELECT * FROM hf.attempts_1(%b::bytea)"
RESOLVED: Final = "SELECT * FROM hf.resolve_1(%b::bytea, %b::integer, %b::integer)"
NOW: Final = "SELECT hf.now_1(NULL)"
NEXT: Final = """SELECT * FROM hf.candidates_1(%b::smallint[], %b::boolean, %b::bigint, %b::bigint, %b::bytea,
  %b::integer, %b::boolean, %b::boolean, %b::bigint)"""

_PACKED: Final = frozenset({"age", "flow", "tag", "unique"})  # fields that are stored with the job and not its place


# -- jobs by id


async def views(route: Route, known: Known, ids: Sequence[bytes], *, verb: str = "get") -> list[JobView | None]:
    """The jobs with these ids, in order; None for one that is not there."""
    found: dict[bytes, JobView] = {}
    wanted = list(dict.fromkeys(ids))
    for start in range(0, len(wanted), AT_ONCE):
        rows = await route.rows(JOBS, (wanted[start : start + AT_ONCE],), verb=verb)
        lanes, policies = await known.learn(route, {row[2] for row in rows}, {row[3] for row in rows}, verb=verb)
        found.update((row[0], view_of(row, lanes, policies)) for row in rows)
    return [found.get(id) for id in ids]


async def attempts(route: Route, id: bytes) -> list[AttemptView]:
    """Every recorded attempt, oldest first."""
    return [AttemptView(*row) for row in await route.rows(ATTEMPTS, (id,), verb="attempts")]


async def resolve(route: Route, suffix: str) -> list[bytes]:
    """Up to three ids that end in `suffix`, newest first."""
    plain = hex_suffix(suffix)
    if plain is None:
        return []
    half = int(plain[0], 16) if len(plain) % 2 else None
    end = bytes.fromhex(plain[len(plain) % 2 :])
    return [id for (id,) in await route.rows(RESOLVED, (end, half, RESOLVE), verb="resolve")]


# -- pages


async def find(route: Route, known: Known, query: Query, now_ms: int | None) -> Page:
    """One page: candidates by an index, then states and terms as a filter."""
    if now_ms is None:
        now_ms = (await route.row(NOW, verb="find"))[0] if needs_clock(query.terms) else 0
    index = _index(query)
    search: Search[Position] = Search(query, index, now_ms)
    last = None if query.cursor is None else read_cursor(query.cursor, index, Position)
    if (id := _only(query.terms)) is not None:
        return search.page(await views(route, known, [id], verb="find"), None)
    codes = [state.code for state in (query.states if query.states is not None else STATES)]
    args = needs_args(query.terms)
    packed = args or any(term.field in _PACKED for term in query.terms)
    left, bytes_left, step = CANDIDATES, CANDIDATE_BYTES, max(64, query.limit + 1)
    ended = not codes
    while not (ended or search.full) and left > 0 and bytes_left > 0:
        step = min(step, left)
        position = (0, 0, None) if last is None else last
        values = (codes, query.newest_first, *position, step, packed, args, bytes_left)
        seen, *columns, size = await route.row(NEXT, values, verb="find")
        if not seen:
            ended = True
            break
        lanes, _ = await known.learn(route, set(columns[4]), (), verb="find")
        search.take(glances(tuple(columns), lanes))
        taken = len(columns[0])
        last = Position(*(column[-1] for column in columns[:3]))
        ended = taken == seen < step
        left, bytes_left, step = left - taken, bytes_left - (size or 0), step * GROWTH
    return search.page(await views(route, known, search.ids, verb="find"), None if ended and not search.full else last)


def _index(query: Query) -> str:
    """The index that a query follows; a cursor of one is none of another."""
    if query.states is not None and len(query.states) == 1:
        (state,) = query.states
        return state.value
    return "id"


def _only(terms: Sequence[Term]) -> bytes | None:
    """The one job that the terms allow, if they name it."""
    return next((id_bytes(term.value) for term in terms if term.field == "id" and not term.negated), None)
