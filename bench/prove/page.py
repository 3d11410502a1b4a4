"""Writes what was measured as a page: the machine first, since milliseconds mean nothing without it."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import psutil
from msgspec import Struct

from bench.prove.backlog import ERRORS, TASKS, Filled
from bench.prove.client import Answered, Taken

MOST_MS: Final = 100
NAMES: Final = {"sqlite": "SQLite", "redis": "Redis", "postgres": "PostgreSQL"}


class Measured(Struct, frozen=True):
    """One engine at one size."""

    engine: str
    jobs: int  # of each state
    calls: int
    at: str  # when, on which commit, under which load
    versions: str
    phases: dict[str, Filled]
    bytes: int  # in its folder, after the last question
    answers: tuple[Answered, ...]


def page(found: Sequence[Measured]) -> str:
    """Markdown of all engines of one size."""
    first = found[0]
    lines = [
        f"# Asking beside {first.jobs:,} ready and {first.jobs:,} dead jobs",
        "",
        f"Written {datetime.now(UTC):%Y-%m-%d} by `make prove`. Goal: list, count, causes and job answer within "
        f"{MOST_MS} ms.",
        "",
        f"Machine: {machine()}. The load that each engine met is beside it: where it is above the number of cores, "
        "other work ran at the same time, and the figures and their spread are the machine's as much as ours.",
        "",
        f"Each engine has a private store or server on disk, with the settings that it comes with. {first.jobs:,} jobs "
        f"are enqueued, claimed and buried by the ordinary verbs, of {len(TASKS) + 1} tasks, with {len(ERRORS)} errors "
        f"each; then {first.jobs:,} are enqueued and stay. Once a second the store is swept, as a worker does it. "
        f"`limpet serve` answers on the loopback to one client, {first.calls} calls a question on one connection; the "
        "column *direct* is Operator in the process that asks. The "
        "first call is among them. A figure is median / p95 / slowest, in ms; the verdict is on the p95 over HTTP.",
        "",
    ]
    for each in found:
        lines += section(each)
    return "\n".join(lines)


def section(one: Measured) -> Iterator[str]:
    """One engine: how it was filled, what it answered, what misses."""
    yield f"## {NAMES[one.engine]}"
    yield ""
    yield f"{one.at}. {one.versions}."
    yield ""
    filled = "; ".join(f"{name} {each.seconds:,.0f} s ({each.per_second:,.0f}/s)" for name, each in one.phases.items())
    yield f"Filled: {filled}. In its folder: {one.bytes >> 20:,} MiB."
    yield ""
    yield "| question | HTTP | direct | verdict |"
    yield "|---|---:|---:|---|"
    for each in one.answers:
        yield f"| {each.title} | {_cell(each.http)} | {_cell(each.direct)} | {verdict(each)} |"
    yield ""
    misses = [each for each in one.answers if verdict(each) != "met"]
    yield from (f"- *{each.title}* takes {each.http.median_ms:.0f} ms in the middle: {each.work}." for each in misses)
    yield "" if misses else f"Everything is answered within {MOST_MS} ms.\n"


def verdict(one: Answered) -> str:
    """Met; met but for a few calls; or missed."""
    if one.http.p95_ms <= MOST_MS:
        return "met"
    return "met by the median" if one.http.median_ms <= MOST_MS else "missed"


def machine() -> str:
    """What it runs on."""
    model = next((line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if "model name" in line), "")
    memory = psutil.virtual_memory().total >> 30
    parts = (model, f"{os.cpu_count()} cores", f"{memory} GiB", f"{platform.system()} {platform.release()}")
    return ", ".join(filter(None, parts))


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if os.path.exists(path) else []


def _cell(taken: Taken) -> str:
    return " / ".join(f"{each:.1f}" for each in (taken.median_ms, taken.p95_ms, taken.max_ms))
