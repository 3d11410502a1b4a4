"""Decides what a route is: one line of the table from which requests are answered and documents are written.

To add a route: write a handler in the module of its noun under `routes/`, and a line in that module's ROUTES.

    class Newest(Struct, frozen=True, forbid_unknown_fields=True):
        limit: Annotated[int, Meta(ge=1, le=500, description="Lines at most.")] = 100

    async def audit(call: Call[Newest, None]) -> list[AuditRecord]:
        "The newest lines of the audit log."
        return await call.operator.audit(limit=call.query.limit)

    ROUTES = (get("/audit", "viewer", audit, of="audit"),)

The types of query, body and answer are those of the handler's signature, its docstring is the summary. A handler has
no `if` about jobs: what Operator lacks is added to `ops` first. What it raises becomes a problem document.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import cleandoc
from typing import Any, Final, Literal, get_args, get_type_hints

from msgspec import Struct

from limpet.core.access.role import Role
from limpet.core.errors import LimpetError

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Handler = Callable[[Any], Awaitable[Any]]

MiB: Final = 1024 * 1024
PREFIX: Final = "/api/v1"


class Route(Struct, frozen=True, kw_only=True):
    """One method of one path. A path below `/api/v1`, unless it is `bare`."""

    method: Method
    path: str  # "/jobs/{id}"
    role: Role | None  # None: without a token, from everywhere
    handler: Handler
    query: Any  # the type that query parameters make; NoneType: none are taken
    body: Any  # and that of the body
    answer: Any
    summary: str
    sends: Any = None  # the type of what is sent, where the handler makes the response itself
    of: str = ""  # the answer is a list, and this its name in the object that is sent
    status: int = 200
    errors: tuple[type[LimpetError], ...] = ()  # beside those that every route has
    example: Any = None  # of a body
    most_bytes: int = MiB  # of a body
    etag: bool = False  # the answer has an ETag, and If-None-Match is heeded
    text: str = ""  # the media type of an answer that is text
    stream: str = ""  # the media type of an answer without an end
    bare: bool = False
    body_names_jobs: bool = False  # to be stored, under ids that follow from an Idempotency-Key

    @property
    def full_path(self) -> str:
        """The path within the API."""
        return self.path if self.bare else PREFIX + self.path

    @property
    def noun(self) -> str:
        """What it is about, by the module of its handler."""
        return self.handler.__module__.rpartition(".")[2]


def route(method: Method, path: str, role: Role | None, handler: Handler, **more: Any) -> Route:
    """The route of a handler, whose signature says what goes in and out."""
    hints = get_type_hints(handler, include_extras=True)
    query, body = get_args(hints["call"])
    return Route(
        method=method,
        path=path,
        role=role,
        handler=handler,
        query=query,
        body=body,
        answer=hints["return"],
        summary=cleandoc(handler.__doc__ or ""),
        **more,
    )


get: Final = partial(route, "GET")
post: Final = partial(route, "POST")
put: Final = partial(route, "PUT")
patch: Final = partial(route, "PATCH")
delete: Final = partial(route, "DELETE")
