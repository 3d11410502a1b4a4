"""Forks lives of examples/bank.py on request, each killed before the n-th thing that it asks of its database.

As a program it reads lines of JSON, one life each, and answers how it ended: everything is imported once, and nothing
is open when it forks.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path

import msgspec
import psycopg
import sqlalchemy.dialects.postgresql.psycopg
import sqlalchemy.orm  # noqa: F401  # loaded here, so that no life has to load it
from msgspec import Struct

from holdfast.stores.postgres.line import Line

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

    wait, send = psycopg.Connection.wait, Line.send

    def waits(self, *args, **options):  # type: ignore[no-untyped-def]
        step()
        return wait(self, *args, **options)

    def sends(self, *args, **options):  # type: ignore[no-untyped-def]
        step()
        return send(self, *args, **options)

    psycopg.Connection.wait = waits  # type: ignore[method-assign]
    Line.send = sends  # type: ignore[method-assign]
    os.environ["BANK_URL"] = life.url
    runpy.run_path(str(BANK), run_name="__main__")


def fork(life: Life) -> int:
    """Live in a process of its own; how that ended, as a process says it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            live(life)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(f"{fork(msgspec.json.decode(line, type=Life))}\n")
        sys.stdout.flush()
