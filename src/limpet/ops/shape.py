"""Decides the public JSON form of what a store answers: the same for `--json`, HTTP and MCP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from limpet.core.errors import UsageError
from limpet.core.flows.refs import Given, filled
from limpet.core.gate import (
    FOREVER_MS,
)
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Claimed
from limpet.core.jobs.meta import asked_meta
from limpet.core.jobs.state import State
from limpet.core.jobs.view import AttemptView, JobView
from limpet.core.records.job import note_record
from limpet.core.records.record import content
from limpet.core.text.duration import iso
from limpet.ops.waits import Asked

Shape = dict[str, Any]


def when(at_ms: int | None) -> str | None:
    """RFC 3339 text of an instant; None when there is none or it never comes."""
    return None if at_ms is None or at_ms >= FOREVER_MS else iso(at_ms)


def error_of(view: JobView) -> tuple[str, str, str]:
    """(type, message, cause) of what went wrong; what failed before a job succeeded is kept with its attempts."""
    return ("", "", "") if view.state is State.succeeded else (view.error_type, view.reason, view.cause)


def asked_shape(asked: Asked) -> Shape:
    """A job that waits for a person."""
    return {
        "id": id_text(asked.view.id),
        "task": asked.view.lane.task,
        "queue": asked.view.lane.queue,
        "name": asked.asking.name,
        "question": asked.asking.question,
        "until": when(asked.until_ms),
        "enqueued_at": when(asked.view.enqueued_at_ms),
        "args": content(asked.view.args),
    }


def claimed_shape(claimed: Claimed, attempts: Sequence[AttemptView] = ()) -> Shape:
    """What an agent needs to work on a job: the arguments, the token, and what came before."""
    return {
        "id": id_text(claimed.id),
        "token": claimed.token,
        "task": claimed.lane.task,
        "queue": claimed.lane.queue,
        "attempt": claimed.attempt,
        "attempts": claimed.policy.attempts,
        **({"meta": meta} if (meta := asked_meta(claimed.meta)) else {}),
        **_arguments(claimed),
        "inputs": {
            id_text(parent): {"failed": given.failed} if given.failed is not None else content(given.result)
            for parent, given in claimed.inputs.items()
        },
        "notes": [note_record(note).to_dict() for note in claimed.notes],
        "failed_before": [
            {"attempt": attempt.number, "outcome": attempt.outcome, "error": attempt.type, "message": attempt.message}
            for attempt in attempts
        ],
    }


def _arguments(claimed: Claimed) -> Shape:
    """The arguments with what the parents left where they refer to it; or why that cannot be."""
    args = content(claimed.args)
    try:
        given = Given.to(claimed)
        return {"args": args if given is None else content(msgspec.json.encode(filled(args, given)))}
    except UsageError as error:
        return {"args": args, "args_error": str(error)}
