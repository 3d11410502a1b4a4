"""The stall of the next-layout test, for each release on the path. As a program it orders until it is told to stop.

Each effect leaves a line in the trace that names the release; so does each acknowledged order.
"""

from __future__ import annotations

import asyncio
import os
import signal
from itertools import count
from pathlib import Path
from typing import Any

import limpet
from limpet import JobHandle, Limit, Limpet, Retry, current_job

SOURCE = str(Path(limpet.__file__).parents[2])

app = Limpet(os.environ.get("CHAOS_URL", "sqlite://"))


def note(word: str, *jobs: str) -> None:
    """A line per job, appended in one write: whole even when the process is killed right after."""
    descriptor = os.open(os.environ["CHAOS_TRACE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, "".join(f"{word} {job} {SOURCE}\n" for job in jobs).encode())
    finally:
        os.close(descriptor)


@app.task(name="pay", tenant="customer", limits=[Limit("till:{customer}", concurrency=3)])
async def pay(customer: str) -> str:
    await asyncio.sleep(0.02)
    note("effect", current_job().id)
    return customer


@app.task(name="mail", retry=Retry(base=0.05, jitter="none"))
async def mail(number: int) -> int:
    """Each fifth fails once, before its effect."""
    if number % 5 == 0 and current_job().attempt == 1:
        raise ConnectionError("the mail server is away")
    await asyncio.sleep(0.02)
    note("effect", current_job().id)
    return number


async def order(number: int) -> None:
    """Ten jobs or so, in every way that there is to ask for one."""
    customers = [f"c{(number + place) % 7}" for place in range(4)]
    jobs: list[JobHandle[Any]] = await app.enqueue_many([pay.job(customer) for customer in customers])
    jobs.append(await mail.options(after=jobs[0]).enqueue(number))
    jobs.append(await mail.options(delay=0.1, priority="high").enqueue(number + 1))
    jobs += [await mail.options(unique=f"news {number}", tags=["news"]).enqueue(number) for _ in range(2)]
    jobs.append(await mail.enqueue(number + 1))
    note("ordered", *(job.id for job in jobs))


async def main() -> None:
    enough = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, enough.set)
    async with app:
        for number in count():
            await order(number)
            if enough.is_set():
                break
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main())
