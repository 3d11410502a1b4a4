"""Routes about what runs: tasks, hooks and workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from limpet.core.records.hook import HookRecord
from limpet.core.records.task import TaskDetail, TaskRecord
from limpet.core.records.worker import WorkerRecord
from limpet.ops.names import UnknownName
from limpet.server.call import Call
from limpet.server.route import Route, get


async def listed(call: Call[None, None]) -> list[TaskRecord]:
    """Every task: where its jobs are, how they ended during the last minute, the workers that know it."""
    return await call.operator.tasks()


async def shown(call: Call[None, None]) -> TaskDetail:
    """One task, by its name or a former one, with all that its code declares."""
    return await call.operator.task(call.path["name"])


async def hooks(call: Call[None, None]) -> Sequence[HookRecord]:
    """What is called when jobs end: of which ends each hears, and how many of its jobs wait."""
    return await call.operator.hooks()


async def workers(call: Call[None, None]) -> list[WorkerRecord]:
    """Live workers and agents."""
    return await call.operator.workers()


ROUTES: Final[tuple[Route, ...]] = (
    get("/tasks", "viewer", listed, of="tasks"),
    get("/tasks/{name}", "viewer", shown, errors=(UnknownName,)),
    get("/hooks", "viewer", hooks, of="hooks"),
    get("/workers", "viewer", workers, of="workers"),
)
