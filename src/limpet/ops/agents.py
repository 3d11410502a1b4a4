"""Runs the verbs of workers that are not our code: agents that claim, keep and settle one job at a time."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Final, Literal, get_args

import msgspec
from msgspec.structs import replace

from limpet.core.endings.decide import decide
from limpet.core.endings.failure import cause_of
from limpet.core.endings.outcome import HandedBack, Limited, Outcome, Raised, Returned
from limpet.core.endings.transition import Failure
from limpet.core.errors import InvalidOption, PayloadTooLarge
from limpet.core.flows.flow import because
from limpet.core.flows.refs import MAX_INPUT_BYTES, stand_ins_of
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Beat, Claimed, ClaimRequest, Input, Serves, SessionView
from limpet.core.jobs.state import State
from limpet.core.jobs.view import JobView
from limpet.core.limits.spending import Bill, spending_from
from limpet.core.records.lease import LeaseAnswer
from limpet.core.records.record import instant
from limpet.core.text.storable import checked_text, storable
from limpet.ops.bulk import Decision
from limpet.ops.redaction import redaction_of
from limpet.ops.select import PAGE, resolve, view_of
from limpet.stores.asking import attempts_of
from limpet.stores.base import NOTHING_SPENT, Store

LEASE_MS: Final = 600_000  # an agent thinks for minutes between signs of life
WAITING_TTL_MS: Final = 15_000  # while it only waits: a killed caller must not swallow wake-ups for long
BEAT_MS: Final = 4_000  # also the pace of sweeps, which a gap of 5 s would put off

Spent = Mapping[str, object]  # amounts by unit

FailKind = Literal["transient", "permanent", "rate-limited", "spent"]
FAIL_KINDS: Final = get_args(FailKind)


class Agents:
    """Claims and settles for agents. Each claim is a session of its own, named after its agent.

    One session per agent would tie its leases together: a restarted agent's next claim would keep the job it
    forgot alive for ever, and giving one job back would give back all.
    """

    def __init__(self, store: Store, *, clock: Callable[[], int] | None = None) -> None:
        self.store = store
        self._clock = clock

    @property
    def _asked_ms(self) -> int | None:
        return None if self._clock is None else self._clock()

    def _now_ms(self) -> int:
        return time.time_ns() // 1_000_000 if self._clock is None else self._clock()

    async def claim(
        self, agent: str, serves: Serves, *, lease_ms: int = LEASE_MS, wait_ms: int = 0, key: str | None = None
    ) -> Claimed | None:
        """Lease one job to `agent`; None when there is nothing within `wait_ms`.

        The same `key` again answers the job that the first call got, as long as its lease lives.
        """
        if not agent or ":" in checked_text(agent, what="agent"):
            raise InvalidOption(f"{agent!r} is not an agent's name", fix="any text without a colon")
        if key is not None:
            checked_text(key, what="key")
        session = f"agent:{agent}:{key or secrets.token_hex(4)}"
        for held in await self.store.held(session) if key is not None else ():
            return await self._again(await view_of(self.store, held.id), session, serves, lease_ms)
        claimed: Claimed | None = None
        try:
            claimed = await self._wait_for_job(session, serves, wait_ms)
        finally:
            if claimed is None:
                await self.store.leave(session, now_ms=self._asked_ms)
        if claimed is not None:
            await self._beat(session, serves, lease_ms)
            await self._log("agent.claim", agent, claimed.id, token=claimed.token)
        return claimed

    async def heartbeat(self, id: str, token: int, *, lease_ms: int = LEASE_MS) -> LeaseAnswer:
        """Keep the lease for another `lease_ms`; says whether someone wants the job cancelled."""
        view = await self._held(id, token)
        if isinstance(view, LeaseAnswer):
            return view
        session = view.session or ""
        known = await self._session(session)
        if known is None:
            return _stale(view)
        pulse = await self.store.beat(Beat(session, lease_ms, known.serves, known.info), now_ms=self._asked_ms)
        if pulse.fresh:
            # The lease ended between the question and the beat: leave no session behind that holds nothing.
            await self.store.leave(session, now_ms=self._asked_ms)
            return _stale(await view_of(self.store, view.id))
        cancel = (view.id, token) in pulse.cancels or view.cancel_requested
        text = "someone wants this job cancelled: stop and release it" if cancel else "lease kept"
        until = instant(self._now_ms() + lease_ms)
        return LeaseAnswer(answer="done", state=State.running, cancel_requested=cancel, until=until, text=text)

    async def complete(
        self, id: str, token: int, result: bytes | None = None, *, spent: Spent | None = None
    ) -> LeaseAnswer:
        """The job is done; `result` is JSON, `spent` what it has really cost, such as {"tokens": 1834, "usd": 0.02}."""
        view = await self._held(id, token)
        if isinstance(view, LeaseAnswer):
            return view
        if result is not None and len(result) > view.policy.max_result_bytes:
            raise PayloadTooLarge(
                f"the result is {len(result):,} bytes, over the limit of {view.policy.max_result_bytes:,}",
                fix="store it elsewhere and return where it is",
            )
        return await self._settle(view, token, Returned(result), "agent.complete", spent=spent)

    async def fail(
        self,
        id: str,
        token: int,
        message: str,
        *,
        kind: FailKind = "transient",
        retry_after_ms: int | None = None,
        spent: Spent | None = None,
    ) -> LeaseAnswer:
        """The attempt failed: transient is retried, permanent dies, rate-limited and spent hold the key for all."""
        view = await self._held(id, token)
        if isinstance(view, LeaseAnswer):
            return view
        message = storable((await redaction_of(self.store)).of(view).text(message))
        if kind == "rate-limited" or kind == "spent":
            outcome: Outcome = Limited(retry_after_ms, None, message, spent=kind == "spent")
        else:
            cause = cause_of("agent", view.lane.task, kind, message=message)
            outcome = Raised(Failure(kind, "agent", message, cause=cause), retry_after_ms)
        return await self._settle(view, token, outcome, "agent.fail", message, spent)

    async def release(self, id: str, token: int, *, reason: str = "", spent: Spent | None = None) -> LeaseAnswer:
        """Give the job back, unspent, for someone else."""
        view = await self._held(id, token)
        if isinstance(view, LeaseAnswer):
            return view
        reason = storable((await redaction_of(self.store)).of(view).text(reason))
        return await self._settle(view, token, HandedBack(started=True), "agent.release", reason, spent)

    # -- inside

    async def _wait_for_job(self, session: str, serves: Serves, wait_ms: int) -> Claimed | None:
        until = time.monotonic() + wait_ms / 1000
        seq = 0
        while True:
            await self._beat(session, serves, WAITING_TTL_MS)
            # Without workers, only other agents can take back the jobs of a dead agent.
            await self.store.expire(now_ms=self._asked_ms)
            seq += 1
            claim = await self.store.claim(ClaimRequest(session, serves, 1, 1, seq, "agent"), now_ms=self._asked_ms)
            if claim.jobs:
                return claim.jobs[0]
            if claim.again:
                continue
            left_ms = int((until - time.monotonic()) * 1000)
            if left_ms <= 0:
                return None
            pause_ms = min(left_ms, BEAT_MS)
            if claim.next_at_ms is not None:
                pause_ms = max(1, min(pause_ms, claim.next_at_ms - claim.now_ms))
            await self.store.wait(session, pause_ms)

    async def _beat(self, session: str, serves: Serves, ttl_ms: int) -> None:
        about = msgspec.json.encode({"kind": "agent", "agent": session.split(":")[1]})
        await self.store.beat(Beat(session, ttl_ms, serves, about), now_ms=self._asked_ms)

    async def _again(self, view: JobView, session: str, serves: Serves, lease_ms: int) -> Claimed:
        await self._beat(session, serves, lease_ms)
        return await self._claimed(view)

    async def _session(self, session: str) -> SessionView | None:
        return next((view for view in await self.store.sessions() if view.session == session), None)

    async def _held(self, id: str, token: int) -> JobView | LeaseAnswer:
        """The running job under this token, or why it is not."""
        view = await view_of(self.store, await resolve(self.store, id))
        return view if view.state is State.running and view.token == token else _stale(view)

    async def _settle(
        self, view: JobView, token: int, outcome: Outcome, kind: str, reason: str = "", spent: Spent | None = None
    ) -> LeaseAnswer:
        session, claimed = view.session or "", await self._claimed(view)
        bill = Bill.of(claimed, spending_from(spent)) if spent else None
        learns = None
        if isinstance(outcome, Limited):
            learns, claimed = await self._learns(view), replace(claimed, held_since_ms=await self._held_since_ms(view))
        transition = decide(claimed, outcome, rng=random.Random(), learns=learns)
        if bill is not None:
            await self.store.save(view.id, token, bill.note, now_ms=self._asked_ms)
        costs = NOTHING_SPENT if bill is None else {view.id: bill.costs}
        # A number of its own for each call: the answer to another call must not be given again.
        (settled,) = await self.store.settle(
            session, time.time_ns() // 1_000, [transition], spent=costs, now_ms=self._asked_ms
        )
        if settled.answer == "stale":
            return _stale(await view_of(self.store, view.id))
        if settled.answer == "gone":
            return LeaseAnswer(answer="gone", state=None, text=f"job {id_text(view.id)} is no longer stored")
        if session.startswith("agent:"):
            await self.store.leave(session, now_ms=self._asked_ms)
        await self._log(kind, _agent(session), view.id, reason, token=token)
        state = settled.state or State.running
        return LeaseAnswer(answer="done", state=state, text=f"the job is {state.value}")

    async def _learns(self, view: JobView) -> str | None:
        """The key of the job's limit that is marked so: what code declares is known here by its gates."""
        keys = (*view.lane.limits, *view.lane.keys)
        gates = await self.store.gates(keys=[f"limit:{key}" for key in keys])
        learning = {gate.key for gate in gates if gate.rule.default_for_429}
        return next((key for key in keys if f"limit:{key}" in learning), None)

    async def _held_since_ms(self, view: JobView) -> int | None:
        """When it was put off first, of as often as that counts: a durable wait in between starts the count again."""
        if not view.held:
            return None
        put_off = [one for one in await attempts_of(self.store, view.id) if one.outcome in ("held", "snoozed")]
        return next((one.finished_at_ms for one in put_off[-view.held :]), None)

    async def _claimed(self, view: JobView) -> Claimed:
        return Claimed(
            id=view.id,
            token=view.token or 0,
            attempt=view.attempt,
            lost=view.lost,
            lane=view.lane,
            policy=view.policy,
            args=view.args,
            enqueued_at_ms=view.enqueued_at_ms,
            due_at_ms=view.due_at_ms,
            claimed_at_ms=view.claimed_at_ms or view.due_at_ms,
            held=view.held,
            cost=view.cost,
            tags=view.tags,
            meta=view.meta,
            flow=view.flow,
            inputs=await self._inputs(view),
            notes=view.notes,
            after=view.after,
            costs=view.costs,
        )

    async def _inputs(self, view: JobView) -> dict[bytes, Input]:
        """What the parents left, as a claim hands it out: nothing when it is too much together."""
        stand_ins = stand_ins_of(view.notes)
        ids = list(dict.fromkeys(stand_ins.get(id, id) for id in view.after))
        found: dict[bytes, Input] = {}
        size = 0
        for start in range(0, len(ids), PAGE):
            for parent in await self.store.get(ids[start : start + PAGE]):
                if parent is not None:
                    found[parent.id] = _input(parent)
                    size += len(parent.result or b"")
            if size > MAX_INPUT_BYTES:
                return {}
        return found

    async def _log(self, kind: str, agent: str, job: bytes, reason: str = "", **facts: object) -> None:
        await self.store.append([Decision(kind, agent, reason, dict(facts)).entry(self._asked_ms, job)])


def _input(parent: JobView) -> Input:
    if parent.state is State.succeeded:
        return Input(parent.result)
    return Input(failed=because(parent.id, f"is {parent.state.value}", parent.reason))


def _agent(session: str) -> str:
    kind, _, rest = session.partition(":")
    return rest.partition(":")[0] if kind == "agent" else session


def _stale(view: JobView) -> LeaseAnswer:
    """Say who has the job now, and what to do next."""
    name = id_text(view.id)
    if view.state is State.running:
        text = f"stale lease: job {name} is now held by {_agent(view.session or 'someone')} under another token"
    else:
        text = f"stale lease: job {name} is {view.state.value}"
    return LeaseAnswer(answer="stale", state=view.state, text=f"{text}; drop the work and claim again")
