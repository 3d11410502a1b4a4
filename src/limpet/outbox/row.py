"""The form in which a job lies in an outbox: a version, then the job and the limits it names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from limpet.core.errors import LimpetError, SchemaOutdated
from limpet.core.gate import GateRule
from limpet.core.jobs.job import Job

MAGIC: Final = b"LP"  # what does not begin with it is no job of ours
VERSION: Final = 1  # the byte after it; it changes when an older relay would misread what follows


class Row(Struct, frozen=True):
    """One row as a relay reads it. `age_ms` is by the clock of the database that wrote it."""

    seq: int
    id: str
    queue: str
    task: str
    body: bytes
    age_ms: int


class Letter(Struct, frozen=True):
    """What is relayed for one row."""

    job: Job
    rules: tuple[GateRule, ...] = ()


class Unreadable(LimpetError):
    """The bytes of a row are no job."""

    code = "unreadable"


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Letter).decode


def pack(job: Job, rules: Sequence[GateRule]) -> bytes:
    """The bytes of a job and of the rules that rule it."""
    gates = {*job.lane.class_gates, *job.lane.lane_gates}
    letter = Letter(job, tuple(rule for rule in rules if rule.key in gates))
    return MAGIC + bytes([VERSION]) + _encode(letter)


def unpack(row: Row) -> Letter:
    """The job of a row, and its limits. Delay and expiry count from when it was written: what has passed is taken off.

    Raises Unreadable for what no release has written, SchemaOutdated for what only a newer one can read.
    """
    version = row.body[len(MAGIC) : len(MAGIC) + 1]
    if not row.body.startswith(MAGIC) or not version:
        raise Unreadable("the row does not hold a job")
    if version[0] > VERSION:
        raise SchemaOutdated(
            f"job {row.id} lies in the outbox in form {version[0]}, and this release reads {VERSION}",
            verb="outbox",
            fix="upgrade limpet where the relay runs; it continues from this row",
        )
    try:
        letter = _decode(row.body[len(MAGIC) + 1 :])
    except msgspec.MsgspecError as error:
        raise Unreadable(f"the row does not hold a job: {error}") from error
    return Letter(_aged(letter.job, max(0, row.age_ms)), letter.rules)


def _aged(job: Job, age_ms: int) -> Job:
    if not job.delay_ms and job.expires_ms is None:
        return job
    expires_ms = None if job.expires_ms is None else max(0, job.expires_ms - age_ms)
    return replace(job, delay_ms=max(0, job.delay_ms - age_ms), expires_ms=expires_ms)
