"""Reads the jobs that came with wake-ups: a script has claimed them for a session that slept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from limpet.core.jobs.lease import Handed
from limpet.stores.redis.definition_cache import DefinitionCache
from limpet.stores.redis.fields import SENT
from limpet.stores.redis.record import claimed_of, named_in

if TYPE_CHECKING:
    from limpet.stores.redis.client import Client


class Sent(msgspec.Struct, frozen=True):
    """A job as a script sends it."""

    session: str
    number: int
    token: int
    claimed_at_ms: int
    awake: bool
    id: bytes
    record: bytes


def sent_of(message: bytes) -> Sent:
    """The job of a message."""
    name = SENT.size + _number(message, "length")
    return Sent(
        message[SENT.size : name].decode(),
        _number(message, "number"),
        _number(message, "token"),
        _number(message, "claimed"),
        bool(_number(message, "awake")),
        message[SENT.slice("id")],
        message[name:],
    )


async def read(client: Client, definitions: DefinitionCache, sent: Sequence[Sent]) -> tuple[Handed, ...]:
    """The jobs; one that cannot be read is left out, and found by the next beat."""
    lanes, policies = await definitions.fetch_missing(client, *named_in(each.record for each in sent), verb="wait")
    jobs = []
    for each in sent:
        job = claimed_of(each.id, each.record, each.token, each.claimed_at_ms, lanes, policies)
        if job is not None:
            jobs.append(Handed(each.session, each.number, job, each.awake))
    return tuple(jobs)


def _number(message: bytes, field: str) -> int:
    return int.from_bytes(message[SENT.slice(field)], "big")
