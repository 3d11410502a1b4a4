"""A field for chaos: real supervised workers as processes, one store, and the trace that jobs leave."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import psutil

from limpet import Limpet
from limpet.core.jobs.ids import IdMaker
from limpet.core.jobs.lease import Beat, Serves
from limpet.core.jobs.state import FINISHED
from limpet.core.jobs.view import Counts, JobView
from limpet.core.tasks.task import build_job
from limpet.runtime import WorkerSettings
from limpet.runtime.log_setup import LogSettings
from limpet.runtime.supervisor import SupervisorSettings
from limpet.stores.open import open_store
from tests.chaos import chaos_jobs

PATIENCE_S = 240.0  # a starved machine is late; what never comes true is still found

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


class WorkerProcess:
    """One `limpet worker`, a supervisor and its children; or another program that works on the store."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.pid = process.pid

    def children(self) -> list[int]:
        """The pids of its child processes, as the kernel knows them."""
        try:
            return [child.pid for child in psutil.Process(self.pid).children()]
        except psutil.NoSuchProcess:
            return []

    def tree(self) -> list[int]:
        return [self.pid, *self.children()]

    def signal(self, number: int) -> None:
        kill(self.pid, number)

    async def ended(self, within_s: float = PATIENCE_S) -> int:
        """Its exit code."""
        return await asyncio.to_thread(self.process.wait, within_s)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Field:
    """The store, the workers on it, and what can be seen from outside."""

    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self.url = url
        self.trace_file = folder / "trace"
        self.trace_file.touch()
        self.store = open_store(url)
        self.rng = random.Random(seed)
        self.errors: Path | None = None  # where processes write their errors, when a test asks what they were
        self.first_on_path: tuple[str, ...] = ()  # folders whose modules a process of this field finds first
        self._ids = IdMaker()
        self._workers: list[WorkerProcess] = []

    async def season(self) -> None:
        """Make the store one that has been swept for a while: a new one takes no lease back for 15 s (D6)."""
        now_ms = await self.store.now()
        for at_ms in range(now_ms - 24_000, now_ms + 1, 4_000):
            await self.store.expire(now_ms=at_ms)

    async def put(self, task: str, values: dict[str, Any], count: int = 1, app: Limpet = chaos_jobs.app) -> list[bytes]:
        """Enqueue `count` equal jobs."""
        spec = app.parts().tasks[task]
        ids = self._ids.make_many(count, time.time_ns() // 1_000_000)
        await self.store.enqueue([build_job(spec, values, id=id)[0] for id in ids])
        return ids

    def start(
        self,
        *,
        processes: int = 1,
        app: str = "tests.chaos.chaos_jobs:app",
        source: Path = ROOT,
        silent_ms: int = 300_000,
        **worker: Any,
    ) -> WorkerProcess:
        """Start a worker with a short lease, so that takeovers are seen within the test; `source` is its release."""
        chosen = {"ttl_ms": 1_200, "beat_ms": 300, "sweep_ms": 200, "concurrency": 4, "grace_ms": 5_000, **worker}
        settings = SupervisorSettings(
            app_ref=app,
            path=(str(ROOT),),
            processes=processes,
            silent_ms=silent_ms,
            log=LogSettings(level="ERROR" if self.errors else os.environ.get("CHAOS_LOG", "CRITICAL")),
            worker=WorkerSettings(**chosen),
        )
        script = source / HERE.relative_to(ROOT) / "start_worker.py"
        return self.run(str(script), msgspec.json.encode(settings).decode(), source=source)

    def run(self, *words: str, source: Path = ROOT) -> WorkerProcess:
        """Start a Python program that works on this store."""
        with self.errors.open("ab") if self.errors else contextlib.nullcontext() as errors:
            process = subprocess.Popen([sys.executable, *words], env=self.env(source), cwd=ROOT, stderr=errors)
        started = WorkerProcess(process)
        self._workers.append(started)
        return started

    def env(self, source: Path = ROOT) -> dict[str, str]:
        """What a process of this field is told: the store, and whose code it runs."""
        path = os.pathsep.join([*self.first_on_path, str(source / "src")])
        return {**os.environ, "CHAOS_URL": self.url, "CHAOS_TRACE": str(self.trace_file), "PYTHONPATH": path}

    def trace(self, word: str | None = None) -> list[list[str]]:
        """The lines that jobs left: word, id, attempt, token, pid."""
        lines = [line.split() for line in self.trace_file.read_text().splitlines()]
        return [line for line in lines if word in (None, line[0])]

    async def until(
        self, what: str, true: Callable[[], bool | Coroutine[Any, Any, bool]], within_s: float = PATIENCE_S
    ) -> None:
        """Wait for something to become true; say what never did."""
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            answer = true()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"within {within_s} s: {what}; counts {await self.store.count()}")

    async def finished(self, count: int, within_s: float = PATIENCE_S) -> Counts:
        """Wait until so many jobs have ended, however they did."""

        async def all_ended() -> bool:
            counts = await self.store.count()
            return sum(counts.total(state) for state in FINISHED) >= count

        await self.until(f"{count} jobs finished", all_ended, within_s)
        return await self.store.count()

    async def lives(self, worker: WorkerProcess) -> bool:
        """Whether the store knows a child of this worker: from then on it stops as asked."""
        return any(f":{worker.pid}:" in view.session for view in await self.store.sessions())

    async def look_after(self) -> None:
        """Make the store one that was swept all the time: a fresh one takes nobody's jobs back for a lease time."""
        now_ms = time.time_ns() // 1_000_000
        for ago_ms in range(20_000, -1, -4_000):
            await self.store.expire(now_ms=now_ms - ago_ms)

    async def views(self, ids: list[bytes]) -> list[JobView]:
        return [view for view in await self.store.get(ids) if view is not None]

    def let_go(self) -> None:
        """Jobs that wait for the test go on, and later ones do not wait."""
        self.trace_file.with_name(f"{self.trace_file.name}.go").touch()

    async def freeze(self, worker: WorkerProcess) -> list[int]:
        """Stop a worker's processes in their tracks, but not inside a write, which would stop everybody."""
        observer = Beat("observer", 60_000, Serves((), ()))
        while True:
            tree = worker.tree()
            for pid in tree:
                kill(pid, signal.SIGSTOP)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await self.store.beat(observer)
                    return tree
            thaw(tree)

    async def close(self) -> None:
        """End every process that this test started."""
        for worker in self._workers:
            if worker.process.poll() is None:
                for pid in reversed(worker.tree()):
                    kill(pid, signal.SIGCONT)
                    kill(pid)
            worker.process.wait()
        await self.store.close()


def thaw(pids: list[int]) -> None:
    for pid in pids:
        kill(pid, signal.SIGCONT)


def starts_per_job(trace: list[list[str]]) -> Counter[str]:
    return Counter(line[1] for line in trace)
