"""Routes that control what runs: pauses, limits, breakers, shares, and how long finished jobs stay."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from limpet.core.errors import InvalidOption, UnknownQueue
from limpet.core.records.limit import ChangeRecord
from limpet.core.records.queue import RetentionChange, WeightChange
from limpet.core.text.duration import to_ms
from limpet.ops.limits import LimitChange
from limpet.ops.names import UnknownName
from limpet.server.call import Call
from limpet.server.parameters import Time, Why, given
from limpet.server.route import Route, delete, post, put

New = Annotated[bool, Meta(description="Although the store has never met the name.")]
Key = Annotated[str, Meta(description="all, queue:NAME or task:NAME.")]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]


class Stop(Why, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is stopped."""

    key: Key
    new: New = False


class Begin(Why, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What continues, or is worked off."""

    key: Key


class StopQueue(Why, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a queue is stopped."""

    new: New = False


class Limits(Why, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The numbers of a limit; they win over what code declares until they are cleared."""

    rate: Annotated[str, Meta(description="Such as 10/m.")] | None = None
    burst: Count | None = None
    concurrency: Count | None = None
    buckets: Annotated[dict[str, str], Meta(description="Rates of other units: tokens, 200000/m.")] | None = None
    budgets: Annotated[dict[str, str], Meta(description="Caps per period: usd, 50/day.")] | None = None
    adaptive: Annotated[bool | str, Meta(description="Or the slowest rate that it may fall to.")] | None = None
    depth: Count | None = None
    tenant_depth: Count | None = None


class Trip(Why, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """For how long a breaker is open."""

    duration: Annotated[Time, Meta(description="Left out: until it is reset.")] | None = None
    new: New = False


class Share(Why, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How many jobs one turn serves."""

    weight: Annotated[int, Meta(ge=1, le=1_000)]


class KeepTimes(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """For how long jobs stay, by how they ended; null: for ever; left out: as before."""

    succeeded: Time | UnsetType | None = UNSET
    cancelled: Time | UnsetType | None = UNSET
    dead: Time | UnsetType | None = UNSET


class Keep(Why, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long finished jobs stay, by how they ended."""

    keep: KeepTimes


async def pause(call: Call[None, Stop]) -> ChangeRecord:
    """Stop claims of everything, a queue or a task. Running jobs continue."""
    return await call.operator.pause(call.body.key, reason=call.body.reason, new=call.body.new)


async def resume(call: Call[None, Begin]) -> ChangeRecord:
    """Undo a pause or a drain."""
    return await call.operator.resume(call.body.key, reason=call.body.reason)


async def drain(call: Call[None, Begin]) -> ChangeRecord:
    """Refuse new jobs and work off the rest; what is empty ends paused."""
    return await call.operator.drain(call.body.key, reason=call.body.reason)


async def pause_queue(call: Call[None, StopQueue]) -> ChangeRecord:
    """Stop claims of a queue. Running jobs continue."""
    return await call.operator.pause(f"queue:{call.path['name']}", reason=call.body.reason, new=call.body.new)


async def resume_queue(call: Call[None, Why]) -> ChangeRecord:
    """Undo a pause or a drain of a queue."""
    return await call.operator.resume(f"queue:{call.path['name']}", reason=call.body.reason)


async def drain_queue(call: Call[None, Why]) -> ChangeRecord:
    """Refuse new jobs of a queue and work off the rest; then it is paused."""
    return await call.operator.drain(f"queue:{call.path['name']}", reason=call.body.reason)


async def set_limit(call: Call[None, Limits]) -> ChangeRecord:
    """Set a rate, a ceiling, buckets or budgets by hand."""
    change = LimitChange(**given(call.body, "reason"))
    return await call.operator.set_limit(call.path["key"], change, reason=call.body.reason)


async def clear_limit(call: Call[Why, None]) -> ChangeRecord:
    """Forget what was set for a limit by hand: the code's declaration rules again."""
    return await call.operator.clear_limit(call.path["key"], reason=call.query.reason)


async def trip(call: Call[None, Trip]) -> ChangeRecord:
    """Open a breaker by hand."""
    body = call.body
    for_ms = None if body.duration is None else to_ms(body.duration, what="duration")
    return await call.operator.trip(call.path["key"], for_ms=for_ms, reason=body.reason, new=body.new)


async def reset(call: Call[None, Why]) -> ChangeRecord:
    """Close a breaker and forget its failures."""
    return await call.operator.reset(call.path["key"], reason=call.body.reason)


async def set_weight(call: Call[None, Share]) -> WeightChange:
    """Let one turn of `queue:NAME` or `tenant:NAME` serve this number of jobs."""
    return await call.operator.set_weight(call.path["name"], call.body.weight, reason=call.body.reason)


async def set_retention(call: Call[None, Keep]) -> RetentionChange:
    """Keep finished jobs of a queue so long."""
    said = {name: getattr(call.body.keep, name) for name in KeepTimes.__struct_fields__}
    keep = {name: time for name, time in said.items() if time is not UNSET}
    return await call.operator.set_retention(call.path["queue"], keep, reason=call.body.reason)


async def clear_retention(call: Call[Why, None]) -> RetentionChange:
    """Forget what was set for a queue by hand."""
    return await call.operator.clear_retention(call.path["queue"], reason=call.query.reason)


async def remove_hook(call: Call[Why, None]) -> ChangeRecord:
    """Tell no more ends to a hook, until a worker that declares it starts."""
    return await call.operator.remove_hook(call.path["name"], reason=call.query.reason)


UNKNOWN: Final = (UnknownName, UnknownQueue, InvalidOption)
WHY: Final = {"reason": "the provider is down"}

ROUTES: Final[tuple[Route, ...]] = (
    post("/pause", "operator", pause, errors=UNKNOWN, example={"key": "task:email.send", **WHY}),
    post("/resume", "operator", resume, errors=UNKNOWN, example={"key": "task:email.send"}),
    post("/drain", "operator", drain, errors=UNKNOWN, example={"key": "queue:mail"}),
    post("/queues/{name}/pause", "operator", pause_queue, errors=UNKNOWN, example=WHY),
    post("/queues/{name}/resume", "operator", resume_queue, errors=UNKNOWN, example={}),
    post("/queues/{name}/drain", "operator", drain_queue, errors=UNKNOWN, example={}),
    put("/limits/{key}", "operator", set_limit, errors=UNKNOWN, example={"rate": "10/m", "concurrency": 20}),
    delete("/limits/{key}", "operator", clear_limit, errors=UNKNOWN),
    post("/breakers/{key}/trip", "operator", trip, errors=UNKNOWN, example={"duration": "10m", **WHY}),
    post("/breakers/{key}/reset", "operator", reset, errors=UNKNOWN, example={}),
    put("/weights/{name}", "operator", set_weight, errors=UNKNOWN, example={"weight": 3}),
    put("/retention/{queue}", "operator", set_retention, errors=UNKNOWN, example={"keep": {"succeeded": "7d"}}),
    delete("/retention/{queue}", "operator", clear_retention, errors=UNKNOWN),
    delete("/hooks/{name}", "operator", remove_hook, errors=UNKNOWN),
)
