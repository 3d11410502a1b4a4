"""Turns figures into a table for people, with the verdict on every target."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from bench.driver import ROOT, Figures, System
from bench.plan import ROWS, Row

Results = Mapping[str, Mapping[str, Figures]]


def table(results: Results, systems: Sequence[System]) -> str:
    """Markdown: a row per target, a column per system, the verdict on the first system."""
    names = [system.name for system in systems]
    peer = next((system.name for system in systems if system.peer), None)
    lines = [
        "| measure | " + " | ".join(names) + " | target | verdict |",
        "|---|" + "---:|" * len(names) + "---|---|",
    ]
    for row in ROWS:
        found = results.get(row.measure)
        if not found:
            continue
        cells = [_figure(found.get(name, {}).get(row.figure), row.unit) for name in names]
        target = _target(row, found[names[0]], found.get(peer or "", {}))
        sign = "≥" if row.better == "more" else "≤"
        words = "–" if target is None else f"{sign} {_figure(target, row.unit)}"
        if row.times_peer is not None:
            words = f"≥ {row.times_peer:g}× {peer or 'the peer'}"
        elif row.floor is not None:
            words += f" (floor {_figure(row.floor, '')})"
        lines.append(f"| {row.title} | {' | '.join(cells)} | {words} | {_verdict(row, found[names[0]], target)} |")
    return "\n".join(lines)


def _target(row: Row, ours: Figures, peers: Figures) -> float | None:
    if row.times_peer is not None:
        return row.times_peer * peers[row.figure] if row.figure in peers else None
    if row.below is not None and row.target is not None:
        return ours[row.below] * row.target + row.plus
    return row.target


def _verdict(row: Row, ours: Figures, target: float | None) -> str:
    if target is None:
        return "not measured"
    value = ours[row.figure]
    if value >= target if row.better == "more" else value <= target:
        return "met"
    return "floor met" if row.floor is not None and value >= row.floor else "missed"


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    text = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def setting() -> str:
    """When, where and on what this was measured: figures mean nothing without it."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {commit or 'unknown'}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, load {load} at the end"
    )
