"""Runs the demo's workers: real `limpet worker` processes that are deployed, killed and replaced."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

import msgspec

from limpet.cli.demo.folder import NAMESPACE, Folder
from limpet.cli.demo.tasks import VARIABLE
from limpet.core.errors import LimpetError
from limpet.core.jobs.lease import SessionView
from limpet.stores.base import Store

APP: Final = "limpet.cli.demo.tasks:app"
GRACE_S: Final = 5
MOST_FAILED: Final = 5
LOOK_S: Final = 0.03
BUSY_WITHIN_S: Final = 3.0
STOP_S: Final = 20.0  # grace, clean-up and flush fit; what lasts longer is killed


class WorkerProcess:
    """One `limpet worker`: a supervisor and its child, in a process group of their own."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.pid = process.pid
        self.expected = False  # True: the driver ended it, so it is not replaced

    def child_of(self, sessions: list[SessionView]) -> SessionView | None:
        """Its child, as the store knows it; session names carry the supervisor's pid."""
        return next((view for view in sessions if f":{self.pid}:" in view.session), None)


class Fleet:
    """Keeps the wanted number of workers alive when workers are killed."""

    def __init__(self, folder: Folder, store: Store, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._store = store
        self._say = say
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._manned = asyncio.Event()  # set while there is a worker
        self._failed = 0
        self._broken = asyncio.Event()
        self.workers: list[WorkerProcess] = []

    async def start(self) -> WorkerProcess:
        """Start a worker and write its pid down."""
        number = len(self._folder.notes("worker.started")) + 1
        name = f"worker {number}"
        # Settings of the person's own project are not the demo's.
        env = {key: value for key, value in os.environ.items() if not key.startswith("LIMPET_")}
        env |= {VARIABLE: str(self._folder.path), "LIMPET_CONFIG": str(self._folder.config)}
        log = os.open(self._folder.path / f"worker-{number}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            process = await asyncio.create_subprocess_exec(
                *_command(self._folder),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C is for the driver, which stops its workers itself
            )
        finally:
            os.close(log)
        self._folder.note("worker.started", name=name, pid=process.pid)
        worker = WorkerProcess(name, process)
        self.workers.append(worker)
        self._manned.set()
        self._say(f"{name} starts (pid {worker.pid})")
        keeping = asyncio.create_task(self._keep(worker))
        self._tasks.add(keeping)
        keeping.add_done_callback(self._tasks.discard)
        return worker

    async def _keep(self, worker: WorkerProcess) -> None:
        code = await worker.process.wait()
        self.workers.remove(worker)
        if not self.workers:
            self._manned.clear()
        if worker.expected or self._stopping:
            return
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._say(f"{worker.name} is gone ({how}); another takes its place")
        if code > 0:
            self._failed += 1
            if self._failed >= MOST_FAILED:
                self._broken.set()
                return
            await asyncio.sleep(1)  # one that cannot start is not tried in a hot loop
        await self.start()

    async def guard(self) -> None:
        """Raise once workers end by themselves again and again; until then, wait."""
        await self._broken.wait()
        raise LimpetError("the demo's workers do not stay up", fix=f"see {self._folder.path}/worker-*.log")

    async def one(self) -> WorkerProcess:
        """The worker that has been there for longest."""
        await self._manned.wait()
        return self.workers[0]

    async def live_child(self, worker: WorkerProcess, *, other_than: str = "") -> SessionView | None:
        """Wait until the worker has a live child (another one than the last); None when the worker is gone."""
        while worker in self.workers:
            view = worker.child_of(await self._store.sessions())
            if view is not None and view.session != other_than:
                return view
            await asyncio.sleep(LOOK_S)
        return None

    async def busy_child(self, worker: WorkerProcess) -> SessionView | None:
        """Its child, preferably while it runs jobs."""
        view = await self.live_child(worker)
        for _ in range(round(BUSY_WITHIN_S / LOOK_S)):
            if view is None or view.running:
                break
            await asyncio.sleep(LOOK_S)
            view = await self.live_child(worker)
        return view

    async def terminate(self, worker: WorkerProcess) -> int:
        """SIGTERM, as a deployment does; the exit code."""
        worker.expected = True
        _signal(worker.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                return await worker.process.wait()
        except TimeoutError:
            _signal_group(worker.pid, signal.SIGKILL)
            return await worker.process.wait()

    def kill_child(self, child: SessionView) -> int:
        """SIGKILL of the process that runs jobs; its supervisor lives."""
        pid = int(msgspec.json.decode(child.info, type=dict[str, Any])["pid"])
        _signal(pid, signal.SIGKILL)
        return pid

    def kill_all_of(self, worker: WorkerProcess) -> None:
        """SIGKILL of supervisor and child at once, as when a machine is lost."""
        _signal_group(worker.pid, signal.SIGKILL)

    async def stop(self) -> None:
        """End every worker, gracefully if it can."""
        self._stopping = True
        await asyncio.gather(*(self.terminate(worker) for worker in list(self.workers)))
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def stop_strays(folder: Folder) -> int:
    """End the workers that a killed driver left behind: only pids it wrote down, and only if still ours."""
    strays = [note["pid"] for note in folder.notes("worker.started") if _is_ours(note["pid"], folder)]
    for pid in strays:
        _signal(pid, signal.SIGTERM)
    for pid in strays:
        for _ in range(round(STOP_S / 0.1)):
            if not _is_ours(pid, folder):
                break
            await asyncio.sleep(0.1)
        else:
            _signal_group(pid, signal.SIGKILL)
    return len(strays)


def _is_ours(pid: int, folder: Folder) -> bool:
    """True when the process runs a worker on this folder's store: a pid alone may have been reused."""
    question = ["ps", "-ww", "-p", str(pid), "-o", "args="]
    asked = subprocess.run(question, capture_output=True, text=True, check=False)
    return APP in asked.stdout and folder.url in asked.stdout


def _command(folder: Folder) -> list[str]:
    flags = {"--url": folder.url, "--namespace": NAMESPACE, "--concurrency": "16", "--threads": "8"}
    flags |= {"--grace": str(GRACE_S), "--log": "json"}
    worker = [sys.executable, "-m", "limpet.cli", "worker", APP]
    return worker + [word for flag in flags.items() for word in flag]


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)
