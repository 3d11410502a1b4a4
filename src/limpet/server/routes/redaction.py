"""Routes about redaction: which keys and paths of jobs no face shows, and rules added by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta

from limpet.core.errors import InvalidOption
from limpet.core.records.redaction import RuleRecord
from limpet.ops.names import UnknownName
from limpet.server.call import Call
from limpet.server.parameters import Why
from limpet.server.route import Route, delete, get, post

Task = Annotated[str, Meta(description="Only of this task's jobs; left out: of all.")]


class Hide(Why, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What no face shows: a key, or a path such as args.card.number."""

    rule: str
    task: Task = ""


class Show(Why, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Of which jobs it is shown again, and why."""

    task: Task = ""


async def listed(call: Call[None, None]) -> Sequence[RuleRecord]:
    """The rules that hide secrets: those of the code of all programs, and those added by hand."""
    return await call.operator.redaction.list()


async def add(call: Call[None, Hide]) -> RuleRecord:
    """Hide what fits a rule, in jobs that are stored and in jobs to come."""
    return await call.operator.redaction.add(call.body.rule, task=call.body.task, reason=call.body.reason)


async def remove(call: Call[Show, None]) -> RuleRecord:
    """Show again what a rule hid; a program whose code has the rule adds it again when it starts."""
    return await call.operator.redaction.remove(call.path["rule"], task=call.query.task, reason=call.query.reason)


ROUTES: Final[tuple[Route, ...]] = (
    get("/redaction", "viewer", listed, of="rules"),
    post("/redaction", "operator", add, errors=(InvalidOption,), example={"rule": "args.card.number"}),
    delete("/redaction/{rule}", "admin", remove, errors=(UnknownName,)),
)
