"""The app of the chaos tests of limits: one job at a time, and a provider that asks for patience."""

from __future__ import annotations

import asyncio
import os
import time

from holdfast import Holdfast, Limit, RateLimited, current_job

app = Holdfast(os.environ.get("CHAOS_URL", "sqlite://"))


def leave(word: str) -> None:
    """One line with the time, appended in one write."""
    line = f"{word} {current_job().id} {time.time_ns()} {os.getpid()}\n"
    with open(os.environ["CHAOS_TRACE"], "ab", buffering=0) as file:
        file.write(line.encode())


@app.task(name="alone", limits=[Limit("door", concurrency=1)])
async def alone() -> None:
    leave("enters")
    await asyncio.sleep(0.005)
    leave("leaves")


@app.task(name="call", limits=[Limit("provider", concurrency=64)])
async def call(pushes_back: bool) -> None:
    """Some calls are told to come back later, the first time."""
    leave("calls")
    if pushes_back and not current_job().checkpoint:
        await current_job().save("refused")
        leave("refused")
        raise RateLimited(0.6)
    await asyncio.sleep(0.01)
