"""Lists the tools of agents: their schemas, written by hand since an agent pays for each word, and who may call them.

Arguments are decoded by msgspec: the SDK's low-level server does not look at schemas.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from limpet.core.access.role import Role
from limpet.core.errors import InvalidOption
from limpet.core.tasks.naming import did_you_mean
from limpet.mcp.desk import Desk, Report
from limpet.ops.agent_endings import FailKind


class Said(Struct, frozen=True):
    """What a tool answers: text for every client, and the record for one that asked for structure."""

    text: str
    record: Any = None


class _Asked(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class Enqueue(_Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job to be stored."""

    task: str
    args: dict[str, Any] = {}
    priority: int | str | None = None
    needs: list[str] | None = None
    after: list[str] | None = None
    unique: str | bool | None = None
    delay: float | None = None


class Claim(_Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an agent can do."""

    agent: str
    queues: list[str] | None = None
    tasks: list[str] | None = None
    can: list[str] = []
    lease_s: float | None = None
    wait_s: float = 0
    key: str | None = None


class Held(_Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A lease."""

    id: str
    token: int


class Heartbeat(Held, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A sign of life."""

    lease_s: float | None = None


class Checkpoint(Held, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the next attempt is told."""

    value: Any


class _End(Held, frozen=True, forbid_unknown_fields=True, kw_only=True):
    spent: dict[str, float] | None = None


class Complete(_End, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The job is done."""

    result: Any = None


class Fail(_End, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The attempt failed, or needs a person."""

    message: str
    kind: FailKind = "transient"
    retry_after_s: float | None = None


class Release(_End, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The job goes back."""

    reason: str = ""


class Jobs(_Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A page of jobs."""

    query: str = ""
    limit: int = 10
    cursor: str | None = None


class Job(_Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One job."""

    id: str
    full: bool = False


class Id(_Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One job, by id."""

    id: str


class Bulk(_Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Dead jobs, by a query."""

    query: str
    dry_run: bool = True
    reason: str = ""


class Dead(_Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Causes of dead jobs."""

    queue: str | None = None
    limit: int = 10


class Nothing(_Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """No arguments."""


class Queue(_Asked, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One queue, or all."""

    name: str | None = None


Handler = Callable[[Desk, Any, Report], Awaitable[Said]]
_S: Final = {"type": "string"}
_I: Final = {"type": "integer"}
_N: Final = {"type": "number"}
_O: Final = {"type": "object"}
_L: Final = {"type": "array", "items": _S}
_HELD: Final = {"id": _S, "token": _I}


class Tool(Struct, frozen=True):
    """One tool."""

    name: str
    role: Role
    asked: type[_Asked]
    words: str
    properties: dict[str, Any]

    @property
    def schema(self) -> dict[str, Any]:
        """Of its arguments."""
        required = [each.name for each in msgspec.structs.fields(self.asked) if each.required]
        return {"type": "object", "properties": self.properties, **({"required": required} if required else {})}

    def decoded(self, arguments: dict[str, Any] | None) -> Any:
        """The arguments of a call; what does not fit is refused by name."""
        given = arguments or {}
        known = self.asked.__struct_fields__
        for name in given:
            if name not in known:
                raise InvalidOption(f"{self.name} takes no {name!r:.60}", fix=did_you_mean(name, known))
        try:
            return msgspec.convert(given, self.asked)
        except msgspec.ValidationError as error:
            raise InvalidOption(f"{self.name}: {error}", fix=f"its arguments: {', '.join(known)}") from error


CORE: Final = (
    Tool(
        "enqueue",
        "producer",
        Enqueue,
        "Store a job. unique true: same args, same job.",
        {"task": _S, "args": _O, "priority": _S, "needs": _L, "after": _L, "unique": {}, "delay": _N},
    ),
    Tool(
        "claim",
        "worker",
        Claim,
        "Take the most urgent job you can do.",
        {"agent": _S, "queues": _L, "tasks": _L, "can": _L, "lease_s": _N, "wait_s": _N, "key": _S},
    ),
    Tool("heartbeat", "worker", Heartbeat, "Keep the lease.", {**_HELD, "lease_s": _N}),
    Tool("checkpoint", "worker", Checkpoint, "Keep a value for the next attempt.", {**_HELD, "value": {}}),
    Tool("complete", "worker", Complete, "The job is done.", {**_HELD, "result": {}, "spent": _O}),
    Tool(
        "fail",
        "worker",
        Fail,
        "It failed, or needs-human: message asks a person.",
        {
            **_HELD,
            "message": _S,
            "kind": {"enum": ["transient", "permanent", "rate-limited", "spent", "needs-human"]},
            "retry_after_s": _N,
            "spent": _O,
        },
    ),
    Tool("release", "worker", Release, "Give the job back.", {**_HELD, "reason": _S, "spent": _O}),
    Tool(
        "jobs",
        "viewer",
        Jobs,
        "List jobs: state:dead queue:eng task:x* age>1h",
        {"query": _S, "limit": _I, "cursor": _S},
    ),
)
OPS: Final = (
    Tool("job", "viewer", Job, "A job, its attempts and errors.", {"id": _S, "full": {"type": "boolean"}}),
    Tool("explain", "viewer", Id, "Why a job does not run.", {"id": _S}),
    Tool("dead", "viewer", Dead, "Causes of dead jobs.", {"queue": _S, "limit": _I}),
    Tool(
        "replay",
        "operator",
        Bulk,
        "Run dead jobs again. dry_run (default) only counts.",
        {"query": _S, "dry_run": {"type": "boolean"}, "reason": _S},
    ),
    Tool(
        "discard",
        "operator",
        Bulk,
        "Remove dead jobs for good. dry_run (default) only counts.",
        {"query": _S, "dry_run": {"type": "boolean"}, "reason": _S},
    ),
    Tool("queue", "viewer", Queue, "Depth and pauses of a queue, or all.", {"name": _S}),
    Tool("stats", "viewer", Nothing, "Jobs by state.", {}),
)
