"""The protocol every engine keeps: what it promises is written as behaviours in `limpet_contract.behaviours`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, Protocol, runtime_checkable

from msgspec import Struct

from limpet.core.endings.transition import Settled, Transition
from limpet.core.gate import Gate, GateChange, GateRule, WorstFirst
from limpet.core.jobs.job import Enqueued, Job
from limpet.core.jobs.lease import Beat, Claim, ClaimRequest, Held, Note, Pulse, SessionView, Signal, Wake
from limpet.core.jobs.repair import Difference
from limpet.core.jobs.view import (
    CauseView,
    Control,
    Counts,
    Entry,
    Finding,
    FlowView,
    Inspection,
    JobView,
    Page,
    Query,
    Retention,
)
from limpet.core.limits.account import Account

MAX_BATCH_JOBS = 20_000
MAX_BATCH_BYTES = 16 * 1024 * 1024
MARK = "outbox"  # the kind of the controls that hold how far each outbox was relayed, and each schedule has ticked
READER: Final = ("reader", "events")  # the control that says until when, in ms, live events have a reader

NOTHING_SPENT: Final[Mapping[bytes, Mapping[str, int]]] = MappingProxyType({})

CancelAnswer = Literal["cancelled", "cancelling", "finished", "gone"]
RetryAnswer = Literal["retried", "unique_held", "not_dead", "gone"]
SignalAnswer = Literal["woken", "kept", "already", "full", "finished", "gone"]


class Features(Struct, frozen=True):
    """What an engine can do beyond the contract, or cannot do of it."""

    name: str
    shared: bool  # other processes can open the same store
    durable: bool  # an acknowledged job survives kill -9 of every process
    transactional: bool  # enqueue and settle inside the caller's own database transaction
    batch: int = 1_000  # jobs that a worker claims or settles in one call: others wait meanwhile
    settles_by_lease: bool = False  # many jobs of one lease cost it less than as many of two
    hands_off: bool = False  # a lone job goes to a sleeping worker in the step that stores it
    notes: tuple[str, ...] = ()  # what docs and doctor should say about it


class RetryRequest(Struct, frozen=True):
    """A person asks for dead jobs to run again (or for scheduled ones to run now). Keeps the id.

    What `args` and `forget` say is done to those that are retried, in the same step; no other job is touched.
    """

    ids: tuple[bytes, ...]
    delay_ms: int = 0
    args: bytes | None = None  # edited arguments, for every id named
    actor: str = ""
    reason: str = ""
    forget: tuple[str, ...] = ()  # recorded steps, by name, that shall run again; ("*",) = all of them


class Plan(Struct, frozen=True):
    """What an upgrade would do to a stored layout."""

    at: int  # the layout that is there; 0 = none
    needs: int  # the one that this release is written for
    steps: tuple[str, ...] = ()  # what would be done, in order; empty = nothing is to be done
    script: str = ""  # the same, to be run by hand


@runtime_checkable
class Migrates(Protocol):
    """An engine whose layout is upgraded when a person says so, and not by the first process that opens it."""

    async def plan(self) -> Plan:
        """What `migrate` would do now. Changes nothing."""

    async def migrate(self, progress: Callable[[str], None]) -> tuple[str, ...]:
        """Bring the layout up to date; what was done.

        Safe to call concurrently: one caller migrates, the others do nothing.
        """


@runtime_checkable
class Joins(Protocol):
    """An engine that takes part in the caller's own database transaction (Features.transactional)."""

    async def enqueue_on(
        self, conn: object, jobs: Sequence[Job], rules: Sequence[GateRule] = (), *, now_ms: int | None = None
    ) -> list[Enqueued]:
        """Like enqueue, inside the caller's own transaction: the jobs are there if and when it commits.

        Never begins, commits or retries; with a connection that is not awaited it never waits either, so that code
        without an event loop can call it. Raises WrongContext where the connection cannot.
        """

    async def settle_on(
        self, conn: object, id: bytes, token: int, result: bytes | None = None, *, now_ms: int | None = None
    ) -> bool:
        """Note inside the caller's own transaction that this running job has succeeded; False when the token is stale.

        If and when that transaction commits, whatever ends the job's lease next (any transition, a sweep, a session
        that leaves, a forced cancel) makes it succeeded with this result: a worker that dies right after the commit
        has done its work. The caller rolls back on False. The rest is as for `enqueue_on`.
        """


@runtime_checkable
class Examines(Protocol):
    """An engine that says how it is, and can put its books right by its records while workers go on."""

    async def check(self) -> list[Finding]:
        """Durability and health, as configured and as found."""

    async def accounts(self) -> list[Account]:
        """Gates by key, at most 10,000, each with what running jobs hold of it at that very instant.

        Reads what every running job was charged: for checks, not for frequent calls.
        """

    async def repair(self, *, dry_run: bool, now_ms: int | None = None) -> list[Difference]:
        """Where counters, slots and indexes differ from the records; without `dry_run` they are set by the records.

        Every step is atomic and short, and what is done in between by others is counted. Rates, budgets, pauses and
        whatever else is in no record stay as they are. A record that cannot be read goes to the dead letters, and what
        is left of a job without a record goes.
        """


Hear = Callable[[str | None], None]  # told a message; None: some may have been lost


@runtime_checkable
class Broadcasts(Protocol):
    """An engine that carries short messages to the processes that listen just then: at most once, and kept nowhere."""

    async def publish(self, message: str) -> None:
        """Send JSON of at most MOST_BYTES to all that listen, in a step that no other verb waits for. Asked once."""

    async def announce(self, until_ms: int) -> None:
        """Until then live events have a reader: processes tell what they change, this one from now on."""

    async def subscribe(self, hear: Hear) -> Callable[[], None]:
        """Have `hear` called in this loop with every message from here on; what is answered ends that.

        Messages of one publisher arrive in order. After trouble with the connection it listens again, and says so.
        Raises StoreError where nothing can be heard.
        """


class Store(Protocol):
    """Thirty verbs beside `open` and `close`, plural and typed. Each is one atomic step: all of it happened, or none.

    What only some engines can do are protocols of their own: Joins, Examines, Migrates, Broadcasts.

    `now_ms=None` means the engine's own clock. Trouble with the engine is a StoreError; expected
    answers (stale, duplicate, empty) are values. A store serves every event loop of its process.
    """

    features: Features
    identity: str  # which store it is, as the last enqueue was told for free; "" before, and of no use but to compare

    async def open(self) -> None:
        """Connect and, where the engine upgrades itself, migrate. Idempotent."""

    async def close(self) -> None:
        """Let go of connections and threads. Idempotent; other verbs reopen."""

    async def now(self) -> int:
        """The time by the engine's clock, in ms: it decides when jobs are due, whatever the clock here shows."""

    # -- producers

    async def enqueue(
        self, jobs: Sequence[Job], rules: Sequence[GateRule] = (), *, now_ms: int | None = None
    ) -> list[Enqueued]:
        """Store all jobs or none; duplicates by id or unique key answer the job that is there.

        `rules` declare the limits and breakers that the jobs name. Raises UnknownParent,
        QueueDraining or BatchTooLarge, naming the index. Jobs may name parents of the same call.

        QueueFull when a gate "queue:Q" has a depth, and more new jobs come than may wait there with those that do
        (blocked, scheduled and ready ones), of the queue or of their tenant in it. Only calls at the same time can
        exceed it together.

        Where the engine hands off, one plain job (no rules, delay, time to start, unique key, parents, flow or limits)
        of a lane that rests is claimed in the same step for a session that sleeps and takes it, and travels with its
        wake-up. Else it becomes ready as always: when a gate on its way stops, counts or drains, when anything is due,
        or when any class that the session serves has jobs that are ready.
        """

    async def relay(
        self,
        source: str,
        batch: int,
        jobs: Sequence[Job],
        rules: Sequence[GateRule] = (),
        *,
        always: bool = False,
        now_ms: int | None = None,
    ) -> list[Enqueued] | None:
        """Enqueue what an outbox holds and move its mark, in one atomic step: both happen, or neither.

        The mark of `source` is the largest batch that was relayed from it: a control of the kind MARK, named as
        the source, whose value is the number in decimal digits. A batch that is not larger changes nothing and
        answers None, for ever and whatever has become of its jobs or queues since: a relay that does not know whether
        a batch has arrived sends it again. Numbers are positive and below 2^53, and may have gaps. Each source
        has a mark of its own, which nothing prunes.

        Otherwise it is enqueue: all jobs or none, duplicates by id or unique key answer the job that is there
        (the mark moves all the same), and what enqueue refuses is raised and leaves the mark where it was.
        Jobs whose ids ascend keep their order. No jobs at all move the mark and answer []. With `always` no depth
        refuses them.
        """

    # -- workers

    async def beat(self, beat: Beat, *, now_ms: int | None = None) -> Pulse:
        """Open or keep a session; the answer names running jobs someone wants cancelled."""

    async def leave(self, session: str, *, now_ms: int | None = None) -> None:
        """Close a session; what it still holds is released unspent."""

    async def claim(self, request: ClaimRequest, *, now_ms: int | None = None) -> Claim:
        """Lease ready jobs to a live session: best priority first, fair between queues and tenants.

        Promotes due jobs, opens due gates, cancels expired jobs on the way. A session that is not
        live gets nothing and `again=False`. An empty answer marks the session idle in the same step,
        so that no wake-up is missed; from there on it may be handed as many jobs as it takes.
        """

    async def settle(
        self,
        session: str,
        seq: int,
        transitions: Sequence[Transition],
        *,
        spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT,
        now_ms: int | None = None,
    ) -> list[Settled]:
        """Apply each transition whose token still holds its job; answers in order.

        `spent` says what jobs actually cost, by id and unit ("" is the plain cost): rates and budgets that had
        reserved an estimate are corrected in the same step. What is not said is as it was reserved; but a job that is
        put off (Hold, Snooze, Suspend) or dropped gives back to budgets what it does not say.

        Answers name the gates that are shut now, of those at which a transition counted as a failure, or that it held.
        From the commit on no claim gives a job that passes such a gate, until that opens.

        The same (session, seq) again gets the same answers again and changes nothing.
        """

    async def save(self, id: bytes, token: int, note: Note, *, now_ms: int | None = None) -> bool:
        """Write a note of a running job (checkpoint, step, progress, log); False when the token is stale."""

    async def held(self, session: str) -> list[Held]:
        """What a session holds now: for a supervisor whose child died."""

    async def expire(self, limit: int = 256, *, now_ms: int | None = None) -> int:
        """Take jobs back from sessions that went silent or leases past their hard deadline; how many.

        After a gap of more than 5 s between calls nothing expires for one lease time (D6), so live
        workers can beat first. Also cancels waiting jobs whose time to start has passed.
        """

    async def wait(self, session: str, timeout_ms: int) -> Wake:
        """Sleep until something for this session happens, or the time is over. Answers the jobs it was handed."""

    # -- people and handles

    async def cancel(
        self, ids: Sequence[bytes], reason: str, *, force: bool = False, now_ms: int | None = None
    ) -> list[CancelAnswer]:
        """Cancel waiting jobs and, in the same step, their dependents; running ones are asked to stop.

        `force` revokes a running job's lease, so its late success is stale.
        """

    async def retry(self, request: RetryRequest, *, now_ms: int | None = None) -> list[RetryAnswer]:
        """Bring dead jobs back with fresh attempts, and revive dependents that their death cancelled.

        Scheduled ones run now, or after the delay. What a job has noted stays, but for the steps it shall forget.
        """

    async def signal(self, signals: Sequence[Signal], *, now_ms: int | None = None) -> list[SignalAnswer]:
        """Keep an event for a job that has not finished, and wake the job when it waits for it; answers in order.

        The event is kept as Note("event", event, value); one that is there stands ("already"). A job is woken that is
        scheduled, has the note ("waiting", event) and is due when that says: it becomes ready, due now, and all its
        notes of that kind go. Any other live job finds the event when it comes to wait for it ("kept").
        A job that keeps MAX_EVENTS, or would keep more than MAX_EVENTS_BYTES, takes no more ("full").
        """

    async def discard(self, ids: Sequence[bytes], *, now_ms: int | None = None) -> int:
        """Remove dead jobs for good; how many there were."""

    async def watch(self, id: bytes, timeout_ms: int | None) -> JobView | None:
        """Wait until the job is finished and answer it; None when it is gone. Raises ResultTimeout."""

    async def get(self, ids: Sequence[bytes]) -> list[JobView | None]:
        """The jobs with these ids, in order."""

    async def find(self, query: Query, *, now_ms: int | None = None) -> Page:
        """A page of jobs by one index plus a filter over a bounded number of candidates.

        A flow, and a unique key without wildcards, are indexes of their own: such a search looks at nothing but the
        jobs of that flow, or those that were enqueued with that key, by id.
        """

    async def flows(
        self, ids: Sequence[bytes] | None = None, limit: int = 50, before: bytes | None = None
    ) -> list[FlowView]:
        """Those of the flows `ids` that have a stored job, in order; or the newest, all with an id below `before`."""

    async def causes(self, queue: str | None = None, limit: int = 50) -> list[CauseView]:
        """Dead jobs grouped by what killed them, most frequent first."""

    async def count(self, *, queues: bool = False) -> Counts:
        """Counters, not scans. With `queues` also every queue that holds or held jobs, or has a pause or limit."""

    async def inspect(self, id: bytes, *, now_ms: int | None = None) -> Inspection | None:
        """A job with every recorded attempt, and the facts from which `explain` says why it is not running."""

    async def change_gates(self, changes: Sequence[GateChange], *, now_ms: int | None = None) -> list[Gate]:
        """Pause, resume, drain, hold, limit, trip or reset; wakes lanes that can run now."""

    async def gates(
        self, prefix: str = "", *, keys: Sequence[str] | None = None, worst_first: WorstFirst | None = None
    ) -> list[Gate]:
        """Gates whose key begins with `prefix`, by key, at most 10,000; or those of `keys` that there are, by key.

        With `worst_first` a page of breakers, and of other gates that are open as one, whose key begins with `prefix`:
        what is open comes first. It costs what is on the page, however many there are.
        """

    async def put_control(self, control: Control, *, expect: int | None = None) -> Control | None:
        """Write a named record; with `expect`, only over that version (0 = not there), else None.

        Kind "weight" (names "queue:Q" and "tenant:T", value an integer) is heeded by the next claim.
        """

    async def controls(self, kind: str) -> list[Control]:
        """All records of a kind, by name."""

    async def sessions(self) -> list[SessionView]:
        """Live workers and agents."""

    # -- housekeeping

    async def append(self, entries: Sequence[Entry]) -> None:
        """Add lines to the audit or event log."""

    async def read(
        self, log: Literal["audit", "event"], after: int = 0, limit: int = 100, *, newest: bool = False
    ) -> list[Entry]:
        """The first lines of a log with a seq larger than `after`, or the newest of them; oldest first either way."""

    async def prune(self, retention: Retention, limit: int = 1_000, *, now_ms: int | None = None) -> int:
        """Remove what has outlived its retention, in small steps; how many rows went. Zero = all done."""
