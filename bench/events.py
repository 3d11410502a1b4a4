"""Measures what live events cost a worker: `python -m bench.events [--engine redis] [--rounds 5]`.

A worker drains jobs that do nothing, in turns: with live events taken out, without a reader, and with one in another
process. What counts is the processor time of the worker's process: other programs of the machine do not change it much.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Final, Literal, get_args

from bench.ground import scratch
from bench.targets import Engine
from bench.turns import GROUNDS
from limpet import Limpet
from limpet.stores.base import READER, Store

Case = Literal["taken out", "no reader", "one reader"]

JOBS: Final = 20_000  # in each drain: some seconds, since the first thousand events of each are told one by one


@contextmanager
def reader(url: str) -> Iterator[None]:
    """Another process that follows live events."""
    command = [sys.executable, "-m", "limpet.cli", "events", "--follow", "--jsonl", "--url", url]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def until_read(store: Store) -> None:
    """Return when a reader is there."""
    while True:
        now_ms = await store.now()
        if any(int(control.value) > now_ms for control in await store.controls(READER[0])):
            return
        await asyncio.sleep(0.05)


async def drained_s(app: Limpet, jobs: int) -> float:
    """Processor seconds from the start of a worker until it has nothing left to do."""
    await app.enqueue_many((app.tasks["nothing"].job() for _ in range(jobs)), atomic=False)
    at_s = time.process_time()
    await app.work(until_empty=True)
    return time.process_time() - at_s


async def measured(url: str, rounds: int, jobs: int) -> dict[Case, list[float]]:
    """The times of each case, in turns."""
    took: dict[Case, list[float]] = {case: [] for case in get_args(Case)}
    app = Limpet(url)

    @app.task(name="nothing")
    async def nothing() -> None: ...

    async with app:
        await drained_s(app, jobs)  # warms up
        offers = app.store.offers  # type: ignore[attr-defined]  # every engine has it, and no protocol
        for number in range(rounds):
            for case in [*took][number % 3 :] + [*took][: number % 3]:  # no case always has the first turn
                await offers.announce(0)
                if case == "one reader":
                    with reader(url):
                        await until_read(app.store)
                        took[case].append(await drained_s(app, jobs))
                    continue
                verbs = offers._verbs
                offers.beaten(False)
                offers._verbs = {} if case == "taken out" else verbs
                took[case].append(await drained_s(app, jobs))
                offers._verbs = verbs
    return took


def main() -> None:
    """Print, for each engine and case, the processor time by that without live events: the median of all rounds.

    Beside it that of the least times, which other programs of a busy machine change least.
    """
    parser = argparse.ArgumentParser(prog="python -m bench.events", description=__doc__)
    parser.add_argument("--engine", choices=get_args(Engine), action="append", help="every engine unless said")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=JOBS)
    asked = parser.parse_args()
    for engine in asked.engine or get_args(Engine):
        with scratch() as folder, GROUNDS[engine](folder) as url:
            took = asyncio.run(measured(url.format(n=0), asked.rounds, asked.jobs))
        for case, times in took.items():
            ratios = [now / before for now, before in zip(times, took["taken out"], strict=True)]
            each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            least = min(times) / min(took["taken out"])
            print(
                f"{engine}, {case}: {median(ratios):.3f} of the processor time, by the least {least:.3f} ({each})",
                flush=True,
            )


if __name__ == "__main__":
    main()
