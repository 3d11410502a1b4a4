"""Decides the public JSON form of what a store answers: the same for `--json`, HTTP and MCP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from limpet.core.errors import UsageError
from limpet.core.flows.refs import Given, filled
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Claimed
from limpet.core.jobs.meta import asked_meta
from limpet.core.jobs.view import AttemptView
from limpet.core.records.job import note_record
from limpet.core.records.record import content

Shape = dict[str, Any]


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
