"""Routes for whatever watches the server: whether it lives, and whether it can answer."""

from __future__ import annotations

from typing import Final, Literal

from limpet.core.errors import StoreUnreachable
from limpet.core.records.record import Record
from limpet.server.call import Call
from limpet.server.route import Route, get


class Health(Record, frozen=True, kw_only=True):
    """The server answers; of `/readyz`: its store does, too."""

    status: Literal["ok"] = "ok"


async def alive(call: Call[None, None]) -> Health:
    """Whether the server answers at all."""
    return Health()


async def ready(call: Call[None, None]) -> Health:
    """Whether the server's store answers."""
    if call.closing.is_set():
        raise StoreUnreachable("the server is ending", fix="ask another one")
    await call.app.store.now()
    return Health()


ROUTES: Final[tuple[Route, ...]] = (
    get("/healthz", None, alive, bare=True),
    get("/readyz", None, ready, bare=True, errors=(StoreUnreachable,)),
)
