"""Turns a claim into arguments of its function, and the arrays it answers into jobs under a lease."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from limpet.core.endings.effect import UNDECODABLE
from limpet.core.endings.transition import Bury
from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.lease import Claim, Claimed, ClaimRequest, Input, Note
from limpet.stores.packed import extra_or_none
from limpet.stores.postgres.definition_cache import DefinitionCache

if TYPE_CHECKING:
    from limpet.stores.postgres.client import Client

CLAIM: Final = """SELECT c.now_ms, c.next_at, c.again, c.asleep, (c.jobs).*, c.w_lanes, c.w_ns, c.w_dues, c.w_gates
FROM lp.claim_1(
  %b::text, %b::text, %b::bigint, %b::integer, %b::integer,
  %b::text[], %b::text[], %b::text[], %b::jsonb, %b::bigint
) AS c"""
POSTED: Final = "SELECT lp.posted_since_1()"

MOST: Final = 1 << 30
NO_INPUTS: Final[dict[bytes, Input]] = {}


class Handed(NamedTuple):
    """The arrays of lp.handed, in its order: by job, by what parents left, by note."""

    ids: list[bytes] | None
    tokens: list[int]
    attempts: list[int]
    losts: list[int]
    lanes: list[int]
    policies: list[int]
    args: list[bytes]
    extras: list[bytes | None]
    enqueued: list[int]
    dues: list[int]
    claimed: list[int]
    helds: list[int]
    held_sinces: list[int | None]
    costs: list[int]
    probes: list[bool]
    togethers: list[int]
    input_jobs: list[bytes] | None
    input_parents: list[bytes]
    input_results: list[bytes | None]
    input_failed: list[str | None]
    note_jobs: list[bytes] | None
    note_kinds: list[str]
    note_names: list[str]
    note_bodies: list[bytes]


BY_JOB: Final = Handed._fields.index("input_jobs")  # arrays that have one element for each job


async def claim(
    client: Client, definitions: DefinitionCache, request: ClaimRequest, now_ms: int | None
) -> tuple[Claim, list[Bury]]:
    """What the session holds from now on, and the unreadable jobs of it, which must be buried."""
    serves = request.serves
    values = (
        request.session,
        request.claimer,
        request.seq,
        min(request.limit, MOST),
        min(request.slots, MOST),
        None if serves.queues is None else list(serves.queues),
        None if serves.tasks is None else list(serves.tasks),
        list(serves.capabilities),
        request.options,
        now_ms,
    )
    now, next_at, again, asleep, *arrays = await client.change(CLAIM, values, verb="claim", now_ms=now_ms)
    handed = Handed._make(arrays)
    if asleep:
        # It is marked asleep in its commit, and a poster looks for sleepers after its own: one of them sees the other.
        (again,) = await client.row(POSTED, verb="claim")
    if not handed.ids:
        return Claim((), now, next_at, again), []
    lanes, policies = await definitions.fetch_missing(client, handed.lanes, handed.policies, verb="claim")
    jobs, spoilt = _jobs(handed, lanes, policies)
    return Claim(jobs, now, next_at, again), spoilt


def _jobs(
    handed: Handed, lanes: Mapping[int, Lane], policies: Mapping[int, Policy]
) -> tuple[tuple[Claimed, ...], list[Bury]]:
    inputs, notes = _inputs(handed), _notes(handed)
    jobs: list[Claimed] = []
    spoilt: list[Bury] = []
    for row in zip(*handed[:BY_JOB], strict=True):
        id, token, attempt, lost, lane, policy, args, packed, enqueued, due, claimed, held, since, *rest = row
        cost, probe, together = rest
        extra = extra_or_none(packed)
        if extra is None or lane not in lanes or policy not in policies:
            spoilt.append(Bury(id, token, UNDECODABLE))
            continue
        jobs.append(
            Claimed(  # by position: keywords would double what this loop costs
                id,
                token,
                attempt,
                lost,
                lanes[lane],
                policies[policy],
                args,
                enqueued,
                due,
                claimed,
                held,
                since,
                cost,
                extra.tags,
                extra.meta,
                extra.flow,
                probe,
                inputs.get(id, NO_INPUTS),
                tuple(notes.get(id, ())),
                extra.after,
                extra.costs,
                together,
            )
        )
    return tuple(jobs), spoilt


def _inputs(handed: Handed) -> dict[bytes, dict[bytes, Input]]:
    """What parents left, by child and parent."""
    found: defaultdict[bytes, dict[bytes, Input]] = defaultdict(dict)
    if handed.input_jobs:
        columns = (handed.input_jobs, handed.input_parents, handed.input_results, handed.input_failed)
        for child, parent, result, failed in zip(*columns, strict=True):
            found[child][parent] = Input(result, failed)
    return found


def _notes(handed: Handed) -> dict[bytes, list[Note]]:
    """What earlier attempts wrote down, by job."""
    found: defaultdict[bytes, list[Note]] = defaultdict(list)
    if handed.note_jobs:
        columns = (handed.note_jobs, handed.note_kinds, handed.note_names, handed.note_bodies)
        for job, kind, name, body in zip(*columns, strict=True):
            found[job].append(Note(kind, name, body))
    return found
