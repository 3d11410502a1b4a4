"""Runs the jobs that tell alerts, in a process that knows the addresses of webhooks: claims, posts, ends them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from limpet.core.alerts.delivery import QUEUE, TASK, Delivery, call_of, capability
from limpet.core.alerts.webhook import Webhook
from limpet.core.errors import LimpetError
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.lease import Serves
from limpet.core.jobs.state import State
from limpet.core.records.claim import ClaimRecord
from limpet.ops.agent_endings import FailKind
from limpet.ops.agents import Agents
from limpet.ops.webhook_call import Answer, tell
from limpet.stores.base import Store

AGENT: Final = "limpet-alerts"  # in whose name they are claimed
SPARE_MS: Final = 15_000  # that a lease lasts longer than the slowest request
AT_ONCE: Final = 8
HAND_BACK_S: Final = 1.0
MAY_RUN: Final = (State.ready, State.scheduled)


class Courier:
    """Tells what waits for the webhooks whose addresses this process has."""

    def __init__(self, store: Store, receivers: Mapping[str, Webhook], namespace: str) -> None:
        self._store = store
        self._receivers = receivers
        self._namespace = namespace
        self._agents = Agents(store, sweep=False)
        capabilities = tuple(sorted(map(capability, receivers)))
        self._serves = Serves((QUEUE,), (TASK,), capabilities)
        self._lease_ms = SPARE_MS + max((one.timeout_ms for one in receivers.values()), default=0)

    async def deliver(self) -> int:
        """Tell all that is due now; how many jobs ended, well or not."""
        done = 0
        while self._receivers and await self._waits():
            claimed = await self._agents.claim(AGENT, self._serves, most=AT_ONCE, lease_ms=self._lease_ms)
            if not claimed:
                break
            await asyncio.gather(*(self._one(job) for job in claimed))
            done += len(claimed)
        return done

    async def _waits(self) -> bool:
        """A look at counters: a claim costs a session. Jobs that are due later become ready with a claim."""
        now = (await self._store.count()).now
        return any(now.get((QUEUE, TASK, state), 0) > 0 for state in MAY_RUN)

    async def _one(self, job: ClaimRecord) -> None:
        try:
            answer = await self._tell(job)
        except asyncio.CancelledError:
            # Without an answer its lease ends: a process that stops waits no longer for a store that is away.
            with suppress(LimpetError, TimeoutError):
                async with asyncio.timeout(HAND_BACK_S):
                    await self._agents.release(job.id, job.token, reason="the process stops")
            raise
        await self._end(job, answer)

    async def _tell(self, job: ClaimRecord) -> Answer:
        try:
            delivery = msgspec.convert(job.args, Delivery)
            webhook = self._receivers[delivery.webhook]
        except (msgspec.MsgspecError, KeyError) as error:
            return Answer(400, f"the job cannot be read: {error}")
        now_ms = time.time_ns() // 1_000_000
        return await tell(webhook, call_of(webhook, delivery.notice, id_bytes(job.id), self._namespace, now_ms))

    async def _end(self, job: ClaimRecord, answer: Answer) -> None:
        """A lease that was lost meanwhile is another process's by now: the receiver is told twice, with one key."""
        if answer.ok:
            said: dict[str, Any] = {"status": answer.status}
            await self._agents.complete(job.id, job.token, msgspec.json.encode(said))
            return
        kind: FailKind = "transient" if answer.may_succeed_later else "permanent"
        name, wait_ms = "WebhookRefused" if answer.status else "WebhookAway", answer.retry_after_ms
        await self._agents.fail(job.id, job.token, answer.text, kind=kind, retry_after_ms=wait_ms, type=name)
