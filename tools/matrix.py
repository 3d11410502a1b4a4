"""Runs everything there is to test, cell by cell: every server version, every harness, many seeds.

The first version of each server runs at full size.

`make matrix` runs all cells, `make matrix E=redis` those of one engine. Chaos waits more than it computes, so its cells
run beside the others. A cell that is green is not run again for the same tree of files, so a matrix that was broken off
or mended continues where it stopped. Logs and the report are in `.matrix/`.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
HOME: Final = ROOT / ".matrix"
ENGINES: Final = ("sqlite", "redis", "postgres")
VERSIONS: Final = {
    "redis": ("redis-6.2", "redis-7", "valkey"),
    "postgres": ("postgres-16", "postgres-15", "postgres-18"),
}
VARIABLES: Final = {"redis": "LIMPET_TEST_REDIS", "postgres": "LIMPET_TEST_POSTGRES"}
# What cells say for themselves.
DECIDES: Final = {"LIMPET_FULL", "LIMPET_MATRIX", "LIMPET_SEED", "LIMPET_SQLITE", *VARIABLES.values()}
SEEDS: Final = 3  # of random exploration, each engine's walks begin at; LIMPET_SEED=N begins elsewhere
NO_ENGINE: Final = " and ".join(f"not {engine}" for engine in ENGINES)
NEEDED_BYTES: Final = 16 * 1024**3  # ten million finished jobs in PostgreSQL, their WAL, and room to spare
COUNTS: Final = re.compile(r"^(?:=+ )?((?:\d+ \w+(?:, )?)+) in ", re.MULTILINE)


@dataclass(frozen=True)
class Cell:
    """A run of pytest: which tests, on which servers, at which size."""

    name: str
    engine: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def waits(self) -> bool:
        """Whether it waits for leases more than it computes."""
        return self.name.endswith("-chaos")


def cells() -> Iterator[Cell]:
    """All of them, the cheap ones first."""
    apart = ("--ignore", "tests/chaos")
    yield Cell("core", "core", ("-m", NO_ENGINE), {"LIMPET_FULL": "1"})
    for engine in ENGINES:
        first, *others = VERSIONS.get(engine, (engine,))
        for version, size in ((first, "LIMPET_FULL"), *((other, "LIMPET_MATRIX") for other in others)):
            environment = {size: "1", **on(engine, version)}
            yield Cell(version, engine, ("-m", engine, *apart), environment)
            yield Cell(f"{version}-chaos", engine, ("-m", engine, "tests/chaos"), environment)
    for seed in seeds():
        for engine, mark in [("core", NO_ENGINE), *((engine, engine) for engine in ENGINES)]:
            arguments = ("-m", f"(hypothesis or random) and {mark}", "--hypothesis-seed", str(seed))
            yield Cell(f"{engine}-seed-{seed}", engine, arguments, {"LIMPET_MATRIX": "1", "LIMPET_SEED": str(seed)})


def on(engine: str, version: str) -> dict[str, str]:
    return {VARIABLES[engine]: version} if engine in VARIABLES else {}


def seeds() -> range:
    first = int(os.environ.get("LIMPET_SEED", "1"))
    return range(first, first + SEEDS)


def tree() -> str:
    """The name git would give to the files as they are now, committed or not."""
    index = HOME / "index"
    environment = {**os.environ, "GIT_INDEX_FILE": str(index)}
    for words in (("read-tree", "HEAD"), ("add", "--all")):
        subprocess.run(["git", *words], cwd=ROOT, env=environment, check=True)
    answer = subprocess.run(
        ["git", "write-tree"], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    index.unlink()
    return answer.stdout.strip()[:12]


@dataclass(frozen=True)
class Result:
    """How a cell went: its counts as pytest says them, its seconds, and whether it was green."""

    cell: str
    green: bool
    counts: str
    seconds: float

    def row(self) -> str:
        return f"| {self.cell} | {'green' if self.green else 'RED'} | {self.counts} | {self.seconds:.0f} |"


def surroundings() -> dict[str, str]:
    """The environment without what would make a cell another one than its name says."""
    return {name: value for name, value in os.environ.items() if name not in DECIDES}


def run(cell: Cell, folder: Path, parallel: str) -> Result:
    """Run a cell into its log; what is green is remembered."""
    log, done = folder / f"{cell.name}.log", folder / f"{cell.name}.green"
    if done.exists():
        counts, _, took = done.read_text().rpartition(" ")
        return Result(cell.name, True, counts, float(took))
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-n", parallel, "--dist", "worksteal", "--timeout", "1800"]
    with log.open("w") as output:
        code = subprocess.run(
            [*command, *cell.arguments],
            cwd=ROOT,
            env={**surroundings(), **cell.environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    seconds = time.monotonic() - began
    found = COUNTS.findall(log.read_text())
    counts = found[-1] if found else "no test ran"
    if code == 0:
        done.write_text(f"{counts} {seconds:.0f}")
    return Result(cell.name, code == 0, counts, seconds)


def run_all(some: list[Cell], folder: Path, parallel: str, stop: Event) -> list[Result]:
    """Run some cells, one after the other, and say of each how it went; begin none after `stop`."""
    results = []
    for number, cell in enumerate(some, 1):
        if stop.is_set():
            break
        results.append(result := run(cell, folder, parallel))
        verdict = "green" if result.green else f"RED, see {(folder / cell.name).relative_to(ROOT)}.log"
        print(
            f"matrix: {number}/{len(some)} {cell.name} {verdict}: {result.counts}, {result.seconds:.0f} s", flush=True
        )
    return results


def report(results: list[Result], name: str) -> str:
    """The results as a page: the machine first, since seconds mean nothing without it."""
    where = f"Python {platform.python_version()}, {platform.system()} {platform.release()}, {os.cpu_count()} cores"
    lines = [f"# Matrix of tree {name}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC", "", where, ""]
    lines += ["| cell | verdict | tests | seconds |", "|---|---|---|---|", *(result.row() for result in results)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the cells; 1 when one is red, 2 when there is nothing to run or no room for it."""
    parser = argparse.ArgumentParser(description="every version, every harness, full sizes, many seeds")
    parser.add_argument("--engine", default="", choices=["", "core", *ENGINES], help="the cells of one engine")
    parser.add_argument("--parallel", default="2", help="processes of each cell")
    parser.add_argument("--list", action="store_true", help="name the cells and run none")
    chosen = parser.parse_args()
    wanted = [cell for cell in cells() if chosen.engine in ("", cell.engine)]
    if chosen.list:
        print("\n".join(cell.name for cell in wanted))
        return 0
    free = shutil.disk_usage(ROOT).free
    if free < NEEDED_BYTES and any(cell.engine == "postgres" for cell in wanted):
        print(f"matrix: {free >> 20} MiB free, {NEEDED_BYTES >> 20} MiB needed; nothing was run", file=sys.stderr)
        return 2
    began = time.monotonic()
    HOME.mkdir(exist_ok=True)
    name = tree()
    folder = HOME / name
    folder.mkdir(exist_ok=True)
    stop = Event()
    with ThreadPoolExecutor(2) as streams:
        halves = [[cell for cell in wanted if cell.waits == waits] for waits in (True, False)]
        done = [streams.submit(run_all, half, folder, chosen.parallel, stop) for half in halves]
        try:
            found = {result.cell: result for each in done for result in each.result()}
        finally:
            stop.set()  # Ctrl-C ends the cells that run, and no other one begins
    results = [found[cell.name] for cell in wanted]
    (HOME / "report.md").write_text(report(results, name))
    red = [result.cell for result in results if not result.green]
    total = (time.monotonic() - began) / 60
    print(f"matrix: {len(results) - len(red)} of {len(results)} cells green, {total:.0f} min; .matrix/report.md")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
