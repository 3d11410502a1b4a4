"""What the runtime tests share: a bench with a real engine, tasks declared on the spot, and jobs put in by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core.ids import IdMaker
from holdfast.core.lease import Beat, Claimed, ClaimRequest, Serves
from holdfast.core.options import Options
from holdfast.core.state import State
from holdfast.core.task import TaskOptions, TaskSpec, build_job
from holdfast.core.view import JobView
from holdfast.runtime import Worker, WorkerSettings, WorkReport
from holdfast.stores.base import Store

_ids = IdMaker()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Bench:
    """One store and the tasks of one test."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.tasks: dict[str, TaskSpec] = {}

    def task(self, fn: Callable[..., Any], **options: Any) -> TaskSpec:
        """Declare a task; jobs fail once and for all unless the test says otherwise."""
        chosen: TaskOptions = {"name": fn.__name__, "retry": None, **options}  # type: ignore[typeddict-item]  # as given
        spec = TaskSpec.declare(fn, **chosen)
        self.tasks[spec.name] = spec
        return spec

    async def put(self, spec: TaskSpec, values: dict[str, Any] | None = None, **options: Any) -> bytes:
        """Enqueue one job; its id."""
        chosen = Options().replace(**options) if options else Options()
        job, rules = build_job(spec, values or {}, chosen, id=_ids.make(now_ms()))
        await self.store.enqueue([job], rules)
        return job.id

    def worker(self, settings: dict[str, Any] | None = None, **options: Any) -> Worker:
        return Worker(self.store, self.tasks, WorkerSettings(**(settings or {})), **options)

    async def drain(self, settings: dict[str, Any] | None = None, **options: Any) -> WorkReport:
        """Work until nothing is ready."""
        return await self.worker(settings, **options).run(until_empty=True)

    async def view(self, id: bytes) -> JobView:
        found = (await self.store.get([id]))[0]
        assert found is not None
        return found

    async def until(self, ids: Sequence[bytes], state: State) -> None:
        """Wait until all of these jobs are in this state."""
        for _ in range(10_000):
            if {view and view.state for view in await self.store.get(ids)} == {state}:
                return
            await asyncio.sleep(0.001)
        raise AssertionError(f"they are never {state}")

    async def claim_as(self, session: str, limit: int = 10, ttl_ms: int = 15_000) -> tuple[Claimed, ...]:
        """Claim as some other worker would."""
        serves = Serves(None, None, ())
        await self.store.beat(Beat(session, ttl_ms, serves))
        claim = await self.store.claim(ClaimRequest(session, serves, limit, limit, seq=1))
        return claim.jobs
