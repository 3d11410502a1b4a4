"""Runs one measure of the floor in this process: `python -m bench.floor MEASURE '{"url": "redis://127.0.0.1:6379/{n}"}'`."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

from bench.floor.mechanism import Mechanism
from bench.meter import per_call, percentiles
from bench.ours.tasks import REPLY, Inbox, reply
from bench.ours.throughput import Figures
from bench.ours.waits import CALM_S
from bench.versions import beneath
from limpet.runtime.child import run_loop

READY: Final = 0  # what the other process says first, and what the first messages carry
WARM: Final = 5  # they pay for what is done once only


def mechanism(url: str) -> Mechanism:
    """This process's end of what the URL's engine is built on. Each has a library that the others do without."""
    if url.startswith("sqlite:"):
        from bench.floor.on_sqlite import OnSqlite

        return OnSqlite(url)
    if url.startswith("redis:"):
        from bench.floor.on_redis import OnRedis

        return OnRedis(url)
    from bench.floor.on_postgres import OnPostgres

    return OnPostgres(url)


async def latency(url: str, jobs: int) -> Figures:
    """From before something is stored to the first line of the callback in another process that sleeps."""
    sender, inbox = mechanism(url), Inbox(os.environ["LIMPET_BENCH_FOLDER"], 0)
    await sender.open()

    async def one(number: int) -> float:
        await sender.send(b"%d" % number)
        said, told_ns = await inbox.stamp()
        assert said == number, "a stamp of another message"
        return (told_ns - number) / 1e6

    with _receiver(url, inbox):
        await inbox.stamp()
        for _ in range(WARM):
            await one(READY)
        waits_ms = []
        for _ in range(jobs):
            waits_ms.append(await one(time.monotonic_ns()))
            await asyncio.sleep(CALM_S * (0.5 + random.random()))
    return percentiles(waits_ms)


async def single(url: str, jobs: int) -> Figures:
    """One caller, each awaited before the next."""
    caller = mechanism(url)
    await caller.open()
    await caller.store(b"%d" % READY)
    at_s = time.perf_counter()
    for number in range(jobs):
        await caller.store(b"%d" % number)
    return per_call(jobs, time.perf_counter() - at_s)


async def receive(url: str) -> Figures:
    """The other process of `latency`; it is killed."""
    receiver = mechanism(url)
    await receiver.open()
    await receiver.listen(lambda stamp: reply(int(stamp)))
    reply(READY)
    return await asyncio.Future()


@contextmanager
def _receiver(url: str, inbox: Inbox) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.floor", "receive", json.dumps({"url": url})]
    with subprocess.Popen(command, env={**os.environ, REPLY: inbox.address}) as process:
        try:
            yield
        finally:
            process.kill()


MEASURES: Final[dict[str, Callable[..., Coroutine[Any, Any, Figures]]]] = {
    "latency": latency,
    "single": single,
    "receive": receive,
}


def main(name: str, text: str) -> None:
    """Print the figures of one run as one line of JSON."""
    options = json.loads(text)
    if name == "versions":
        print(json.dumps(beneath(options["engine"])))
        return
    options["url"] = options["url"].format(n=0)
    # On the loops that ours has: uvloop, but where stamps come in by datagram, which its sock_recv does not take.
    run = asyncio.run if name == "latency" else run_loop
    print(json.dumps(run(MEASURES[name](**options))))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
