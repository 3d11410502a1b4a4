"""The command that writes what was decided about dead jobs, as Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import click

from limpet.cli.terminal import Terminal, clean
from limpet.cli.words import command, instant

if TYPE_CHECKING:
    from datetime import datetime

    from limpet.core.records.decision import CauseDecisions, DecisionLog, DecisionRecord

_LONGEST: Final = 200  # characters of a text that a person or a job wrote
_SPECIAL: Final = re.compile(r"[\\`*<>\[\]|&~]|(?<!\w)_|_(?!\w)")  # an underscore within a name means nothing
_DONE: Final = {
    "retry": "retried",
    "discard": "discarded",
    "acknowledge": "acknowledged",
    "snooze": "snoozed",
    "resolve": "resolved",
    "reopen": "reopened",
    "assign": "assigned",
    "note": "noted",
    "escalate": "escalated",
}
_BECAME: Final = ("succeeded", "died_again", "cancelled", "waiting", "running", "gone", "not_looked_up")
_BECAME_WORDS: Final = {"gone": "no longer stored"}


@click.option("--since", default="7d", show_default=True, metavar="TIME", help="7d (ago), or 2026-11-19T08:00Z.")
@click.option("--queue", metavar="NAME", help="Only this queue.")
@click.option("--before", type=int, metavar="SEQ", help="Go on with earlier lines of the audit log, where it says so.")
async def log_body(terminal: Terminal, since: str, queue: str | None, before: int | None) -> None:
    """Write what was decided about dead jobs, by cause, as Markdown: the person, the time, the reason, the effect.

    It is made from the audit log, and bounded by its retention. What became of retried jobs is looked up now.
    """
    async with terminal.operator() as operator:
        since_ms = await instant(operator.store, since)
        found = await operator.desk.decisions(queue, since_ms=since_ms, before=before)
    if terminal.machine:
        terminal.answer(found)
        return
    for line in markdown(found, queue):
        terminal.text(line)
    if found.cursor is not None:
        terminal.say(f"earlier lines were not read; go on with --before {found.cursor}")


def markdown(log: DecisionLog, queue: str | None = None) -> list[str]:
    """The decisions as lines of Markdown."""
    since = "the beginning" if log.since is None else _at(log.since)
    made = sum(len(cause.decisions) for cause in log.causes)
    about = f" in queue {_code(queue)}" if queue is not None else ""
    lines = ["# Decisions about dead jobs", "", f"From {since} to {_at(log.until)} (UTC){about}: "]
    lines[-1] += f"{_count(made, 'decision')} about {_count(len(log.causes), 'cause')}." if made else "no decisions."
    for cause in log.causes:
        lines += ["", *_cause(cause)]
    if log.cursor is not None:
        lines += ["", f"Earlier lines of the audit log, before {log.cursor}, were not read."]
    return lines


def _cause(cause: CauseDecisions) -> list[str]:
    head = _text(cause.error) or _code(cause.cause)
    if cause.message:
        head += f": {_text(cause.message)}"
    now = f"{cause.count:,} dead" if cause.status is None else f"{cause.count:,} dead, {cause.status}"
    return [
        f"## {head}",
        "",
        f"Task {_code(cause.task)}, queue {_code(cause.queue)}, cause {_code(cause.cause)}. Now: {now}.",
        "",
        "| at (UTC) | by | decision | jobs | reason | what became of them |",
        "|---|---|---|---:|---|---|",
        *map(_row, cause.decisions),
    ]


def _row(one: DecisionRecord) -> str:
    at = _at(one.at)
    if (until := _at(one.until)) != at:
        at += f" – {until[11:] if until[:10] == at[:10] else until}"
    cells = (at, _text(one.actor), _decision(one), f"{one.jobs:,}", _text(one.reason or ""), _became(one))
    return f"| {' | '.join(cells)} |"


def _decision(one: DecisionRecord) -> str:
    """What was done, in words."""
    words = _DONE.get(one.action, one.action)
    said: dict[str, Any] = one.said
    if one.job is not None:
        words += f" job {_code(one.job)}"
    elif one.query and "cause:" not in one.query:  # which the heading names
        words += f" {_code(one.query)}"
    if one.edited:
        words += ", with other arguments" if one.edited == one.jobs else f", {one.edited:,} with other arguments"
    if said.get("until"):
        words += f" until {str(said['until'])[:16].replace('T', ' ')}"
    if "assignee" in said:
        words += f" to {_text(said['assignee'])}" if said["assignee"] else " to no person"
    if "note" in said:
        words += f": {_text(said['note'])}" if said["note"] else ": the note was removed"
    return words


def _became(one: DecisionRecord) -> str:
    if one.action == "discard":
        return "removed"
    words = {name: _BECAME_WORDS.get(name, name.replace("_", " ")) for name in _BECAME}
    return ", ".join(f"{one.became[name]:,} {words[name]}" for name in _BECAME if name in one.became)


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _text(words: str) -> str:
    """Words of people and jobs, in one line: nothing in them formats the page."""
    words = " ".join(clean(words).split())
    return _SPECIAL.sub(r"\\\g<0>", words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…")


def _code(name: str) -> str:
    """A name, set as code; a pipe would end the cell even there."""
    name = clean(name)
    return _text(name) if "`" in name or "|" in name else f"`{name}`"


log = command("log")(log_body)
