"""Decides what of a live worker or agent is public."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from limpet.core.endings.refusal import about, is_code
from limpet.core.jobs import minute
from limpet.core.jobs.lease import SessionView
from limpet.core.records.record import Record, content, moment, seconds


class WorkerRecord(Record, frozen=True, kw_only=True):
    """A live worker or agent; None of queues or tasks means any."""

    session: str
    queues: tuple[str, ...] | None
    tasks: tuple[str, ...] | None
    capabilities: tuple[str, ...]  # as a person has said them
    code_version: str
    running: int
    idle: bool
    started_at: datetime
    beat_at: datetime
    deadline_at: datetime
    silent_s: float | None  # for how long its loop had not turned when it last beat; None: it turns
    stuck: int  # places that do not come back: handlers past their hard timeout, processes that cannot be ended
    loop: str | None  # what keeps its loop from turning, or did; in words, None: nothing
    info: Any  # what it says about itself

    @classmethod
    def of(cls, view: SessionView, loop: str = "") -> WorkerRecord:
        """The public face of a session."""
        info = content(view.info)
        stuck = info.get("stuck") if isinstance(info, dict) else None
        return cls(
            session=view.session,
            queues=view.serves.queues,
            tasks=view.serves.tasks,
            capabilities=tuple(each for each in view.serves.capabilities if not is_code(each)),
            code_version=about(view).code_version,
            running=view.running,
            idle=view.idle,
            started_at=moment(view.started_at_ms),
            beat_at=moment(view.beat_at_ms),
            deadline_at=moment(view.deadline_at_ms),
            silent_s=seconds(view.silent_ms),
            stuck=stuck if isinstance(stuck, int) else 0,
            loop=loop or None,
            info=_about(info),
        )


def _about(info: Any) -> Any:
    """What it says about itself, but for the histograms of its tasks: `tasks` and `stats` make figures of them."""
    return {name: said for name, said in info.items() if name != minute.FIELD} if isinstance(info, dict) else info
