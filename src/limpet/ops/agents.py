"""Runs the verbs of workers that are not our code: agents and programs that claim, keep and settle jobs."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from limpet.core.access.refusal import OutOfScope
from limpet.core.errors import InvalidOption
from limpet.core.jobs.lease import Claimed, Note, Serves
from limpet.core.jobs.state import State
from limpet.core.jobs.view import JobView
from limpet.core.records.claim import ClaimRecord
from limpet.core.records.lease import LeaseAnswer
from limpet.core.records.record import moment
from limpet.core.tasks.agent_type import LEASE_MS
from limpet.core.tasks.codec import encode_checkpoint
from limpet.core.text.storable import storable
from limpet.ops.agent_claim import AgentClaim, Asked
from limpet.ops.agent_endings import UNNAMED, Blocked, Completed, Ending, FailKind, Released, Spent, failing
from limpet.ops.agent_sessions import AgentSessions, KnownSessions, is_agents
from limpet.ops.agent_settling import settle
from limpet.ops.held_limits import held_limits, held_text
from limpet.ops.lease_answers import stale
from limpet.ops.redaction import redaction_of
from limpet.ops.select import resolve, view_of
from limpet.ops.types import KnownTypes
from limpet.stores.asking import attempts_of
from limpet.stores.base import Store

MOST_JOBS: Final = 100  # of one claim
MESSAGE_CHARS: Final = 1_000  # of progress


class Agents:
    """Claims and settles for agents. The jobs of one claim share a lease; different claims do not.

    With `queues` only jobs of these can be claimed, kept and settled. `known`, `types` and `sweep` are for a process
    that does this for many: what their sessions serve, the types of the store, and False where it sweeps by itself.
    A lease that is not asked for is that of the job's type, else `lease_ms`.
    """

    def __init__(
        self,
        store: Store,
        actor: str | None = None,
        *,
        queues: frozenset[str] | None = None,
        clock: Callable[[], int] | None = None,
        known: KnownSessions | None = None,
        types: KnownTypes | None = None,
        sweep: bool = True,
        lease_ms: int = LEASE_MS,
    ) -> None:
        self.store = store
        self._types = types or KnownTypes(store)
        self._lease_ms = lease_ms
        self._queues = queues
        self._clock = clock
        self._sessions = AgentSessions(store, actor, known or KnownSessions(), clock, queues)
        self._sweep: Callable[[], Awaitable[object]] = self._expire if sweep else _nothing

    def _now_ms(self) -> int:
        return time.time_ns() // 1_000_000 if self._clock is None else self._clock()

    async def claim(
        self,
        agent: str,
        serves: Serves,
        *,
        most: int = 1,
        lease_ms: int | None = None,
        wait_ms: int = 0,
        key: str | None = None,
        over: asyncio.Event | None = None,
    ) -> list[ClaimRecord]:
        """Lease up to `most` jobs to `agent`; none when there is nothing within `wait_ms`.

        The same `key` again answers the jobs that the first call got, as long as their lease lives. Once `over` is
        set no client waits for the answer: the claim ends, and what it had got goes back, unspent. With a key it
        stays until its lease ends: the client may have asked again, and have been answered already.
        """
        if not 1 <= most <= MOST_JOBS:
            raise InvalidOption(f"max={most} jobs cannot be claimed at once", fix=f"ask for 1 to {MOST_JOBS}")
        over = over or asyncio.Event()
        session = self._sessions.name(agent, key)

        async def lease_of(jobs: Sequence[Claimed]) -> int:
            return max([await self._lease_of(job.lane.task, lease_ms) for job in jobs])

        asked = Asked(
            session, self._within(serves), most, lease_ms or self._lease_ms, lease_of, wait_ms, key is not None, over
        )
        claim = AgentClaim(self._sessions, asked, self._sweep)
        jobs = await claim.jobs()
        if not jobs:
            return []
        until_ms = self._now_ms() + claim.lease_ms
        records, _ = await asyncio.gather(self._records(jobs, until_ms), self._log("agent.claim", session, jobs))
        if over.is_set() and key is None:
            await self._sessions.leave(session)
            await self._log("agent.release", session, jobs, "the client went before the claim was answered")
            return []
        return records

    async def heartbeat(self, id: str, token: int, *, lease_ms: int | None = None) -> LeaseAnswer:
        """Keep the lease for another `lease_ms`, for all jobs of its claim; says whether someone wants it cancelled."""
        view = await self._view(id)
        if not _holds(view, token):
            return stale(view)
        lease_ms = await self._lease_of(view.lane.task, lease_ms)
        session, text = view.session or "", "lease kept"
        cancel, until_ms = view.cancel_requested, None
        if not is_agents(session):
            text = "a worker holds this job, and keeps the lease itself"
        else:
            serves = await self._sessions.serves(session)
            if serves is None:
                return stale(view)
            pulse = await self._sessions.beat(session, serves, lease_ms)
            if pulse.fresh:
                # The lease ended between the question and the beat: leave no session behind that holds nothing.
                await self._sessions.leave(session)
                return stale(await view_of(self.store, view.id))
            cancel, until_ms = cancel or (view.id, token) in pulse.cancels, self._now_ms() + lease_ms
        await self._sweep()  # not before: a heartbeat in the last moment saves the lease
        held = await held_limits(self.store, self._now_ms(), view.lane)
        if held:
            text = f"{text}; {held_text(held, self._now_ms())}"
        if cancel:
            text = "someone wants this job cancelled: stop and release it"
        until = None if until_ms is None else moment(until_ms)
        return LeaseAnswer(
            answer="done", state=State.running, cancel_requested=cancel, until=until, held_limits=held, text=text
        )

    async def checkpoint(self, id: str, token: int, value: Any) -> LeaseAnswer:
        """Keep a JSON value with the job: the next claim of the job answers the newest one."""
        return await self._save(
            await self._view(id), token, Note("checkpoint", "", encode_checkpoint(value)), "checkpoint kept"
        )

    async def progress(
        self, id: str, token: int, done: float, total: float | None = None, message: str = ""
    ) -> LeaseAnswer:
        """Say how far the job is, for people."""
        if not all(math.isfinite(number) for number in (done, total or 0)):
            raise InvalidOption(f"progress {done} of {total} is no number", fix="give finite numbers")
        view = await self._view(id)
        said = (await redaction_of(self.store)).of(view).text(message) if message else ""
        told = {"done": done, "total": total, "message": storable(said, MESSAGE_CHARS)}
        return await self._save(view, token, Note("progress", "", msgspec.json.encode(told)), "progress kept")

    async def complete(
        self, id: str, token: int, result: bytes | None = None, *, spent: Spent | None = None
    ) -> LeaseAnswer:
        """The job is done; `result` is JSON, `spent` what it has really cost, such as {"tokens": 1834, "usd": 0.02}."""
        return await self._end(Completed(id=id, token=token, result=result, spent=spent))

    async def fail(
        self,
        id: str,
        token: int,
        message: str,
        *,
        kind: FailKind = "transient",
        retry_after_ms: int | None = None,
        timeout_ms: int | None = None,
        type: str | None = None,
        traceback: str = "",
        spent: Spent | None = None,
    ) -> LeaseAnswer:
        """The attempt failed: transient is retried, permanent dies, rate-limited and spent hold the key for all.

        needs-human is `block`, and the message is its question.
        """
        return await self._end(
            failing(
                id,
                token,
                message,
                kind=kind,
                retry_after_ms=retry_after_ms,
                timeout_ms=timeout_ms,
                type=type or UNNAMED,
                traceback=traceback,
                spent=spent,
            )
        )

    async def block(
        self, id: str, token: int, question: str, *, timeout_ms: int | None = None, spent: Spent | None = None
    ) -> LeaseAnswer:
        """Ask a person: the job waits for the answer, its attempt unspent and its slots free. A later claim reads it.

        `timeout_ms` bounds the wait: then the job continues without an answer.
        """
        return await self._end(Blocked(id=id, token=token, question=question, timeout_ms=timeout_ms, spent=spent))

    async def release(self, id: str, token: int, *, reason: str = "", spent: Spent | None = None) -> LeaseAnswer:
        """Give the job back, unspent, for someone else."""
        return await self._end(Released(id=id, token=token, reason=reason, spent=spent))

    async def settle(self, endings: Sequence[Ending]) -> list[LeaseAnswer]:
        """End several holds, by whole ids; an answer for each, in order. What makes no sense is refused first."""
        ids = [await resolve(self.store, ending.id) for ending in endings]
        views = await self.store.get(ids) if ids else []
        for view in views:
            if view is not None:
                self._refuse_others(view)
        return await settle(self._sessions, self._types, endings, views)

    # -- inside

    async def _lease_of(self, task: str, asked_ms: int | None) -> int:
        if asked_ms is not None:
            return asked_ms
        found = await self._types.of(task)
        return self._lease_ms if found is None else found.lease_ms

    async def _end(self, ending: Ending) -> LeaseAnswer:
        view = await self._view(ending.id)
        (answer,) = await settle(self._sessions, self._types, [ending], [view])
        return answer

    async def _save(self, view: JobView, token: int, note: Note, text: str) -> LeaseAnswer:
        if not _holds(view, token):
            return stale(view)
        if not await self.store.save(view.id, token, note, now_ms=self._sessions.asked_ms):
            return stale(await view_of(self.store, view.id))
        cancel = view.cancel_requested
        return LeaseAnswer(answer="done", state=State.running, cancel_requested=cancel, text=text)

    async def _view(self, id: str) -> JobView:
        view = await view_of(self.store, await resolve(self.store, id))
        self._refuse_others(view)
        return view

    def _within(self, serves: Serves) -> Serves:
        """What may be claimed: without names, the queues of the scope."""
        if self._queues is None:
            return serves
        for queue in serves.queues or ():
            if queue not in self._queues:
                raise _out_of_scope(f"the queue {queue!r:.80}", self._queues)
        return serves if serves.queues is not None else replace(serves, queues=tuple(sorted(self._queues)))

    def _refuse_others(self, view: JobView) -> None:
        if self._queues is not None and view.lane.queue not in self._queues:
            raise _out_of_scope("the queue of this job", self._queues)

    async def _records(self, jobs: Sequence[Claimed], until_ms: int) -> list[ClaimRecord]:
        attempts = await asyncio.gather(*(attempts_of(self.store, job.id) for job in jobs))
        until = moment(until_ms)
        return [
            ClaimRecord.of(
                job,
                before,
                until=until,
                type=await self._types.of(job.lane.task),
            )
            for job, before in zip(jobs, attempts, strict=True)
        ]

    async def _log(self, kind: str, session: str, jobs: Sequence[Claimed], reason: str = "") -> None:
        asked_ms = self._sessions.asked_ms
        lines = [self._sessions.line(kind, session, job.token, reason).entry(asked_ms, job.id) for job in jobs]
        await self.store.append(lines)

    async def _expire(self) -> None:
        await self.store.expire(now_ms=self._sessions.asked_ms)


async def _nothing() -> None:
    pass


def _holds(view: JobView, token: int) -> bool:
    return view.state is State.running and view.token == token


def _out_of_scope(what: str, queues: frozenset[str]) -> OutOfScope:
    named = ", ".join(sorted(queues))
    return OutOfScope(f"{what} is not within the scope of the token: {named}", fix="use a token for that queue")
