"""The records of a job: what was asked (Job), how it may fail (Policy), and where it queues (Lane)."""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from typing import Final, Literal

import msgspec
from msgspec import Struct

from limpet.core.jobs.state import LIVE, State

PRIORITIES: Final = {"critical": 0, "high": 3, "normal": 5, "low": 8}
_WORDS: Final = {priority: word for word, priority in PRIORITIES.items()}
LEAST_URGENT: Final = 9
URGENT: Final = 3  # critical and high: what a worker's reserve and bypass are for

OnDuplicate = Literal["existing", "replace", "debounce"]
IfParentFails = Literal["cancel", "run", "wait"]
Jitter = Literal["full", "equal", "decorrelated", "none"]


def priority_name(priority: int) -> str | None:
    """The word for a priority; None for the numbers between the words."""
    return _WORDS.get(priority)


def priority_text(priority: int) -> str:
    """A priority as people read it.

    >>> priority_text(3), priority_text(4)
    ('high (3)', '4')
    """
    word = _WORDS.get(priority)
    return str(priority) if word is None else f"{word} ({priority})"


def stable_hash(value: object) -> int:
    """A signed 64-bit hash that is the same in every process and release (Python's own is salted)."""
    return int.from_bytes(blake2b(msgspec.json.encode(value), digest_size=8).digest(), "big", signed=True)


class Lane(Struct, frozen=True, dict=True):
    """The finest class of jobs that become eligible together; each lane is one FIFO.

    `limits` are keys that every job of the task shares, so they stop the whole class;
    `keys` come from templates such as "customer:{customer}", so they stop this lane alone. So does a breaker by key,
    `breaker_key`: `breaker` is then the task's own, whose numbers it has.
    `scope` is the one name that stands for all names of a renamed task: its gate and its unique keys go by it.
    """

    queue: str
    task: str
    priority: int = PRIORITIES["normal"]
    tenant: str | None = None
    needs: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    breaker: str | None = None
    scope: str | None = None  # None: the task has no other name
    breaker_key: str | None = None

    @cached_property
    def task_scope(self) -> str:
        """The name by which the gate of the task and its unique keys go."""
        return self.task if self.scope is None else self.scope

    @cached_property
    def id(self) -> int:
        """Identifies the lane on every engine: a hash of its definition."""
        return stable_hash(("lane", self))

    @cached_property
    def kind(self) -> int:
        """Identifies the lane's class: what a worker can or cannot serve, and what stops it as a whole."""
        limited = (self.limits, self.breaker, self.keyed)
        return stable_hash(("class", self.queue, self.task, self.scope, self.needs, *limited))

    @cached_property
    def member(self) -> int:
        """Identifies who takes turns: a tenant, all jobs of a queue without one, or a keyed lane of its own."""
        who: object = "no tenant"
        if self.tenant is not None:
            who = ("tenant", self.tenant)
        elif self.keyed:
            who = ("lane", self.id)
        return stable_hash(("member", self.queue, self.priority, who))

    @cached_property
    def ring(self) -> int:
        """Identifies the ring of members that this lane's member takes turns in: its queue at its priority."""
        return stable_hash(("ring", self.queue, self.priority))

    @cached_property
    def class_gates(self) -> tuple[str, ...]:
        """The gates that stop every lane of this class at once."""
        gates = ["all", f"queue:{self.queue}", f"task:{self.task_scope}", *(f"limit:{key}" for key in self.limits)]
        if self.breaker is not None:
            gates.append(f"breaker:{self.breaker}")
        return tuple(gates)

    @cached_property
    def lane_gates(self) -> tuple[str, ...]:
        """The gates that stop only this lane; a breaker comes last."""
        limits = tuple(f"limit:{key}" for key in self.keys)
        return limits if self.breaker_key is None else (*limits, f"breaker:{self.breaker_key}")

    @cached_property
    def lasting_gates(self) -> tuple[str, ...]:
        """The limits and breakers of this lane that are known while it is stored: all but a breaker by key."""
        return (*self.class_gates[3:], *(f"limit:{key}" for key in self.keys))

    @property
    def keyed(self) -> bool:
        """True when a gate stops this lane alone."""
        return bool(self.keys) or self.breaker_key is not None

    @cached_property
    def limited(self) -> bool:
        """True when a limit or a breaker rules this lane: its jobs are claimed only for a free slot."""
        return bool(self.limits or self.keys or self.breaker)


class Policy(Struct, frozen=True, dict=True):
    """What `decide` needs to know when an attempt ends; carried by the job, so a janitor can decide too."""

    attempts: int = 5  # runs in all; 1 = no retry
    base_ms: int = 1_000
    factor: float = 4.0
    cap_ms: int = 300_000
    jitter: Jitter = "full"
    delays_ms: tuple[int, ...] | None = None  # an explicit list wins over base, factor and cap
    timeout_ms: int | None = 1_800_000  # soft: TimeoutError inside the handler
    hard_timeout_ms: int | None = 1_810_000  # hard: killed, or abandoned and fenced
    max_lost: int = 10  # uncertain losses before the job counts as poison; 1 = at most once
    max_held: int = 100  # snoozes and 429s before a person should look
    max_held_ms: int = 86_400_000
    max_result_bytes: int = 262_144

    @cached_property
    def id(self) -> int:
        """Identifies the policy: many jobs share one stored copy."""
        return stable_hash(("policy", self))


class Unique(Struct, frozen=True):
    """An idempotency key: held while its job is in `states`, and for `for_ms` from enqueue unless it failed."""

    key: str  # scoped by namespace and task
    for_ms: int | None = None
    states: frozenset[State] = LIVE
    on_duplicate: OnDuplicate = "existing"


class Job(Struct, frozen=True):
    """One request, as the client hands it to a store. Durations are relative to the engine's clock."""

    id: bytes
    lane: Lane
    policy: Policy
    args: bytes  # one JSON object by parameter name
    delay_ms: int = 0
    due_at_ms: int | None = None  # an absolute instant wins over the delay
    expires_ms: int | None = None  # cancelled when not started within this time
    unique: Unique | None = None
    after: tuple[bytes, ...] = ()
    if_parent_fails: IfParentFails = "cancel"
    cost: int = 1
    tags: tuple[str, ...] = ()
    meta: bytes = b""  # one JSON object for integrations (trace context and the like); b"" = none
    flow: bytes | None = None
    costs: dict[str, int] = {}  # what it costs of other units than the plain one; one that is left out costs nothing

    def cost_in(self, unit: str) -> int:
        """What it costs at a gate that counts this unit."""
        return self.costs.get(unit, 0) if unit else self.cost


class Enqueued(Struct, frozen=True):
    """What a store answers for one job of an enqueue."""

    id: bytes
    existing: bool  # True: `id` names the job that was there before
    state: State
