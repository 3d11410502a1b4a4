"""The route for Prometheus: what the store knows. What workers do they expose themselves."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import Response

from limpet.runtime.exposition import Exposition
from limpet.server.call import Call
from limpet.server.route import Route, get

TEXT: Final = "text/plain"


async def exposed(call: Call[None, None]) -> Response:
    """What the store knows, for Prometheus: depths, ages, dead letters, schedules, breakers, limits, alerts."""
    exposition = Exposition()
    values = await call.operator.metrics()
    text, kind = await asyncio.to_thread(exposition.text, values, call.request.headers.get("accept", ""))
    return Response(text, headers={"content-type": kind, "cache-control": "no-store"})


ROUTES: Final[tuple[Route, ...]] = (get("/metrics", "viewer", exposed, bare=True, text=TEXT),)
