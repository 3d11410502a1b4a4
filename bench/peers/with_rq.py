"""RQ's side of the bench: `python bench/peers/with_rq.py MEASURE OPTIONS`.

Best documented settings: `SimpleWorker`, which runs jobs in its own process where the usual one forks for each; a
backlog by `enqueue_many`, results not kept, hiredis. It runs one job at a time.
"""

from __future__ import annotations

import time
from typing import Any, Final

from redis import Redis  # type: ignore[import-not-found, unused-ignore]  # some environments have it
from rq import Queue, SimpleWorker  # type: ignore[import-not-found]  # installed in an environment of its own

from bench.meter import cpu_s, memory_bytes
from bench.peers.adapter import PAYLOAD, Countdown, Figures, in_turn, main, say_wait, to_a_sleeper, url

CHUNK: Final = 500  # jobs per call when a backlog is laid out
# By name: it takes no function of the module that a program was started with.
NOOP: Final = "bench.peers.with_rq.noop"
STAMP: Final = "bench.peers.with_rq.stamp"

queue = Queue("bench", connection=Redis.from_url(url()))
run = Countdown()


def noop(payload: str = "") -> None:
    """The cheapest job there is."""
    run.count()


def stamp(sent_ns: int) -> None:
    """Say how long this job waited."""
    say_wait(sent_ns)


def drain(jobs: int) -> Figures:
    """A backlog of no-op jobs, one worker."""
    from bench.peers.with_rq import run as ran  # the worker's: this program is another copy of the module

    _fill(jobs, CHUNK)
    ran.expect(jobs)
    spent_s, at_s = cpu_s(url()), time.perf_counter()
    _worker().work(burst=True, logging_level="ERROR")
    took_s = ran.over_s - at_s  # the worker's end takes up to a second
    assert took_s > 0, "the worker left jobs behind"
    return {"jobs_per_s": jobs / took_s, "cpu_s_per_10k": (cpu_s(url()) - spent_s) / jobs * 10_000}


def bulk(jobs: int, per_call: int) -> Figures:
    """Many jobs per call."""
    at_s = time.perf_counter()
    _fill(jobs, per_call)
    return {"jobs_per_s": jobs / (time.perf_counter() - at_s)}


def single(jobs: int) -> Figures:
    """One caller."""
    return in_turn(lambda: queue.enqueue(NOOP, result_ttl=0), jobs)


def latency(jobs: int) -> Figures:
    """From enqueue to another process."""
    return to_a_sleeper(__file__, lambda sent_ns: queue.enqueue(STAMP, sent_ns, result_ttl=0), jobs)


def memory(jobs: int) -> Figures:
    """What a waiting job with 100 bytes of payload takes in the server."""
    before = memory_bytes(url())
    _fill(jobs, CHUNK, PAYLOAD)
    queue.connection.connection_pool.disconnect()
    return {"bytes_per_job": (memory_bytes(url()) - before) / jobs}


def consume() -> None:
    """The worker process of `latency`."""
    _worker().work(logging_level="ERROR")


def _fill(jobs: int, per_call: int, *args: object) -> None:
    for start in range(0, jobs, per_call):
        count = min(per_call, jobs - start)
        queue.enqueue_many([Queue.prepare_data(NOOP, args, result_ttl=0) for _ in range(count)])


def _worker() -> Any:
    return SimpleWorker([queue], connection=queue.connection, log_job_description=False)


if __name__ == "__main__":
    main(
        __file__,
        {
            "drain": drain,
            "bulk": bulk,
            "single": single,
            "latency": latency,
            "memory": memory,
            "consume": consume,
        },
        ("rq", "redis", "hiredis"),
    )
