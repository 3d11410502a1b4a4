"""The app of the chaos tests of limits: one job at a time, and a provider that asks for patience."""

from __future__ import annotations

import asyncio
import os
import time

import psutil

from limpet import Limit, Limpet, RateLimited, current_job
from tests.chaos.chaos_jobs import let_go

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
    try:
        if lingers and not current_job().checkpoint:
            await current_job().save("was here")
            leave("lingers")
            for _ in range(12_000):  # a minute
                if is_told():
                    break
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.005)
    finally:
        leave("leaves")  # also when a beat is late on a busy machine, and it is stopped


def look_around() -> None:
    """Say so when a process that has entered for this job before is still there."""
    job = current_job()
    with open(os.environ["CHAOS_TRACE"]) as file:
        lines = [line.split() for line in file]
    for word, id, _, pid in lines:
        if (word, id) == ("enters", job.id) and int(pid) != os.getpid() and psutil.pid_exists(int(pid)):
            leave("beside")


@app.task(name="inside", limits=[Limit("room", concurrency=1)])
async def inside() -> None:
    """Stay inside until told to go, or to stop."""
    leave("enters")
    try:
        for _ in range(9_000):
            if is_told():
                break
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        leave(f"stops:{current_job().stop_reason}")
        leave("leaves")
        raise
    leave("leaves")


@app.task(name="inside_a_process", limits=[Limit("cabin", concurrency=1)], executor="process")
def inside_a_process() -> None:
    """The same, and deaf to everything else."""
    look_around()
    leave("enters")
    for _ in range(9_000):
        if is_told():
            break
        time.sleep(0.01)


@app.task(name="stubborn", limits=[Limit("desk", concurrency=1)], timeout=0.2, hard_timeout=0.5, retry=[0])
def stubborn() -> None:
    """The first time, hear nothing."""
    look_around()
    leave("enters")
    if current_job().attempt == 1:
        time.sleep(600)


@app.task(name="deaf", limits=[Limit("bench", concurrency=1)])
def deaf() -> None:
    """The first time, stay."""
    with open(os.environ["CHAOS_TRACE"]) as file:
        first = current_job().id not in file.read()
    look_around()
    leave("enters")
    if first:
        time.sleep(600)


@app.task(name="call", limits=[Limit("provider:{provider}", concurrency=64)])
async def call(provider: int, pushes_back: bool) -> None:
    """One call is told to come back in an hour, the first time; others of its provider end when the test lets them."""
    leave(f"calls:{provider}")
    if pushes_back and not current_job().checkpoint:
        await current_job().save("refused")
        raise RateLimited(3_600)
    if provider == 0:
        await let_go()


@app.task(name="ask", limits=[Limit("model:{model}", concurrency=64)])
async def ask(model: int, pushes_back: bool) -> None:
    """Some are told to come back in a moment, the first time."""
    leave(f"asks:{model}")
    if pushes_back and not current_job().checkpoint:
        await current_job().save("refused")
        leave(f"refused:{model}")
        raise RateLimited(0.6)
    await asyncio.sleep(0.01)
