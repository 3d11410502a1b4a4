"""The demo's app: what its workers run. `limpet worker limpet.cli.demo.tasks:app`, as any other app.

The demo's folder comes in the environment variable LIMPET_DEMO.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import threading
import time
import urllib.request
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from limpet import Breaker, Dead, Inject, Limit, Limpet, Retry, current_job
from limpet.cli.demo.folder import Folder
from limpet.cli.demo.ledger import Ledger
from limpet.cli.demo.plan import PLANS

VARIABLE: Final = "LIMPET_DEMO"
PROVIDER: Final = "provider"  # the breaker's name
# Short, for a demo that lasts a minute; 60 s is the default.
OUTAGE_BREAKER: Final = Breaker(PROVIDER, failures=5, within=30, cooldown=2)

app = Limpet()


def folder() -> Folder:
    """Where the driver keeps the demo."""
    return Folder(Path(os.environ[VARIABLE]))


@app.resource
async def ledger() -> AsyncIterator[Ledger]:
    """One connection to the effects file per worker process."""
    with Ledger(folder().ledger) as opened:
        yield opened


@app.on_startup
def end_with_the_driver() -> None:
    """Stop this worker when its driver is gone: a demo that was killed leaves nothing running."""
    threading.Thread(target=_watch, args=(folder().lock, os.getppid()), name="demo-watch", daemon=True).start()


def _watch(lock: Path, supervisor: int) -> None:
    descriptor = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # returns when the driver is gone, without polling
    finally:
        os.close(descriptor)
    if os.getppid() == supervisor:  # a worker whose supervisor died stops by itself
        os.kill(supervisor, signal.SIGTERM)


def done(ledger: Ledger) -> None:
    """The effect of the running job: happens once, however often the job runs."""
    job = current_job()
    ledger.record(job.id, job.token, job.task)


@app.task(name="email.welcome", queue="email", priority="critical", timeout=30)
async def welcome(customer: str, to: str, ledger: Ledger = Inject(ledger)) -> None:
    """Send one email; an address that cannot work is for a person to look at."""
    if "@" not in to:
        raise Dead(f"bad address {to!r}")
    await asyncio.sleep(0.005)
    done(ledger)


@app.task(name="pdf.export", queue="pdf", priority="low", timeout=60, limits=[Limit("renderer", concurrency=4)])
def export_pdf(customer: str, template: str, ledger: Ledger = Inject(ledger)) -> int:
    """Render for half a second, in a thread."""
    pages = {name: f"{name} plan of {customer}\n" * 2_000 for name in PLANS}
    size = len(zlib.compress(pages[template].encode()))
    time.sleep(0.5)
    done(ledger)
    return size


@app.task(name="export.row", queue="rows", priority="low", timeout=30, tenant="tenant")
async def export_row(tenant: str, row: int, ledger: Ledger = Inject(ledger)) -> None:
    """One of a tenant's many rows."""
    await asyncio.sleep(0.04)
    done(ledger)


@app.task(
    name="webhook.deliver",
    queue="webhooks",
    timeout=30,
    retry=Retry(attempts=25, base=0.5, factor=2, cap=5),
    breaker=OUTAGE_BREAKER,
)
def deliver(order: int, ledger: Ledger = Inject(ledger)) -> None:
    """Post to the provider; its 503 and a refused connection are errors that pass."""
    url = folder().provider.read_text()
    request = urllib.request.Request(url, data=b"{}", headers={"Idempotency-Key": current_job().id})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=5):
        done(ledger)
