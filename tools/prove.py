"""Runs the same proofs as `make test`, and the bench, at full size, and writes dated results to docs/evidence/.

Size is asked for by LIMPET_FULL=1 in the environment and by hypothesis' profile "full"; a slice that asserts
counts instead of seconds is what `make test` runs.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDED_BYTES = 16 * 1024**3  # ten million finished jobs in PostgreSQL, their WAL, and room to spare
TAIL_LINES = 40
PYTEST = ("-m", "pytest", "-q", "-n", "0", "--timeout", "3600", "--hypothesis-profile", "full")

STEPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("core properties", "tests/core", (*PYTEST, "tests/core")),
    ("the contract, its random walk and crash points", "tests/contract", (*PYTEST, "tests/contract")),
    ("what each engine promises alone", "tests/engines", (*PYTEST, "tests/engines")),
    ("flows beside a model, and chords of 10,000", "tests/flows", (*PYTEST, "tests/flows")),
    ("chaos: real processes, real kills", "tests/chaos", (*PYTEST, "tests/chaos")),
    ("speed", "bench", ("-m", "bench")),
    ("speed on Redis", "bench", ("-m", "bench", "--engine", "redis")),
    ("speed on PostgreSQL", "bench", ("-m", "bench", "--engine", "postgres")),
)


@dataclass(frozen=True)
class Result:
    """One step as it went: exit code, time, and the end of what it said."""

    title: str
    command: str
    code: int
    seconds: float
    tail: str


def run(title: str, arguments: tuple[str, ...]) -> Result:
    """One step, its output shown as it comes and its end kept."""
    print(f"prove: {title}", flush=True)
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "LIMPET_FULL": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    seconds = time.monotonic() - began
    return Result(title, " ".join(("python", *arguments)), process.returncode, seconds, "".join(lines[-TAIL_LINES:]))


def page(results: list[Result], at: datetime) -> str:
    """The results as a page: the machine first, since figures mean nothing without it."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    parts = [
        f"# Proofs of {at:%Y-%m-%d %H:%M} UTC\n",
        f"Commit {commit or 'unknown'}, Python {platform.python_version()}, {platform.system()} "
        f"{platform.release()} {platform.machine()}, {os.cpu_count()} cores.\n",
        "| proof | verdict | seconds |\n|---|---|---|",
        *(
            f"| {one.title} | {'held' if one.code == 0 else f'exit {one.code}'} | {one.seconds:.0f} |"
            for one in results
        ),
    ]
    parts += [f"\n## {one.title}\n\n`{one.command}`\n\n```text\n{one.tail.rstrip()}\n```" for one in results]
    return "\n".join(parts) + "\n"


def main() -> None:
    """Check the disk, run every step that this checkout has, write the page; exit 1 when one failed."""
    free = shutil.disk_usage(ROOT).free
    if free < NEEDED_BYTES:
        sys.exit(f"prove: {free >> 20} MiB free, {NEEDED_BYTES >> 20} MiB needed; nothing was run")
    at = datetime.now(UTC)
    results = [run(title, arguments) for title, folder, arguments in STEPS if (ROOT / folder).is_dir()]
    target = ROOT / "docs" / "evidence" / f"{at:%Y-%m-%d-%H%M}.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(results, at))
    print(f"prove: written to {target.relative_to(ROOT)}")
    if any(one.code for one in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
