"""Fills each engine with a million ready and a million dead jobs and writes how long answers take: `make prove`."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import psutil

from bench import ground
from bench.driver import ROOT
from bench.ground import SCRATCH, Ground, scratch
from bench.prove.backlog import Filled, Progress, bury, enqueue
from bench.prove.client import Answered, directly, over_http, served
from bench.prove.page import NAMES, Measured, page
from bench.prove.questions import questions
from bench.report import setting
from bench.targets import Engine
from bench.versions import beneath
from limpet.ops import Operator
from limpet.stores.base import Store
from limpet.stores.open import open_store

FULL: Final = 1_000_000
CALLS: Final = 30
DISK_BYTES: Final = 6_000  # per job of each state: the data, and as much again of logs that are being written
MEMORY_BYTES: Final = 6_000  # the same, of a Redis that copies itself while its log is rewritten
ROOM_BYTES: Final = 1 << 30  # that others are left
GROUNDS: Final[dict[Engine, Ground]] = {
    "sqlite": ground.sqlite(),
    "redis": ground.redis("everysec"),
    "postgres": ground.postgres("postgres-16"),
}


def main(words: Sequence[str] | None = None) -> int:
    """Measure engine after engine, then write the page of all that were measured at this size; 2: no room."""
    parser = argparse.ArgumentParser(prog="python -m bench.prove", description=__doc__)
    parser.add_argument("--engine", default="", choices=["", *GROUNDS], help="one of them; the page keeps the others")
    parser.add_argument("--jobs", type=int, default=FULL, help="of each state, instead of a million")
    parser.add_argument("--calls", type=int, default=CALLS, help="of each question")
    parser.add_argument("--page", type=Path, help="where the page goes; a full one goes to docs/evidence")
    parser.add_argument("--figures", type=Path, default=SCRATCH / "prove", help="the folder that keeps the figures")
    asked = parser.parse_args(words)
    folder = asked.figures / str(asked.jobs)
    folder.mkdir(parents=True, exist_ok=True)
    for engine in [asked.engine] if asked.engine else GROUNDS:
        if missing := _no_room(engine, asked.jobs):
            print(f"prove: {missing}; {NAMES[engine]} was not measured", file=sys.stderr)
            return 2
        found = asyncio.run(measured(engine, asked.jobs, asked.calls))
        (folder / f"{engine}.json").write_bytes(msgspec.json.encode(found))
    kept = [path for engine in GROUNDS if (path := folder / f"{engine}.json").exists()]
    place = asked.page or _place(asked.jobs, folder)
    place.write_text(page([msgspec.json.decode(path.read_bytes(), type=Measured) for path in kept]))
    print(f"prove: {place}", file=sys.stderr)
    return 0


def _place(jobs: int, folder: Path) -> Path:
    """Where the page goes: only a full one is evidence."""
    if jobs == FULL:
        return ROOT / "docs" / "evidence" / f"{datetime.now(UTC):%Y-%m-%d}-million.md"
    return folder / "page.md"


def _no_room(engine: Engine, jobs: int) -> str:
    """What this machine has too little of."""
    SCRATCH.mkdir(exist_ok=True)
    disk, memory = shutil.disk_usage(SCRATCH).free, psutil.virtual_memory().available
    needed = jobs * DISK_BYTES + ROOM_BYTES
    if disk < needed:
        return f"{disk >> 20} MiB free in {SCRATCH}, {needed >> 20} MiB needed (or a smaller --jobs)"
    needed = jobs * MEMORY_BYTES + ROOM_BYTES
    if engine == "redis" and memory < needed:
        return f"{memory >> 20} MiB of memory available, {needed >> 20} MiB needed (or a smaller --jobs)"
    return ""


async def measured(engine: Engine, jobs: int, calls: int) -> Measured:
    """A fresh store, filled and asked."""
    began = f"load {os.getloadavg()[0]:.1f} at the start"
    with scratch() as folder, GROUNDS[engine](folder) as template:
        url = template.format(n=0)
        store = open_store(url)
        try:
            phases = await _fill(store, engine, jobs)
            operator = Operator(store, "prove")
            answers = await _ask(url, operator, engine, calls)
        finally:
            await store.close()
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        versions = ", ".join(f"{name} {each}" for name, each in {**beneath(engine), **_server(url)}.items())
    return Measured(engine, jobs, calls, f"{setting(engine)}, {began}", versions, phases, size, tuple(answers))


def _server(url: str) -> dict[str, str]:
    """Which server that is, where the setting does not say it."""
    if not url.startswith("postgresql:"):
        return {}
    import psycopg

    with psycopg.connect(url) as line:
        return {"PostgreSQL": str(line.info.parameter_status("server_version"))}


async def _fill(store: Store, engine: Engine, jobs: int) -> dict[str, Filled]:
    await store.open()
    phases = {}
    for name, work in (("enqueued", enqueue), ("died", bury), ("enqueued again", enqueue)):
        with _shown(f"{NAMES[engine]}: {jobs:,} jobs {name}") as progress:
            phases[name] = await work(store, jobs, progress)
    return phases


async def _ask(url: str, operator: Operator, engine: Engine, calls: int) -> list[Answered]:
    """Every question in turn, first over HTTP."""
    asked = await questions(operator)
    answers: list[Answered] = []
    with served(url) as line, _shown(f"{NAMES[engine]}: {len(asked)} questions asked") as progress:
        for number, each in enumerate(asked, 1):
            http = over_http(line, each.path, calls)
            answers.append(Answered(each.title, each.work, http, await directly(operator, each, calls)))
            progress(number, len(asked))
    return answers


@contextmanager
def _shown(what: str) -> Iterator[Progress]:
    """A bar while a person watches, else one line at the end of the phase."""
    at_s = time.monotonic()
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(f"prove: {what}", total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield lambda done, total: None
    print(f"prove: {what} in {time.monotonic() - at_s:.1f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
