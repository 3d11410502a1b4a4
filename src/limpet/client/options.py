"""The names and types of options, for type checkers; their values are checked by core."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from limpet.core.endings.retry import Retry, RetryFunction
from limpet.core.jobs.job import IfParentFails, OnDuplicate
from limpet.core.jobs.state import State
from limpet.core.jobs.unique import UniqueOption
from limpet.core.limits.unit import Amounts
from limpet.core.tasks.queue import Queue
from limpet.core.text.duration import Duration

if TYPE_CHECKING:
    from limpet.client.handle import JobHandle

Priority = Literal["critical", "high", "normal", "low"] | int
RetryValue = Retry | int | Sequence[Duration] | RetryFunction | None


class CallOptions(TypedDict, total=False):
    """What one enqueue may ask for: `task.options(...)` and `app.enqueue(name, args, ...)`."""

    delay: Duration
    at: datetime
    expires_in: Duration
    priority: Priority
    queue: str | Queue
    tenant: str
    unique: UniqueOption
    unique_for: Duration | None
    unique_states: Iterable[str | State]
    on_duplicate: OnDuplicate
    after: Sequence[JobHandle[Any] | str] | JobHandle[Any] | str
    if_parent_fails: IfParentFails
    needs: Iterable[str]
    tags: Iterable[str]
    cost: int | Amounts
    timeout: Duration | None
    retry: RetryValue
    meta: Mapping[str, Any]  # one JSON object for middleware and hooks, 4 KiB at most
    id: str
    conn: Any  # the caller's own database connection, inside its transaction
    wait: bool | Duration  # for room in a full queue: so long, or (True) as long as an enqueue may take


class ScheduleOptions(TypedDict, total=False):
    """What a schedule may ask for its jobs: `@app.schedule(when, args, ...)`."""

    priority: Priority
    queue: str
    tenant: str
    needs: Iterable[str]
    tags: Iterable[str]
    cost: int | Amounts
    timeout: Duration | None
    retry: int | Sequence[Duration] | None
    meta: Mapping[str, Any]
