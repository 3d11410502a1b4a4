"""What will change for one running job; a store applies it only while the lease token still matches."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from limpet.core.jobs.state import State

ErrorKind = Literal["transient", "permanent", "timeout", "rate_limited", "spent", "lost", "cancelled"]


class Failure(Struct, frozen=True):
    """One attempt's error, as it is kept for people."""

    kind: ErrorKind
    type: str  # qualified name of the exception
    message: str
    traceback: str = ""
    cause: str = ""  # fingerprint that groups failures of one origin


class Succeed(Struct, frozen=True, tag=True):
    """running → succeeded. `result` is JSON; None stands for null."""

    id: bytes
    token: int
    result: bytes | None = None


class RetryAfter(Struct, frozen=True, tag=True):
    """running → scheduled (ready when the delay is 0): this attempt failed and counts."""

    id: bytes
    token: int
    failure: Failure
    delay_ms: int


class Bury(Struct, frozen=True, tag=True):
    """running → dead: for a person to look at."""

    id: bytes
    token: int
    failure: Failure


class Drop(Struct, frozen=True, tag=True):
    """running → cancelled, with its dependents."""

    id: bytes
    token: int
    reason: str


class Release(Struct, frozen=True, tag=True):
    """running → ready, at the front, attempt unspent. Unstarted jobs also get their rate tokens back."""

    id: bytes
    token: int
    started: bool = False


class Snooze(Struct, frozen=True, tag=True):
    """running → scheduled, attempt unspent; counted apart (Policy.max_held)."""

    id: bytes
    token: int
    delay_ms: int
    reason: str = ""


class Suspend(Struct, frozen=True, tag=True):
    """running → scheduled, nothing spent and nothing recorded: its handler sleeps, or waits for events.

    It continues after `delay_ms` (0: ready now; None: never by itself, it is due at FOREVER_MS), or as soon as one of
    `events` is signalled; one that was signalled before makes it ready at once. What it waits for is noted, as
    Note("waiting", event, b"<due_at_ms>") each: the only notes of that kind, until it suspends again or is woken.
    """

    id: bytes
    token: int
    delay_ms: int | None
    events: tuple[str, ...] = ()


class Hold(Struct, frozen=True, tag=True):
    """running → ready at the front, attempt unspent, and `gate` admits no job for `delay_ms`.

    With `trips` the gate opens as a breaker does: after the time one job probes it.
    """

    id: bytes
    token: int
    gate: str
    delay_ms: int
    reason: str = ""
    trips: bool = False


class Lose(Struct, frozen=True, tag=True):
    """running → ready at the front with one more loss, or dead when `proven` guilty or lost too often."""

    id: bytes
    token: int
    proven: bool = False
    reason: str = ""


Transition = Succeed | RetryAfter | Bury | Drop | Release | Snooze | Suspend | Hold | Lose

Answer = Literal["done", "stale", "gone"]


class Settled(Struct, frozen=True, omit_defaults=True):
    """What became of one transition: done; stale (the job is not under that token); gone (no such job).

    `shut` are the gates at which it counted as a failure, or that it held, and that are shut now: no job may start
    under them, not even a job that was claimed before.
    """

    answer: Answer
    state: State | None = None  # where the job is now; None when gone
    shut: tuple[str, ...] = ()
