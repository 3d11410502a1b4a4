"""The engine works with the oldest driver that it declares and with the newest: each in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

from tests.servers.flavours import REDIS, ROOT
from tests.servers.redis import shared

OLDEST = ROOT / ".venv" / "hiredis-oldest"  # `make tests` puts it there

SMOKE = """
import asyncio, sys
import hiredis
from limpet import Limpet

app = Limpet(sys.argv[1], namespace=sys.argv[2])

@app.task
async def double(value: int, text: str) -> str:
    return text * 2 if value else ""

async def main():
    async with app:
        long = "x" * 3_000 + "\\u00e4\\u4e16"
        jobs = await app.enqueue_many(double.job(n, long) for n in range(50))
        late = await double.options(delay=0.2, unique="u").enqueue(1, text="late")
        report = asyncio.create_task(app.work(until_empty=False))
        results = await asyncio.gather(*(job.result(timeout=60) for job in (*jobs, late)))
        report.cancel()
        await asyncio.wait([report])
        assert results == ["", *[long * 2] * 49, "latelate"]
        counts = await app.store.count()
        assert (counts.enqueued, counts.succeeded) == (51, 51), counts
        print(hiredis.__version__)

asyncio.run(main())
"""


def declared() -> str:
    """The oldest driver that the package says it works with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (requirement,) = (text for text in project["project"]["optional-dependencies"]["redis"] if "hiredis" in text)
    found = re.search(r">=([\d.]+)", requirement)
    assert found is not None, requirement
    return found[1]


def smoke(namespace: str, folder: Path | None = None) -> str:
    """Run a small program; the version of the driver that it used."""
    path = os.pathsep.join([*([str(folder)] if folder else []), str(ROOT / "src")])
    env = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "error"}
    command = [sys.executable, "-c", SMOKE, shared(REDIS).url, namespace]
    answer = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def test_the_oldest_driver_works() -> None:
    assert (OLDEST / "hiredis").exists(), "run: make .venv/hiredis-oldest/.ready"
    found = numbers(smoke("oldest", OLDEST))
    assert found == numbers(declared()) or sys.version_info >= (3, 13), "the first with a wheel for this Python"
    assert found < numbers(version("hiredis"))


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(".")][:2]


def test_the_newest_driver_works() -> None:
    assert smoke("newest") == version("hiredis")
