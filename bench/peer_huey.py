"""huey's side of the bench, run by its own environment: `python bench/peer_huey.py MEASURE OPTIONS`.

Best documented settings: WAL without fsync (its default), thread workers, no scheduler, short polling delays.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from statistics import quantiles
from typing import Any, Final

from huey import SqliteHuey  # type: ignore[import-not-found]  # installed in an environment of its own

PATH: Final = "HUEY_BENCH_PATH"
POLL_S: Final = 0.001  # first delay of an idle worker; it backs off to ten times that

huey = SqliteHuey("bench", filename=os.environ.get(PATH, ":memory:"), results=False, journal_mode="wal", cache_mb=64)
done = threading.Event()
counted: list[int] = [0, 0]  # jobs run, jobs awaited


@huey.task()  # type: ignore[untyped-decorator]  # huey has no types
def noop() -> None:
    """The cheapest job there is."""
    counted[0] += 1
    if counted[0] == counted[1]:
        done.set()


@huey.task()  # type: ignore[untyped-decorator]  # huey has no types
def stamp(sent_ns: int) -> None:
    """Say how long this job waited."""
    print(time.monotonic_ns() - sent_ns, flush=True)


def consumer(workers: int = 1) -> Any:
    """A consumer in this process."""
    return huey.create_consumer(
        workers=workers,
        worker_type="thread",
        periodic=False,
        initial_delay=POLL_S,
        max_delay=10 * POLL_S,
        check_worker_health=False,
    )


def drain(jobs: int) -> dict[str, float]:
    """A backlog of no-op jobs, one consumer process."""
    for _ in range(jobs):
        noop()
    counted[1] = jobs
    running = consumer()
    cpu_s, at_s = _cpu_s(), time.perf_counter()
    running.start()
    done.wait()
    took_s, spent_s = time.perf_counter() - at_s, _cpu_s() - cpu_s
    running.stop(graceful=True)
    return {"jobs_per_s": jobs / took_s, "cpu_s_per_10k": spent_s / jobs * 10_000}


def single(jobs: int) -> dict[str, float]:
    """One caller, one enqueue after the other."""
    at_s = time.perf_counter()
    for _ in range(jobs):
        noop()
    return {"jobs_per_s": jobs / (time.perf_counter() - at_s)}


def latency(jobs: int) -> dict[str, float]:
    """From before enqueue to the handler's first line, in another process that is idle."""
    command = [sys.executable, os.path.abspath(__file__), "consume", "{}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        waits_ms = []
        for number in range(jobs + 5):
            stamp(time.monotonic_ns())
            waited_ms = int(worker.stdout.readline()) / 1e6
            if number >= 5:  # the first ones pay for what is done once only
                waits_ms.append(waited_ms)
            time.sleep(0.02 * (0.5 + random.random()))
        worker.send_signal(signal.SIGINT)
    cuts = quantiles(waits_ms, n=100, method="inclusive")
    return {"p50_ms": cuts[49], "p95_ms": cuts[94], "p99_ms": cuts[98]}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


MEASURES: Final[dict[str, Callable[..., dict[str, float]]]] = {
    "drain": drain,
    "single": single,
    "latency": latency,
}


def main(name: str, text: str) -> None:
    """Print the figures of one run as one line of JSON; the store lies in a folder of its own."""
    if PATH not in os.environ:
        os.makedirs(".bench", exist_ok=True)
        folder = tempfile.mkdtemp(prefix="huey-", dir=".bench")
        env = {**os.environ, PATH: os.path.join(folder, "huey.db")}
        try:
            sys.exit(subprocess.run([sys.executable, __file__, name, text], env=env, check=False).returncode)
        finally:
            shutil.rmtree(folder)
    if name == "consume":  # the worker process of `latency`
        consumer().run()
    else:
        print(json.dumps(MEASURES[name](**json.loads(text))))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
