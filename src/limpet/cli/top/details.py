"""Decides what the page of one job or worker says."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from limpet.cli.detail import show_job
from limpet.cli.terminal import Terminal
from limpet.core.text.duration import ago_ms, text_of_ms

if TYPE_CHECKING:
    from limpet.cli.top.picture import Picture


def lines_of_job(picture: Picture) -> list[str]:
    """Why it is where it is, and all that `limpet job` prints."""
    if picture.job is None:
        return ["the job is gone: its time to be kept is over, or it was removed"]
    page = io.StringIO()
    with redirect_stdout(page):
        show_job(Terminal(None, None), picture.job.to_dict(), full=True)
    return [*picture.told.splitlines(), "", *page.getvalue().splitlines()]


def lines_of_worker(picture: Picture, session: str) -> list[str]:
    """What is known of it."""
    worker = next((each for each in picture.workers if each.session == session), None)
    if worker is None:
        return [f"{session} is gone"]
    info = worker.info if isinstance(worker.info, dict) else {}
    facts = {
        "queues": "any" if worker.queues is None else ", ".join(worker.queues),
        "tasks": "any" if worker.tasks is None else ", ".join(worker.tasks),
        "capabilities": ", ".join(worker.capabilities),
        "code": worker.code_version,
        "release": info.get("version"),
        "started": f"{text_of_ms(ago_ms(worker.started_at, picture.at_ms))} ago",
        "beat": f"{text_of_ms(ago_ms(worker.beat_at, picture.at_ms))} ago",
        "running": f"{worker.running:,} of {info.get('concurrency', '?')}",
        "held": info.get("held"),
        "stuck": worker.stuck,
        "loop": worker.loop,
    }
    return [f"worker {session}", *(f"  {name:<13} {value}" for name, value in facts.items() if value)]
