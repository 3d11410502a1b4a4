"""Turns new jobs into arguments of one script, and its answer into what became of each."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from limpet.core.errors import InvalidOption, QueueDraining, QueueFull, UnknownParent
from limpet.core.flows.flow import order
from limpet.core.gate import GateRule
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Enqueued, Job, Lane, Policy
from limpet.core.jobs.state import STATES
from limpet.core.limits.depth import queue_draining, queue_full
from limpet.stores.packed import check_size
from limpet.stores.redis.definition_cache import class_value, lane_value
from limpet.stores.redis.fields import BODY, LAST_MS
from limpet.stores.redis.record import MOST_COST, at_most, id8, tail_of
from limpet.stores.redis.scripts import script

if TYPE_CHECKING:
    from limpet.stores.redis.client import Client

MODES: Final = {"cancel": 0, "run": 1, "wait": 2}
ON_DUPLICATE: Final = {"existing": 0, "replace": 1, "debounce": 2}
NEW, THERE = ord("0"), ord("@")

_pack = msgspec.msgpack.Encoder().encode
_json = msgspec.json.Encoder().encode
_length = struct.Struct(">I").pack


async def enqueue(
    client: Client, key: bytes, jobs: Sequence[Job], rules: Sequence[GateRule], now_ms: int | None
) -> tuple[list[Enqueued], str]:
    """Store all jobs or none; and the store's own name."""
    if not jobs:
        return [], ""
    check_size(jobs)
    positions = sorted(range(len(jobs)), key=lambda i: jobs[i].id)
    in_order = [jobs[i] for i in positions]
    args = ["" if now_ms is None else now_ms, *_arguments(in_order, rules, positions, always=False)]
    answer = await client.script("enqueue", script("enqueue"), key, args)
    return _answers(answer, in_order, positions), answer[3].decode()


async def relay(
    client: Client,
    key: bytes,
    mark: tuple[str, int],
    jobs: Sequence[Job],
    rules: Sequence[GateRule],
    *,
    always: bool,
    now_ms: int | None,
) -> list[Enqueued] | None:
    """Store all jobs and move the mark (source and batch), or neither; they keep the order in which they are given."""
    check_size(jobs)
    positions = range(len(jobs))
    args = ["" if now_ms is None else now_ms, *mark, *_arguments(jobs, rules, positions, always=always)]
    answer = await client.script("relay", script("enqueue_relay"), key, args)
    return None if answer is None else _answers(answer, jobs, positions)


def _answers(answer: list[Any], jobs: Sequence[Job], positions: Sequence[int]) -> list[Enqueued]:
    """What became of each job; `positions` are the places in the caller's list."""
    if answer[0] != b"ok":
        raise _refusal(answer, positions)
    states, others = answer[1], answer[2]
    targets = dict(zip(others[::2], others[1::2], strict=True))
    answers: list[Enqueued | None] = [None] * len(jobs)
    for at, (job, code) in enumerate(zip(jobs, states, strict=True)):
        if code < THERE:
            answers[positions[at]] = Enqueued(job.id, False, STATES[code - NEW])
        else:
            answers[positions[at]] = Enqueued(targets.get(at + 1, job.id), True, STATES[code - THERE])
    return [each for each in answers if each is not None]


def _refusal(answer: list[Any], positions: Sequence[int]) -> UnknownParent | QueueDraining | QueueFull:
    if answer[0] == b"full":
        return queue_full(**_full(answer[1]))
    why, at, what = answer
    index = positions[at - 1]
    if why == b"draining":
        return queue_draining(what.decode(), index if len(positions) > 1 else None)
    return UnknownParent(
        f"item {index} waits for job {id_text(what)}, which is not stored",
        fix="enqueue the parent first, or in the same call",
    )


def _most(job: Job) -> int:
    """The largest of its costs."""
    return max(job.cost, *job.costs.values()) if job.costs else job.cost


def _too_costly(jobs: Sequence[Job], positions: Sequence[int]) -> InvalidOption:
    index, cost = min((at, _most(job)) for at, job in zip(positions, jobs, strict=True) if _most(job) > MOST_COST)
    return InvalidOption(f"item {index} costs {cost:,}", fix=f"a cost is at most {MOST_COST:,}")


def _full(packed: bytes) -> dict[str, Any]:
    return {"tenant": None, **msgspec.msgpack.decode(packed)}


def _arguments(
    jobs: Sequence[Job], rules: Sequence[GateRule], positions: Sequence[int], *, always: bool
) -> list[bytes]:
    lanes: dict[Lane, int] = {}
    policies: dict[Policy, int] = {}
    runs: list[list[int]] = []
    rest: list[bytes] = []
    last: tuple[object, ...] = ()
    for job in jobs:
        if _most(job) > MOST_COST:
            raise _too_costly(jobs, positions)
        flags, tail = tail_of(job)
        lane, policy = job.lane, job.policy
        like = (lane, policy, flags, job.delay_ms, job.due_at_ms, job.expires_ms)
        if like == last:
            runs[-1][-1] += 1
        else:
            at = lanes.setdefault(lane, len(lanes) + 1), policies.setdefault(policy, len(policies) + 1)
            due_at = -1 if job.due_at_ms is None else min(max(job.due_at_ms, 0), LAST_MS)
            expires = -1 if job.expires_ms is None else at_most(job.expires_ms)
            runs.append([*at, flags, at_most(job.delay_ms), due_at, expires, 1])
            last = like
        rest += (job.id, tail, _meta(job, flags))
    head: dict[str, object] = {"lanes": len(lanes), "policies": len(policies), "rules": rules, "runs": runs}
    if always:
        head["always"] = True
    if any(job.after for job in jobs):
        head["order"] = _parents_first(jobs)
    if flows := _flows(jobs):
        head["flows"] = flows
    words = [_pack(head)]
    for lane in lanes:
        words += definition(lane)
    for policy in policies:
        words += policy_words(policy)
    return words + rest


def policy_words(policy: Policy) -> tuple[bytes, bytes, bytes]:
    """A policy's id, its stored form, and what scripts must know of it."""
    hard = "-" if policy.hard_timeout_ms is None else str(policy.hard_timeout_ms)
    return id8(policy.id), _json(policy), f"{policy.max_lost} {hard}".encode()


@lru_cache(maxsize=10_000)
def definition(lane: Lane) -> tuple[bytes, bytes, bytes]:
    """A lane's id, its stored form, and that of its class."""
    return id8(lane.id), lane_value(lane), class_value(lane)


def _meta(job: Job, flags: int) -> bytes:
    """What few jobs have, as enqueue_store.meta reads it; nothing for most."""
    unique = job.unique
    if unique is None and not job.after and not flags & BODY:
        return b""
    key, states, window, on_duplicate = None, 0, -1, 0
    if unique is not None:
        key = f"{job.lane.task_scope}\0{unique.key}"
        states = sum(1 << state.code for state in unique.states)
        window = -1 if unique.for_ms is None else at_most(unique.for_ms)
        on_duplicate = ON_DUPLICATE[unique.on_duplicate]
    packed = _pack((key, states, window, on_duplicate, MODES[job.if_parent_fails], len(job.after)))
    return b"".join((_length(len(packed)), packed, *job.after, job.args if flags & BODY else b""))


def _flows(jobs: Sequence[Job]) -> list[tuple[str, int, int]]:
    """The flows of jobs that follow each other: its id, the place of the first and of the last."""
    found: list[tuple[str, int, int]] = []
    for at, job in enumerate(jobs, 1):
        if job.flow is None:
            continue
        flow = job.flow.hex()
        if found and found[-1][0] == flow and found[-1][2] == at - 1:
            found[-1] = (flow, found[-1][1], at)
        else:
            found.append((flow, at, at))
    return found


def _parents_first(jobs: Sequence[Job]) -> list[int]:
    """The places of the jobs of a call, each after those of its parents that are in the same call; no cycles."""
    names = {id_text(job.id): at for at, job in enumerate(jobs, 1)}  # a refusal names its path
    return [names[name] for name in order({name: map(id_text, jobs[at - 1].after) for name, at in names.items()})]
