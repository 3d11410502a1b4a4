"""Decides what an agent is told of the job that it has claimed: the arguments, the token, and what came before."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from limpet.core.errors import UsageError
from limpet.core.flows.refs import Given, filled
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Claimed
from limpet.core.jobs.meta import asked_meta
from limpet.core.jobs.view import AttemptView
from limpet.core.records.job import NoteRecord, note_record
from limpet.core.records.record import Record, content, seconds
from limpet.core.tasks.agent_type import AgentType

_CHECKPOINT: Final = "checkpoint"
_WAITING: Final = "waiting"  # of a wait that is over, which no agent has a use for
_LEFT_OUT: Final = (
    "meta",
    "args_error",
    "checkpoint",
    "description",
    "result_contract",
)  # of the JSON, where there is none


class FailureRecord(Record, frozen=True, kw_only=True):
    """An earlier attempt, as the next agent needs it."""

    attempt: int
    outcome: str
    error: str
    message: str


class ClaimRecord(Record, frozen=True, kw_only=True):
    """A job that an agent has claimed."""

    id: str
    token: int
    task: str
    queue: str
    attempt: int
    attempts: int
    until: datetime  # the lease, without a heartbeat
    timeout_s: float | None  # a job that runs for longer is taken back, heartbeats or not
    description: str | None = None  # of its type: what is to be done
    result_contract: dict[str, Any] | None = None  # JSON Schema that a result must keep
    meta: dict[str, Any] | None = None
    args: Any  # with what the parents left where they refer to it
    args_error: str | None = None  # why that cannot be
    inputs: dict[str, Any]  # by parent: its result, or {"failed": why}
    checkpoint: Any = None  # the newest that an earlier attempt kept
    notes: tuple[NoteRecord, ...]  # and what else was noted
    failed_before: tuple[FailureRecord, ...]

    @classmethod
    def of(
        cls,
        claimed: Claimed,
        attempts: Sequence[AttemptView] = (),
        *,
        until: datetime,
        type: AgentType | None = None,
    ) -> ClaimRecord:
        """The public face of a claim."""
        args, args_error = _arguments(claimed)
        kept = next((note for note in claimed.notes if note.kind == _CHECKPOINT), None)
        return cls(
            id=id_text(claimed.id),
            token=claimed.token,
            task=claimed.lane.task,
            queue=claimed.lane.queue,
            attempt=claimed.attempt,
            attempts=claimed.policy.attempts,
            until=until,
            timeout_s=seconds(claimed.policy.timeout_ms),
            description=None if type is None else type.table.description or None,
            result_contract=type.table.result if type is not None and isinstance(type.table.result, dict) else None,
            meta=asked_meta(claimed.meta) or None,
            args=args,
            args_error=args_error,
            inputs={
                id_text(parent): {"failed": given.failed} if given.failed is not None else content(given.result)
                for parent, given in claimed.inputs.items()
            },
            checkpoint=None if kept is None else content(kept.body),
            notes=tuple(note_record(note) for note in claimed.notes if note.kind not in (_CHECKPOINT, _WAITING)),
            failed_before=tuple(
                FailureRecord(attempt=each.number, outcome=each.outcome, error=each.type, message=each.message)
                for each in attempts
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON has it; an agent reads no line that says nothing."""
        return {name: value for name, value in super().to_dict().items() if value is not None or name not in _LEFT_OUT}


def _arguments(claimed: Claimed) -> tuple[Any, str | None]:
    """The arguments with what the parents left where they refer to it; or why that cannot be."""
    args = content(claimed.args)
    try:
        given = Given.to(claimed)
        return (args if given is None else content(msgspec.json.encode(filled(args, given)))), None
    except UsageError as error:
        return args, str(error)
