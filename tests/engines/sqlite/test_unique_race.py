"""A unique key is checked and stored in one step, also when processes race for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from limpet.core.jobs.view import Query
from limpet.stores.sqlite import SqliteStore

PROCESSES, KEYS = 4, 60

RACER = """
import asyncio, sys, time
from limpet.core.jobs.ids import IdMaker
from limpet.core.jobs.job import Job, Lane, Policy, Unique
from limpet.stores.sqlite import SqliteStore

async def main(path, keys):
    store, ids, lane, policy = SqliteStore(path, sync="normal"), IdMaker(), Lane("default", "work"), Policy()
    await store.open()
    print("ready", flush=True)
    sys.stdin.readline()
    for key in range(int(keys)):
        job = Job(ids.make(time.time_ns() // 1_000_000), lane, policy, b"{}", unique=Unique(f"key {key}"))
        (answer,) = await store.enqueue([job])
        print(key, answer.id.hex(), answer.existing, flush=True)
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


def test_processes_that_race_for_a_key_get_the_same_job(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    answers: dict[str, set[str]] = {}
    made = 0
    with ExitStack() as stack:
        racers = [stack.enter_context(racing(path)) for _ in range(PROCESSES)]
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        for racer in racers:
            out, _ = racer.communicate(timeout=60)
            assert racer.returncode == 0
            for line in out.splitlines():
                key, id, existing = line.split()
                answers.setdefault(key, set()).add(id)
                made += existing == "False"
    assert len(answers) == KEYS
    assert all(len(ids) == 1 for ids in answers.values())
    assert made == KEYS
    assert asyncio.run(_count(path)) == KEYS


@contextmanager
def racing(path: str) -> Iterator[subprocess.Popen[str]]:
    """A racer that is gone afterwards, and its pipes closed."""
    command = [sys.executable, "-c", RACER, path, str(KEYS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as racer:
        try:
            yield racer
        finally:
            racer.kill()


async def _count(path: str) -> int:
    store = SqliteStore(path)
    found = await store.find(Query(limit=1_000))
    await store.close()
    return len(found.jobs)
