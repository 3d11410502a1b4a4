"""One of a fleet that works by a clock which runs faster than time.

Each job that it starts leaves a line `start` with what was reserved for it, a line `less` before it says that it cost
less than that, and a line `cost` after it was heard to say what it cost. So what is reserved, less or cost in the lines
adds up to no more than what the store knows at that moment.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from limpet.core.endings.transition import Failure, Release, RetryAfter, Succeed, Transition
from limpet.core.jobs.lease import Beat, Claimed, ClaimRequest, Serves
from limpet.stores.open import open_store

TTL_MS = 60_000  # a moment of real time
LONGEST_MS = 5_000
LONGEST_PAID_MS = 180_000  # several of them run at any time, so that a kill meets them
FAILED = Failure("transient", "Error", "it broke")


class Trace:
    """Lines that are whole even when the process is killed right after."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)

    def size(self) -> int:
        """How much of it there is, by whomever."""
        return os.fstat(self._file).st_size

    def leave(self, word: str, job: Claimed, number: int, seen: int = 0) -> None:
        """`seen` is how much of the trace was there before the job was asked for."""
        key = (*job.lane.limits, *job.lane.keys)[0]
        line = f"{word} {job.id.hex()} {job.token} {job.claimed_at_ms} {key} {number} {seen}\n"
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
    running: list[tuple[int, Claimed]] = []  # with the instant at which it ends
    seq = 0
    while True:
        now_ms, seq = clock.now_ms, seq + 1
        await store.beat(Beat(session, TTL_MS, serves), now_ms=now_ms)
        free, seen = rng.randint(1, 4), trace.size()
        claim = await store.claim(ClaimRequest(session, serves, free, free, seq), now_ms=now_ms)
        ends: list[Transition] = []
        spent: dict[bytes, dict[str, int]] = {}
        done: dict[bytes, Claimed] = {}
        for job in claim.jobs:
            if rng.random() < 0.1:
                trace.leave("less", job, 0, seen)
                ends.append(Release(job.id, job.token))
            else:
                trace.leave("start", job, job.costs.get("usd", 0), seen)
                longest_ms = LONGEST_PAID_MS if job.costs else LONGEST_MS
                running.append((now_ms + rng.randint(0, longest_ms), job))
        for ended in [one for one in running if one[0] <= now_ms]:
            running.remove(ended)
            job, reserved = ended[1], ended[1].costs.get("usd", 0)
            real = rng.randint(0, reserved * 5 // 4)
            spent[job.id], done[job.id] = {"usd": real}, job
            if real < reserved:
                trace.leave("less", job, real)
            fails = rng.random() < 0.1
            ends.append(RetryAfter(job.id, job.token, FAILED, 1_000) if fails else Succeed(job.id, job.token))
        if not ends:
            await asyncio.sleep(0.002)
            continue
        answers = await store.settle(session, seq, ends, spent=spent, now_ms=clock.now_ms)
        for end, settled in zip(ends, answers, strict=True):
            if settled.answer == "done" and end.id in done:
                trace.leave("cost", done[end.id], spent[end.id]["usd"])


if __name__ == "__main__":
    url, clock, trace, seed = sys.argv[1:]
    asyncio.run(work(url, FastClock(Path(clock)), Trace(trace), random.Random(int(seed))))
