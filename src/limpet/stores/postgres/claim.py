"""Turns a claim into arguments of its function, and the arrays it answers into jobs under a lease."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

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
  %b::text, %b::text, %b::bigint, %b::integer, %b::integer, %b::smallint,
  %b::text[], %b::text[], %b::text[], %b::bigint, %b::integer, %b::smallint
) AS c"""
POSTED: Final = "SELECT lp.posted_since_1()"

MOST: Final = 1 << 30
NO_INPUTS: Final[dict[bytes, Input]] = {}


async def claim(
    client: Client, definitions: DefinitionCache, request: ClaimRequest, now_ms: int | None
) -> tuple[Claim, list[Bury]]:
    """What the session holds from now on, and what must be buried of it since nobody can read it."""
    serves = request.serves
    values = (
        request.session,
        request.claimer,
        request.seq,
        min(request.limit, MOST),
        min(request.slots, MOST),
        request.least_urgent,
        None if serves.queues is None else list(serves.queues),
        None if serves.tasks is None else list(serves.tasks),
        list(serves.capabilities),
        now_ms,
        min(request.aged, MOST),
        request.most_urgent,
    )
    now, next_at, again, asleep, *columns = await client.change(CLAIM, values, verb="claim", now_ms=now_ms)
    if asleep:
        # It lies down in its commit, and whoever posts looks for sleepers after theirs: one of the two sees the other.
        (again,) = await client.row(POSTED, verb="claim")
    if not columns[0]:
        return Claim((), now, next_at, again), []
    lanes, policies = await definitions.fetch_missing(client, columns[4], columns[5], verb="claim")
    jobs, spoilt = _handed(columns, lanes, policies)
    return Claim(jobs, now, next_at, again), spoilt


def _handed(
    columns: Sequence[Any], lanes: Mapping[int, Lane], policies: Mapping[int, Policy]
) -> tuple[tuple[Claimed, ...], list[Bury]]:
    inputs, notes = _inputs(columns[16:20]), _notes(columns[20:24])
    jobs: list[Claimed] = []
    spoilt: list[Bury] = []
    for row in zip(*columns[:16], strict=True):
        id, token, attempt, lost, lane, policy, args, packed, enqueued, due, claimed, held, since, *rest = row
        cost, probe, together = rest
        extra = extra_or_none(packed)
        if extra is None or lane not in lanes or policy not in policies:
            spoilt.append(Bury(id, token, UNDECODABLE))
            continue
        jobs.append(
            Claimed(
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


def _inputs(columns: Sequence[Any]) -> dict[bytes, dict[bytes, Input]]:
    """What parents left, by child and parent."""
    found: defaultdict[bytes, dict[bytes, Input]] = defaultdict(dict)
    if columns[0]:
        for child, parent, result, failed in zip(*columns, strict=True):
            found[child][parent] = Input(result, failed)
    return found


def _notes(columns: Sequence[Any]) -> dict[bytes, list[Note]]:
    """What earlier attempts wrote down, by job."""
    found: defaultdict[bytes, list[Note]] = defaultdict(list)
    if columns[0]:
        for job, kind, name, body in zip(*columns, strict=True):
            found[job].append(Note(kind, name, body))
    return found
