"""What the Python peers' adapters share: a sleeping worker in another process, and how a run is started.

Runs in the peers' environments, so it needs nothing but Python.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from bench.meter import per_call, percentiles
from bench.versions import installed

URL = "LIMPET_BENCH_URL"
CALM_S = 0.02  # between two jobs, so that the worker is asleep again
WARM = 5  # the first jobs pay for what is done once only
PAYLOAD = "x" * 100

Figures = dict[str, float]


def url() -> str:
    """Where the peer's data lie in this run: set before the adapter is loaded, since peers want it at import."""
    return os.environ.get(URL, "redis://127.0.0.1:6379/0")


def say_wait(sent_ns: int) -> None:
    """Tell the process that sent this job how long it waited; the monotonic clock is one for all."""
    print(time.monotonic_ns() - sent_ns, flush=True)


@contextmanager
def sleeper(path: str) -> Iterator[Callable[[], float]]:
    """A worker in another process; the function given answers how many ms the next job waited."""
    with subprocess.Popen([sys.executable, path, "consume", "{}"], stdout=subprocess.PIPE, text=True) as worker:
        out = worker.stdout
        assert out is not None
        yield lambda: int(out.readline()) / 1e6
        worker.kill()  # it holds nothing that is needed


def waits(jobs: int, one: Callable[[], float]) -> Figures:
    """Percentiles of what `one` answers, with calm between."""
    found_ms = []
    for number in range(jobs + WARM):
        waited_ms = one()
        if number >= WARM:
            found_ms.append(waited_ms)
        time.sleep(CALM_S * (0.5 + random.random()))
    return percentiles(found_ms)


# -- for peers that run in threads


class Countdown:
    """Counts the jobs that have run in any thread, and tells when they are as many as awaited."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = 0
        self._over = threading.Event()
        self.over_s = 0.0  # when the last one ran

    def expect(self, jobs: int) -> None:
        """Begin to wait for this number of jobs."""
        self._left = jobs
        self._over.clear()

    def count(self) -> bool:
        """One more has run; whether it was the last."""
        with self._lock:
            self._left -= 1
            if self._left:
                return False
        self.over_s = time.perf_counter()
        self._over.set()
        return True

    def wait(self) -> None:
        """Until all have run."""
        self._over.wait()


def in_turn(send: Callable[[], object], jobs: int) -> Figures:
    """One caller, one enqueue after the other."""
    send()
    at_s = time.perf_counter()
    for _ in range(jobs):
        send()
    return per_call(jobs, time.perf_counter() - at_s)


def to_a_sleeper(path: str, send: Callable[[int], object], jobs: int) -> Figures:
    """From before enqueue to the handler's first line, in another process that is idle."""
    with sleeper(path) as waited_ms:

        def one() -> float:
            send(time.monotonic_ns())
            return waited_ms()

        return waits(jobs, one)


# -- for peers that run on asyncio

Measure = Callable[..., Coroutine[Any, Any, Figures | None]]
Send = Callable[[], Awaitable[object]]


class Tally:
    """Counts the jobs that have run, and tells when they are as many as awaited."""

    def __init__(self) -> None:
        self._run = 0
        self._awaited = 0
        self._done = asyncio.Event()

    def count(self) -> None:
        """One more has run."""
        self._run += 1
        if self._run == self._awaited:
            self._done.set()

    async def seconds(self, jobs: int, work: Coroutine[Any, Any, object]) -> float:
        """How long a worker takes for these jobs; it is stopped afterwards."""
        self._awaited = jobs
        at_s = time.perf_counter()
        worker = asyncio.create_task(work)
        done = asyncio.create_task(self._done.wait())
        await asyncio.wait([worker, done], return_when=asyncio.FIRST_COMPLETED)
        took_s = time.perf_counter() - at_s
        if not self._done.is_set():
            raise RuntimeError(f"the worker ended after {self._run} of {jobs} jobs") from worker.exception()
        worker.cancel()
        await asyncio.wait([worker], timeout=5)
        return took_s


async def one_by_one(send: Send, jobs: int) -> Figures:
    """One caller, each enqueue awaited before the next."""
    await send()
    at_s = time.perf_counter()
    for _ in range(jobs):
        await send()
    return per_call(jobs, time.perf_counter() - at_s)


async def side_by_side(send: Send, jobs: int, callers: int) -> Figures:
    """Concurrent callers, each awaiting its own enqueues one by one."""
    await send()

    async def caller() -> None:
        for _ in range(jobs // callers):
            await send()

    at_s = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return {"jobs_per_s": jobs / (time.perf_counter() - at_s)}


async def beside_a_sleeper(path: str, send: Callable[[int], Awaitable[object]], jobs: int) -> Figures:
    """From before enqueue to the handler's first line, in another process that is idle."""
    loop = asyncio.get_running_loop()
    with sleeper(path) as waited_ms:

        async def one() -> float:
            await send(time.monotonic_ns())
            return waited_ms()

        # The pauses between jobs may hold up this thread, but not the loop that sends.
        return await asyncio.to_thread(waits, jobs, lambda: asyncio.run_coroutine_threadsafe(one(), loop).result())


def main_on_uvloop(path: str, measures: Iterable[Measure], packages: Sequence[str]) -> None:
    """Run one of these measures, on the fastest loop there is."""
    import uvloop  # it is in the environments of these peers alone

    def looped(measure: Measure) -> Callable[..., Figures | None]:
        return lambda **options: uvloop.run(measure(**options))

    main(path, {measure.__name__: looped(measure) for measure in measures}, (*packages, "uvloop"))


def main(path: str, measures: Mapping[str, Callable[..., Figures | None]], packages: Sequence[str]) -> None:
    """Run one measure of the adapter at `path`, in a process that knows the URL before it imports the peer.

    `packages` are those whose releases are told.
    """
    name, options = sys.argv[1], json.loads(sys.argv[2])
    if name == "versions":
        print(json.dumps(installed(*packages)))
        return
    if (where := options.pop("url", None)) is not None:
        env = {**os.environ, URL: where.format(n=0)}
        command = [sys.executable, path, name, json.dumps(options)]
        sys.exit(subprocess.run(command, env=env, check=False).returncode)
    figures = measures[name](**options)
    if figures is not None:
        print(json.dumps(figures))
