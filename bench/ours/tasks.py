"""The tasks that are measured, and how a handler in another process says when it started."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from typing import Final

from limpet import Breaker, Limit, Limpet

REPLY: Final = "LIMPET_BENCH_REPLY"  # where handlers send their stamps
VICTIM: Final = "LIMPET_BENCH_VICTIM"  # set in the worker that is going to be killed
STAMP: Final = struct.Struct("<qq")  # the number that was passed, when the handler started

app = Limpet()


@app.task(name="noop")
async def noop() -> None:
    """The cheapest job there is."""


@app.task(name="flood", priority="low")
async def flood() -> None:
    """One of many unimportant jobs."""


@app.task(name="nap", priority="low")
async def nap(seconds: float) -> None:
    """A job that waits for something outside."""
    await asyncio.sleep(seconds)


@app.task(name="carry")
async def carry(payload: str) -> None:
    """A job with something to carry."""


@app.task(name="stamp", priority="critical")
async def stamp(sent_ns: int) -> None:
    """Say at once when this handler started."""
    reply(sent_ns)


@app.task(name="tenant", tenant="tenant")
async def for_tenant(tenant: str) -> None:
    """A job of one of several tenants."""


@app.task(name="limited", tenant="customer", limits=[Limit("customer:{customer}", rate="1/h")])
async def limited(customer: str) -> None:
    """A job of a customer who has used up what the limit allows."""


@app.task(name="guarded", breaker=Breaker(name="provider"))
async def guarded() -> None:
    """A job behind a breaker."""


@app.task(name="one")
async def one(n: int) -> int:
    """A job with a result that another one waits for."""
    return n


@app.task(name="count")
async def count(numbers: list[int]) -> int:
    """A job that waits for many."""
    return len(numbers)


@app.task(name="outlive")
async def outlive() -> None:
    """Hang in the worker that is going to be killed; elsewhere say when the handler started."""
    reply(0)
    if os.environ.get(VICTIM):
        await asyncio.sleep(3600)


def reply(number: int) -> None:
    """Send a stamp to the measuring process."""
    now_ns = time.monotonic_ns()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(STAMP.pack(number, now_ns), os.environ[REPLY])


class Inbox:
    """Receives stamps; the monotonic clock is one for all processes of a machine."""

    def __init__(self, folder: str, number: int) -> None:
        self.address = os.path.join(folder, f"inbox{number}")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address)
        self._socket.setblocking(False)

    async def stamp(self, timeout_s: float = 60) -> tuple[int, int]:
        """The next stamp: (number, started_ns)."""
        async with asyncio.timeout(timeout_s):
            message = await asyncio.get_running_loop().sock_recv(self._socket, STAMP.size)
        number, started_ns = STAMP.unpack(message)
        return number, started_ns

    def close(self) -> None:
        self._socket.close()
