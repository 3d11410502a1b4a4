"""Decides what of an operation is public: what it was asked to do, how far it is, and how the first jobs ended."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from limpet.core.jobs.ids import id_text
from limpet.core.operations.operation import Operation, OperationState, Pause, Verb
from limpet.core.records.record import Record, instant, moment

_OWN: Final = frozenset({"per_second", "sample", "stop_after", "delay_ms", "args", "patch"})  # shown in another way


class Sample(Struct, frozen=True):
    """How the jobs of a sample stand now."""

    succeeded: int = 0
    dead: int = 0
    cancelled: int = 0
    unfinished: int = 0
    gone: int = 0


class SampleRecord(Record, frozen=True, kw_only=True):
    """How the first jobs of an operation ended, which a person looks at before it continues."""

    size: int  # jobs that were asked for
    jobs: tuple[str, ...]  # their ids
    succeeded: int
    dead: int  # again
    cancelled: int
    unfinished: int
    gone: int  # removed from the store since


class ProblemRecord(Record, frozen=True, kw_only=True):
    """A job that an operation could not change, or that died again."""

    job: str
    answer: str
    holder: str | None  # the job that has its unique key


class OperationRecord(Record, frozen=True, kw_only=True):
    """One action on many jobs, which any process may run and a person may pause, continue and cancel."""

    id: str
    verb: Verb
    query: str | None  # None: its jobs were named one by one
    options: dict[str, Any]
    queues: tuple[str, ...] | None  # within which it acts: those of the token that began it; None: within all
    per_second: float | None  # None: as fast as the store takes it
    stop_after: int | None  # jobs that die again, after which it pauses
    state: OperationState  # waiting: until a process takes it
    pause: Pause | None
    reason: str
    why: str | None  # it is paused, has failed, or was cancelled
    actor: str
    by: str | None  # the last person who paused, continued or cancelled it
    counted: bool  # False while it counts: `matched` grows then
    matched: int  # jobs, at its start
    done: int  # of these, looked at
    changed: int
    answers: dict[str, int]  # how many jobs each answer was given for
    died_again: int | None  # as far as it has seen; None without `stop_after`
    problems: tuple[ProblemRecord, ...]  # the first twenty
    sample: SampleRecord | None
    runner: str | None  # the process that runs it
    started_at: datetime
    beat_at: datetime | None  # its last sign of life
    finished_at: datetime | None

    @classmethod
    def of(cls, operation: Operation, now_ms: int, sample: Sample | None = None) -> OperationRecord:
        """The public face of an operation."""
        how, lives = operation.how, operation.lives(now_ms)
        waits = operation.state == "running" and not lives
        return cls(
            id=operation.id,
            verb=operation.verb,
            query=operation.query,
            options=_options(operation),
            queues=operation.queues,
            per_second=how.per_second,
            stop_after=how.stop_after or None,
            state="waiting" if waits else operation.state,
            pause=operation.pause or None,
            reason=operation.reason,
            why=operation.why or None,
            actor=operation.actor,
            by=operation.by or None,
            counted=operation.counted,
            matched=operation.matched,
            done=operation.done,
            changed=operation.changed,
            answers=dict(operation.answers),
            died_again=operation.died if how.stop_after else None,
            problems=tuple(
                ProblemRecord(job=one.job, answer=one.answer, holder=one.holder or None) for one in operation.problems
            ),
            sample=_sample(operation, sample),
            runner=operation.runner if lives else None,
            started_at=moment(operation.began_ms),
            beat_at=instant(operation.beat_ms or None),
            finished_at=instant(operation.ended_ms),
        )


def _options(operation: Operation) -> dict[str, Any]:
    """What was asked for, where it is not as usual; of arguments only the names, since values may be secrets."""
    how, usual = operation.how, type(operation.how)()
    said = {name: value for name, value in asdict(how).items() if value != getattr(usual, name) and name not in _OWN}
    if how.delay_ms:
        said["delay"] = how.delay_ms / 1000
    for name, given in (("args", how.args), ("patch", how.patch)):
        if given is not None:
            said[name] = sorted(given)
    return said


def _sample(operation: Operation, found: Sample | None) -> SampleRecord | None:
    if not operation.how.sample:
        return None
    ids = tuple(map(id_text, operation.sampled))
    known = Sample(unfinished=len(ids)) if found is None else found
    return SampleRecord(size=operation.how.sample, jobs=ids, **asdict(known))
