"""The app of the chaos tests of fairness: tenants that share queues, alone or behind limits."""

from __future__ import annotations

import asyncio
import os
import time

from limpet import Limit, Limpet, current_job

app = Limpet(os.environ.get("CHAOS_URL", "sqlite://"))

CEILING = 8
_trace = os.open(os.environ.get("CHAOS_TRACE", os.devnull), os.O_WRONLY | os.O_APPEND)


async def serve(tenant: str, ms: int) -> None:
    """One line as soon as it is started, appended in one write."""
    line = f"{tenant} {current_job().token} {time.time_ns()} {os.getpid()}\n"
    os.write(_trace, line.encode())
    if ms:
        await asyncio.sleep(ms / 1000)


# A queue for each, of the same name.
for name in ("plain", "weighed", "crowded", "broad", "beside", "first", "second", "third"):
    app.task(name=name, queue=name, tenant="tenant")(serve)
app.task(name="narrow", queue="narrow", tenant="tenant", limits=[Limit("narrow", concurrency=CEILING)])(serve)
app.task(name="keyed", queue="keyed", tenant="tenant", limits=[Limit("keyed:{ms}", concurrency=CEILING)])(serve)
