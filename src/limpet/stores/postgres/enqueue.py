"""Turns new jobs into one batch of arrays, and the answer into what became of each."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Sequence
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, get_args

import msgspec

from limpet.core.errors import InvalidOption, WrongContext
from limpet.core.flows.flow import order
from limpet.core.gate import GateRule
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Enqueued, IfParentFails, Job, Lane, OnDuplicate, Policy, Unique
from limpet.core.jobs.state import STATES
from limpet.stores.callers import Caller, caller_of
from limpet.stores.packed import Extra, check_size, encode_extra, is_plain
from limpet.stores.postgres.gates import rules_json
from limpet.stores.postgres.names import NAMES
from limpet.stores.postgres.trouble import usage_error
from limpet.stores.postgres.wire import clean_json, in_schema

if TYPE_CHECKING:
    from limpet.stores.postgres.client import Client

# The fields of lp.batch, in its order, and their types.
FIELDS: Final = {
    **dict.fromkeys(("lanes", "classes", "members", "rings"), "bigint[]"),
    "priorities": "smallint[]",
    "bodies": "bytea[]",
    "places": "text[]",
    "policies": "bigint[]",
    "policy_bodies": "bytea[]",
    "ids": "bytea[]",
    "lane_of": "integer[]",
    "policy_of": "integer[]",
    "args": "bytea[]",
    "extras": "bytea[]",
    "costs": "integer[]",
    **dict.fromkeys(("delays", "dues", "expires"), "bigint[]"),
    "flows": "bytea[]",
    "unit_costs": "jsonb",
    "unique_keys": "bytea[]",
    "unique_states": "smallint[]",
    "unique_for": "bigint[]",
    "on_duplicate": "smallint[]",
    "children": "bytea[]",
    "parents": "bytea[]",
    "modes": "smallint[]",
    "positions": "integer[]",
    "rules": "jsonb",
    "guest": "boolean",
    "always": "boolean",
}
_BATCH: Final = f"ROW ({', '.join(f'%b::{type}' for type in FIELDS.values())})::lp.batch, %b::bigint"
ENQUEUE: Final = f"SELECT * FROM lp.enqueue_1({_BATCH})"
# Of a caller's connection: drivers may have been taught ways of their own to write JSON.
ENQUEUE_ON: Final = f"SELECT * FROM lp.enqueue_on_1({_BATCH})".replace("%b::jsonb", "%b::text::jsonb")
RELAY: Final = f"SELECT * FROM lp.relay_1(%b::text, %b::bigint, {_BATCH})"

MODES: Final = {mode: NAMES[f"IF_FAILED_{mode.upper()}"] for mode in get_args(IfParentFails)}
ON_DUPLICATE: Final = {way: NAMES[way.upper()] for way in get_args(OnDuplicate)}
MOST_COST: Final = 2**31 - 1
MOST_OF_A_UNIT: Final = 2**53
LAST_MS: Final = 1 << 52  # beyond it a time is "never"


T = TypeVar("T")


class NameOf(Protocol):
    """What the store's own schema is called among all, as far as it is known or asked again."""

    def __call__(self, *, again: bool = False) -> Awaitable[str]:
        """Its name."""


_encode = msgspec.json.Encoder().encode


async def enqueue(
    client: Client, jobs: Sequence[Job], rules: Sequence[GateRule], now_ms: int | None
) -> tuple[list[Enqueued], str]:
    """Store all jobs or none; and which store it is."""
    if not jobs:
        return [], ""
    batch = Batch(jobs, rules, guest=False)
    answer = await client.change(ENQUEUE, batch.values(now_ms), verb="enqueue", now_ms=now_ms)
    ids, existing, states, store, full = answer
    if full is not None:
        raise usage_error("LP006", full)
    return batch.answers(ids, existing, states), str(store)


async def relay(
    client: Client,
    mark: tuple[str, int],
    jobs: Sequence[Job],
    rules: Sequence[GateRule],
    *,
    always: bool,
    now_ms: int | None,
) -> list[Enqueued] | None:
    """Store all jobs and move the mark (source and batch), or neither; they keep the order in which they are given."""
    batch = Batch(jobs, rules, guest=False, always=always)
    values = (*mark, *batch.values(now_ms))
    moved, ids, existing, states = await client.change(RELAY, values, verb="relay", now_ms=now_ms)
    return batch.answers(ids, existing, states) if moved else None


class Batch:
    """The jobs of one call as lp.batch has them: definitions once, parents before their children."""

    def __init__(self, jobs: Sequence[Job], rules: Sequence[GateRule], *, guest: bool, always: bool = False) -> None:
        check_size(jobs)
        self.positions = _parents_first(jobs)
        self.jobs = [jobs[at] for at in self.positions]
        lanes: dict[Lane, int] = {}
        policies: dict[Policy, int] = {}
        for job in self.jobs:
            lanes.setdefault(job.lane, len(lanes) + 1)
            policies.setdefault(job.policy, len(policies) + 1)
        # A field that is left out is NULL: all jobs are as most are.
        self.columns: dict[str, Any] = {
            "lanes": [lane.id for lane in lanes],
            "classes": [lane.kind for lane in lanes],
            "members": [lane.member for lane in lanes],
            "rings": [lane.ring for lane in lanes],
            "priorities": [lane.priority for lane in lanes],
            "bodies": [lane_body(lane) for lane in lanes],
            "places": sorted({place for lane in lanes for place in lane.class_gates[:3]}),
            "policies": [policy.id for policy in policies],
            "policy_bodies": [_encode(policy) for policy in policies],
            "ids": [job.id for job in self.jobs],
            "lane_of": [lanes[job.lane] for job in self.jobs],
            "policy_of": [policies[job.policy] for job in self.jobs],
            "args": [job.args for job in self.jobs],
            "flows": _if_any([job.flow for job in self.jobs]),
            "unit_costs": self._unit_costs(),
            "positions": list(self.positions),
            "rules": rules_json(rules) if rules else None,
            "guest": guest,
            "always": always,
            **self._rest(),
            **self._uniques(),
            **self._parents(),
        }

    def values(self, now_ms: int | None) -> tuple[Any, ...]:
        """What the verbs take: the batch and the time."""
        return (*map(self.columns.get, FIELDS), now_ms)

    def _unit_costs(self) -> bytes | None:
        """What each job costs of other units than the plain one; None: no job costs any."""
        if not any(job.costs for job in self.jobs):
            return None
        return clean_json([self._costs(at, job) for at, job in zip(self.positions, self.jobs, strict=True)])

    def _costs(self, at: int, job: Job) -> dict[str, int] | None:
        for unit, amount in job.costs.items():
            if amount > MOST_OF_A_UNIT:
                raise InvalidOption(
                    f"item {at} costs {amount:,} of {unit!r}", fix=f"a cost is at most {MOST_OF_A_UNIT:,}"
                )
        return job.costs or None

    def _rest(self) -> dict[str, Any]:
        """Extras, costs and times; nothing where all jobs are as most are."""
        if all(map(_is_plain, self.jobs)):
            return {}
        return {
            "extras": [_extra(job) for job in self.jobs],
            "costs": [self._cost(at, job) for at, job in zip(self.positions, self.jobs, strict=True)],
            "delays": _if_any([min(job.delay_ms, LAST_MS) or None for job in self.jobs]),
            "dues": _if_any([None if job.due_at_ms is None else min(job.due_at_ms, LAST_MS) for job in self.jobs]),
            "expires": [None if job.expires_ms is None else min(job.expires_ms, LAST_MS) for job in self.jobs],
        }

    def _cost(self, at: int, job: Job) -> int:
        if job.cost > MOST_COST:
            raise InvalidOption(f"item {at} costs {job.cost:,}", fix=f"a cost is at most {MOST_COST:,}")
        return job.cost

    def _uniques(self) -> dict[str, Any]:
        """Keys, scoped by task; nothing where no job has one."""
        keys = [job.unique for job in self.jobs]
        if not any(keys):
            return {}
        return {
            "unique_keys": [
                key and f"{job.lane.task_scope}\x00{key.key}".encode() for job, key in zip(self.jobs, keys, strict=True)
            ],
            "unique_states": [key and _mask(key) for key in keys],
            "unique_for": [None if key is None or key.for_ms is None else min(key.for_ms, LAST_MS) for key in keys],
            "on_duplicate": [key and ON_DUPLICATE[key.on_duplicate] for key in keys],
        }

    def _parents(self) -> dict[str, Any]:
        """Which job waits for which, and what a failure of that one means; nothing where none waits."""
        pairs = [(job, parent) for job in self.jobs for parent in job.after]
        if not pairs:
            return {}
        return {
            "children": [job.id for job, _ in pairs],
            "parents": [parent for _, parent in pairs],
            "modes": [MODES[job.if_parent_fails] for job, _ in pairs],
        }

    def answers(
        self, ids: Sequence[bytes] | None, existing: Sequence[bool] | None, states: Sequence[int]
    ) -> list[Enqueued]:
        """What became of each job, in the caller's order."""
        if ids is None or existing is None:
            found = [Enqueued(job.id, False, STATES[state]) for job, state in zip(self.jobs, states, strict=True)]
        else:
            found = [Enqueued(id, old, STATES[state]) for id, old, state in zip(ids, existing, states, strict=True)]
        answers = list(found)
        for position, answer in zip(self.positions, found, strict=True):
            answers[position] = answer
        return answers


@lru_cache(maxsize=4096)
def lane_body(lane: Lane) -> bytes:
    """The stored form, as JSON."""
    body = _encode(lane)
    if b"\\u0000" in body:
        raise InvalidOption(f"{lane!r} names something with a NUL in it", fix="PostgreSQL stores no NUL in a name")
    return body


def _if_any(column: list[T | None]) -> list[T | None] | None:
    return None if all(value is None for value in column) else column


def _is_plain(job: Job) -> bool:
    """True for the many that ask for nothing but to run."""
    return not job.delay_ms and job.due_at_ms is None and job.expires_ms is None and is_plain(job)


def _extra(job: Job) -> bytes | None:
    """The packed rest of a job; None for the many that have none."""
    if is_plain(job):
        return None
    key, states = (None, 0) if job.unique is None else (job.unique.key, _mask(job.unique))
    return encode_extra(
        Extra(job.cost, job.tags, job.meta, job.flow, key, job.after, job.if_parent_fails, states, job.costs)
    )


def _mask(unique: Unique) -> int:
    """The states in which a key is held, one bit each."""
    return sum(1 << each.code for each in unique.states)


def _parents_first(jobs: Sequence[Job]) -> Sequence[int]:
    """Places in the caller's list, each after those of its parents that are in the same call; a cycle is refused."""
    at = {job.id: place for place, job in enumerate(jobs)}
    if not any(parent in at for job in jobs for parent in job.after):
        return range(len(jobs))
    names = {id_text(job.id): at[job.id] for job in jobs}  # a refusal names its path
    graph = {name: list(map(id_text, jobs[place].after)) for name, place in names.items()}
    first = [names[name] for name in order(graph)]
    return first + [place for place, job in enumerate(jobs) if at[job.id] != place]


async def enqueue_on(
    schema: str, name_of: NameOf, conn: object, jobs: Sequence[Job], rules: Sequence[GateRule], now_ms: int | None
) -> list[Enqueued]:
    """Store all jobs or none, inside the caller's own transaction; `name_of` tells the store's own database."""
    caller = caller_of(conn)
    await check_caller(caller, schema, name_of)
    if not jobs:
        return []
    batch = Batch(jobs, rules, guest=True)
    values = [value.decode() if isinstance(value, bytes) else value for value in batch.values(now_ms)]
    sql = in_schema(_dollars(ENQUEUE_ON), schema)
    ((ids, existing, states, refused, message, hint),) = await caller.run(sql, values)
    if refused is not None:
        raise usage_error(refused, message, hint)
    return batch.answers(ids, existing, states)


async def check_caller(caller: Caller, schema: str, name_of: NameOf) -> None:
    """Refuse a connection that cannot carry jobs of this store, before anything is asked of it that could fail."""
    caller.expect("postgresql")
    await caller.refuse_outside_transaction()
    ours, asked = await name_of(), "SELECT obj_description(to_regclass($1), 'pg_class')"
    ((found,),) = await caller.run(asked, (in_schema("lp.home", schema),))
    if found is None or (found != ours and found != await name_of(again=True)):
        raise WrongContext(
            f"the {caller.name} is to a database that does not hold this store ({schema})",
            fix="pass a connection to the store's own database",
        )


@lru_cache(maxsize=16)
def _dollars(sql: str) -> str:
    """The same statement with numbered placeholders."""
    numbers = count(1)
    return re.sub("%b", lambda _: f"${next(numbers)}", sql)
