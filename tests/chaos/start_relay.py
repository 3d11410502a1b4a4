"""Starts relays that kill themselves: a line "N" on stdin starts one that sends itself SIGKILL at its N-th boundary.

Each is a fork of this process, which has imported everything and opened nothing, so that a hundred take seconds. The
answer is a line on stdout: "killed", or "ended" and how many boundaries there were. 0 is a boundary that never comes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from limpet.outbox import parse_outbox
from limpet.outbox import postgres as postgres
from limpet.outbox import sqlite as sqlite
from limpet.outbox.relay import Relay
from limpet.outbox.table import open_table
from limpet.stores.open import open_store
from tests.outbox.breaking import broken

OUTBOX, STORE, NAMESPACE, BATCH = sys.argv[1:]


class Boundaries:
    """Counts them, and ends this process at one."""

    def __init__(self, last: int) -> None:
        self.met = 0
        self._last = last

    def __call__(self, place: str) -> None:
        self.met += 1
        if self.met == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


async def relay(last: int) -> int:
    boundaries = Boundaries(last)
    store, table = open_store(STORE, NAMESPACE), open_table(parse_outbox(OUTBOX), NAMESPACE)
    await Relay(*broken(store, table, boundaries), batch=int(BATCH)).run(asyncio.Event(), once=True)
    await table.close()
    await store.close()
    return boundaries.met


def answer(last: int) -> str:
    heard, said = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(said, str(asyncio.run(relay(last))).encode())
        os._exit(0)
    os.close(said)
    _, status = os.waitpid(child, 0)
    with os.fdopen(heard) as boundaries:
        return "killed" if os.WIFSIGNALED(status) else f"ended {boundaries.read() or 'badly'}"


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(answer(int(line)) + "\n")
        sys.stdout.flush()
