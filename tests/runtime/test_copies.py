"""A copy of a worker's process that code on its loop forked: it ends before the loop goes on with what both share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)

# The loop has more to do in the turn in which a callback forks: every process that gets there writes its pid.
PROGRAM = """
import asyncio, os, sys

from limpet.runtime.child import run_loop

def fork():
    os.fork()

def fork_deep():
    fork()

async def fork_in_a_task():
    os.fork()

async def fork_in_a_task_and_wait():
    os.fork()
    await asyncio.sleep(0)

def child_of_its_own():
    if os.fork() == 0:
        sorted(range(10), key=str)  # calls, and returns, as a child does that works
        os.write(1, b"child\\n")
        os._exit(0)

def leave_pid():
    os.write(1, b"%d\\n" % os.getpid())

async def main(how):
    loop = asyncio.get_running_loop()
    if asyncio.iscoroutinefunction(how):
        tasks.append(loop.create_task(how()))
    else:
        loop.call_soon(how)
    loop.call_soon(leave_pid)
    await asyncio.sleep(0.2)

tasks = []
print(os.getpid(), flush=True)
run_loop(main({"builtin": os.fork}.get(sys.argv[1]) or globals()[sys.argv[1]]))
"""
WITHIN_S = 240  # it takes a second; a starved machine takes minutes to start an interpreter
HOW = ["builtin", "fork", "fork_deep", "fork_in_a_task", "fork_in_a_task_and_wait"]


def written(folder: Path, how: str, loop: str) -> list[str]:
    """What the process and its copies wrote, once all of them have ended."""
    if loop == "asyncio":
        (folder / "uvloop.py").write_text("raise ImportError('not today')")
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(folder / "program.py"), how]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("how", HOW)
def test_a_copy_ends_where_it_returns_to_the_loop(tmp_path: Path, how: str, loop: str) -> None:
    pid, *left = written(tmp_path, how, loop)
    assert left == [pid]


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_child_that_never_returns_there_does_its_work(tmp_path: Path, loop: str) -> None:
    pid, *left = written(tmp_path, "child_of_its_own", loop)
    assert sorted(left) == sorted([pid, "child"])
