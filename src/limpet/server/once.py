"""Answers a POST that came with an Idempotency-Key: the first time by its handler, then as the first time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from starlette.responses import Response

from limpet.core.access.refusal import TooManyRequests
from limpet.core.errors import UsageError
from limpet.ops.idempotency import Answered, Begun, Idempotency, Refused
from limpet.server.answer import respond
from limpet.server.call import Call
from limpet.server.decode import JSON
from limpet.server.refusal import AnswerNotKept, KeyInUse, KeyReused
from limpet.server.route import Route

HEADER: Final = "idempotency-key"
REPLAYED: Final = {"idempotency-replayed": "true"}


async def once(idempotency: Idempotency, route: Route, call: Call[Any, Any], raw: bytes) -> Response:
    """The response; a request that was refused, and so had no effect, leaves its key free."""
    request, path = call.request, call.request.scope["path"]
    query = request.scope["query_string"].decode("latin-1")
    found = await idempotency.begin(call.caller.own, request.headers[HEADER], "POST", f"{path}?{query}", raw)
    if isinstance(found, Refused):
        raise _refusal(found)
    if isinstance(found, Answered):
        return await _again(found, route, call)
    return await _first(idempotency, found, route, call)


async def _first(idempotency: Idempotency, begun: Begun, route: Route, call: Call[Any, Any]) -> Response:
    try:
        response = respond(route, await route.handler(replace(call, ids=begun.ids)), call.request)
    except UsageError:
        await idempotency.forget(begun)
        raise
    await idempotency.finish(begun, response.status_code, bytes(response.body))
    return response


async def _again(answered: Answered, route: Route, call: Call[Any, Any]) -> Response:
    """As it was answered; an answer about jobs that was too long is made again of their ids."""
    if answered.answer is not None:
        return Response(answered.answer, status_code=answered.status, media_type=JSON, headers=REPLAYED)
    if route.body_names_jobs:
        return respond(route, await route.handler(replace(call, ids=answered.ids)), call.request)
    raise AnswerNotKept("the request was done, and its answer was too long to be kept", fix="look at what it did")


def _refusal(found: Refused) -> UsageError | TooManyRequests:
    wait_s = found.retry_after_ms / 1000
    if found.why == "other_request":
        return KeyReused("this Idempotency-Key came with another request", fix="choose a new key for a new request")
    if found.why == "in_progress":
        return KeyInUse("a request with this Idempotency-Key is under way", fix="ask again later", retry_after_s=wait_s)
    fix = "keys are kept for a day: ask again later, or leave the key out"
    return TooManyRequests("no more Idempotency-Keys can be kept", fix=fix, retry_after_s=wait_s)
