"""The shop of the upgrade test, for whichever release is on the path. As a program it orders until it is told to stop.

Each job leaves a row that says which process of which release did it; each acknowledged order leaves a row, too.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

import limpet
from limpet import JobHandle, Limit, Limpet, Retry, current_job

URL = os.environ.get("CHAOS_URL", "postgresql://localhost/shop")
SOURCE = str(Path(limpet.__file__).parents[2])

TABLES = """
CREATE TABLE effect (job text NOT NULL, task text NOT NULL, pid integer NOT NULL, source text NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE ordered (job text NOT NULL, source text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
"""
WRITE = "INSERT INTO effect (job, task, pid, source) VALUES (%s, %s, %s, %s)"

app = Limpet(URL)
Connection = psycopg.AsyncConnection[Any]
idle: list[Connection] = []


async def connect() -> Connection:
    return await psycopg.AsyncConnection.connect(URL, autocommit=True)


@asynccontextmanager
async def lent() -> AsyncIterator[Connection]:
    """A connection in a transaction; it is used again when that has gone well."""
    conn = idle.pop() if idle else await connect()
    async with conn.transaction():
        yield conn
    idle.append(conn)


async def leave_effect(conn: Connection, task: str) -> None:
    await conn.execute(WRITE, (current_job().id, task, os.getpid(), SOURCE))


@app.task(name="pay", tenant="customer", limits=[Limit("till:{customer}", concurrency=3)])
async def pay(customer: str) -> str:
    """Its effect and its end are one transaction, so there is one of each."""
    await asyncio.sleep(0.02)
    async with lent() as conn:
        await leave_effect(conn, "pay")
        await current_job().complete(conn, "paid")
    return "paid"


@app.task(name="mail", retry=Retry(base=0.05, jitter="none"))
async def mail(number: int) -> int:
    """Its effect is its own, and each fifth fails once."""
    if number % 5 == 0 and current_job().attempt == 1:
        raise ConnectionError("the mail server is away")
    await asyncio.sleep(0.02)
    async with lent() as conn:
        await leave_effect(conn, "mail")
    return number


async def order(conn: Connection, number: int) -> None:
    """Ten jobs or so, in every way that there is to ask for one."""
    customers = [f"c{(number + place) % 7}" for place in range(4)]
    jobs: list[JobHandle[Any]] = await app.enqueue_many([pay.job(customer) for customer in customers])
    jobs.append(await mail.options(after=jobs[0]).enqueue(number))
    jobs.append(await mail.options(delay=0.1, priority="high").enqueue(number + 1))
    jobs += [await mail.options(unique=f"news {number}").enqueue(number) for _ in range(2)]
    await write_down(conn, jobs)
    async with conn.transaction():  # the order and its job, or neither
        mine = await pay.options(conn=conn).enqueue("c0")
        await write_down(conn, [mine])
        if number % 4 == 0:
            await asyncio.sleep(0.2)  # long enough that an upgrade may come between
        if number % 8 == 0:
            raise psycopg.Rollback


async def write_down(conn: Connection, jobs: list[JobHandle[Any]]) -> None:
    async with conn.cursor() as cursor:
        await cursor.executemany(
            "INSERT INTO ordered (job, source) VALUES (%s, %s)", [(job.id, SOURCE) for job in jobs]
        )


async def main() -> None:
    enough = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, enough.set)
    async with app, await connect() as conn:
        for number in count():
            await order(conn, number)
            if enough.is_set():
                break
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main())
