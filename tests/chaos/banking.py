"""Forks lives of examples/bank.py on request, each killed before the n-th thing that it asks of its database.

As a program it is a nursery of such lives.
"""

from __future__ import annotations

import os
import runpy
import signal
from pathlib import Path

import psycopg
import sqlalchemy.dialects.postgresql.psycopg
import sqlalchemy.orm  # noqa: F401  # loaded here, so that no life has to load it
from msgspec import Struct

from limpet.stores.postgres.connection import Connection
from tests.chaos.nursery import nurse

BANK = Path(__file__).parents[2] / "examples" / "bank.py"


class Life(Struct, frozen=True):
    """One run of the example, and before which step it dies (0: none)."""

    url: str
    dies_at: int = 0


def live(life: Life) -> None:
    """Run the example; every round trip to the server is a step, the handler's as well as the store's."""
    taken = 0

    def step() -> None:
        nonlocal taken
        taken += 1
        if taken == life.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    wait, send = psycopg.Connection.wait, Connection.send

    def waits(self, *args, **options):  # type: ignore[no-untyped-def]
        step()
        return wait(self, *args, **options)

    def sends(self, *args, **options):  # type: ignore[no-untyped-def]
        step()
        return send(self, *args, **options)

    psycopg.Connection.wait = waits  # type: ignore[method-assign]
    Connection.send = sends  # type: ignore[method-assign]
    os.environ["BANK_URL"] = life.url
    runpy.run_path(str(BANK), run_name="__main__")


if __name__ == "__main__":
    nurse(Life, live)
