"""What will change for one running job; a store applies it only while the lease token still matches."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from limpet.core.jobs.job import Lane
from limpet.core.jobs.state import State

ErrorKind = Literal["transient", "permanent", "timeout", "rate_limited", "spent", "lost", "cancelled"]


class Failure(Struct, frozen=True):
    """One attempt's error, as it is kept for people."""

    kind: ErrorKind
    type: str  # qualified name of the exception
    message: str
    traceback: str = ""
    cause: str = ""  # fingerprint that groups failures of one origin


# How a worker counts its jobs (runtime/settings.py: WorkReport).
Counted = Literal[
    "succeeded", "retried", "dead", "cancelled", "released", "snoozed", "suspended", "held", "lost", "refused"
]


class _Ended(Struct, frozen=True):
    """What all transitions have: the job and its token; and for people, the same for all of a kind."""

    counted: ClassVar[Counted]  # in the report of the worker
    event: ClassVar[str]  # in its log
    then: ClassVar[str] = "ends"  # what becomes of the job, told to a person who asks what an error means

    id: bytes
    token: int


class Succeed(_Ended, frozen=True, tag=True):
    """running → succeeded. `result` is JSON; None stands for null."""

    counted = "succeeded"
    event = "job succeeded"

    result: bytes | None = None


class RetryAfter(_Ended, frozen=True, tag=True):
    """running → scheduled (ready when the delay is 0): this attempt failed and counts."""

    counted = "retried"
    event = "job failed, will retry"

    failure: Failure
    delay_ms: int


class Bury(_Ended, frozen=True, tag=True):
    """running → dead: for a person to look at. `lane` is where a person's retry puts it; None: where it was."""

    counted = "dead"
    event = "job dead"

    failure: Failure
    lane: Lane | None = None


class Drop(_Ended, frozen=True, tag=True):
    """running → cancelled, with its dependents."""

    counted = "cancelled"
    event = "job cancelled"
    then = "cancelled, with its dependents"

    reason: str


class Release(_Ended, frozen=True, tag=True):
    """running → ready, at the front, attempt unspent. Unstarted jobs also get their rate tokens back."""

    counted = "released"
    event = "job handed back"

    started: bool = False


class Snooze(_Ended, frozen=True, tag=True):
    """running → scheduled, attempt unspent; counted apart (Policy.max_held)."""

    counted = "snoozed"
    event = "job snoozed"
    then = "runs again after the time that it names, its attempt unspent; dead after 100 times or 24h"

    delay_ms: int
    reason: str = ""


class Suspend(_Ended, frozen=True, tag=True):
    """running → scheduled, nothing spent and nothing recorded: its handler sleeps, or waits for events.

    It continues after `delay_ms` (0: ready now; None: never by itself, it is due at FOREVER_MS), or as soon as one of
    `events` is signalled; one that was signalled before makes it ready at once. What it waits for is noted, as
    Note("waiting", event, b"<due_at_ms>") each: the only notes of that kind, until it suspends again or is woken.
    """

    counted = "suspended"
    event = "job suspended"

    delay_ms: int | None
    events: tuple[str, ...] = ()


class Hold(_Ended, frozen=True, tag=True):
    """running → ready at the front, attempt unspent, and `gate` admits no job for `delay_ms`.

    With `trips` the gate opens as a breaker does: after the time one job probes it.
    """

    counted = "held"
    event = "job rate limited"

    gate: str
    delay_ms: int
    reason: str = ""
    trips: bool = False


class Refuse(_Ended, frozen=True, tag=True):
    """running → ready, attempt unspent: its arguments do not fit the signature of the task in this worker.

    It waits in `lane` from now on, which other workers serve; without one no worker is known that it may fit: dead.
    """

    counted = "refused"
    event = "job refused: its arguments do not fit the code of this worker"

    failure: Failure
    signature: str  # the one that it does not fit
    lane: Lane | None = None


class Lose(_Ended, frozen=True, tag=True):
    """running → ready at the front with one more loss, or dead when `proven` guilty or lost too often."""

    counted = "lost"
    event = "job lost its process"

    proven: bool = False
    reason: str = ""


Transition = Succeed | RetryAfter | Bury | Drop | Release | Snooze | Suspend | Hold | Refuse | Lose

Answer = Literal["done", "stale", "gone"]


class Settled(Struct, frozen=True, omit_defaults=True):
    """What became of one transition: done; stale (the job is not under that token); gone (no such job).

    `shut` are the gates at which it counted as a failure, or that it held, and that are shut now: no job may start
    under them, not even a job that was claimed before.
    """

    answer: Answer
    state: State | None = None  # where the job is now; None when gone
    shut: tuple[str, ...] = ()
