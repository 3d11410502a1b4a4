"""An app whose jobs die in several ways, under a Sentry SDK whose events go to a file."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import Any

import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from limpet import Limpet, Secret, current_job
from limpet.integrations.sentry import instrument

FILE = Path(os.environ["REPORTED_FILE"])


class Kept(Transport):
    """The SDK's own way out of the process."""

    def capture_envelope(self, envelope: Envelope) -> None:
        with FILE.open("ab") as file:
            file.writelines(item.get_bytes() + b"\n" for item in envelope.items if item.type == "event")


options: dict[str, Any] = {"dsn": "http://key@127.0.0.1:9/1", "transport": Kept}
sentry_sdk.init(**options)
app = Limpet()
if os.environ["REPORTED_BY"] == "hook":
    instrument(app)

RETRY = [0.001, 0.001]


@app.task(name="recovers", retry=RETRY)
async def recovers() -> None:
    if current_job().attempt < 3:
        raise ConnectionError("not yet")


@app.task(name="fails", retry=RETRY)
def fails(customer: str) -> None:
    raise LookupError(f"no such customer: {customer}")


@app.task(name="pays", retry=1)
async def pays(card: Secret[str]) -> None:
    number = card.get_secret_value()
    try:
        raise ValueError(f"{number} was refused")
    except ValueError:
        logging.getLogger("shop").exception("the app says so itself, of %s", number)
        raise


@app.task(name="crashes", executor="process", max_lost=1)
async def crashes() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
