"""Routes about events: live ones of jobs, as a stream of server-sent events."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct
from starlette.responses import Response

from limpet.core.access.refusal import TooManyRequests
from limpet.core.errors import StoreUnreachable
from limpet.ops.query import InvalidQuery
from limpet.server.call import Call
from limpet.server.event_stream import MEDIA_TYPE, streamed
from limpet.server.route import Route, get

MOST_STREAMS: Final = 1_000  # of one server

Q = Annotated[str, Meta(description="Which jobs, by state, queue, task and id: state:dead queue:mail")]
Every = Annotated[
    float, Meta(ge=0, le=10, description="Seconds between two messages; above 0 jobs are counted instead of told each.")
]


class Live(Struct, frozen=True, forbid_unknown_fields=True):
    """Which events, and how often."""

    q: Q = ""
    every: Every = 0


async def live(call: Call[Live, None]) -> Response:
    """What happens to jobs from now on, or after the event that `Last-Event-ID` names: `job`, `counts`, `gap`."""
    if call.request.method == "HEAD":
        return Response(media_type=MEDIA_TYPE)
    if call.closing.is_set():
        raise StoreUnreachable("the server is ending", fix="ask another one")
    if call.feed.readers >= MOST_STREAMS:
        raise TooManyRequests(
            f"{MOST_STREAMS:,} streams are open", fix="close some: one stream is enough for a page", retry_after_s=10
        )
    after = call.request.headers.get("last-event-id")
    sees = None if call.caller.queues is None else call.caller.sees
    stream = call.feed.events(call.query.q, after=after, sees=sees)
    return await streamed(call.feed, stream, call.query.every, call.barred)


ROUTES: Final[tuple[Route, ...]] = (
    get("/events", "viewer", live, stream=MEDIA_TYPE, errors=(InvalidQuery, StoreUnreachable)),
)
