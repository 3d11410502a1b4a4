"""Makes jobs and worker sessions by hand, at the store's level."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from limpet.core.endings.transition import Bury, Failure, RetryAfter
from limpet.core.gate import GateRule
from limpet.core.jobs.ids import IdMaker
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.core.jobs.lease import Beat, Claimed, ClaimRequest, Serves
from limpet.stores.base import Store

MAKER = IdMaker()
ANY = Serves()


def job(task: str = "send", queue: str = "mail", args: dict[str, Any] | None = None, **more: Any) -> Job:
    """One job; what is not a field of Job goes to its lane."""
    lane_fields = {name: more.pop(name) for name in list(more) if name in Lane.__struct_fields__}
    policy = more.pop("policy", Policy())
    return Job(
        MAKER.make(time.time_ns() // 1_000_000),
        Lane(queue, task, **lane_fields),
        policy,
        msgspec.json.encode(args or {}),
        **more,
    )


async def put(store: Store, *jobs: Job, rules: tuple[GateRule, ...] = ()) -> list[bytes]:
    """Store jobs and answer their ids."""
    return [answer.id for answer in await store.enqueue(jobs, rules)]


async def claim(store: Store, session: str = "w1", serves: Serves = ANY, limit: int = 100) -> list[Claimed]:
    """Claim as a worker would."""
    await store.beat(Beat(session, 15_000, serves))
    seq = time.monotonic_ns()
    return list((await store.claim(ClaimRequest(session, serves, limit, limit, seq))).jobs)


async def kill(store: Store, *jobs: Job, error: str = "ValueError", message: str = "bad address") -> list[bytes]:
    """Store jobs and let them die of a permanent error."""
    ids = await put(store, *jobs)
    for claimed in await claim(store):
        if claimed.id in ids:
            failure = Failure("permanent", error, message, "Traceback: …", cause=f"cause-{error}")
            await store.settle("w1", time.monotonic_ns(), [Bury(claimed.id, claimed.token, failure)])
    return ids


async def fail_once(store: Store, claimed: Claimed, delay_ms: int = 60_000, session: str = "w1") -> None:
    """End an attempt with a transient error."""
    failure = Failure("transient", "TimeoutError", "no answer", cause="t")
    await store.settle(session, time.monotonic_ns(), [RetryAfter(claimed.id, claimed.token, failure, delay_ms)])
