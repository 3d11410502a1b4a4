"""Makes jobs that wait, at the store's level: as a handler that sleeps, waits or asks leaves them."""

from __future__ import annotations

import time
from typing import Any

from limpet.core.endings.transition import Suspend
from limpet.core.flows.steps import Record, StepKind
from limpet.core.jobs.job import Job
from limpet.stores.base import Store
from tests.ops.making import claim, job, put


async def suspend(
    store: Store,
    kind: StepKind,
    name: str,
    *,
    event: str,
    delay_ms: int | None = None,
    question: str = "",
    one: Job | None = None,
    **options: Any,
) -> bytes:
    """A job that has come to wait for `event`."""
    (id,) = await put(store, one or job(**options))
    claimed = next(each for each in await claim(store) if each.id == id)
    until_ms = None if delay_ms is None else claimed.claimed_at_ms + delay_ms
    record = Record(kind, 1, event=event, until_ms=until_ms, question=question)
    assert await store.save(id, claimed.token, record.note(name))
    await store.settle("w1", time.monotonic_ns(), [Suspend(id, claimed.token, delay_ms, (event,))])
    return id


async def asks(store: Store, question: str = "Pay 90 USD?", name: str = "approval", **options: Any) -> bytes:
    """A job that waits for a person."""
    return await suspend(store, "approval", name, event=f"approval:{name}", question=question, **options)
