"""Routes that ask for jobs: one or many, by the names of their tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, cast

from msgspec import Meta, Struct

from limpet.client.client import Asked
from limpet.client.options import CallOptions
from limpet.core.errors import (
    BatchTooLarge,
    BudgetExceeded,
    InvalidArguments,
    InvalidOption,
    PayloadTooLarge,
    QueueDraining,
    QueueFull,
    UnknownParent,
)
from limpet.core.records.job import EnqueuedRecord
from limpet.server.call import Call
from limpet.server.parameters import Instant, Time, given
from limpet.server.route import MiB, Route, post

MOST_BYTES: Final = 32 * MiB  # a batch has 16 MiB of arguments at most; the rest is options and punctuation

Priority = Annotated[int | str, Meta(description="critical, high, normal or low; or 0 (most urgent) to 9.")]
Unique = Annotated[str | bool, Meta(description="One job with this key at a time; true: the arguments are it.")]


class NewJob(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job to be stored, in the words of `task.options(...)`; what is left out is as the task declares it."""

    task: Annotated[str, Meta(min_length=1, description="The name of its task.")]
    args: dict[str, Any] = {}
    queue: str | None = None
    priority: (
        Annotated[int | str, Meta(description="critical, high, normal or low; or 0 (most urgent) to 9.")] | None
    ) = None
    delay: Time | None = None
    at: Instant | None = None
    expires_in: Time | None = None
    unique: (
        Annotated[str | bool, Meta(description="One job with this key at a time; true: the arguments are it.")] | None
    ) = None
    unique_for: Time | None = None
    on_duplicate: Literal["existing", "replace", "debounce"] | None = None
    after: Annotated[list[str], Meta(description="Jobs that it waits for, by id.")] | None = None
    if_parent_fails: Literal["cancel", "run", "wait"] | None = None
    needs: list[str] | None = None
    tags: list[str] | None = None
    meta: dict[str, Any] | None = None
    tenant: str | None = None
    cost: int | dict[str, float] | None = None
    timeout: Time | None = None
    attempts: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    id: Annotated[str, Meta(description="A UUID; the same id again is the same job.")] | None = None

    @property
    def asked(self) -> Asked:
        """What the client takes."""
        options: Mapping[str, Any] = given(self, "task", "args", "attempts")
        if self.attempts is not None:
            options = {**options, "retry": self.attempts}
        return Asked(self.task, self.args, cast("CallOptions", options))


async def enqueue(call: Call[None, NewJob | list[NewJob]]) -> list[EnqueuedRecord]:
    """Store one job or many, all or none; a duplicate answers the job that is there."""
    asked = call.body if isinstance(call.body, list) else [call.body]
    ids = None if call.ids is None else call.ids(len(asked))
    handles = await call.client.enqueue_asked([each.asked for each in asked], ids)
    return [EnqueuedRecord(id=each.id, task=each.task, existing=each.existing) for each in handles]


ROUTES: Final[tuple[Route, ...]] = (
    post(
        "/jobs",
        "producer",
        enqueue,
        of="jobs",
        body_names_jobs=True,
        most_bytes=MOST_BYTES,
        example={"task": "email.send", "args": {"to": "a@b.c"}, "priority": "high", "unique": "welcome:42"},
        errors=(
            InvalidArguments,
            InvalidOption,
            PayloadTooLarge,
            BatchTooLarge,
            UnknownParent,
            QueueDraining,
            QueueFull,
            BudgetExceeded,
        ),
    ),
)
