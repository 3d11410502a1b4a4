"""The app of the chaos tests: each job leaves lines in a file, so that effects can be counted from outside."""

from __future__ import annotations

import asyncio
import os
import time

import psutil

from limpet import Limpet, current_job

app = Limpet(os.environ.get("CHAOS_URL", "sqlite://"))
TRACE = os.environ.get("CHAOS_TRACE", "")


def leave_trace(word: str, about: str = "") -> None:
    """One line, appended in one write: whole even when the process is killed right after. It is about this job."""
    job = current_job()
    line = f"{word} {about or job.id} {job.attempt} {job.token} {os.getpid()}\n"
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


@app.task(name="waits")
async def waits() -> None:
    """Stay until the test lets it go."""
    leave_trace("start")
    await let_go()
    leave_trace("end")


async def let_go() -> None:
    """Wait until the test says that jobs may go on; later jobs find that said."""
    for _ in range(12_000):  # two minutes
        if may_go():
            break
        await asyncio.sleep(0.01)


def may_go() -> bool:
    return os.path.exists(f"{TRACE}.go")


@app.task(name="in_thread")
def in_thread(ms: int) -> int:
    leave_trace("start")
    time.sleep(ms / 1000)
    leave_trace("end")
    return ms


@app.task(name="forks", executor="process")
def forks() -> None:
    """The first time, start a helper and stay; then say whether anybody of that time is still there."""
    with open(os.environ["CHAOS_TRACE"]) as file:
        before = [int(line.split()[4]) for line in file if line.split()[1] == current_job().id]
    for pid in before:
        if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            leave_trace("beside")
    if not before:
        if os.fork() == 0:
            leave_trace("helper")
            time.sleep(600)
            os._exit(0)
        leave_trace("start")
        time.sleep(600)
    leave_trace("end")


@app.task(name="poison")
async def poison() -> None:
    leave_trace("start")
    await asyncio.sleep(0.05)
    os._exit(66)


@app.task(name="mutes")
async def mutes() -> int:
    """From here on its process can write the end of no job, its own included."""
    leave_trace("start")

    async def settle(*_: object, **__: object) -> None:
        raise OSError("this process is mute")

    type(app.store).settle = settle  # type: ignore[method-assign, assignment]
    return 7


@app.task(name="blocking")
async def blocking(ms: int) -> int:
    leave_trace("start")
    time.sleep(ms / 1000)
    leave_trace("end")
    return ms
