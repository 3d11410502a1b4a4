"""Decides how one job looks to a person: what it is, how it went, what it left."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from limpet.cli.terminal import Terminal
from limpet.core.jobs.job import priority_text
from limpet.core.limits.unit import amount_of, amount_text

FACTS: Final = (
    ("state", "state"),
    ("task", "task"),
    ("queue", "queue"),
    ("priority", "priority"),
    ("tenant", "tenant"),
    ("enqueued", "enqueued_at"),
    ("due", "due_at"),
    ("started", "started_at"),
    ("finished", "finished_at"),
    ("expires", "expires_at"),
    ("worker", "session"),
    ("token", "token"),
    ("limits", "limits"),
    ("breaker", "breaker"),
    ("needs", "needs"),
    ("tags", "tags"),
    ("unique", "unique"),
    ("after", "after"),
    ("flow", "flow"),
    ("schedule", "schedule"),
    ("tick", "tick"),
    ("rerun of", "rerun_of"),
    ("costs", "costs"),
    ("spent", "spent"),
    ("lost leases", "lost"),
    ("put off", "held"),
    ("cause", "cause"),
)
MOST_LISTED: Final = 10
MOST: Final = 1 << 40  # of any unit: what is stored is shown
FRAMES: Final = 8  # the last lines of a traceback say where; the rest is behind --full


def show_job(terminal: Terminal, shape: dict[str, Any], *, full: bool) -> None:
    """Print a job for a person."""
    terminal.text(f"job {shape['id']}")
    for label, key in FACTS:
        value = shape[key]
        if value not in (None, [], {}, "", 0) or key == "priority":
            terminal.text(f"  {label:<12} {priority_text(value) if key == 'priority' else _words(value)}")
    terminal.text(f"  {'attempt':<12} {shape['attempt']} of {shape['attempts']}")
    if shape["error"] or shape["reason"]:
        terminal.text(f"  {'reason':<12} {': '.join(text for text in (shape['error'], shape['reason']) if text)}")
    _json(terminal, "arguments", shape["args"])
    if shape["meta"]:
        _json(terminal, "meta", shape["meta"])
    if shape["state"] == "succeeded":
        _json(terminal, "result", shape["result"])
    for step in shape["steps"]:
        _step(terminal, step)
    for note in shape["notes"]:
        if note["kind"] in ("step", "spent"):
            continue  # shown above
        _json(terminal, f"{note['kind']} {note['name']}".strip(), note["body"])
    for attempt in shape["history"]:
        _attempt(terminal, attempt, full=full)


def _step(terminal: Terminal, step: dict[str, Any]) -> None:
    label = f"{step['kind']} {step['name']}"
    if step["error"]:
        terminal.text(f"  {label:<12} failed: {step['error']}")
    elif step["kind"] == "step":
        _json(terminal, label, step["value"])
    else:
        words = [
            step["question"],
            f"until {step['until']}" if step["until"] else None,
            "over" if step["over"] else None,
        ]
        terminal.text(f"  {label:<12} {', '.join(word for word in words if word)}".rstrip())


def _words(value: object) -> object:
    if isinstance(value, list):
        return _listed(value)
    if isinstance(value, dict):
        return ", ".join(
            amount_text(unit, amount_of(unit, amount, what=unit, most=MOST)) for unit, amount in value.items()
        )
    return value


def _listed(values: list[str]) -> str:
    """Several in one line; of a join's thousands of parents, the first."""
    more = len(values) - MOST_LISTED
    return ", ".join(values[:MOST_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def _json(terminal: Terminal, label: str, value: object) -> None:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    terminal.text(f"  {label:<12} " + text.replace("\n", "\n" + " " * 15))


def _attempt(terminal: Terminal, attempt: dict[str, Any], *, full: bool) -> None:
    error = ": ".join(text for text in (attempt["error"], attempt["message"]) if text)
    head = f"  attempt {attempt['number']}: {attempt['outcome']} on {attempt['session']}"
    terminal.text(f"{head}, {attempt['started_at']} to {attempt['finished_at']}{f': {error}' if error else ''}")
    lines = (attempt["traceback"] or "").rstrip().splitlines()
    if len(lines) > FRAMES and not full:
        terminal.text(f"      … {len(lines) - FRAMES} lines more with --full")
        lines = lines[-FRAMES:]
    for line in lines:
        terminal.text(f"      {line}")
