"""Turns figures into a table for people, with the verdict on every target."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from bench.driver import ROOT, Figures, System
from bench.server import version
from bench.targets import Engine, Row, Target, rows

Results = Mapping[str, Mapping[str, Figures]]


def table(engine: Engine, results: Results, systems: Sequence[System]) -> str:
    """Markdown: a row per target, a column per system, the verdict on the first system unless it is a peer."""
    names = [system.name for system in systems]
    ours = "" if systems[0].peer else names[0]
    lines = [
        "| measure | " + " | ".join(names) + " | target | verdict |",
        "|---|" + "---:|" * len(names) + "---|---|",
    ]
    for row in rows(engine):
        if found := results.get(row.measure):
            cells = [_figure(found.get(name, {}).get(row.figure), row.unit) for name in names]
            target = row.targets[engine]
            verdict = _verdict(row, target, found.get(ours, {}), found)
            lines.append(f"| {row.title} | {' | '.join(cells)} | {_words(row, target, found, ours)} | {verdict} |")
    return "\n".join(lines)


def _words(row: Row, target: Target, found: Mapping[str, Figures], ours: str) -> str:
    sign = "≥" if row.better == "more" else "≤"
    if target.peers:
        words = f"{sign} {target.value:g}× {_best(row, target, found)[0]}"
        return words if target.floor is None else f"{words} (floor {target.floor:g}×)"
    value = _base(target, found.get(ours, {}))
    words = "–" if value is None else f"{sign} {_figure(value, row.unit)}"
    return words if target.floor is None else f"{words} (floor {_figure(target.floor, '')})"


def _base(target: Target, ours: Figures) -> float | None:
    if target.below is None:
        return target.value
    return ours[target.below] * target.value + target.plus if target.below in ours else None


def _best(row: Row, target: Target, found: Mapping[str, Figures]) -> tuple[str, float | None]:
    """The peer to be compared with, and its figure if there is one."""
    there = {name: found[name][row.figure] for name in target.peers if row.figure in found.get(name, {})}
    if not there:
        return target.peers[0] if len(target.peers) == 1 else "the fastest peer", None
    name = (max if row.better == "more" else min)(there, key=lambda each: there[each])
    return name, there[name]


def _verdict(row: Row, target: Target, ours: Figures, found: Mapping[str, Figures]) -> str:
    if row.figure not in ours:
        return "not measured"
    value, wanted, shown = ours[row.figure], _base(target, ours), ""
    if target.peers:
        peer = _best(row, target, found)[1]
        if peer is None:
            return "not measured"
        value, wanted = value / peer, target.value
        shown = f" ({value:.3g}×)"
    assert wanted is not None, "a figure of ours without its base"
    if value >= wanted if row.better == "more" else value <= wanted:
        return f"met{shown}"
    return f"floor met{shown}" if target.floor is not None and value >= target.floor else f"missed{shown}"


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
