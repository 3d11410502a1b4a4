"""One of a fleet that works by a clock which runs faster than time.

Each job that it starts leaves a line `start`, and what it will say of a job's cost a line `cost`, before it says so.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from holdfast.core.lease import Beat, Claimed, ClaimRequest, Serves
from holdfast.core.transition import Failure, Release, RetryAfter, Succeed, Transition
from holdfast.stores.open import open_store

TTL_MS = 15_000
FAILED = Failure("transient", "Error", "it broke")


class Trace:
    """Lines that are whole even when the process is killed right after."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)

    def leave(self, word: str, job: Claimed, number: int) -> None:
        key = (*job.lane.limits, *job.lane.keys)[0]
        line = f"{word} {job.id.hex()} {job.token} {job.claimed_at_ms} {key} {number}\n"
        os.write(self._file, line.encode())


class FastClock:
    """Eight bytes in a file that somebody moves on."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)

    @property
    def now_ms(self) -> int:
        return int.from_bytes(os.pread(self._file, 8, 0), "big")

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        os.pwrite(self._file, now_ms.to_bytes(8, "big"), 0)


async def work(url: str, clock: FastClock, trace: Trace, rng: random.Random) -> None:
    store, session, serves = open_store(url), f"w{os.getpid()}", Serves()
    running: list[Claimed] = []
    seq = 0
    while True:
        now_ms, seq = clock.now_ms, seq + 1
        await store.beat(Beat(session, TTL_MS, serves), now_ms=now_ms)
        free = rng.randint(1, 4)
        claim = await store.claim(ClaimRequest(session, serves, free, free, seq), now_ms=now_ms)
        ends: list[Transition] = []
        spent: dict[bytes, dict[str, int]] = {}
        for job in claim.jobs:
            if rng.random() < 0.1:
                trace.leave("cost", job, 0)
                ends.append(Release(job.id, job.token))
            else:
                trace.leave("start", job, job.costs.get("usd", 0))
                running.append(job)
        for job in [job for job in running if rng.random() < 0.6]:
            running.remove(job)
            real = rng.randint(0, job.costs.get("usd", 0))
            trace.leave("cost", job, real)
            spent[job.id] = {"usd": real}
            fails = rng.random() < 0.1
            ends.append(RetryAfter(job.id, job.token, FAILED, 1_000) if fails else Succeed(job.id, job.token))
        if ends:
            await store.settle(session, seq, ends, spent=spent, now_ms=clock.now_ms)
        else:
            await asyncio.sleep(0.002)


if __name__ == "__main__":
    url, clock, trace, seed = sys.argv[1:]
    asyncio.run(work(url, FastClock(Path(clock)), Trace(trace), random.Random(int(seed))))
