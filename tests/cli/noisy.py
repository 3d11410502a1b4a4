"""An app whose tasks say a lot: for the log of a worker."""

from __future__ import annotations

import logging
import sys
import threading
import time
import warnings
from pathlib import Path

from limpet import Limpet, Retry

app = Limpet()
log = logging.getLogger("shop.noisy")

sys.stdout.write("printed at import\n")
warnings.warn("warned at import", stacklevel=1)


@app.task(name="shop.charge", retry=Retry(attempts=2, base=0.01, cap=0.01))
async def charge(card: str) -> None:
    log.info("charging", extra={"amount": 12})
    raise ConnectionError("refused\nINFO forged")


@app.task(name="shop.print", retry=None)
def make_pdf(pages: int) -> int:
    log.info("printing %d pages", pages)
    log.info("%d", "no number")
    fails = threading.Thread(target=lambda: 1 / 0)
    fails.start()
    fails.join()
    return pages


@app.task(name="shop.crunch", retry=None, executor="process")
def crunch(n: int) -> int:
    warnings.warn(f"warned of {n}", stacklevel=1)
    log.info("crunching")
    return n


@app.task(name="shop.block", retry=None)
async def block(until: str) -> None:
    wait_badly(Path(until))


def wait_badly(file: Path) -> None:
    while not file.exists():
        time.sleep(0.05)
