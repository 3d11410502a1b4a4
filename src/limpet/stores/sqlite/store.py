"""The SQLite engine: verbs of the protocol, each one transaction in this process's writer thread."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal, TypeVar

from limpet.core.endings.transition import Settled, Transition
from limpet.core.errors import StoreUnreachable, WrongContext
from limpet.core.gate import Gate, GateChange, GateRule, WorstFirst
from limpet.core.jobs.job import Enqueued, Job
from limpet.core.jobs.lease import Beat, Claim, ClaimRequest, Held, Note, Pulse, SessionView, Signal, Wake
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
from limpet.core.settings import namespace_of
from limpet.stores.base import NOTHING_SPENT, CancelAnswer, Features, Hear, RetryAnswer, RetryRequest, SignalAnswer
from limpet.stores.callers import has_joined
from limpet.stores.offers import Offers
from limpet.stores.sending import current_sending
from limpet.stores.sqlite import (
    claim,
    controls,
    enqueue,
    find,
    gates,
    hand_off,
    hooks,
    notes,
    operate,
    prune,
    sessions,
    settle,
    views,
    wake,
)
from limpet.stores.sqlite.broadcast import Channel
from limpet.stores.sqlite.check import findings, startup
from limpet.stores.sqlite.connection import BUSY_MS, Sync, connect
from limpet.stores.sqlite.guest import Guests, Plain, Stamp
from limpet.stores.sqlite.repair import AT_ONCE, STAGES, Stage
from limpet.stores.sqlite.statements import prefix_of
from limpet.stores.sqlite.tx import Statements, Tx
from limpet.stores.sqlite.writer import Process
from limpet.stores.waiters import HANDED, Waiters, Watches, decode_handed, wake_of

T = TypeVar("T")

STEP_MS: Final = 1_000  # further behind than this, and the machine's clock was set back
LOOK_MS: Final = 50  # how soon a sleeping worker notices a commit that came without a wake-up


class SqliteStore(Watches):
    """Jobs in one file (or in memory). Serves every loop and thread of its process, and survives a fork."""

    def __init__(
        self,
        path: str | None,
        *,
        namespace: str = "default",
        sync: Sync = "full",
        strict: bool = False,
        busy_ms: int = BUSY_MS,
    ) -> None:
        self.path = None if path is None else os.path.abspath(path)
        self.namespace = namespace_of(namespace)
        self.sync = sync
        self.strict = strict  # refuse to start when acknowledged jobs could be lost
        self._looked = False
        self._busy_ms = busy_ms  # how long a commit waits for a foreign transaction on the file
        self._prefix = prefix_of(namespace)
        self._process: Process | None = None
        self._guests = Guests(self.path, self._prefix)
        self._now_ms = self._steady_ms = 0
        self.identity = ""
        self.offers = Offers(self)
        self._channel = Channel(self.path, self.namespace)
        self.features = Features(
            name="sqlite",
            shared=path is not None,
            durable=path is not None,
            transactional=path is not None,
            hands_off=True,
            notes=(
                ("in memory: one process, gone with it",)
                if path is None
                else ("a power cut loses nothing",)
                if sync == "full"
                else ("kill -9 loses nothing; a power cut may lose the last commits",)
            ),
        )

    @property
    def process(self) -> Process:
        """This pid's threads and connections, made on first use."""
        process = self._process
        if process is not None and process.pid == os.getpid():
            return process
        if process is not None and (self.path is None or any(link.torn for link in process.links)):
            what = "lives in the memory of its parent" if self.path is None else "was forked in the middle of a commit"
            raise WrongContext(f"this process {what}", fix="start it with spawn or forkserver, or use a file")
        process = self._process = Process(self.path, self._prefix, self._connect, self._undelivered)
        return process

    def _connect(self) -> sqlite3.Connection:
        if not self._looked:
            startup(self.path, self.sync, strict=self.strict)
            self._looked = True
        return connect(self.path, self.sync, self._prefix, self._busy_ms)

    def clock(self, floor_ms: int = 0) -> int:
        """This engine's clock: the process's, never behind `floor_ms`, never backwards.

        When the machine's clock was set back, it follows the monotonic one instead of standing still.
        """
        real_ms, steady_ms = time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000
        now_ms = max(real_ms, self._now_ms, floor_ms)
        if now_ms - real_ms > STEP_MS and now_ms == self._now_ms:
            now_ms += steady_ms - self._steady_ms
        self._now_ms, self._steady_ms = now_ms, steady_ms
        return now_ms

    def _tx(self, conn: Statements, now_ms: int | None, process: Process | None = None) -> Tx:
        tx = Tx(conn, self._prefix, (process or self.process).known, now_ms or 0)
        if now_ms is None:
            # Processes may disagree about the time: no instant is before the last claim or sweep of all.
            floor_ms, tx.store = tx.row("clock_floor")
            tx.now_ms = self.clock(floor_ms)
        return tx

    async def _write(self, verb: str, work: Callable[[Tx], T], now_ms: int | None = None) -> T:
        if has_joined():
            self._guests.refuse(verb)
        process = self.process
        answer: T = await process.writer.submit(verb, self._step(process, work, now_ms))
        return answer

    def _step(self, process: Process, work: Callable[[Tx], T], now_ms: int | None) -> Callable[[sqlite3.Connection], T]:
        """One verb as the writer runs it."""

        def step(conn: sqlite3.Connection) -> T:
            tx = self._tx(conn, now_ms, process)
            answer = work(tx)
            hooks.follow(tx)
            tx.finish()
            self.identity = tx.store or self.identity
            process.tells += tx.tells
            process.stored |= tx.stored
            return answer

        return step

    def _undelivered(self, process: Process, message: bytes, gone: bool) -> Callable[[sqlite3.Connection], None]:
        """The step that takes back a job whose message did not arrive."""
        handed = decode_handed(message)
        return self._step(process, lambda tx: hand_off.take_back(tx, handed, gone=gone), handed.job.claimed_at_ms)

    async def _read(self, verb: str, work: Callable[[Tx], T], now_ms: int | None = None) -> T:
        answer: T = await self.process.reader.submit(verb, lambda conn: work(self._tx(conn, now_ms)))
        return answer

    def _stamp(self) -> Stamp:
        sentry = self.process.sentry
        return () if sentry is None else sentry.stamp()

    async def open(self) -> None:
        await self._write("open", lambda tx: None)

    async def close(self) -> None:
        await self.offers.close()
        process, self._process = self._process, None
        if process is not None and process.pid == os.getpid():
            await _apart(process.close)

    async def now(self) -> int:
        return await self._read("now", lambda tx: tx.now_ms)

    # -- producers

    async def enqueue(
        self, jobs: Sequence[Job], rules: Sequence[GateRule] = (), *, now_ms: int | None = None
    ) -> list[Enqueued]:
        if (sending := current_sending()) is not None:
            sending.begin(self.path or "memory", str)
            sending.out += 1
        try:
            return await self._write("enqueue", lambda tx: _enqueue(tx, jobs, rules), now_ms)
        except StoreUnreachable as error:
            if sending is not None:
                sending.out -= error.verb == "open"  # no file was ever open, so none was written
            raise

    async def enqueue_on(
        self, conn: object, jobs: Sequence[Job], rules: Sequence[GateRule] = (), *, now_ms: int | None = None
    ) -> list[Enqueued]:
        def work(plain: Plain) -> list[Enqueued]:
            tx = self._tx(plain, now_ms)
            tx.known = tx.known.unsure()
            answers = enqueue.enqueue(tx, jobs, rules)
            hooks.follow(tx)
            # No worker is told: the caller may roll back. Sleeping workers notice the commit by themselves.
            tx.finish(tell=False)
            tx.run("guest_add")
            return answers

        return await self._guests.run("enqueue", conn, work, self._stamp)

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
        def work(tx: Tx) -> list[Enqueued] | None:
            return operate.relay(tx, source, batch, jobs, rules, always=always)

        return await self._write("relay", work, now_ms)

    # -- workers

    async def beat(self, beat: Beat, *, now_ms: int | None = None) -> Pulse:
        receiver = self.process.receiver
        address = receiver.address
        receiver.expect(beat.session.encode())
        pulse = await self._write("beat", lambda tx: sessions.beat(tx, beat, address), now_ms)
        self.offers.beaten(pulse.listened)
        return pulse

    async def leave(self, session: str, *, now_ms: int | None = None) -> None:
        await self._write("leave", lambda tx: sessions.leave(tx, session), now_ms)
        self.process.receiver.forget(session.encode())
        if self.process.sentry is not None:
            self.process.sentry.forget(session)
        self.offers.attach()

    async def claim(self, request: ClaimRequest, *, now_ms: int | None = None) -> Claim:
        process = self.process
        process.receiver.expect(request.session.encode())

        def work(tx: Tx) -> Claim:
            answer = claim.claim(tx, request)
            if process.sentry is not None and tx.guests is not None:
                process.sentry.seen[request.session] = tx.guests  # what guests commit from here on, `wait` must notice
            return answer

        return await self._write("claim", work, now_ms)

    async def settle(
        self,
        session: str,
        seq: int,
        transitions: Sequence[Transition],
        *,
        spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT,
        now_ms: int | None = None,
    ) -> list[Settled]:
        return await self._write("settle", lambda tx: settle.settle(tx, session, seq, transitions, spent), now_ms)

    async def settle_on(
        self, conn: object, id: bytes, token: int, result: bytes | None = None, *, now_ms: int | None = None
    ) -> bool:
        def work(plain: Plain) -> bool:
            return settle.note_success(self._tx(plain, now_ms), id, token, result)

        return await self._guests.run("settle_on", conn, work, self._stamp)

    async def save(self, id: bytes, token: int, note: Note, *, now_ms: int | None = None) -> bool:
        return await self._write("save", lambda tx: settle.save(tx, id, token, note), now_ms)

    async def held(self, session: str) -> list[Held]:
        return await self._write("held", lambda tx: sessions.held(tx, session))

    async def expire(self, limit: int = 256, *, now_ms: int | None = None) -> int:
        return await self._write("expire", lambda tx: sessions.expire(tx, limit), now_ms)

    async def wait(self, session: str, timeout_ms: int) -> Wake:
        process = self.process
        name = session.encode()
        if process.sentry is None:
            return _wake(process, name, await process.receiver.sleep(name, timeout_ms / 1000))
        for start_ms in range(0, max(timeout_ms, 1), LOOK_MS):
            kinds = await process.receiver.sleep(name, min(LOOK_MS, timeout_ms - start_ms) / 1000)
            if kinds:
                return _wake(process, name, kinds)
            if process.sentry.changed(session):
                return Wake(work=True)
        return Wake()

    # -- people and handles

    async def cancel(
        self, ids: Sequence[bytes], reason: str, *, force: bool = False, now_ms: int | None = None
    ) -> list[CancelAnswer]:
        return await self._write("cancel", lambda tx: operate.cancel(tx, ids, reason, force=force), now_ms)

    async def retry(self, request: RetryRequest, *, now_ms: int | None = None) -> list[RetryAnswer]:
        return await self._write("retry", lambda tx: operate.retry(tx, request), now_ms)

    async def signal(self, signals: Sequence[Signal], *, now_ms: int | None = None) -> list[SignalAnswer]:
        return await self._write("signal", lambda tx: notes.signal(tx, signals), now_ms)

    async def discard(self, ids: Sequence[bytes], *, now_ms: int | None = None) -> int:
        return await self._write("discard", lambda tx: prune.discard(tx, ids), now_ms)

    @property
    def sleepers(self) -> Waiters:
        return self.process.receiver

    async def begin_watch(self, id: bytes) -> State | None:
        address = self.process.receiver.address
        return await self._write("watch", lambda tx: wake.watch(tx, id, address))

    async def get(self, ids: Sequence[bytes]) -> list[JobView | None]:
        return await self._read("get", lambda tx: views.views(tx, ids))

    async def find(self, query: Query, *, now_ms: int | None = None) -> Page:
        return await self._read("find", lambda tx: find.find(tx, query), now_ms)

    async def flows(
        self, ids: Sequence[bytes] | None = None, limit: int = 50, before: bytes | None = None
    ) -> list[FlowView]:
        return await self._read("flows", lambda tx: views.flows(tx, ids, limit, before))

    async def causes(self, queue: str | None = None, limit: int = 50) -> list[CauseView]:
        return await self._read("causes", lambda tx: views.causes(tx, queue, limit))

    async def count(self, *, queues: bool = False) -> Counts:
        return await self._read("count", views.queues if queues else views.count)

    async def inspect(self, id: bytes, *, now_ms: int | None = None) -> Inspection | None:
        return await self._read("inspect", lambda tx: views.inspect(tx, id), now_ms)

    async def change_gates(self, changes: Sequence[GateChange], *, now_ms: int | None = None) -> list[Gate]:
        return await self._write("change_gates", lambda tx: gates.change_gates(tx, changes), now_ms)

    async def gates(
        self, prefix: str = "", *, keys: Sequence[str] | None = None, worst_first: WorstFirst | None = None
    ) -> list[Gate]:
        return await self._read("gates", lambda tx: gates.gates(tx, prefix, keys, worst_first))

    async def accounts(self) -> list[Account]:
        return await self._read("accounts", gates.accounted)

    async def put_control(self, control: Control, *, expect: int | None = None) -> Control | None:
        return await self._write("put_control", lambda tx: controls.put_control(tx, control, expect))

    async def controls(self, kind: str) -> list[Control]:
        return await self._read("controls", lambda tx: [Control(*row) for row in tx.rows("controls", (kind,))])

    async def sessions(self) -> list[SessionView]:
        return await self._read("sessions", sessions.view)

    # -- housekeeping

    async def append(self, entries: Sequence[Entry]) -> None:
        await self._write("append", lambda tx: controls.append(tx, entries))

    async def read(
        self, log: Literal["audit", "event"], after: int = 0, limit: int = 100, *, newest: bool = False
    ) -> list[Entry]:
        return await self._read("read", lambda tx: controls.log_lines(tx, log, after, limit, newest=newest))

    async def prune(self, retention: Retention, limit: int = 1_000, *, now_ms: int | None = None) -> int:
        return await self._write("prune", lambda tx: prune.prune(tx, retention, limit), now_ms)

    async def repair(self, *, dry_run: bool, now_ms: int | None = None) -> list[Difference]:
        differences: list[Difference] = []
        for stage in STAGES:
            found = await self._read("repair", stage.look, now_ms)
            differences += found.differences
            for at in range(0, 0 if dry_run else len(found.keys), AT_ONCE):
                await self._mend(stage, found.keys[at : at + AT_ONCE], now_ms)
        return differences

    async def _mend(self, stage: Stage, keys: Sequence[object], now_ms: int | None) -> None:
        await self._write("repair", lambda tx: stage.mend(tx, keys), now_ms)

    # -- live events

    async def publish(self, message: str) -> None:
        await self._channel.publish(message)

    async def announce(self, until_ms: int) -> None:
        await self.offers.announce(until_ms)

    async def subscribe(self, hear: Hear) -> Callable[[], None]:
        return self._channel.subscribe(hear)

    async def check(self) -> list[Finding]:
        return await self._read("check", lambda tx: findings(tx.conn, self.path, self.sync))


def _wake(process: Process, name: bytes, kinds: set[bytes]) -> Wake:
    return wake_of(kinds, tuple(process.receiver.take(name)) if HANDED in kinds else ())


def _enqueue(tx: Tx, jobs: Sequence[Job], rules: Sequence[GateRule]) -> list[Enqueued]:
    return hand_off.hand_off(tx, jobs, rules) or enqueue.enqueue(tx, jobs, rules)


async def _apart(call: Callable[[], None]) -> None:
    """Run a call in a thread of its own: the pool of the loop belongs to others, and they may have filled it."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(over.set)

    threading.Thread(target=run, name="limpet-close", daemon=True).start()
    await over.wait()
    if errors:
        raise errors[0]
