"""Celery's side of the bench, on Redis: `python bench/peers/with_celery.py MEASURE OPTIONS`.

Best documented settings for one process: the solo pool, which runs jobs in the worker's own thread, and threads where
jobs wait side by side; a large prefetch, results ignored, no gossip, no mingling, no heartbeats; hiredis. A message is
acknowledged before its job runs (its default). It has no call for many jobs, so `bulk` is not measured.
"""

from __future__ import annotations

import time
import warnings
from typing import Any, Final

from celery import Celery  # type: ignore[import-not-found]  # installed in an environment of its own
from celery.worker import state  # type: ignore[import-not-found]  # the same

from bench.meter import cpu_s, memory_bytes
from bench.peers.adapter import PAYLOAD, Countdown, Figures, in_turn, main, say_wait, to_a_sleeper, url

PREFETCH: Final = 128  # for each place; its page on optimizing names 64 and 128 for short jobs

warnings.filterwarnings("ignore", message="(?s).*superuser")  # a container has no other user
app = Celery("bench", broker=url())
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=PREFETCH,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,  # figures go there
    broker_connection_retry_on_startup=True,
)
run = Countdown()


@app.task(name="noop")  # type: ignore[untyped-decorator]  # Celery is not here for the checker
def noop(payload: str = "") -> None:
    """The cheapest job there is."""
    _ran()


@app.task(name="nap")  # type: ignore[untyped-decorator]  # the same
def nap(seconds: float) -> None:
    """A job that waits for something outside."""
    time.sleep(seconds)
    _ran()


@app.task(name="stamp")  # type: ignore[untyped-decorator]  # the same
def stamp(sent_ns: int) -> None:
    """Say how long this job waited."""
    say_wait(sent_ns)


def drain(jobs: int) -> Figures:
    """A backlog of no-op jobs, one worker."""
    _fill(noop, (), jobs)
    spent_s = cpu_s(url())
    took_s = _worked(jobs, "solo", 1)
    return {"jobs_per_s": jobs / took_s, "cpu_s_per_10k": (cpu_s(url()) - spent_s) / jobs * 10_000}


def single(jobs: int) -> Figures:
    """One caller."""
    return in_turn(noop.delay, jobs)


def latency(jobs: int) -> Figures:
    """From enqueue to another process."""
    return to_a_sleeper(__file__, stamp.delay, jobs)


def waiting(jobs: int, seconds: float, at_once: int) -> Figures:
    """Jobs that wait for something outside, many at the same time."""
    _fill(nap, (seconds,), jobs)
    return {"seconds": _worked(jobs, "threads", at_once), "ideal_s": jobs / at_once * seconds}


def memory(jobs: int) -> Figures:
    """What a waiting job with 100 bytes of payload takes in the server."""
    before = memory_bytes(url())
    _fill(noop, (PAYLOAD,), jobs)
    app.pool.force_close_all()
    return {"bytes_per_job": (memory_bytes(url()) - before) / jobs}


def consume() -> None:
    """The worker process of `latency`."""
    _worker("solo", 1).start()


def _ran() -> None:
    if run.count():
        state.should_stop = 0  # the worker's exit code: it looks before it waits for the next message


def _fill(task: Any, args: tuple[object, ...], jobs: int) -> None:
    with app.producer_or_acquire() as producer:
        for _ in range(jobs):
            task.apply_async(args, producer=producer)


def _worker(pool: str, at_once: int) -> Any:
    return app.Worker(
        pool=pool,
        concurrency=at_once,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        loglevel="ERROR",
        quiet=True,
    )


def _worked(jobs: int, pool: str, at_once: int) -> float:
    run.expect(jobs)
    worker = _worker(pool, at_once)
    at_s = time.perf_counter()
    worker.start()
    return run.over_s - at_s


if __name__ == "__main__":
    main(
        __file__,
        {
            "drain": drain,
            "single": single,
            "latency": latency,
            "waiting": waiting,
            "memory": memory,
            "consume": consume,
        },
        ("celery", "kombu", "redis", "hiredis"),
    )
