"""What the Python peers' adapters share: a sleeping worker in another process, and how a run is started.

Runs in the peers' environments, so it needs nothing but Python.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from bench.meter import percentiles

URL = "HOLDFAST_BENCH_URL"
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
        worker.kill()  # it holds nothing that anybody wants


def waits(jobs: int, one: Callable[[], float]) -> Figures:
    """Percentiles of what `one` answers, with calm between."""
    found_ms = []
    for number in range(jobs + WARM):
        waited_ms = one()
        if number >= WARM:
            found_ms.append(waited_ms)
        time.sleep(CALM_S * (0.5 + random.random()))
    return percentiles(found_ms)


def main(path: str, measures: Mapping[str, Callable[..., Figures | None]]) -> None:
    """Run one measure of the adapter at `path`, in a process that knows the URL before it imports the peer."""
    name, options = sys.argv[1], json.loads(sys.argv[2])
    if (where := options.pop("url", None)) is not None:
        env = {**os.environ, URL: where.format(n=0)}
        command = [sys.executable, path, name, json.dumps(options)]
        sys.exit(subprocess.run(command, env=env, check=False).returncode)
    figures = measures[name](**options)
    if figures is not None:
        print(json.dumps(figures))
