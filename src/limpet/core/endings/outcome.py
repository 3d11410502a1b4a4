"""What happened in one attempt: the records that `decide` turns into a transition."""

from __future__ import annotations

from msgspec import Struct

from limpet.core.endings.transition import Failure


class Returned(Struct, frozen=True, tag=True):
    """The handler returned; `result` is JSON, None stands for null."""

    result: bytes | None = None


class Completed(Struct, frozen=True, tag=True):
    """The handler completed its job in a transaction of its own, and returned.

    Only the store knows whether that was committed: a job whose success it finds noted has succeeded whatever is asked.
    """


class Raised(Struct, frozen=True, tag=True):
    """The handler raised. `fatal` buries whatever the kind; `retry_after_ms` is the least wait in the answer."""

    failure: Failure
    retry_after_ms: int | None = None
    fatal: bool = False


class TimedOut(Struct, frozen=True, tag=True):
    """The handler ran out of time: softly (it was told) or hard (it was killed or abandoned)."""

    hard: bool
    after_ms: int
    failure: Failure | None = None  # where it was when the time ran out, if that is known


class LaterAsked(Struct, frozen=True, tag=True):
    """The handler asked for a retry with a delay of its own choice; the attempt counts."""

    delay_ms: int
    failure: Failure


class SnoozeAsked(Struct, frozen=True, tag=True):
    """The handler asked to run again later; no attempt is spent."""

    delay_ms: int
    reason: str = ""


class Suspended(Struct, frozen=True, tag=True):
    """The handler sleeps or waits for events: it continues then, no attempt is spent and nothing has failed."""

    delay_ms: int | None  # None: not before one of the events
    events: tuple[str, ...] = ()


class DeadAsked(Struct, frozen=True, tag=True):
    """The handler said that no retry can help."""

    reason: str
    failure: Failure | None = None


class CancelAsked(Struct, frozen=True, tag=True):
    """The handler said that the job is no longer wanted."""

    reason: str = ""


class Limited(Struct, frozen=True, tag=True):
    """Someone answered "too many requests", or (`spent`) "no money or quota left": hold the key, spend no attempt."""

    retry_after_ms: int | None = None
    key: str | None = None
    message: str = ""
    failure: Failure | None = None  # kept when the job has been held too long and is buried
    spent: bool = False


class HandedBack(Struct, frozen=True, tag=True):
    """The worker gives the job back, unspent: a shutdown, or something more urgent."""

    started: bool = False


class Crashed(Struct, frozen=True, tag=True):
    """The process that ran the job died. `proven`: with this job alone in it."""

    proven: bool = False
    reason: str = ""


class Unfit(Struct, frozen=True, tag=True):
    """The stored arguments do not fit the signature of the task here: the handler was not called."""

    failure: Failure
    signature: str


class CancelledByRequest(Struct, frozen=True, tag=True):
    """The handler stopped because someone asked to cancel the job."""

    reason: str = ""


Outcome = (
    Returned
    | Completed
    | Raised
    | TimedOut
    | LaterAsked
    | SnoozeAsked
    | Suspended
    | DeadAsked
    | CancelAsked
    | Limited
    | HandedBack
    | Crashed
    | Unfit
    | CancelledByRequest
)
