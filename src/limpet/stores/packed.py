"""How every engine takes jobs: how many at once, and with the part packed that few have: tags, keys, parents, cost."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from limpet.core.errors import BatchTooLarge
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.job import Job
from limpet.core.text.wildcard import whole_fits
from limpet.stores.base import MAX_BATCH_BYTES, MAX_BATCH_JOBS


def check_size(jobs: Sequence[Job]) -> None:
    """Refuse a batch that no engine takes in one step."""
    if len(jobs) > MAX_BATCH_JOBS:
        raise BatchTooLarge(
            f"{len(jobs):,} jobs in one batch; the limit is {MAX_BATCH_JOBS:,}", fix="pass atomic=False to chunk it"
        )
    size = sum(len(job.args) + len(job.meta) for job in jobs)
    if size > MAX_BATCH_BYTES:
        raise BatchTooLarge(
            f"{size:,} bytes of arguments in one batch; the limit is {MAX_BATCH_BYTES:,}",
            fix="pass atomic=False to chunk it",
        )


class Extra(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Stored beside the arguments only when there is something."""

    cost: int = 1
    tags: tuple[str, ...] = ()
    meta: bytes = b""
    flow: bytes | None = None
    unique: str | None = None
    after: tuple[bytes, ...] = ()
    if_parent_fails: str = "cancel"
    unique_states: int = 0  # the states in which the key is held, one bit each
    costs: dict[str, int] = {}

    def cost_in(self, unit: str) -> int:
        """What the job costs at a gate that counts this unit."""
        return self.costs.get(unit, 0) if unit else self.cost


PLAIN = Extra()


def is_plain(job: Job) -> bool:
    """Whether a job has nothing to be packed, as most have not."""
    return (
        job.cost == 1
        and not job.tags
        and not job.meta
        and job.flow is None
        and job.unique is None
        and not job.after
        and not job.costs
    )


UNREADABLE = Extra(tags=("undecodable",))  # how a spoilt record shows itself

encode_extra = msgspec.msgpack.Encoder().encode
decode_extra = msgspec.msgpack.Decoder(Extra).decode


def extra_or_none(packed: bytes | None) -> Extra | None:
    """The packed part; None when its bytes make no sense."""
    if packed is None:
        return PLAIN
    try:
        return decode_extra(packed)
    except msgspec.DecodeError:
        return None


def extra_matches(packed: bytes, field: str, value: str) -> bool:
    """Whether a job has this tag, unique key or flow. Texts may hold * wildcards."""
    extra = extra_or_none(packed)
    if extra is None:
        return False
    if field == "flow":
        return extra.flow == id_bytes(value)
    texts = extra.tags if field == "tag" else () if extra.unique is None else (extra.unique,)
    return any(map(whole_fits(value), texts))
