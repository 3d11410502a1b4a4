"""Decides how what a handler answers is sent: a record as one JSON object, a list inside of one, with an ETag."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from limpet.core.records.record import Record, plain
from limpet.server.decode import JSON
from limpet.server.route import Route


def respond(route: Route, answer: Any, request: Request) -> Response:
    """The response for what the handler of a route has answered."""
    if isinstance(answer, Response):
        return answer
    if answer is None:
        return Response(status_code=204)
    raw = msgspec.json.encode({route.of: plain(tuple(answer))}) if route.of else _encoded(answer)
    if not route.etag:
        return Response(raw, status_code=route.status, media_type=JSON)
    tag = etag_of(raw)
    headers = {"etag": tag, "cache-control": "no-cache"}
    if names(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    return Response(raw, status_code=route.status, media_type=JSON, headers=headers)


def tag_of(answer: Any) -> str:
    """The tag of what a handler answers: the same bytes, the same tag, whichever server sends them."""
    return etag_of(_encoded(answer))


def names(header: str, tag: str) -> bool:
    """Whether If-Match or If-None-Match names the tag."""
    given = [each.strip().removeprefix("W/") for each in header.split(",")]
    return tag in given or "*" in given


def _encoded(answer: Any) -> bytes:
    return msgspec.json.encode(answer.to_dict() if isinstance(answer, Record) else answer)


def etag_of(raw: bytes) -> str:
    """The tag of some bytes."""
    return f'"{sha256(raw).hexdigest()[:32]}"'
