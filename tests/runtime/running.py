"""What the runtime tests share: a bench with a real engine, tasks declared on the spot, and jobs put in by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from limpet.core.jobs.ids import IdMaker
from limpet.core.jobs.lease import Beat, Claim, Claimed, ClaimRequest, Serves, Wake
from limpet.core.jobs.options import Options
from limpet.core.jobs.state import State
from limpet.core.jobs.view import JobView
from limpet.core.tasks.task import TaskOptions, TaskSpec, build_job
from limpet.runtime import Parts, Worker, WorkerPlan, WorkerSettings, WorkReport
from limpet.runtime.settings import AppRef
from limpet.stores.base import Store
from limpet.stores.sqlite import SqliteStore

_ids = IdMaker()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Watched(SqliteStore):
    """The real engine, in memory; remembers what was asked, and the tasks of what it gave."""

    def __init__(self) -> None:
        super().__init__(None)
        self.requests: list[ClaimRequest] = []
        self.given: list[str] = []

    async def claim(self, request: ClaimRequest, *, now_ms: int | None = None) -> Claim:
        self.requests.append(request)
        claim = await super().claim(request, now_ms=now_ms)
        self.given += [job.lane.task for job in claim.jobs]
        return claim


class Hesitant(Watched):
    """Answers one claimer when the test says so."""

    def __init__(self, claimer: str) -> None:
        super().__init__()
        self.claimer = claimer
        self.asked, self.woken, self.go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def claim(self, request: ClaimRequest, *, now_ms: int | None = None) -> Claim:
        if request.claimer == self.claimer:
            self.asked.set()
            await self.go_on.wait()
        return await super().claim(request, now_ms=now_ms)

    async def wait(self, session: str, timeout_ms: int) -> Wake:
        wake = await super().wait(session, timeout_ms)
        if wake.work and self.asked.is_set():
            self.woken.set()
        return wake


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
        """A worker for the declared tasks; `options` are fields of its plan, or of the app's parts."""
        parts = {name: options.pop(name) for name in list(options) if name in Parts.__struct_fields__}
        if isinstance(ref := options.get("app_ref"), str):
            options["app_ref"] = AppRef(ref)
        plan = WorkerPlan(
            store=self.store,
            parts=Parts(tasks=dict(self.tasks), **parts),
            settings=WorkerSettings(**(settings or {})),
            **options,
        )
        return Worker(plan)

    async def drain(self, settings: dict[str, Any] | None = None, **options: Any) -> WorkReport:
        """Work until nothing is ready."""
        return await self.worker(settings, **options).run(until_empty=True)

    async def view(self, id: bytes) -> JobView:
        found = (await self.store.get([id]))[0]
        assert found is not None
        return found

    async def until(self, ids: Sequence[bytes], state: State) -> None:
        """Wait until all of these jobs are in this state."""
        try:
            async with asyncio.timeout(60):
                while True:
                    if {view and view.state for view in await self.store.get(ids)} == {state}:
                        return
                    await asyncio.sleep(0.001)
        except TimeoutError:
            raise AssertionError(f"they are never {state}") from None

    async def claim_as(self, session: str, limit: int = 10, ttl_ms: int = 15_000) -> tuple[Claimed, ...]:
        """Claim as some other worker would."""
        serves = Serves(None, None, ())
        await self.store.beat(Beat(session, ttl_ms, serves))
        claim = await self.store.claim(ClaimRequest(session, serves, limit, limit, seq=1))
        return claim.jobs
