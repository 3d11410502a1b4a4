"""Turns a claim into arguments of its script, and the rows it answers into jobs under a lease."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from limpet.core.endings.effect import UNDECODABLE
from limpet.core.endings.transition import Bury
from limpet.core.flows.refs import MAX_INPUT_BYTES
from limpet.core.jobs.lease import Claim, Claimed, ClaimRequest, Serves
from limpet.stores.redis.definition_cache import DefinitionCache
from limpet.stores.redis.keys import K
from limpet.stores.redis.record import NAMED, Beside, claimed_of, inputs_of, named_in, notes_of, parents_of
from limpet.stores.redis.scripts import script
from limpet.stores.redis.sessions import packed_serves, signature_bytes

if TYPE_CHECKING:
    from limpet.stores.redis.client import Client

INPUTS_AT_ONCE: Final = 256
_WIDTH: Final = 4  # of a row: record, id, token, and what few jobs have beside it


_packed = msgspec.msgpack.Encoder().encode


@lru_cache(maxsize=256)
def _ability(serves: Serves) -> tuple[bytes, bytes]:
    return signature_bytes(serves), packed_serves(serves)


async def claim(
    client: Client, key: bytes, definitions: DefinitionCache, request: ClaimRequest, mailbox: str, now_ms: int | None
) -> tuple[Claim, list[Bury]]:
    """What the session holds from now on, and the unreadable jobs of it, which must be buried."""
    args = (
        "" if now_ms is None else now_ms,
        request.session,
        *_ability(request.serves),
        request.limit,
        request.slots,
        request.seq,
        request.claimer,
        mailbox,
        _packed(request.options),
        request.takes.ordinary,
        request.takes.urgent,
    )
    answer: list[Any] = await client.script("claim", script("claim"), key, args)
    now, instant, again, rows = answer
    claim = Claim((), int(now), int(instant) if instant else None, bool(again))
    if not rows:
        return claim, []
    lanes, policies = await definitions.fetch_missing(client, *named_in(rows[::_WIDTH]), verb="claim")
    jobs: list[Claimed] = []
    spoilt: list[Bury] = []
    for at in range(0, len(rows), _WIDTH):
        raw, id, token, more = rows[at : at + _WIDTH]
        if more and isinstance(more[2], int):
            more[2] = await _many_inputs(client, K.parents.under(key, id))
        job = (
            claimed_of(id, raw, int(token), claim.now_ms, lanes, policies, *_beside(more))
            if more
            else claimed_of(id, raw, int(token), claim.now_ms, lanes, policies)
        )
        if job is None:
            spoilt.append(Bury(id, int(token), UNDECODABLE))
        else:
            jobs.append(job)
    return Claim(tuple(jobs), claim.now_ms, claim.next_at_ms, claim.again), spoilt


async def _many_inputs(client: Client, hash: bytes) -> list[bytes]:
    """What very many parents left for a job, a part at a time: in one piece it would block all other calls."""
    flat: list[bytes] = []
    cursor, size = b"0", 0
    while True:
        cursor, some = await client.call("claim", "HSCAN", hash, cursor, "COUNT", INPUTS_AT_ONCE)
        flat += some
        size += sum(map(len, some[1::2]))
        if size > 2 * MAX_INPUT_BYTES:  # too much by far: the rest is not worth reading
            return [NAMED, await client.call("claim", "HGET", hash, NAMED)]
        if cursor == b"0":
            return flat


def _beside(more: list[Any]) -> tuple[Beside, bool, int]:
    probe, args, inputs, notes, together = more
    after = next((value for field, value in zip(inputs[::2], inputs[1::2], strict=True) if field == NAMED), b"")
    given = inputs_of(inputs)
    if sum(len(one.result) for one in given.values() if one.result is not None) > MAX_INPUT_BYTES:
        given = {}
    return Beside(args or None, given, notes_of(notes), parents_of(after)), bool(probe), together
