"""Decides which jobs an operator means: by id, by the unique end of an id, or by a query."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from fnmatch import fnmatchcase

from msgspec.structs import replace

from limpet.core.errors import AmbiguousId, InvalidOption, JobNotFound
from limpet.core.flows.steps import KIND
from limpet.core.jobs.ids import id_bytes, id_text
from limpet.core.jobs.job import Lane
from limpet.core.jobs.state import LIVE, STATES, State
from limpet.core.jobs.view import JobView, Query, Term
from limpet.core.redaction.redaction import Redaction
from limpet.core.tasks.naming import did_you_mean
from limpet.ops.query import InvalidQuery, looks_like_query, parse_query, query_text
from limpet.ops.shown_jobs import ShownJobs
from limpet.stores.base import Store
from limpet.stores.match import lane_match_of

SHORTEST_SUFFIX = 4  # shorter ends are typed by accident and match by accident
MOST_HOLDERS = 100  # jobs that were enqueued with one key: of several tasks, and of some time
NAMED_HOLDERS = 20  # a person reads a few; each costs a query
PAGE = 500  # jobs per step of a bulk action: a progress bar that moves, locks that stay short

Which = str | Query | Sequence[str]  # a query (text or parsed), or ids


async def resolve(store: Store, text: str) -> bytes:
    """The id that `text` names: a whole id, or an end that only one job has."""
    text = text.strip().lower().removeprefix("…")  # as narrow tables show it
    try:
        return id_bytes(text)
    except InvalidOption:
        pass
    if not may_be_id(text):
        raise JobNotFound(
            f"{text!r} is not a job id", fix=f"give the whole id, or its last {SHORTEST_SUFFIX} or more characters"
        )
    found = [job.id for job in (await store.find(Query(suffix=text))).jobs]
    if not found:
        raise JobNotFound(f"no job id ends in {text!r}", fix="it never was, or it was pruned")
    if len(found) > 1:
        shown = ", ".join(id_text(raw) for raw in found)
        raise AmbiguousId(f"more than one job id ends in {text!r}: {shown}", fix="give more characters")
    return found[0]


def may_be_id(text: str) -> bool:
    """True when `text` can be the end of an id."""
    return len(text) >= SHORTEST_SUFFIX and not set(text.lower()) - set("0123456789abcdef-")


async def view_of(store: Store, id: bytes) -> JobView:
    """The job with this id."""
    (view,) = await store.get([id])
    if view is None:
        raise not_stored(id)
    return view


def not_stored(id: bytes) -> JobNotFound:
    """The refusal of an id that no job has."""
    return JobNotFound(f"no job {id_text(id)} is stored", fix="it never was, or it was pruned")


async def walk(store: Store, query: Query, *, now_ms: int | None = None) -> AsyncIterator[list[JobView]]:
    """Every job that matches, page by page, newest first: what is enqueued meanwhile is not met."""
    query = replace(query, limit=PAGE, newest_first=True)
    while True:
        page = await store.find(query, now_ms=now_ms)
        found = [view for view in page.jobs if exact(view, query)]
        if found:
            yield found
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)


def exact(view: JobView, query: Query) -> bool:
    """True when tags and keys fit as whole words: an engine may find more, and a bulk action must not touch it."""
    for term in query.terms:
        if term.field == "tag":
            fits = any(fnmatchcase(tag, _pattern(term.value)) for tag in view.tags)
        elif term.field == "unique":
            fits = view.unique is not None and fnmatchcase(view.unique, _pattern(term.value))
        else:
            continue
        if fits == term.negated:
            return False
    return True


def _pattern(value: str) -> str:
    """Only * is special in a query."""
    return value.replace("[", "[[]").replace("?", "[?]")


def guarded(query: Query, allowed: frozenset[State], verb: str) -> Query:
    """The query narrowed to the states in which `verb` makes sense; asking only for others is an error."""
    states = allowed if query.states is None else query.states & allowed
    if not states:
        words = ", ".join(sorted(state.value for state in allowed))
        raise InvalidQuery(f"{verb} acts on jobs that are {words}", fix="leave the state out of the query")
    return replace(query, states=states)


async def chosen(
    store: Store,
    which: Which,
    allowed: frozenset[State],
    verb: str,
    redaction: Redaction,
    *,
    now_ms: int | None = None,
) -> tuple[list[bytes], list[JobView]]:
    """The ids that `which` means now, and three of the jobs to show; a query means what is shown of jobs."""
    if isinstance(which, str):
        which = definite(which, verb)
    if isinstance(which, Query):
        shown = ShownJobs(redaction, guarded(which, allowed, verb))
        ids: list[bytes] = []
        samples: list[JobView] = []
        async for found in walk(store, shown.query, now_ms=now_ms):
            page = list(filter(shown.match, found))
            samples.extend(page[: 3 - len(samples)])
            ids.extend(view.id for view in page)
        return ids, samples
    ids = await named_ids(store, which)
    samples = [await view_of(store, id) for id in ids[:3]]
    return ids, samples


def definite(text: str, verb: str) -> Query:
    """The query that `text` means, if it says which jobs to change."""
    query = parse_query(text)
    if query.terms and query.states is None and all(term.field == "word" for term in query.terms):
        # An id that a script got wrong, such as "null", must not become an action on all jobs that mention it.
        raise InvalidQuery(
            f"{query_text(query)} alone does not say which jobs to {verb}",
            fix="add a condition, such as state:dead or task:send_*; pass ids as a list",
        )
    return query


async def named_ids(store: Store, words: Sequence[str]) -> list[bytes]:
    """The ids of the jobs that are named one by one, each once."""
    for word in words:
        if looks_like_query(word):
            raise InvalidQuery(
                f"{word!r} stands among ids", fix="give ids or a query, not both; quote a word to search for it"
            )
    return list(dict.fromkeys([await resolve(store, text) for text in words]))


async def counted(store: Store, query: Query) -> int | None:
    """How many jobs match, by the store's counters; None when they do not know, since the query asks for more.

    >>> await counted(store, parse_query("state:dead queue:mail"))  # doctest: +SKIP
    """
    if any(term.field not in ("queue", "task") for term in query.terms):
        return None
    fits, states = lane_match_of(query.terms), frozenset(STATES) if query.states is None else query.states
    now = (await store.count()).now
    return sum(number for (queue, task, state), number in now.items() if state in states and fits(Lane(queue, task)))


async def refuse_unknown_steps(store: Store, ids: Sequence[bytes], names: Sequence[str]) -> None:
    """Refuse the name of a step that none of these jobs has recorded, which is most likely a typing error."""
    views = await store.get(ids)
    recorded = {note.name for view in views if view is not None for note in view.notes if note.kind == KIND}
    for name in names:
        if name != "*" and name not in recorded:
            raise InvalidOption(f"no step {name!r} is recorded", fix=did_you_mean(name, recorded))


async def key_holders(store: Store, ids: Sequence[bytes]) -> dict[str, str]:
    """Which job holds the unique key of each of these, as far as it can be found; of the first few only."""
    found: dict[str, str] = {}
    for view in await store.get(ids[:NAMED_HOLDERS]):
        if view is None or view.unique is None:
            continue
        # Keys are scoped by task, whatever it is called. A job that succeeded may hold its key for a time, a dead or
        # cancelled one does not.
        page = await store.find(Query(LIVE | {State.succeeded}, (Term("unique", view.unique),), limit=MOST_HOLDERS))
        scope = view.lane.task_scope
        others = [job for job in page.jobs if job.unique == view.unique and job.lane.task_scope == scope]
        holding = [job for job in others if job.state in LIVE] or others
        if holding:
            found[id_text(view.id)] = id_text(holding[0].id)
    return found
