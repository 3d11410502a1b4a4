"""Decides what --since means: so long ago, or an instant; a job's enqueue or its end is compared with it."""

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
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption(
            f"{text!r} is neither a duration nor an instant", fix="write --since 1h, or --since 2026-11-19T08:00Z"
        ) from None
    if moment.tzinfo is None:
        raise InvalidOption(f"{text!r} has no time zone", fix="write --since 2026-11-19T08:00Z, or 08:00+01:00")
    return instant_ms(moment, what="since")


async def narrowed(store: Store, query: Query, field: str, since: str | None) -> Query:
    """The query for jobs whose `field` (age, finished) began at that instant or later; unchanged without one."""
    if since is None:
        return query
    ago_ms = await store.now() - await since_ms(store, since)
    return replace(query, terms=(*query.terms, Term(field, str(ago_ms), "<=")))
