"""Turns figures into a table for people, with the verdict on every target."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from bench.driver import ROOT, Figures, System
from bench.server import version
from bench.targets import Engine, Row, Target, rows
from bench.versions import Versions

Results = Mapping[str, Mapping[str, Figures]]

VERDICTS: Final = ("met", "enough", "not measured", "missed")  # the better ones first


def table(engine: Engine, results: Results, systems: Sequence[System]) -> str:
    """Markdown: a row per target, a column per system, the verdict on the first system if it is ours."""
    names = [system.name for system in systems]
    ours = names[0] if systems[0].role == "ours" else ""
    lines = [
        "| measure | " + " | ".join(names) + " | target | verdict |",
        "|---|" + "---:|" * len(names) + "---|---|",
    ]
    for row in rows(engine):
        if found := results.get(row.measure):
            cells = [_figure(found.get(name, {}).get(row.figure), row.unit) for name in names]
            ways = _ways(row.targets[engine])
            words = " or ".join(_words(row, each, found, ours) for each in ways)
            verdict = _verdict(row, ways, found.get(ours, {}), found)
            lines.append(f"| {row.title} | {' | '.join(cells)} | {words} | {verdict} |")
    return "\n".join(lines)


def _ways(target: Target) -> list[Target]:
    """A target and those that are as good."""
    return [target, *(_ways(target.either) if target.either is not None else ())]


def _words(row: Row, target: Target, found: Mapping[str, Figures], ours: str) -> str:
    sign = "≥" if row.better == "more" else "≤"
    if target.beside:
        words = f"{sign} {target.value:g}× {_best(row, target, found)[0]}"
        return words if target.enough is None else f"{words} (enough: {target.enough:g}×)"
    value = _base(target, found.get(ours, {}))
    words = "–" if value is None else f"{sign} {_figure(value, row.unit)}"
    return words if target.enough is None else f"{words} (enough: {_figure(target.enough, '')})"


def _base(target: Target, ours: Figures) -> float | None:
    if target.below is None:
        return target.value
    return ours[target.below] * target.value + target.plus if target.below in ours else None


def _best(row: Row, target: Target, found: Mapping[str, Figures]) -> tuple[str, float | None]:
    """The system to be compared with, and its figure if there is one."""
    there = {name: found[name][row.figure] for name in target.beside if row.figure in found.get(name, {})}
    if not there:
        return target.beside[0] if len(target.beside) == 1 else "the fastest peer", None
    name = (max if row.better == "more" else min)(there, key=lambda each: there[each])
    return name, there[name]


def _verdict(row: Row, ways: Sequence[Target], ours: Figures, found: Mapping[str, Figures]) -> str:
    if row.figure not in ours:
        return "not measured"
    reached = [_reached(row, target, ours, found) for target in ways]
    # One of them met is enough. One that was missed decides only if the others were measured.
    verdict, ratio = min(reached, key=lambda each: VERDICTS.index(each[0]))
    return verdict if ratio is None else f"{verdict} ({ratio:.3g}×)"


def _reached(row: Row, target: Target, ours: Figures, found: Mapping[str, Figures]) -> tuple[str, float | None]:
    """The verdict on one target, and the ratio if it is about one."""
    value, wanted, ratio = ours[row.figure], _base(target, ours), None
    if target.beside:
        other = _best(row, target, found)[1]
        if other is None:
            return "not measured", None
        value = ratio = value / other
    assert wanted is not None, "a figure of ours without its base"
    sign = 1 if row.better == "more" else -1
    if sign * value >= sign * wanted:
        return "met", ratio
    return "enough" if target.enough is not None and sign * value >= sign * target.enough else "missed", ratio


def releases(versions: Mapping[str, Versions]) -> str:
    """What each column is made of, on one line."""
    columns = (f"{name}: {', '.join(map(' '.join, made_of.items()))}" for name, made_of in versions.items())
    return "; ".join(columns)


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    text = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def setting(engine: Engine) -> str:
    """When, where and on what this was measured: figures mean nothing without it."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    store = f", {version()}" if engine == "redis" else ", fsync=on" if engine == "postgres" else ""
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {commit or 'unknown'}, Python {platform.python_version()}"
        f"{store}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores, load {load} at the end"
    )
