"""Decides what a refused request is told: a problem document (RFC 9457) with the code and the fix of the error."""

from __future__ import annotations

import math
from typing import Final

import msgspec
from starlette.responses import Response

from limpet.core.access.refusal import TokenInvalid, TokenRequired, TooManyRequests
from limpet.core.errors import LimpetError
from limpet.core.records.record import Record
from limpet.core.text.storable import storable
from limpet.ops.codes import meaning_of
from limpet.server.refusal import BodyTooSlow, KeyInUse, MethodNotAllowed

MEDIA_TYPE: Final = "application/problem+json"
KIND: Final = "urn:limpet:error:"  # of a problem's type, before the code


class Problem(Record, frozen=True, kw_only=True):
    """Why a request was refused, as RFC 9457 has it; `code` is stable, `fix` says what to do next."""

    type: str
    title: str
    status: int
    detail: str
    instance: str  # the path that was asked for
    code: str
    fix: str | None

    @classmethod
    def of(cls, error: LimpetError, instance: str) -> Problem:
        """The document for an error."""
        meaning = meaning_of(error)
        return cls(
            type=f"{KIND}{error.code}",
            title=meaning.title,
            status=meaning.status,
            detail=storable(error.message),
            instance=instance,
            code=error.code,
            fix=storable(error.fix) or None,
        )


def problem_response(error: LimpetError, instance: str) -> Response:
    """The answer for an error, with the headers that its status asks for."""
    document = Problem.of(error, instance)
    return Response(
        msgspec.json.encode(document),
        status_code=document.status,
        media_type=MEDIA_TYPE,
        headers=_headers(error),
    )


def _headers(error: LimpetError) -> dict[str, str]:
    if isinstance(error, TokenInvalid):
        return {"www-authenticate": 'Bearer realm="limpet", error="invalid_token"'}
    if isinstance(error, TokenRequired):
        return {"www-authenticate": 'Bearer realm="limpet"'}
    if isinstance(error, TooManyRequests | KeyInUse):
        return {"retry-after": str(max(1, math.ceil(error.retry_after_s)))}
    if isinstance(error, BodyTooSlow):
        return {"connection": "close"}
    if isinstance(error, MethodNotAllowed):
        return {"allow": error.allowed}
    return {}
