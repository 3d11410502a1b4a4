"""Dramatiq's side of the bench, on Redis: `python bench/peers/with_dramatiq.py MEASURE OPTIONS`.

Best documented settings: eight threads (its default), a large prefetch, a short time between two looks of an idle
worker, which polls; hiredis, no results. It has no call for many jobs, so `bulk` is not measured.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Final

os.environ.setdefault("dramatiq_queue_prefetch", "1000")  # its name for it; read when it is imported

import dramatiq  # type: ignore[import-not-found]  # installed in an environment of its own
from dramatiq.brokers.redis import RedisBroker  # type: ignore[import-not-found]  # the same

from bench.meter import cpu_s, memory_bytes
from bench.peers.adapter import PAYLOAD, Countdown, Figures, in_turn, main, say_wait, to_a_sleeper, url

THREADS: Final = 8
POLL_MS: Final = 10  # the longest pause of an idle worker; huey's is the same here

broker = RedisBroker(url=url())
run = Countdown()


@dramatiq.actor(broker=broker)  # type: ignore[untyped-decorator]  # Dramatiq is not here for the checker
def noop(payload: str = "") -> None:
    """The cheapest job there is."""
    run.count()


@dramatiq.actor(broker=broker)  # type: ignore[untyped-decorator]  # the same
def nap(seconds: float) -> None:
    """A job that waits for something outside."""
    time.sleep(seconds)
    run.count()


@dramatiq.actor(broker=broker)  # type: ignore[untyped-decorator]  # the same
def stamp(sent_ns: int) -> None:
    """Say how long this job waited."""
    say_wait(sent_ns)


def drain(jobs: int, threads: int = THREADS) -> Figures:
    """A backlog of no-op jobs, one worker process."""
    _fill(noop, (), jobs)
    spent_s = cpu_s(url())
    took_s = _worked(jobs, threads)
    return {"jobs_per_s": jobs / took_s, "cpu_s_per_10k": (cpu_s(url()) - spent_s) / jobs * 10_000}


def single(jobs: int) -> Figures:
    """One caller."""
    return in_turn(noop.send, jobs)


def latency(jobs: int) -> Figures:
    """From enqueue to another process."""
    return to_a_sleeper(__file__, stamp.send, jobs)


def waiting(jobs: int, seconds: float, at_once: int) -> Figures:
    """Jobs that wait for something outside, many at the same time."""
    _fill(nap, (seconds,), jobs)
    return {"seconds": _worked(jobs, at_once), "ideal_s": jobs / at_once * seconds}


def memory(jobs: int) -> Figures:
    """What a waiting job with 100 bytes of payload takes in the server."""
    before = memory_bytes(url())
    _fill(noop, (PAYLOAD,), jobs)
    broker.client.connection_pool.disconnect()
    return {"bytes_per_job": (memory_bytes(url()) - before) / jobs}


def consume() -> None:
    """The worker process of `latency`."""
    _worker(THREADS).start()
    threading.Event().wait()


def _fill(actor: Any, args: tuple[object, ...], jobs: int) -> None:
    for _ in range(jobs):
        actor.send(*args)


def _worker(threads: int) -> Any:
    return dramatiq.Worker(broker, worker_threads=threads, worker_timeout=POLL_MS)


def _worked(jobs: int, threads: int) -> float:
    run.expect(jobs)
    worker = _worker(threads)
    at_s = time.perf_counter()
    worker.start()
    run.wait()
    worker.stop()
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
        ("dramatiq", "redis", "hiredis"),
    )
