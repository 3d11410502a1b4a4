"""Heeds If-Match: a record that is no longer as the client has seen it is not changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from limpet.server.answer import names, tag_of
from limpet.server.call import Call
from limpet.server.refusal import InvalidRequest, RecordChanged
from limpet.server.route import Route

HEADER: Final = "if-match"


def record_of(route: Route, routes: Sequence[Route]) -> Route | None:
    """The route that shows what this one changes: the one at its path, or at the path before its verb."""
    paths = (route.path, route.path.rpartition("/")[0])
    shown = {each.path: each for each in routes if each.method == "GET" and each.etag}
    return next((shown[path] for path in paths if path in shown), None) if route.method != "GET" else None


def only_if(route: Route, record: Route | None, header: str) -> Route:
    """The same route, which first looks whether the record still has one of these tags."""
    if record is None:
        raise InvalidRequest(f"no record with an ETag is at {route.path}", fix="leave the header If-Match out")

    async def handler(call: Call[Any, Any]) -> Any:
        query = call.query if isinstance(call.query, record.query) else record.query()
        tag = tag_of(await record.handler(dataclasses.replace(call, query=query)))
        if not names(header, tag):
            raise RecordChanged(
                f"the record is not as If-Match says: its ETag is {tag}", fix=f"read it again: GET {record.full_path}"
            )
        return await route.handler(call)

    return msgspec.structs.replace(route, handler=handler)
