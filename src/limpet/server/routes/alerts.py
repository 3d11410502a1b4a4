"""Routes about alerts: what fires, by which rules, silences, and a test of the webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta, Struct

from limpet.core.errors import InvalidOption
from limpet.core.records.alert import AlertRecord, AlertRuleRecord, AlertTest, SilenceRecord
from limpet.ops.names import UnknownName
from limpet.server.call import Call
from limpet.server.parameters import Time, Why
from limpet.server.route import Route, delete, get, post


class Which(Struct, frozen=True, forbid_unknown_fields=True):
    """Which alerts."""

    resolved: Annotated[bool, Meta(description="Those that have resolved within a day, too.")] = True


class Silenced(Why, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Of which alerts nothing shall be told, and for how long."""

    pattern: Annotated[str, Meta(description="A rule, RULE:SUBJECT, or such with *.")]
    duration: Time = "1h"


class Test(Struct, frozen=True, forbid_unknown_fields=True):
    """Who shall be told."""

    webhook: Annotated[str, Meta(description="Left out: all of them.")] | None = None


async def listed(call: Call[Which, None]) -> Sequence[AlertRecord]:
    """Alerts, firing ones first."""
    return await call.operator.alerts.list(resolved=call.query.resolved)


async def rules(call: Call[None, None]) -> Sequence[AlertRuleRecord]:
    """The rules that are in force, and the webhooks that hear of each."""
    return await call.operator.alerts.rules()


async def silences(call: Call[None, None]) -> Sequence[SilenceRecord]:
    """Silences that have not ended."""
    return await call.operator.alerts.silences()


async def silence(call: Call[None, Silenced]) -> SilenceRecord:
    """Tell nothing of alerts that begin to fire, for a time."""
    body = call.body
    return await call.operator.alerts.silence(body.pattern, body.duration, reason=body.reason)


async def unsilence(call: Call[Why, None]) -> SilenceRecord:
    """End a silence; what fires is told at the next look."""
    return await call.operator.alerts.silence(call.path["pattern"], 0, reason=call.query.reason)


async def test(call: Call[None, Test]) -> Sequence[AlertTest]:
    """Tell a webhook, or all of them, that this is a test; `GET /jobs/{id}?wait=30` says what became of it."""
    return await call.operator.alerts.test(call.body.webhook)


ROUTES: Final[tuple[Route, ...]] = (
    get("/alerts", "viewer", listed, of="alerts"),
    get("/alerts/rules", "viewer", rules, of="rules"),
    get("/alerts/silences", "viewer", silences, of="silences"),
    post(
        "/alerts/silences",
        "operator",
        silence,
        errors=(InvalidOption,),
        example={"pattern": "dead_letters:mail", "duration": "2h"},
    ),
    delete("/alerts/silences/{pattern}", "operator", unsilence, errors=(InvalidOption, UnknownName)),
    post("/alerts/test", "operator", test, of="tests", errors=(UnknownName,), example={}),
)
