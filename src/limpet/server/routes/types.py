"""Routes about types: what agents do, the contracts of their arguments and results, and changes at run time."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from limpet.core.access.refusal import OutOfScope
from limpet.core.errors import InvalidOption
from limpet.core.records.agent_type import TypeChange, TypeRecord
from limpet.core.text.storable import REASON_CHARS
from limpet.ops.names import UnknownName
from limpet.server.call import Call
from limpet.server.route import Route, delete, get, post, put

Why = Annotated[str, Meta(max_length=REASON_CHARS, description="Kept in the audit log.")]


class Reason(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Why."""

    reason: Why = ""


class Changes(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Some keys of a type, in the words of the configuration file; null takes a change back."""

    set: Annotated[dict[str, Any], Meta(description="queue, priority, capabilities, lease, result, ...")]
    reason: Why = ""


async def listed(call: Call[None, None]) -> list[TypeRecord]:
    """Every type, by name."""
    return list(await call.types.list())


async def shown(call: Call[None, None]) -> TypeRecord:
    """One type."""
    return await call.types.get(call.path["name"])


async def changed(call: Call[None, Changes]) -> TypeChange:
    """Make a type or change some of its keys, for jobs to come; contracts hold for all jobs within ten seconds."""
    return await call.types.set(call.path["name"], call.body.set, reason=call.body.reason)


async def reset(call: Call[None, Reason]) -> TypeChange:
    """Take back what was changed at run time: the type is as its file says."""
    return await call.types.reset(call.path["name"], reason=call.body.reason)


async def removed(call: Call[None, None]) -> TypeRecord:
    """Forget a type; its jobs stay, without a contract."""
    return await call.types.remove(call.path["name"])


ROUTES: Final[tuple[Route, ...]] = (
    get("/types", "viewer", listed, of="types"),
    get("/types/{name}", "viewer", shown, errors=(UnknownName,)),
    put(
        "/types/{name}",
        "operator",
        changed,
        errors=(InvalidOption, OutOfScope),
        example={"set": {"queue": "eng", "capabilities": ["eng-backend"]}, "reason": "a new team"},
    ),
    post("/types/{name}/reset", "operator", reset, errors=(InvalidOption, UnknownName, OutOfScope), example={}),
    delete("/types/{name}", "operator", removed, errors=(UnknownName, OutOfScope)),
)
