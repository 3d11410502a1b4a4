"""The PostgreSQL engine: every verb is one function on the server, where it happens whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from limpet.core.account import Account
from limpet.core.errors import ResultTimeout
from limpet.core.gate import Gate, GateChange, GateRule
from limpet.core.ids import id_text
from limpet.core.job import Enqueued, Job
from limpet.core.lease import Beat, Claim, ClaimRequest, Held, Note, Pulse, SessionView, Signal, Wake
from limpet.core.repair import Difference
from limpet.core.settings import namespace_of
from limpet.core.state import FINISHED
from limpet.core.transition import Settled, Transition
from limpet.core.view import (
    AttemptView,
    CauseView,
    Control,
    Counts,
    Entry,
    Finding,
    FlowView,
    JobView,
    Page,
    Query,
    QueueView,
    Retention,
    Standing,
)
from limpet.stores.base import NOTHING_SPENT, CancelAnswer, Features, Plan, RetryAnswer, RetryRequest, SignalAnswer
from limpet.stores.loops import PerLoop
from limpet.stores.postgres import (
    check,
    claim,
    enqueue,
    find,
    flows,
    gates,
    migrate,
    operate,
    overview,
    repair,
    sessions,
    settle,
    shelf,
    vacuum,
)
from limpet.stores.postgres.ear import Ear
from limpet.stores.postgres.known import Known
from limpet.stores.postgres.route import Route
from limpet.stores.postgres.url import PostgresUrl, schema_of
from limpet.stores.waiters import Waiters, wake_of

MOVE_IN: Final = "SELECT lp.move_in_1()"
NAME: Final = "SELECT obj_description('lp.home'::regclass, 'pg_class')"

WATCH_S: Final = 1.0  # how soon a finished job is noticed whose wake-up was lost


class PostgresStore:
    """Jobs in a schema of their own. Serves every loop and thread of its process, and survives a fork."""

    def __init__(self, url: PostgresUrl, *, namespace: str = "default") -> None:
        self.url = url
        self.namespace = namespace_of(namespace)
        self.schema = schema_of(url, namespace)
        self._known = Known()
        self._waiters = Waiters()
        self._routes = PerLoop(lambda: Route(url, self.schema))
        self._ears = PerLoop(lambda: Ear(self._routes.here().pool, self.schema, self._waiters))
        self._keeping: dict[str, Route] = {}  # the route of the loop that beats for a session
        self._ready = False
        self._checked = False
        self._name: str | None = None  # how this schema is told from one of the same name in another database
        self.identity = ""
        self.features = Features(
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

    async def _route(self) -> Route:
        route = self._routes.here()
        if not self._ready:
            await migrate.ready(route)
            await route.row(MOVE_IN, verb="open")
            self._ready = True
        return route

    async def _name_of(self, *, again: bool = False) -> str:
        """Asked over a connection of our own: by plain code, which has no loop, in one made for it.

        `again`: a schema may be dropped and made anew while we run.
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
        (name,) = await (await self._route()).row(NAME, verb="open")
        return str(name)

    async def open(self) -> None:
        route = await self._route()
        if not self._checked:
            await check.startup(route)
            self._checked = True

    async def close(self) -> None:
        await self._ears.close()
        await self._routes.close()

    async def plan(self) -> Plan:
        return migrate.plan(await migrate.look(self._routes.here()), self.schema)

    async def migrate(self, progress: Callable[[str], None]) -> tuple[str, ...]:
        return tuple(await migrate.apply(self.url, self.schema, progress))

    # -- producers

    async def enqueue(
        self, jobs: Sequence[Job], rules: Sequence[GateRule] = (), *, now_ms: int | None = None
    ) -> list[Enqueued]:
        answers, identity = await enqueue.enqueue(await self._route(), jobs, rules, now_ms)
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
        return await enqueue.relay(await self._route(), (source, batch), jobs, rules, always=always, now_ms=now_ms)

    # -- workers

    async def beat(self, beat: Beat, *, now_ms: int | None = None) -> Pulse:
        route = await self._route()
        self._waiters.expect(beat.session.encode())
        self._keeping[beat.session] = route
        # Wherever it sleeps, it is told here: the ear of the loop that beats is heard for as long as the session lives.
        address = await self._ears.here().hear(beat.session)
        pulse = await sessions.beat(route, beat, address, now_ms)
        before, self._name = self._name, pulse.store
        if before not in (None, pulse.store):
            self._ears.here().listen_anew()  # a schema that was made anew has another channel
        return pulse

    async def leave(self, session: str, *, now_ms: int | None = None) -> None:
        await sessions.leave(await self._route(), session, now_ms)
        self._waiters.forget(session.encode())
        self._keeping.pop(session, None)

    async def claim(self, request: ClaimRequest, *, now_ms: int | None = None) -> Claim:
        route = await self._route()
        self._waiters.expect(request.session.encode())
        if (keeping := self._keeping.get(request.session)) is not None:
            route.borrow_of(keeping)  # a loop that beats for another does little else
        answer, spoilt = await claim.claim(route, self._known, request, now_ms)
        if spoilt:
            # Nobody could run them: they go to the dead letters, under a sequence of the claimer's own.
            name = f"{request.session}/{request.claimer}"
            await settle.settle(route, name, request.seq, spoilt, now_ms)
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
        return await settle.settle(await self._route(), session, seq, transitions, now_ms, spent)

    async def settle_on(
        self, conn: object, id: bytes, token: int, result: bytes | None = None, *, now_ms: int | None = None
    ) -> bool:
        return await settle.settle_on(self.schema, self._name_of, conn, id, token, result, now_ms)

    async def save(self, id: bytes, token: int, note: Note, *, now_ms: int | None = None) -> bool:
        return await settle.save(await self._route(), id, token, note, now_ms)

    async def held(self, session: str) -> list[Held]:
        return await sessions.held(await self._route(), session)

    async def expire(self, limit: int = 256, *, now_ms: int | None = None) -> int:
        return await sessions.expire(await self._route(), limit, now_ms)

    async def wait(self, session: str, timeout_ms: int) -> Wake:
        return wake_of(await self._waiters.sleep(session.encode(), timeout_ms / 1000))

    # -- people and handles

    async def cancel(
        self, ids: Sequence[bytes], reason: str, *, force: bool = False, now_ms: int | None = None
    ) -> list[CancelAnswer]:
        return await operate.cancel(await self._route(), ids, reason, force, now_ms)

    async def retry(self, request: RetryRequest, *, now_ms: int | None = None) -> list[RetryAnswer]:
        return await operate.retry(await self._route(), request, now_ms)

    async def signal(self, signals: Sequence[Signal], *, now_ms: int | None = None) -> list[SignalAnswer]:
        return await operate.signal(await self._route(), signals, now_ms)

    async def discard(self, ids: Sequence[bytes], *, now_ms: int | None = None) -> int:
        return await operate.discard(await self._route(), ids, now_ms)

    async def watch(self, id: bytes, timeout_ms: int | None) -> JobView | None:
        route = await self._route()
        loop = asyncio.get_running_loop()
        deadline = None if timeout_ms is None else loop.time() + timeout_ms / 1000
        self._waiters.expect(id)
        try:
            state = await sessions.watch(route, id, await self._ears.here().hear())
            while state is not None and state not in FINISHED:
                left = WATCH_S if deadline is None else min(WATCH_S, deadline - loop.time())
                if left <= 0:
                    raise ResultTimeout(
                        f"job {id_text(id)} is {state} after {(timeout_ms or 0) / 1000:g} s",
                        fix="it goes on; wait longer or ask job.explain()",
                    )
                await self._waiters.sleep(id, left)
                (job,) = await self.get([id])
                state = None if job is None else job.state
            return (await self.get([id]))[0]
        finally:
            self._waiters.forget(id)

    async def get(self, ids: Sequence[bytes]) -> list[JobView | None]:
        return await find.views(await self._route(), self._known, ids)

    async def find(self, query: Query, *, now_ms: int | None = None) -> Page:
        return await find.find(await self._route(), self._known, query, now_ms)

    async def resolve(self, suffix: str) -> list[bytes]:
        return await find.resolve(await self._route(), suffix)

    async def attempts(self, id: bytes) -> list[AttemptView]:
        return await find.attempts(await self._route(), id)

    async def causes(self, queue: str | None = None, limit: int = 50) -> list[CauseView]:
        return await overview.causes(await self._route(), queue, limit)

    async def count(self) -> Counts:
        return await overview.count(await self._route())

    async def queues(self) -> list[QueueView]:
        return await overview.queues(await self._route())

    async def flows(
        self, ids: Sequence[bytes] | None = None, limit: int = 50, before: bytes | None = None
    ) -> list[FlowView]:
        return await flows.flows(await self._route(), ids, limit, before)

    async def standing(self, id: bytes, *, now_ms: int | None = None) -> Standing | None:
        return await overview.standing(await self._route(), self._known, id, now_ms)

    async def change_gates(self, changes: Sequence[GateChange], *, now_ms: int | None = None) -> list[Gate]:
        return await gates.change_gates(await self._route(), changes, now_ms)

    async def gates(self, prefix: str = "", *, keys: Sequence[str] | None = None) -> list[Gate]:
        if keys is None:
            return await gates.gates(await self._route(), prefix)
        return await gates.gates_of(await self._route(), keys)

    async def accounts(self) -> list[Account]:
        return await gates.accounted(await self._route())

    async def put_control(self, control: Control, *, expect: int | None = None) -> Control | None:
        return await shelf.put_control(await self._route(), control, expect)

    async def controls(self, kind: str) -> list[Control]:
        return await shelf.controls(await self._route(), kind)

    async def sessions(self) -> list[SessionView]:
        return await sessions.view(await self._route())

    # -- housekeeping

    async def append(self, entries: Sequence[Entry]) -> None:
        await shelf.append(await self._route(), entries)

    async def read(self, log: Literal["audit", "event"], after: int = 0, limit: int = 100) -> list[Entry]:
        return await shelf.read(await self._route(), log, after, limit)

    async def prune(self, retention: Retention, limit: int = 1_000, *, now_ms: int | None = None) -> int:
        route = await self._route()
        pruned = await operate.prune(route, retention, limit, now_ms)
        await vacuum.vacuum(route)
        return pruned

    async def repair(self, *, dry_run: bool, now_ms: int | None = None) -> list[Difference]:
        return await repair.repair(await self._route(), dry_run=dry_run, now_ms=now_ms)

    async def check(self) -> list[Finding]:
        return await check.findings(await self._route())
