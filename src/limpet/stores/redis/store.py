"""The Redis engine: every verb is one script on one server, where it happens whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from limpet.core.endings.transition import Settled, Transition
from limpet.core.errors import StoreFull
from limpet.core.gate import Gate, GateChange, GateRule, WorstFirst
from limpet.core.jobs.job import Enqueued, Job
from limpet.core.jobs.lease import Beat, Claim, ClaimRequest, Handed, Held, Note, Pulse, SessionView, Signal, Wake
from limpet.core.jobs.repair import Difference
from limpet.core.jobs.state import State
from limpet.core.jobs.view import (
    CauseView,
    Control,
    Counts,
    Entry,
    Finding,
    FlowView,
    Inspection,
    JobView,
    Page,
    Query,
    Retention,
)
from limpet.core.limits.account import Account
from limpet.stores.base import NOTHING_SPENT, CancelAnswer, Features, Hear, RetryAnswer, RetryRequest, SignalAnswer
from limpet.stores.redis import (
    broadcast,
    check,
    claim,
    controls,
    enqueue,
    find,
    gates,
    operate,
    repair,
    sessions,
    settle,
    views_flows,
    views_overview,
)
from limpet.stores.redis.client import Client
from limpet.stores.redis.definition_cache import DefinitionCache
from limpet.stores.redis.keys import meta_key
from limpet.stores.redis.record import claimed_of, named_in
from limpet.stores.redis.url import RedisUrl
from limpet.stores.redis.wakeup_receiver import Sent, WakeupReceiver
from limpet.stores.server.store import ServerStore, bury


class RedisStore(ServerStore[Client, WakeupReceiver]):
    """Jobs on a Redis or Valkey server."""

    def __init__(self, url: RedisUrl, *, namespace: str = "default") -> None:
        tag = f"limpet:{namespace}"
        features = Features(
            name="redis",
            shared=True,
            durable=True,
            transactional=False,
            batch=128,  # a millisecond of the server, which every other call waits for
            settles_by_lease=True,
            hands_off=True,
            notes=(
                "durable as its AOF is: a crash of the server loses nothing with appendfsync always, 2 s with everysec",
                f"keeps the last {url.keep:,} succeeded and cancelled jobs of each queue; dead ones all",
                "jobs that become ready in the same millisecond run in the order in which they arrived",
            ),
        )
        super().__init__(namespace, features, lambda: Client(url, tag), lambda: WakeupReceiver(url, tag, self._waiters))
        self.url = url
        self._tag = tag
        self._key = meta_key(tag)
        self._definitions = DefinitionCache(self._key)

    @property
    def _client(self) -> Client:
        return self._clients.here()

    async def open(self) -> None:
        if not self._checked:
            check.startup(await self.check(), strict=self.url.strict)
            self._checked = True

    async def now(self) -> int:
        return await sessions.now(self._client, self._key)

    # -- producers

    async def enqueue(
        self, jobs: Sequence[Job], rules: Sequence[GateRule] = (), *, now_ms: int | None = None
    ) -> list[Enqueued]:
        answers, identity = await enqueue.enqueue(self._client, self._key, jobs, rules, now_ms)
        self.identity = identity or self.identity
        return answers

    async def relay(
        self,
        source: str,
        batch: int,
        jobs: Sequence[Job],
        rules: Sequence[GateRule] = (),
        *,
        always: bool = False,
        now_ms: int | None = None,
    ) -> list[Enqueued] | None:
        return await enqueue.relay(self._client, self._key, (source, batch), jobs, rules, always=always, now_ms=now_ms)

    # -- workers

    async def beat(self, beat: Beat, *, now_ms: int | None = None) -> Pulse:
        receiver = self._receivers.here()
        self._waiters.expect(beat.session.encode())
        pulse = await sessions.beat(self._client, self._key, beat, receiver.address, now_ms)
        self.offers.beaten(pulse.listened)
        return pulse

    async def leave(self, session: str, *, now_ms: int | None = None) -> None:
        await sessions.leave(self._client, self._key, session, now_ms)
        self._waiters.forget(session.encode())
        self.offers.attach()

    async def claim(self, request: ClaimRequest, *, now_ms: int | None = None) -> Claim:
        receiver = self._receivers.here()
        self._waiters.expect(request.session.encode())
        answer, unreadable = await claim.claim(
            self._client, self._key, self._definitions, request, receiver.address, now_ms
        )
        if not answer.jobs:
            receiver.listen()  # here, wherever the session is going to sleep
        await bury(self, request, unreadable, now_ms)
        return answer

    async def settle(
        self,
        session: str,
        seq: int,
        transitions: Sequence[Transition],
        *,
        spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT,
        now_ms: int | None = None,
    ) -> list[Settled]:
        return await settle.settle(self._client, self._key, session, seq, transitions, self.url.keep, now_ms, spent)

    async def save(self, id: bytes, token: int, note: Note, *, now_ms: int | None = None) -> bool:
        return await settle.save(self._client, self._key, id, token, note, now_ms)

    async def held(self, session: str) -> list[Held]:
        return await sessions.held(self._client, self._key, session)

    async def expire(self, limit: int = 256, *, now_ms: int | None = None) -> int:
        return await sessions.expire(self._client, self._key, limit, self.url.keep, now_ms)

    async def wait(self, session: str, timeout_ms: int) -> Wake:
        self._receivers.here().listen()
        return await super().wait(session, timeout_ms)

    async def _handed(self, records: list[Sent]) -> tuple[Handed, ...]:
        """The jobs; one that cannot be read is left out, and found by the next beat."""
        named = named_in(each.record for each in records)
        known = await self._definitions.fetch_missing(self._client, *named, verb="wait")
        jobs = [claimed_of(each.id, each.record, each.token, each.claimed_at_ms, *known) for each in records]
        both = zip(records, jobs, strict=True)
        return tuple(Handed(sent.session, sent.number, job, sent.awake) for sent, job in both if job is not None)

    # -- people and handles

    async def cancel(
        self, ids: Sequence[bytes], reason: str, *, force: bool = False, now_ms: int | None = None
    ) -> list[CancelAnswer]:
        return await operate.cancel(self._client, self._key, ids, reason, force, self.url.keep, now_ms)

    async def retry(self, request: RetryRequest, *, now_ms: int | None = None) -> list[RetryAnswer]:
        return await operate.retry(self._client, self._key, request, now_ms)

    async def signal(self, signals: Sequence[Signal], *, now_ms: int | None = None) -> list[SignalAnswer]:
        return await operate.signal(self._client, self._key, signals, now_ms)

    async def discard(self, ids: Sequence[bytes], *, now_ms: int | None = None) -> int:
        return await operate.discard(self._client, self._key, ids, now_ms)

    async def begin_watch(self, id: bytes) -> State | None:
        receiver = self._receivers.here()
        receiver.listen()
        try:
            return await sessions.watch(self._client, self._key, id, receiver.address)
        except StoreFull:  # it cannot note this waiting caller, which then looks once in a while
            (job,) = await self.get([id])
            return None if job is None else job.state

    async def get(self, ids: Sequence[bytes]) -> list[JobView | None]:
        return await find.views(self._client, self._key, self._definitions, ids)

    async def find(self, query: Query, *, now_ms: int | None = None) -> Page:
        return await find.find(self._client, self._key, self._definitions, query, now_ms)

    async def causes(self, queue: str | None = None, limit: int = 50) -> list[CauseView]:
        return await views_overview.causes(self._client, self._key, queue, limit)

    async def count(self, *, queues: bool = False) -> Counts:
        return await (views_overview.queues if queues else views_overview.count)(self._client, self._key)

    async def flows(
        self, ids: Sequence[bytes] | None = None, limit: int = 50, before: bytes | None = None
    ) -> list[FlowView]:
        return await views_flows.flows(self._client, self._key, ids, limit, before)

    async def inspect(self, id: bytes, *, now_ms: int | None = None) -> Inspection | None:
        return await views_overview.inspect(self._client, self._key, self._definitions, id, now_ms)

    async def change_gates(self, changes: Sequence[GateChange], *, now_ms: int | None = None) -> list[Gate]:
        return await gates.change_gates(self._client, self._key, changes, now_ms)

    async def gates(
        self, prefix: str = "", *, keys: Sequence[str] | None = None, worst_first: WorstFirst | None = None
    ) -> list[Gate]:
        if worst_first is not None:
            return await gates.ranked(self._client, self._key, prefix, worst_first)
        if keys is None:
            return await gates.gates(self._client, self._key, prefix)
        return await gates.gates_of(self._client, self._key, keys)

    async def accounts(self) -> list[Account]:
        return await gates.accounted(self._client, self._key)

    async def put_control(self, control: Control, *, expect: int | None = None) -> Control | None:
        return await controls.put_control(self._client, self._key, control, expect)

    async def controls(self, kind: str) -> list[Control]:
        return await controls.controls(self._client, self._key, kind)

    async def sessions(self) -> list[SessionView]:
        return await sessions.view(self._client, self._key)

    # -- housekeeping

    async def append(self, entries: Sequence[Entry]) -> None:
        await controls.append(self._client, self._key, entries)

    async def read(
        self, log: Literal["audit", "event"], after: int = 0, limit: int = 100, *, newest: bool = False
    ) -> list[Entry]:
        return await controls.read(self._client, self._key, log, after, limit, newest=newest)

    async def prune(self, retention: Retention, limit: int = 1_000, *, now_ms: int | None = None) -> int:
        return await operate.prune(self._client, self._key, retention, limit, self.url.keep, now_ms)

    async def repair(self, *, dry_run: bool, now_ms: int | None = None) -> list[Difference]:
        return await repair.repair(self._client, self._key, dry_run=dry_run, now_ms=now_ms)

    async def check(self) -> list[Finding]:
        return await check.findings(self._client)

    # -- live events

    async def publish(self, message: str) -> None:
        await broadcast.publish(self._client, broadcast.channel_of(self._tag, self.url), message)

    async def subscribe(self, hear: Hear) -> Callable[[], None]:
        return await broadcast.subscribe(self.url, self._tag, hear)
