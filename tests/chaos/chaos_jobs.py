"""The app of the chaos tests: each job leaves lines in a file, so that effects can be counted from outside."""

from __future__ import annotations

import asyncio
import os
import time

from limpet import Limpet, current_job

app = Limpet(os.environ.get("CHAOS_URL", "sqlite://"))
TRACE = os.environ.get("CHAOS_TRACE", "")


def leave_trace(word: str) -> None:
    """One line, appended in one write: whole even when the process is killed right after."""
    job = current_job()
    line = f"{word} {job.id} {job.attempt} {job.token} {os.getpid()}\n"
    descriptor = os.open(TRACE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


@app.task(name="short")
async def short(ms: int) -> int:
    leave_trace("start")
    await asyncio.sleep(ms / 1000)
    leave_trace("end")
    return ms


@app.task(name="in_thread")
def in_thread(ms: int) -> int:
    leave_trace("start")
    time.sleep(ms / 1000)
    leave_trace("end")
    return ms


@app.task(name="poison")
async def poison() -> None:
    leave_trace("start")
    await asyncio.sleep(0.05)
    os._exit(66)


@app.task(name="blocking")
async def blocking(ms: int) -> int:
    leave_trace("start")
    time.sleep(ms / 1000)
    leave_trace("end")
    return ms
