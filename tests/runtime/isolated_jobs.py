"""Tasks for processes of their own, importable by name, and the smallest thing that a child takes for an app."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import AsyncIterator

from limpet.core.limits.budget import Budget
from limpet.core.limits.limit import Limit
from limpet.core.tasks.task import Inject, TaskSpec
from limpet.runtime import Parts, current_job

TURNS = 20_000


async def number() -> AsyncIterator[int]:
    """A resource of each process."""
    yield os.getpid()


def pid(pool: int = Inject(number)) -> list[int]:
    return [os.getpid(), pool]


async def async_pid() -> int:
    await asyncio.sleep(0)
    return os.getpid()


def fails() -> None:
    raise ConnectionError("from inside")


def spins(marker: str) -> str:
    try:
        open(marker, "w").close()
        while True:
            time.sleep(0.001)
    except TimeoutError:
        return "told"


def ignores(marker: str) -> None:
    while True:
        try:
            open(marker, "w").close()
            time.sleep(0.001)
        except TimeoutError:
            continue


def polite(marker: str) -> str:
    open(marker, "w").close()
    while not current_job().cancelled:
        time.sleep(0.001)
    return "stopped politely"


def writes() -> object:
    job = current_job()
    if job.attempt == 1:
        job.progress(1, 2, "half")
        job.run(job.save({"done": 1}))
        raise ConnectionError
    return job.checkpoint


def reports(marker: str) -> int:
    """Report each turn of a tight loop; then wait until the test has seen the last of them."""
    job = current_job()
    for turn in range(TURNS):
        job.progress(turn + 1, TURNS)
    while not os.path.exists(marker):
        time.sleep(0.005)
    job.progress(TURNS + 1, TURNS, "the last word")
    return TURNS


def knows() -> object:
    job = current_job()
    try:
        return [
            job.max_attempts,
            job.is_last_attempt,
            dict(job.args),
            job.priority_name,
            dict(job.meta),
            job.enqueued_at,
        ]
    finally:
        if not job.is_last_attempt:
            raise ConnectionError


def crashes() -> None:
    os._exit(66)


async def crashes_async() -> None:
    os._exit(67)


def crashes_once(marker: str) -> str:
    if not os.path.exists(marker):
        open(marker, "w").close()
        os._exit(66)
    return "fine the second time"


def babbles() -> None:
    """Write into whatever is open, and end as if nothing had happened."""
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"\0\0\0\5hello")


def waits_for_all(mine: str, others: list[str]) -> None:
    """End when all have begun."""
    open(mine, "w").close()
    while not all(os.path.exists(other) for other in others):
        time.sleep(0.001)


def forks(how: str, marker: str) -> None:
    """Start a helper that holds open whatever this process does, and end in this way."""
    helper = os.fork()
    if helper == 0:
        time.sleep(600)
        os._exit(0)
    with open(f"{marker}.new", "w") as file:
        file.write(f"{helper} {os.getpgrp()}")
    os.rename(f"{marker}.new", marker)
    if how == "exits":
        os._exit(66)
    if how == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    while how == "hangs":
        with contextlib.suppress(TimeoutError):
            time.sleep(0.001)


def leaves_a_thread() -> None:
    """Start something that keeps its process from ending."""
    threading.Thread(target=time.sleep, args=(600,)).start()


GO_ON, SAID = threading.Event(), threading.Event()


def leaves_a_reporter() -> None:
    """Leave a thread behind that reports when its job has long ended."""
    job = current_job()

    def report() -> None:
        GO_ON.wait(60)
        job.log("late")
        job.progress(99)
        SAID.set()

    threading.Thread(target=report, daemon=True).start()


def follows_a_reporter() -> None:
    """Report, let that thread report, and end."""
    current_job().progress(1)
    GO_ON.set()
    SAID.wait(60)


def pays(folder: str, dies: bool = False) -> list[str]:
    """Three steps, each of which leaves a file; the process may die between two of them."""
    job = current_job()

    def pay(name: str) -> str:
        with open(os.path.join(folder, name), "x"):  # a second run would fail
            return job.step_key

    async def pay_in_the_loop(name: str) -> str:
        return pay(name)

    keys = [job.run(job.step("plain", pay, "plain")), job.run(job.step("async", pay_in_the_loop, "async"))]
    if dies and not os.path.exists(os.path.join(folder, "died")):
        open(os.path.join(folder, "died"), "w").close()
        os._exit(66)
    job.run(job.sleep(0.01))
    return [*keys, job.run(job.step("last", pay, "last"))]


async def pays_async(folder: str) -> list[str]:
    job = current_job()

    def pay(name: str) -> str:
        with open(os.path.join(folder, name), "x"):
            return job.step_key

    keys = list(await asyncio.gather(job.step("a", pay, "a"), job.step("b", pay, "b")))
    await job.sleep(0.01)
    return keys


async def spends() -> None:
    """The last word is said right before the end, which must not overtake it."""
    current_job().spent(usd=0.01, tokens=12)
    await asyncio.sleep(0)
    current_job().spent(usd=0.01)


def spends_and_dies() -> None:
    job = current_job()
    job.spent(usd=0.03)
    job.run(job.save(1))  # the worker has heard both when it has answered
    os._exit(66)


def learns() -> None:
    current_job().learn({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20m"})


_functions = (
    pid,
    async_pid,
    fails,
    spins,
    ignores,
    polite,
    reports,
    crashes,
    crashes_once,
    leaves_a_thread,
    leaves_a_reporter,
    follows_a_reporter,
    waits_for_all,
    pays,
    pays_async,
)


class SmallApp:
    """What a child needs of an app."""

    def __init__(self) -> None:
        self.tasks = {
            fn.__name__: TaskSpec.declare(fn, name=fn.__name__, executor="process", retry=None) for fn in _functions
        }
        self.tasks["babbles"] = TaskSpec.declare(babbles, name="babbles", executor="process", retry=None, max_lost=1)
        self.tasks["knows"] = TaskSpec.declare(knows, name="knows", executor="process", retry=[0], priority="low")
        self.tasks["writes"] = TaskSpec.declare(writes, name="writes", executor="process", retry=[0])
        self.tasks["forks"] = TaskSpec.declare(forks, name="forks", executor="process", retry=None, max_lost=1)
        for fn in (spends, spends_and_dies):
            self.tasks[fn.__name__] = TaskSpec.declare(
                fn,
                name=fn.__name__,
                executor="process",
                max_lost=1,
                limits=[Budget("llm", usd=1, per="month")],
                cost={"usd": 0.1},
            )
        self.tasks["learns"] = TaskSpec.declare(
            learns, name="learns", executor="process", limits=[Limit("model", concurrency=2)]
        )
        self.tasks["crashes_async"] = TaskSpec.declare(crashes_async, name="crashes_async", retry=None)

    def parts(self) -> Parts:
        return Parts(tasks=self.tasks, resources=[number])


app = SmallApp()
