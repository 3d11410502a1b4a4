"""Narrows what workers ask of a store to some queues: their sessions, claims, and the ends of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from limpet.core.endings.transition import Settled, Transition
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Beat, Claim, ClaimRequest, Held, Note, Pulse, Serves, SessionView, Wake
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Query
from limpet.ops.scope_jobs import MOST_JOBS, ScopedJobs
from limpet.stores.asking import find_all
from limpet.stores.base import NOTHING_SPENT


class ScopedWorkers(ScopedJobs):
    """The verbs of workers that serve these queues and no others."""

    async def beat(self, beat: Beat, *, now_ms: int | None = None) -> Pulse:
        await self._refuse_session(beat.session)
        notes = await self._mine([id for id, _, _ in beat.notes])
        kept = tuple(note for note in beat.notes if note[0] in notes)
        return await self._store.beat(replace(beat, serves=self._served(beat.serves), notes=kept), now_ms=now_ms)

    async def leave(self, session: str, *, now_ms: int | None = None) -> None:
        await self._refuse_session(session)
        await self._store.leave(session, now_ms=now_ms)

    async def claim(self, request: ClaimRequest, *, now_ms: int | None = None) -> Claim:
        await self._refuse_session(request.session)
        return await self._store.claim(replace(request, serves=self._served(request.serves)), now_ms=now_ms)

    async def settle(
        self,
        session: str,
        seq: int,
        transitions: Sequence[Transition],
        *,
        spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT,
        now_ms: int | None = None,
    ) -> list[Settled]:
        await self._refuse_session(session)
        await self._refuse_others([each.id for each in transitions])
        return await self._store.settle(session, seq, transitions, spent=spent, now_ms=now_ms)

    async def save(self, id: bytes, token: int, note: Note, *, now_ms: int | None = None) -> bool:
        return bool(await self._mine([id])) and await self._store.save(id, token, note, now_ms=now_ms)

    async def held(self, session: str) -> list[Held]:
        await self._refuse_session(session)
        return await self._store.held(session)

    async def expire(self, limit: int = 256, *, now_ms: int | None = None) -> int:
        self._refuse("every queue together")

    async def wait(self, session: str, timeout_ms: int) -> Wake:
        await self._refuse_session(session)
        return await self._store.wait(session, timeout_ms)

    async def sessions(self) -> list[SessionView]:
        """Workers that serve one of these queues; of those that serve others too, what they say is left out."""
        found = await self._store.sessions()
        serving = [each for each in found if each.serves.queues is None or self.queues & {*each.serves.queues}]
        mixed = [each for each in serving if not self._within(each)]
        jobs = await find_all(self, Query(frozenset({State.running}), limit=MOST_JOBS)) if mixed else []
        running = Counter(job.session for job in jobs)
        return [each if self._within(each) else self._narrowed(each, running[each.session]) for each in serving]

    def _served(self, serves: Serves) -> Serves:
        """What a worker may serve: without names, the queues of the scope."""
        if serves.queues is None:
            return replace(serves, queues=tuple(sorted(self.queues)))
        for queue in serves.queues:
            if queue not in self.queues:
                self._refuse(f"the queue {queue!r}")
        return serves

    async def _refuse_session(self, session: str) -> None:
        """A session of another worker, which serves other queues too, is not to be touched."""
        for view in await self._store.sessions():
            if view.session == session and not self._within(view):
                self._refuse(f"the session {session!r:.80}")

    def _within(self, view: SessionView) -> bool:
        return view.serves.queues is not None and self.queues.issuperset(view.serves.queues)

    async def _refuse_others(self, ids: Sequence[bytes]) -> None:
        """Refuse jobs that are there and of other queues; what has gone is answered by the store."""
        for view in await self._store.get(ids):
            if view is not None and view.lane.queue not in self.queues:
                self._refuse(f"job {id_text(view.id)}")

    def _narrowed(self, view: SessionView, running: int) -> SessionView:
        queues = self.queues if view.serves.queues is None else self.queues.intersection(view.serves.queues)
        serves = Serves(tuple(sorted(queues)), None, view.serves.capabilities)
        return replace(view, serves=serves, info=b"{}", running=running)
