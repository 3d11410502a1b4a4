"""Decides what instants in text mean, such as --since: so long ago, or an instant, which is compared with a job's."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from limpet.core.errors import InvalidOption
from limpet.core.jobs.view import Query, Term
from limpet.core.text.duration import instant_ms, to_ms
from limpet.stores.base import Store


async def since_ms(store: Store, text: str) -> int:
    """The instant that `text` names, by the engine's clock: 1h (ago), or 2026-11-19T08:00Z."""
    now_ms = await store.now()
    try:
        return now_ms - to_ms(text, what="since")
    except InvalidOption:
        pass
    return instant_ms(moment_of(text, "write 1h (ago), or 2026-11-19T08:00Z"), what="since")


def moment_of(text: str, fix: str) -> datetime:
    """The instant in `text`; one without a time zone is refused, since it could be any."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption(f"{text!r} is neither a duration nor an instant", fix=fix) from None
    if moment.tzinfo is None:
        raise InvalidOption(f"{text!r} has no time zone", fix=fix.replace("08:00Z", "08:00Z, or 08:00+01:00"))
    return moment


async def narrowed(store: Store, query: Query, field: str, since: str | None) -> Query:
    """The query for jobs whose `field` (age, finished) began at that instant or later; unchanged without one."""
    if since is None:
        return query
    ago_ms = await store.now() - await since_ms(store, since)
    return replace(query, terms=(*query.terms, Term(field, str(ago_ms), "<=")))
