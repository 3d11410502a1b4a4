"""Finds jobs by what is shown of them: a query must not tell what is hidden."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from limpet.core.jobs.view import JobView, Page, Query, Term
from limpet.core.redaction.redaction import Hidden, Redaction
from limpet.ops.query import InvalidQuery
from limpet.stores.base import Store
from limpet.stores.match import match_of

# What a rule may hide something in; all other fields show what is never hidden.
_CONTENT: Final = frozenset({"error", "word", "tenant", "tag", "unique"})
_PAGE: Final = 500  # jobs that are looked at together, where only some may match as they are shown
_LOOKED_AT: Final = 10_000


class ShownJobs:
    """The jobs that match a query as they are shown. A question about a hidden argument is refused."""

    def __init__(self, redaction: Redaction, query: Query) -> None:
        hidden = redaction.all
        for term in query.terms:
            _refuse_hidden(term, hidden)
        self._redaction = redaction
        self._sees = [term for term in query.terms if hidden and (term.field in _CONTENT or _digs(term, hidden))]
        # What the store is asked: nothing that looks at a text in which something is hidden.
        self.query = replace(query, terms=tuple(term for term in query.terms if not _digs(term, hidden)))

    def match(self, view: JobView) -> bool:
        """Whether the job matches as it is shown."""
        return not self._sees or match_of(self._sees, 0)(self._redaction.job(view))

    async def page(self, store: Store, now_ms: int | None) -> Page:
        """One page of them; after 10,000 jobs that do not match it ends early, and is not complete."""
        query, found, seen = self.query, list[JobView](), 0
        page = await store.find(query, now_ms=now_ms)
        while self._sees:
            matches = [place for place, view in enumerate(page.jobs) if self.match(view)]
            missing = self.query.limit - len(found)
            if len(matches) > missing:  # the cursor must stand behind the last one that is answered
                page = await store.find(
                    replace(query, cursor=query.cursor, limit=matches[missing - 1] + 1), now_ms=now_ms
                )
                matches = [place for place, view in enumerate(page.jobs) if self.match(view)]
            found += [page.jobs[place] for place in matches]
            seen += len(page.jobs)
            if len(found) >= self.query.limit or page.cursor is None or not page.complete or seen >= _LOOKED_AT:
                done = page.cursor is None or len(found) >= self.query.limit
                return replace(page, jobs=tuple(found), complete=page.complete and done)
            query = replace(query, cursor=page.cursor, limit=_PAGE)
            page = await store.find(query, now_ms=now_ms)
        return page


def _refuse_hidden(term: Term, hidden: Hidden) -> None:
    """Asked often enough, such a question would tell the value."""
    path = tuple(term.field.split("."))
    if path[0] == "args" and (rule := hidden.rules.covers(path)) is not None:
        raise InvalidQuery(
            f"{term.field} cannot be searched by: the rule {rule.text!r} hides it",
            fix="search by another argument, or by a tag that names no secret",
        )


def _digs(term: Term, hidden: Hidden) -> bool:
    """Whether it may look at the text of a whole object or list, in which something is hidden."""
    path = tuple(term.field.split("."))
    if path[0] != "args" or term.op != "=" or term.value[:1] not in ("*", "{", "["):
        return False
    return hidden.rules.reach_below(path)
