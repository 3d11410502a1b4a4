"""The records of asking: what a job, a page of jobs, a count or an attempt looks like from outside."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from limpet.core.endings.transition import ErrorKind
from limpet.core.gate import Gate
from limpet.core.jobs.job import IfParentFails, Lane, Policy
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import State


class JobView(Struct, frozen=True):
    """Everything stored about one job, at one instant."""

    id: bytes
    state: State
    lane: Lane
    policy: Policy
    args: bytes
    attempt: int
    lost: int
    enqueued_at_ms: int
    due_at_ms: int
    claimed_at_ms: int | None = None
    finished_at_ms: int | None = None
    expires_at_ms: int | None = None
    token: int | None = None
    session: str | None = None
    cancel_requested: bool = False
    reason: str = ""  # why it is cancelled, or the last error's message in one line
    cause: str = ""  # fingerprint of the last failure
    error_type: str = ""
    result: bytes | None = None
    tags: tuple[str, ...] = ()
    meta: bytes = b""
    cost: int = 1
    flow: bytes | None = None
    unique: str | None = None
    after: tuple[bytes, ...] = ()
    if_parent_fails: IfParentFails = "cancel"
    held: int = 0
    notes: tuple[Note, ...] = ()
    costs: dict[str, int] = {}

    def cost_in(self, unit: str) -> int:
        """What it costs at a gate that counts this unit."""
        return self.costs.get(unit, 0) if unit else self.cost


class AttemptView(Struct, frozen=True):
    """One run of a job that did not simply succeed the first time."""

    number: int
    outcome: str  # succeeded, retried, dead, cancelled, released, snoozed, held, lost, refused
    started_at_ms: int
    finished_at_ms: int
    session: str
    kind: ErrorKind | None = None
    type: str = ""
    message: str = ""
    traceback: str = ""
    cause: str = ""


Compare = Literal["<", "<=", ">", ">=", "="]


class Term(Struct, frozen=True):
    """One condition of a query: `field op value`, negated or not. Text values may hold * wildcards.

    Fields: id, queue, task, tenant, tag, state, error, cause, unique, flow, priority, attempt, lost, args.<path>; in
    milliseconds age (since enqueue), finished (since its end), started (since the claim, while it runs), due (until a
    scheduled one is). `error` is a part of the type or of the message, `word` of these or of the task's name, whatever
    the case of ASCII letters. "=" compares arguments as text, other signs compare numbers. A job that has no such value
    fits only the negated term.
    """

    field: str
    value: str
    op: Compare = "="
    negated: bool = False


class Query(Struct, frozen=True):
    """Which jobs to list or act on. A store uses one index, then filters a bounded number of candidates.

    With `suffix` nothing else of it counts: it finds up to three jobs whose ids end in this text, newest first.
    """

    states: frozenset[State] | None = None  # None = all
    terms: tuple[Term, ...] = ()
    limit: int = 50
    cursor: str | None = None
    newest_first: bool = True
    suffix: str | None = None


class Page(Struct, frozen=True):
    """One page of jobs. `complete` is False when the bound on candidates was hit: follow `cursor`."""

    jobs: tuple[JobView, ...]
    cursor: str | None = None
    complete: bool = True


class CauseView(Struct, frozen=True):
    """Dead jobs of one origin."""

    cause: str
    count: int
    type: str
    message: str
    task: str
    queue: str
    first_at_ms: int
    last_at_ms: int
    sample: bytes


class QueueView(Struct, frozen=True):
    """One queue in one look."""

    queue: str
    counts: dict[State, int]
    oldest_ready_at_ms: int | None
    gate: Gate | None  # pause, drain and concurrency of the queue


class FlowView(Struct, frozen=True):
    """One flow in one look."""

    id: bytes
    counts: dict[State, int]  # only states that jobs of it are in
    enqueued_at_ms: int  # of its first stored job, by id


class Counts(Struct, frozen=True):
    """Counters that always sum up: enqueued = the states that are stored + what has left the store."""

    now: dict[tuple[str, str, State], int]  # (queue, task, state) → jobs in that state now
    enqueued: int
    succeeded: int  # ever, pruned or not
    cancelled: int  # ever
    discarded: int
    lost: int  # leases lost, ever
    stale: int  # settlements refused, ever
    queues: tuple[QueueView, ...] = ()  # by name, when they were asked for
    whole: bool = True  # False: of some queues only, and what has left the store is not known

    def total(self, state: State) -> int:
        """Jobs in `state` now, over all queues and tasks."""
        return sum(n for (_, _, s), n in self.now.items() if s is state)


class Inspection(Struct, frozen=True):
    """All facts about one job: its recorded attempts, and where it stands while it waits."""

    view: JobView
    lane_state: Literal["idle", "active", "waiting"]
    gates: tuple[Gate, ...]  # every gate that rules its lane, with its level
    ahead: int  # jobs before it in its lane, counted up to a bound
    ahead_capped: bool
    parents: tuple[tuple[bytes, State], ...]  # those that are not satisfied
    able: int  # live sessions that could run it
    able_without_needs: int  # live sessions that know queue and task but lack a capability
    knows_task: int  # live sessions that know the task at all
    attempts: tuple[AttemptView, ...] = ()  # recorded ones, oldest first


class Control(Struct, frozen=True):
    """A named, versioned record: task declarations, weights, schedules, retention."""

    kind: str
    name: str
    value: bytes  # JSON
    version: int = 0


class Entry(Struct, frozen=True):
    """One line of the audit log or of the event log."""

    log: Literal["audit", "event"]
    at_ms: int
    kind: str
    actor: str = ""
    job: bytes | None = None
    reason: str = ""
    data: bytes = b"{}"
    seq: int = 0


class Retention(Struct, frozen=True):
    """How long finished things stay; None = for ever. `queues` has what is said of one queue, by state."""

    succeeded_ms: int | None = 86_400_000
    cancelled_ms: int | None = 7 * 86_400_000
    dead_ms: int | None = None
    audit_ms: int | None = 365 * 86_400_000
    event_ms: int | None = 86_400_000
    events: int = 100_000
    queues: dict[str, dict[State, int | None]] = {}

    def of(self, state: State) -> tuple[int | None, dict[str, int | None]]:
        """How long jobs that ended so stay, and what is said of single queues."""
        usual = {State.succeeded: self.succeeded_ms, State.cancelled: self.cancelled_ms, State.dead: self.dead_ms}
        return usual[state], {queue: said[state] for queue, said in self.queues.items() if state in said}


class Finding(Struct, frozen=True):
    """One thing that `doctor` (or a start-up check) says about the engine."""

    level: Literal["ok", "warning", "error"]
    code: str
    text: str
    fix: str = ""
