"""The records of claiming: who asks, what is handed out under which token, and the session that keeps it."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import msgspec
from msgspec import Struct

from limpet.core.jobs.job import LEAST_URGENT, URGENT, Lane, Policy, stable_hash


class Serves(Struct, frozen=True, dict=True):
    """What a worker can run. None means any: `tasks=None` is for agents and tools that take every task."""

    queues: tuple[str, ...] | None = None
    tasks: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] = ()

    @cached_property
    def signature(self) -> int:
        """Workers with equal abilities share a signature, and wake-ups go by signature."""
        return stable_hash(("serves", self))

    @cached_property
    def _sets(self) -> tuple[frozenset[str] | None, frozenset[str] | None, frozenset[str]]:
        queues = None if self.queues is None else frozenset(self.queues)
        tasks = None if self.tasks is None else frozenset(self.tasks)
        return queues, tasks, frozenset(self.capabilities)

    def can(self, queue: str, task: str, needs: tuple[str, ...]) -> bool:
        """True when a job of that class may be given to this worker."""
        queues, tasks, capabilities = self._sets
        return (
            (queues is None or queue in queues) and (tasks is None or task in tasks) and capabilities.issuperset(needs)
        )


class ClaimOptions(Struct, frozen=True, omit_defaults=True):
    """Which jobs a claim takes. It travels whole: an engine reads the fields by name, and one left out has its default.

    Up to `aged` of the jobs are taken first, of the priority `most_urgent` and less urgent ones, past all others; then
    the rest by priority, down to `least_urgent`. With `needing`, only jobs that need this capability.
    """

    least_urgent: int = LEAST_URGENT
    aged: int = 0
    most_urgent: int = 0
    needing: str = ""

    @property
    def takes_all(self) -> bool:
        """False when there may be jobs for the session that this claim leaves."""
        return self.least_urgent == LEAST_URGENT and not self.needing


class Takes(Struct, frozen=True):
    """How many jobs a session takes with wake-ups while it sleeps: the places that it has for jobs of any executor."""

    ordinary: int = 0
    urgent: int = 0  # critical and high ones, those places included

    def of(self, priority: int) -> int:
        """How many, when the last one has this priority."""
        return self.urgent if priority <= URGENT else self.ordinary


class ClaimRequest(Struct, frozen=True):
    """Ask for up to `limit` jobs, of which at most `slots` may be ones that must start at once.

    Jobs under a limit, probes and suspects are never held ahead of time, so they count against `slots`.
    `seq` grows per claimer: the same (session, claimer, seq) again gets the same answer again.
    A `limit` of 0 asks for nothing, and says that the session does not sleep any more.
    """

    session: str
    serves: Serves
    limit: int
    slots: int
    seq: int
    claimer: str = "fetcher"
    options: ClaimOptions = ClaimOptions()
    takes: Takes = Takes()  # counts from an empty answer on, until the next one


class Claimed(Struct, frozen=True):
    """One job under a lease. `attempt` counts from 1; `token` grows with every claim of that job."""

    id: bytes
    token: int
    attempt: int
    lost: int  # leases lost before: 1 = start at once, ≥ 2 = run alone
    lane: Lane
    policy: Policy
    args: bytes
    enqueued_at_ms: int
    due_at_ms: int
    claimed_at_ms: int
    held: int = 0  # snoozes and 429s so far, or since it last slept or waited for an event
    held_since_ms: int | None = None
    cost: int = 1
    tags: tuple[str, ...] = ()
    meta: bytes = b""
    flow: bytes | None = None
    probe: bool = False  # the one job a half-open breaker lets through
    inputs: dict[bytes, Input] = {}  # by parent id
    notes: tuple[Note, ...] = ()  # noted before, log lines left out: checkpoint, steps, events, …
    after: tuple[bytes, ...] = ()  # its parents, in the order in which it named them
    costs: dict[str, int] = {}
    together: int = 0  # how many may run at once under the tightest limit that it was let through; 0: under none

    def cost_in(self, unit: str) -> int:
        """What it costs at a gate that counts this unit."""
        return self.costs.get(unit, 0) if unit else self.cost


class Input(Struct, frozen=True):
    """What a parent left for its dependent: its result, or why there is none."""

    result: bytes | None = None
    failed: str | None = None


class Note(Struct, frozen=True):
    """Something kept with a job for its next attempt or for people, one per kind and name.

    Kinds: checkpoint, step, progress and log are its own; event was signalled to it; waiting is what it suspended for.
    """

    kind: str
    name: str
    body: bytes


# Every claim of a job hands out the events that it keeps.
MAX_EVENTS: Final = 1_000
MAX_EVENTS_BYTES: Final = 4 * 1024 * 1024  # of their values


class Signal(Struct, frozen=True):
    """An event for one job, kept as Note("event", event, value): the first of a name stands."""

    id: bytes
    event: str
    value: bytes  # JSON


class Claim(Struct, frozen=True):
    """A store's answer to a claim; empty is a value.

    `next_at_ms`: nothing can become ready before; when that changes, one sleeping session is woken.
    """

    jobs: tuple[Claimed, ...]
    now_ms: int
    next_at_ms: int | None = None
    again: bool = False  # a bound was hit or another claimer was busy: ask again at once


class Beat(Struct, frozen=True):
    """A sign of life: keeps every lease of the session until now + ttl."""

    session: str
    ttl_ms: int
    serves: Serves
    info: bytes = b"{}"  # JSON for people: host, pid, version, slots, memory
    notes: tuple[tuple[bytes, int, Note], ...] = ()  # (job id, token, note): progress rides on beats


class Pulse(Struct, frozen=True):
    """The answer to a beat."""

    fresh: bool  # True: the session was not known, so whatever it held before is no longer its own
    cancels: tuple[tuple[bytes, int], ...] = ()  # (job id, token) that someone asked to cancel
    store: str = ""  # the store's own name, drawn when it was made: an emptied one has another
    token: int = 0  # the newest one that the store had given out: one that was set back has a smaller one
    listened: bool = False  # live events have a reader
    handed: int = 0  # the number of the last job that was handed to the session; of a fresh one, below all to come


class Held(Struct, frozen=True):
    """One job that a session holds."""

    id: bytes
    token: int
    lost: int
    handed: int = 0  # its number, when it was handed to the session


class Handed(Struct, frozen=True, array_like=True):
    """A job that came with a wake-up: the step that stored it has claimed it for a session that slept.

    `number` grows by one with each job that is handed to the session, so that a lost message is noticed.
    """

    session: str
    number: int
    job: Claimed
    awake: bool = False  # it has taken the last place: the session sleeps no more


class Wake(Struct, frozen=True):
    """Why a waiting session was woken; nothing of it = the time ran out."""

    work: bool = False
    urgent: bool = False
    cancel: bool = False
    jobs: tuple[Handed, ...] = ()


class SessionView(Struct, frozen=True):
    """A live worker or agent, as operators see it."""

    session: str
    serves: Serves
    info: bytes
    started_at_ms: int
    beat_at_ms: int
    deadline_at_ms: int
    idle: bool
    running: int

    @property
    def silent_ms(self) -> int | None:
        """For how long its loop had not turned when it last beat, or its supervisor for it; None: it turns."""
        try:
            return msgspec.json.decode(self.info, type=_Silence).silent_ms
        except msgspec.MsgspecError:
            return None  # an agent may say what it likes


class _Silence(Struct, frozen=True):
    """The one thing that is read of what a worker says about itself."""

    silent_ms: int | None = None
