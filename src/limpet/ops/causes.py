"""Lists causes with what people have said of them, finds the one that is meant, and counts deaths by the hour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from limpet.core.endings.review import KIND, Review, read_review
from limpet.core.errors import UsageError
from limpet.core.jobs.state import State
from limpet.core.jobs.view import CauseView, JobView, Query, Term
from limpet.core.records.cause import HOUR_MS, CauseKey, Hours
from limpet.core.redaction.redaction import Redaction
from limpet.core.tasks.naming import did_you_mean
from limpet.ops.names import UnknownName
from limpet.ops.redaction import redaction_of
from limpet.ops.select import PAGE, SHORTEST_SUFFIX
from limpet.stores.base import Store

MOST_CAUSES: Final = 10_000  # that a store keeps apart
LOOKED_AT: Final = 1_000  # dead jobs whose hours are counted: an index of them would cost every death
HOURS: Final = 24

Key = tuple[str, str, str]  # cause, queue, task


class SeveralCauses(UsageError):
    """More than one cause begins so, or one fingerprint has dead jobs of several queues or tasks."""

    code = "several_causes"


class Known(NamedTuple):
    """One cause: its dead jobs, what people have said of it, and the version of that."""

    view: CauseView | None  # None: none of its jobs is dead now
    review: Review
    version: int

    @property
    def key(self) -> Key:
        """Which one it is."""
        return self.review.key


async def known_causes(store: Store, queue: str | None = None, limit: int = MOST_CAUSES) -> list[Known]:
    """Causes with dead jobs, most frequent first, at most `limit`; then reviewed ones that have none, newest first."""
    reviews: dict[Key, tuple[Review, int]] = {}
    for control in await store.controls(KIND):
        review = read_review(control)
        if review is not None and queue in (None, review.queue):
            reviews[review.key] = (review, control.version)
    found = []
    for view in await store.causes(queue, limit):
        key = (view.cause, view.queue, view.task)
        review, version = reviews.pop(key, (Review(*key), 0))
        found.append(Known(view, review, version))
    if len(found) >= limit:
        return found  # those without dead jobs are not known: there are more with some
    idle = sorted(reviews.values(), key=lambda each: -each[0].at_ms)
    return found + [Known(None, review, version) for review, version in idle]


async def veiled(store: Store, found: Sequence[Known]) -> list[Known]:
    """Causes without the secrets of their samples: a message may be older than the rule that hides them."""
    redaction = await redaction_of(store)
    views = [each.view for each in found if redaction and each.view is not None]
    samples = {job.id: job for job in await store.get([view.sample for view in views]) if job is not None}
    return [_without_secrets(each, redaction, samples) for each in found]


def _without_secrets(one: Known, redaction: Redaction, samples: Mapping[bytes, JobView]) -> Known:
    view = one.view
    if view is None or (job := samples.get(view.sample)) is None:
        return one
    return one._replace(view=replace(view, message=redaction.of(job).text(view.message)))


async def named_cause(store: Store, which: CauseKey) -> Known:
    """The one cause that is meant: by its fingerprint or the beginning of it, and queue and task."""
    found = [
        each
        for each in await known_causes(store, which.queue)
        if each.review.cause.startswith(which.cause) and which.task in (None, each.review.task)
    ]
    whole = [each for each in found if each.review.cause == which.cause]
    if not whole and len(which.cause) < SHORTEST_SUFFIX:
        found = []  # a beginning so short is typed by accident and fits by accident
    found = whole or found
    if len(found) == 1:
        return (await veiled(store, found))[0]
    if found:
        shown = "; ".join(f"{each.review.cause} of {each.review.task} in {each.review.queue}" for each in found[:5])
        raise SeveralCauses(
            f"{which.cause!r} fits more than one cause: {shown}{'; …' if found[5:] else ''}",
            fix="give more of its letters, or name queue and task as well",
        )
    causes = {each.review.cause for each in await known_causes(store)}
    where = "".join(f" in {what} {name!r}" for what, name in (("queue", which.queue), ("task", which.task)) if name)
    raise UnknownName(f"there is no cause {which.cause!r:.80}{where}", fix=did_you_mean(which.cause, causes))


def jobs_of(which: CauseKey, limit: int = PAGE) -> Query:
    """The dead jobs of one cause."""
    fields = zip(("cause", "queue", "task"), which, strict=True)
    terms = tuple(Term(field, value) for field, value in fields if value is not None)
    return Query(frozenset({State.dead}), terms, limit=limit)


async def hours_of(store: Store, keys: Iterable[Key], now_ms: int) -> Mapping[Key, Hours]:
    """When the dead jobs of these causes died during the last day: the newest 1,000 dead jobs are looked at."""
    begin_ms, seen = now_ms - HOURS * HOUR_MS, 0
    deaths: dict[Key, Counter[int]] = {key: Counter() for key in keys}
    # No term bounds the time: the index is in the order of deaths, and a filter would have a page look at 10,000 jobs.
    query = Query(frozenset({State.dead}), limit=PAGE)
    while True:
        page = await store.find(query, now_ms=now_ms)
        for view in page.jobs:
            at_ms = view.finished_at_ms or now_ms
            counts = deaths.get((view.cause, view.lane.queue, view.lane.task))
            if counts is not None and at_ms >= begin_ms:
                counts[min(HOURS - 1, max(0, (now_ms - at_ms) // HOUR_MS))] += 1
        seen += len(page.jobs)
        last_ms = (page.jobs[-1].finished_at_ms or now_ms) if page.jobs else now_ms
        if page.cursor is None or last_ms < begin_ms:
            break
        if seen >= LOOKED_AT:
            begin_ms = last_ms
            break
        query = replace(query, cursor=page.cursor)
    return {
        key: Hours(tuple(counts[ago] for ago in reversed(range(HOURS))), begin_ms) for key, counts in deaths.items()
    }


def facts_of(view: JobView) -> dict[str, object]:
    """What the audit log keeps of a dead job's cause."""
    return {"cause": view.cause, "queue": view.lane.queue, "task": view.lane.task, "error": view.error_type}
