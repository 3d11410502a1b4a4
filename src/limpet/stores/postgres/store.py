"""The PostgreSQL engine: every verb is one function on the server, where it happens whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from limpet.core.endings.transition import Settled, Transition
from limpet.core.gate import Gate, GateChange, GateRule, WorstFirst
from limpet.core.jobs.job import Enqueued, Job
from limpet.core.jobs.lease import Beat, Claim, ClaimRequest, Held, Note, Pulse, SessionView, Signal
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
from limpet.stores.base import (
    NOTHING_SPENT,
    CancelAnswer,
    Features,
    Hear,
    Plan,
    RetryAnswer,
    RetryRequest,
    SignalAnswer,
)
from limpet.stores.postgres import (
    broadcast,
    check,
    claim,
    controls,
    enqueue,
    find,
    gates,
    migrate,
    operate,
    repair,
    sessions,
    settle,
    vacuum,
    views_flows,
    views_overview,
)
from limpet.stores.postgres.client import Client
from limpet.stores.postgres.definition_cache import DefinitionCache
from limpet.stores.postgres.url import PostgresUrl, schema_of
from limpet.stores.postgres.wakeup_receiver import WakeupReceiver
from limpet.stores.server.store import ServerStore, bury

MOVE_IN: Final = "SELECT lp.move_in_1()"
NAME: Final = "SELECT obj_description('lp.home'::regclass, 'pg_class')"


class PostgresStore(ServerStore[Client, WakeupReceiver]):
    """Jobs in a schema of their own."""

    def __init__(self, url: PostgresUrl, *, namespace: str = "default") -> None:
        features = Features(
            name="postgres",
            shared=True,
            durable=True,
            transactional=True,
            notes=(
                "durable as the server is: fsync and synchronous_commit are its own settings, and doctor looks at them",
                "one claim at a time per namespace: a crash of the server may take back claims of its last second, "
                "whose jobs then run again",
            ),
        )
        super().__init__(namespace, features, lambda: Client(url, self.schema), self._receiver)
        self.url = url
        self.schema = schema_of(url, namespace)
        self._definitions = DefinitionCache()
        self._keeping: dict[str, Client] = {}  # the client of the loop that beats for a session
        self._ready = False
        self._name: str | None = None  # how this schema is told from one of the same name in another database

    def _receiver(self) -> WakeupReceiver:
        return WakeupReceiver(self._clients.here().pool, self.schema, self._waiters)

    async def _client(self) -> Client:
        client = self._clients.here()
        if not self._ready:
            await migrate.ready(client)
            await client.row(MOVE_IN, verb="open")
            self._ready = True
        return client

    async def _name_of(self, *, again: bool = False) -> str:
        """Asked over a connection of our own: by plain code, which has no loop, in one made for it.

        `again`: a schema may be dropped and created again while we run.
        """
        if self._name is None or again:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                self._name = asyncio.run(self._ask_name())
            else:
                self._name = await self._ask_name()
        return self._name

    async def _ask_name(self) -> str:
        (name,) = await (await self._client()).row(NAME, verb="open")
        return str(name)

    async def open(self) -> None:
        client = await self._client()
        if not self._checked:
            await check.startup(client)
            self._checked = True

    async def plan(self) -> Plan:
        return migrate.plan(await migrate.look(self._clients.here()), self.schema)

    async def migrate(self, progress: Callable[[str], None]) -> tuple[str, ...]:
        return tuple(await migrate.apply(self.url, self.schema, progress))

    async def now(self) -> int:
        return await sessions.now(await self._client())

    # -- producers

    async def enqueue(
        self, jobs: Sequence[Job], rules: Sequence[GateRule] = (), *, now_ms: int | None = None
    ) -> list[Enqueued]:
        answers, identity = await enqueue.enqueue(await self._client(), jobs, rules, now_ms)
        self.identity = identity or self.identity
        return answers

    async def enqueue_on(
        self, conn: object, jobs: Sequence[Job], rules: Sequence[GateRule] = (), *, now_ms: int | None = None
    ) -> list[Enqueued]:
        return await enqueue.enqueue_on(self.schema, self._name_of, conn, jobs, rules, now_ms)

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
        return await enqueue.relay(await self._client(), (source, batch), jobs, rules, always=always, now_ms=now_ms)

    # -- workers

    async def beat(self, beat: Beat, *, now_ms: int | None = None) -> Pulse:
        client = await self._client()
        self._waiters.expect(beat.session.encode())
        self._keeping[beat.session] = client
        # Wherever it sleeps, it is told here: the receiver of the loop that beats listens while the session lives.
        address = await self._receivers.here().subscribe(beat.session)
        pulse = await sessions.beat(client, beat, address, now_ms)
        self.offers.beaten(pulse.listened)
        before, self._name = self._name, pulse.store
        if before not in (None, pulse.store):
            self._receivers.here().resubscribe()  # a schema that was created again has another channel
        return pulse

    async def leave(self, session: str, *, now_ms: int | None = None) -> None:
        await sessions.leave(await self._client(), session, now_ms)
        self._waiters.forget(session.encode())
        self.offers.attach()
        self._keeping.pop(session, None)

    async def claim(self, request: ClaimRequest, *, now_ms: int | None = None) -> Claim:
        client = await self._client()
        self._waiters.expect(request.session.encode())
        if (keeping := self._keeping.get(request.session)) is not None:
            client.borrow_of(keeping)  # a loop that beats for another does little else
        answer, unreadable = await claim.claim(client, self._definitions, request, now_ms)
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
        return await settle.settle(await self._client(), session, seq, transitions, now_ms, spent)

    async def settle_on(
        self, conn: object, id: bytes, token: int, result: bytes | None = None, *, now_ms: int | None = None
    ) -> bool:
        return await settle.settle_on(self.schema, self._name_of, conn, id, token, result, now_ms)

    async def save(self, id: bytes, token: int, note: Note, *, now_ms: int | None = None) -> bool:
        return await settle.save(await self._client(), id, token, note, now_ms)

    async def held(self, session: str) -> list[Held]:
        return await sessions.held(await self._client(), session)

    async def expire(self, limit: int = 256, *, now_ms: int | None = None) -> int:
        return await sessions.expire(await self._client(), limit, now_ms)

    # -- people and handles

    async def cancel(
        self, ids: Sequence[bytes], reason: str, *, force: bool = False, now_ms: int | None = None
    ) -> list[CancelAnswer]:
        return await operate.cancel(await self._client(), ids, reason, force, now_ms)

    async def retry(self, request: RetryRequest, *, now_ms: int | None = None) -> list[RetryAnswer]:
        return await operate.retry(await self._client(), request, now_ms)

    async def signal(self, signals: Sequence[Signal], *, now_ms: int | None = None) -> list[SignalAnswer]:
        return await operate.signal(await self._client(), signals, now_ms)

    async def discard(self, ids: Sequence[bytes], *, now_ms: int | None = None) -> int:
        return await operate.discard(await self._client(), ids, now_ms)

    async def begin_watch(self, id: bytes) -> State | None:
        return await sessions.watch(await self._client(), id, await self._receivers.here().subscribe())

    async def get(self, ids: Sequence[bytes]) -> list[JobView | None]:
        return await find.views(await self._client(), self._definitions, ids)

    async def find(self, query: Query, *, now_ms: int | None = None) -> Page:
        return await find.find(await self._client(), self._definitions, query, now_ms)

    async def causes(self, queue: str | None = None, limit: int = 50) -> list[CauseView]:
        return await views_overview.causes(await self._client(), queue, limit)

    async def count(self, *, queues: bool = False) -> Counts:
        return await (views_overview.queues if queues else views_overview.count)(await self._client())

    async def flows(
        self, ids: Sequence[bytes] | None = None, limit: int = 50, before: bytes | None = None
    ) -> list[FlowView]:
        return await views_flows.flows(await self._client(), ids, limit, before)

    async def inspect(self, id: bytes, *, now_ms: int | None = None) -> Inspection | None:
        return await views_overview.inspect(await self._client(), self._definitions, id, now_ms)

    async def change_gates(self, changes: Sequence[GateChange], *, now_ms: int | None = None) -> list[Gate]:
        return await gates.change_gates(await self._client(), changes, now_ms)

    async def gates(
        self, prefix: str = "", *, keys: Sequence[str] | None = None, worst_first: WorstFirst | None = None
    ) -> list[Gate]:
        if worst_first is not None:
            return await gates.ranked(await self._client(), prefix, worst_first)
        if keys is None:
            return await gates.gates(await self._client(), prefix)
        return await gates.gates_of(await self._client(), keys)

    async def accounts(self) -> list[Account]:
        return await gates.accounted(await self._client())

    async def put_control(self, control: Control, *, expect: int | None = None) -> Control | None:
        return await controls.put_control(await self._client(), control, expect)

    async def controls(self, kind: str) -> list[Control]:
        return await controls.controls(await self._client(), kind)

    async def sessions(self) -> list[SessionView]:
        return await sessions.view(await self._client())

    # -- housekeeping

    async def append(self, entries: Sequence[Entry]) -> None:
        await controls.append(await self._client(), entries)

    async def read(
        self, log: Literal["audit", "event"], after: int = 0, limit: int = 100, *, newest: bool = False
    ) -> list[Entry]:
        return await controls.read(await self._client(), log, after, limit, newest=newest)

    async def prune(self, retention: Retention, limit: int = 1_000, *, now_ms: int | None = None) -> int:
        client = await self._client()
        pruned = await operate.prune(client, retention, limit, now_ms)
        await vacuum.vacuum(client)
        return pruned

    async def repair(self, *, dry_run: bool, now_ms: int | None = None) -> list[Difference]:
        return await repair.repair(await self._client(), dry_run=dry_run, now_ms=now_ms)

    async def check(self) -> list[Finding]:
        return await check.findings(await self._client())

    # -- live events

    async def publish(self, message: str) -> None:
        await broadcast.publish(await self._client(), self.schema, message)

    async def subscribe(self, hear: Hear) -> Callable[[], None]:
        return await broadcast.subscribe(self.url, self.schema, hear)
