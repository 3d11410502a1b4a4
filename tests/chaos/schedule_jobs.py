"""The app of the chaos tests of schedules: every second a job leaves a line with the tick that it runs for."""

from __future__ import annotations

import os

from limpet import Every, Limpet, current_job

app = Limpet(os.environ.get("CHAOS_URL", "sqlite://"))


def leave_trace(word: str) -> None:
    """One line, appended in one write: whole even when the process is killed right after."""
    tick = current_job().tick
    assert tick is not None
    line = f"{word} {int(tick.timestamp() * 1000)} {os.getpid()}\n"
    descriptor = os.open(os.environ["CHAOS_TRACE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


@app.schedule(Every(1, overlap="allow", catch_up="all"))
@app.task(name="secondly")
async def secondly() -> None:
    leave_trace("ran")
