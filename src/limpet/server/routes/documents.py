"""Routes that describe the API."""

from __future__ import annotations

from typing import Any, Final

from limpet.server.call import Call
from limpet.server.route import Route, get


async def described(call: Call[None, None]) -> dict[str, Any]:
    """This document: every route, with its types, as OpenAPI 3.1."""
    from limpet.server.openapi import document
    from limpet.server.table import ROUTES  # lazy: the table lists this route, too

    return document(ROUTES, call.request.scope.get("root_path", ""))


ROUTES: Final[tuple[Route, ...]] = (get("/openapi.json", None, described, bare=True, etag=True),)
