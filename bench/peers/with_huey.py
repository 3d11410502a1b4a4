"""huey's side of the bench, on SQLite and on Redis: `python bench/peers/with_huey.py MEASURE OPTIONS`.

Best documented settings. SQLite: WAL without fsync (its default), short polling delays. Redis: blocking pops, hiredis
installed. Both: threads, no scheduler, results off. It has no call for many jobs, so `bulk` is not measured.
"""

from __future__ import annotations

import time
from typing import Any, Final

from huey import RedisHuey, SqliteHuey  # type: ignore[import-not-found]  # installed in an environment of its own

from bench.meter import cpu_s, memory_bytes
from bench.peers.adapter import PAYLOAD, Countdown, Figures, in_turn, main, say_wait, to_a_sleeper, url

POLL_S: Final = 0.001  # SQLite: first delay of an idle worker; it backs off to ten times that


def _open() -> Any:
    if url().startswith("sqlite:///"):
        path = url().removeprefix("sqlite:///")
        return SqliteHuey("bench", filename=path, results=False, journal_mode="wal", cache_mb=64)
    return RedisHuey("bench", url=url(), results=False)


huey = _open()
run = Countdown()


@huey.task()  # type: ignore[untyped-decorator]  # huey has no types
def noop(payload: str = "") -> None:
    """The cheapest job there is."""
    run.count()


@huey.task()  # type: ignore[untyped-decorator]  # huey has no types
def nap(seconds: float) -> None:
    """A job that waits for something outside."""
    time.sleep(seconds)
    run.count()


@huey.task()  # type: ignore[untyped-decorator]  # huey has no types
def stamp(sent_ns: int) -> None:
    """Say how long this job waited."""
    say_wait(sent_ns)


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


def drain(jobs: int, workers: int = 1) -> Figures:
    """A backlog of no-op jobs, one consumer process."""
    for _ in range(jobs):
        noop()
    spent_s = cpu_s(url())
    took_s = _consumed(jobs, workers)
    return {"jobs_per_s": jobs / took_s, "cpu_s_per_10k": (cpu_s(url()) - spent_s) / jobs * 10_000}


def single(jobs: int) -> Figures:
    """One caller, one enqueue after the other."""
    return in_turn(noop, jobs)


def latency(jobs: int) -> Figures:
    """From before enqueue to the handler's first line, in another process that is idle."""
    return to_a_sleeper(__file__, stamp, jobs)


def waiting(jobs: int, seconds: float, at_once: int) -> Figures:
    """Jobs that wait for something outside, many at the same time."""
    for _ in range(jobs):
        nap(seconds)
    return {"seconds": _consumed(jobs, at_once), "ideal_s": jobs / at_once * seconds}


def memory(jobs: int) -> Figures:
    """What a waiting job with 100 bytes of payload takes in the server."""
    before = memory_bytes(url())
    for _ in range(jobs):
        noop(PAYLOAD)
    huey.storage.conn.connection_pool.disconnect()
    return {"bytes_per_job": (memory_bytes(url()) - before) / jobs}


def consume() -> None:
    """The worker process of `latency`."""
    consumer().run()


def _consumed(jobs: int, workers: int) -> float:
    run.expect(jobs)
    running = consumer(workers)
    at_s = time.perf_counter()
    running.start()
    run.wait()
    running.stop(graceful=True)
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
        ("huey", "redis", "hiredis"),
    )
