"""The app of the chaos tests of limits: one job at a time, and a provider that asks for patience."""

from __future__ import annotations

import asyncio
import os
import time

from limpet import Limit, Limpet, RateLimited, current_job

app = Limpet(os.environ.get("CHAOS_URL", "sqlite://"))


def leave(word: str) -> None:
    """One line with the time, appended in one write."""
    line = f"{word} {current_job().id} {time.time_ns()} {os.getpid()}\n"
    with open(os.environ["CHAOS_TRACE"], "ab", buffering=0) as file:
        file.write(line.encode())


def is_told() -> bool:
    """Whether the test has said that this job may go on."""
    return os.path.exists(f"{os.environ['CHAOS_TRACE']}.{current_job().id}")


@app.task(name="alone", limits=[Limit("door", concurrency=1)])
async def alone(lingers: bool) -> None:
    """Some stay inside until they are told to go, or killed; the next time they do not."""
    leave("enters")
    if lingers and not current_job().checkpoint:
        await current_job().save("was here")
        leave("lingers")
        for _ in range(12_000):  # a minute
            if is_told():
                break
            await asyncio.sleep(0.005)
    await asyncio.sleep(0.005)
    leave("leaves")


@app.task(name="call", limits=[Limit("provider:{provider}", concurrency=64)])
async def call(provider: int, pushes_back: bool) -> None:
    """Some calls are told to come back later, the first time."""
    leave(f"calls:{provider}")
    if pushes_back and not current_job().checkpoint:
        await current_job().save("refused")
        leave(f"refused:{provider}")
        raise RateLimited(0.6)
    await asyncio.sleep(0.01)
