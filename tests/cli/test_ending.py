"""A command that is ending hears no more signals: none of them can change how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from limpet.cli import main

# The command, which says where it is while it ends, and then waits for a byte.
PROGRAM = """
import asyncio, atexit, os, sys

from limpet.cli import main

close = asyncio.SelectorEventLoop.close

def pause(place):
    print(place, flush=True)
    os.read(0, 1)

def paused_close(loop):
    pause("the loop closes")
    close(loop)
    pause("the loop is closed")

asyncio.SelectorEventLoop.close = paused_close
atexit.register(pause, "the interpreter exits")
sys.exit(main())
"""
PLACES = ["the loop closes", "the loop is closed", "the interpreter exits"]
APP = """
from limpet import Limpet

app = Limpet()

@app.task(name="noop")
async def noop() -> None: ...

if {imported}:
    print("importing", file=__import__("sys").stderr, flush=True)
    __import__("time").sleep(600)
"""
WITHIN_S = 60
WORKER = ["worker", "shop:app"]
OUTBOX = ["outbox", "--outbox", "sqlite:///shop.db"]


@contextlib.contextmanager
def started(folder: Path, words: list[str], *, imported: bool) -> Iterator[subprocess.Popen[bytes]]:
    (folder / "shop.py").write_text(APP.format(imported=imported))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_")}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        env={**kept, "LIMPET_URL": f"sqlite:///{folder / 'jobs.db'}?sync=normal"},
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=WITHIN_S)


def hear(stream: IO[bytes] | None, word: str) -> None:
    """Read until a line has this word."""
    assert stream is not None
    said = b""
    for line in stream:
        said += line
        if word.encode() in line:
            return
    raise AssertionError(f"it ended without saying {word!r}, but {said.decode()}")


@pytest.mark.parametrize(
    ("words", "imported", "ready"),
    [
        pytest.param(WORKER, True, "importing", id="a worker whose app is imported"),
        pytest.param(WORKER, False, "child ready", id="a worker that works"),
        pytest.param(OUTBOX, False, "relay started", id="an outbox"),
    ],
)
def test_a_signal_that_comes_while_the_command_ends_changes_nothing(
    tmp_path: Path, words: list[str], imported: bool, ready: str
) -> None:
    if words is OUTBOX:
        with contextlib.chdir(tmp_path):
            assert main([*OUTBOX, "--create"]) == 0
    with started(tmp_path, words, imported=imported) as process:
        hear(process.stderr, ready)
        process.send_signal(signal.SIGTERM)
        for place in PLACES:
            hear(process.stdout, place)
            for number in (signal.SIGINT, signal.SIGTERM):
                process.send_signal(number)
            assert process.stdin is not None
            process.stdin.write(b".")
            process.stdin.flush()
        _, said = process.communicate(timeout=WITHIN_S)
        assert process.returncode == 0
        assert b"Traceback" not in said
        assert b"Exception ignored" not in said
