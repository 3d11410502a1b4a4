"""Narrows what is asked of jobs, and done to them, to those of some queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from msgspec.structs import replace

from limpet.core.access.refusal import OutOfScope
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Signal
from limpet.core.jobs.view import CauseView, Counts, FlowView, Inspection, JobView, Page, Query, Term
from limpet.stores.asking import find_all
from limpet.stores.base import CancelAnswer, RetryAnswer, RetryRequest, SignalAnswer, Store

ROUNDS: Final = 20  # pages that are looked through for one that is shown
MOST_JOBS: Final = 1_000  # of a flow, in one page

_FIX: Final = "use a token for that queue, or for every queue"


class ScopedJobs:
    """The jobs of a store, as if it held some queues only; jobs of others are not there."""

    def __init__(self, store: Store, queues: frozenset[str]) -> None:
        self._store = store
        self.queues = queues

    async def cancel(
        self, ids: Sequence[bytes], reason: str, *, force: bool = False, now_ms: int | None = None
    ) -> list[CancelAnswer]:
        mine = await self._mine(ids)
        answers = await self._store.cancel([*mine], reason, force=force, now_ms=now_ms) if mine else []
        said = dict(zip(mine, answers, strict=True))
        return [said.get(id, "gone") for id in ids]

    async def retry(self, request: RetryRequest, *, now_ms: int | None = None) -> list[RetryAnswer]:
        mine = await self._mine(request.ids)
        answers = await self._store.retry(replace(request, ids=tuple(mine)), now_ms=now_ms) if mine else []
        said = dict(zip(mine, answers, strict=True))
        return [said.get(id, "gone") for id in request.ids]

    async def signal(self, signals: Sequence[Signal], *, now_ms: int | None = None) -> list[SignalAnswer]:
        mine = await self._mine([each.id for each in signals])
        sent = [each for each in signals if each.id in mine]
        answers = iter(await self._store.signal(sent, now_ms=now_ms) if sent else [])
        return [next(answers) if each.id in mine else "gone" for each in signals]

    async def discard(self, ids: Sequence[bytes], *, now_ms: int | None = None) -> int:
        return await self._store.discard([*await self._mine(ids)], now_ms=now_ms)

    async def watch(self, id: bytes, timeout_ms: int | None) -> JobView | None:
        return await self._store.watch(id, timeout_ms) if await self._mine([id]) else None

    async def get(self, ids: Sequence[bytes]) -> list[JobView | None]:
        found = await self._store.get(ids)
        return [view if view is not None and view.lane.queue in self.queues else None for view in found]

    async def _mine(self, ids: Sequence[bytes]) -> dict[bytes, None]:
        """Those of these jobs that are there, in order, each once."""
        return dict.fromkeys(view.id for view in (await self.get(ids) if ids else []) if view is not None)

    async def find(self, query: Query, *, now_ms: int | None = None) -> Page:
        """With one queue that is a condition of the query; with several, pages are looked through."""
        if query.suffix is None and len(self.queues) == 1:
            (queue,) = self.queues
            query = replace(query, terms=(*query.terms, Term("queue", queue)))
            return await self._store.find(query, now_ms=now_ms)
        found: list[JobView] = []
        for _ in range(ROUNDS):
            page = await self._store.find(replace(query, limit=query.limit - len(found)), now_ms=now_ms)
            found += [view for view in page.jobs if view.lane.queue in self.queues]
            query = replace(query, cursor=page.cursor)
            if page.cursor is None or len(found) >= query.limit:
                break
        return Page(tuple(found), query.cursor, complete=query.cursor is None or len(found) >= query.limit)

    async def flows(
        self, ids: Sequence[bytes] | None = None, limit: int = 50, before: bytes | None = None
    ) -> list[FlowView]:
        """Those whose jobs are all of these queues."""
        if ids is not None:
            return [view for view in await self._store.flows(ids) if await self._is_whole(view)]
        found: list[FlowView] = []
        for _ in range(ROUNDS):
            page = await self._store.flows(None, limit, before)
            found += [view for view in page if await self._is_whole(view)]
            if len(page) < limit or len(found) >= limit:
                break
            before = page[-1].id
        return found[:limit]

    async def _is_whole(self, view: FlowView) -> bool:
        mine = await find_all(self, Query(None, (Term("flow", id_text(view.id)),), limit=MOST_JOBS))
        return len(mine) >= sum(view.counts.values())

    async def causes(self, queue: str | None = None, limit: int = 50) -> list[CauseView]:
        queues = self.queues if queue is None else self.queues & {queue}
        found = [view for each in sorted(queues) for view in await self._store.causes(each, limit)]
        return sorted(found, key=lambda view: -view.count)[:limit]

    async def count(self, *, queues: bool = False) -> Counts:
        """The jobs of now; what has happened since the store was made is not kept by queue."""
        counts = await self._store.count(queues=queues)
        now = {key: number for key, number in counts.now.items() if key[0] in self.queues}
        seen = tuple(view for view in counts.queues if view.queue in self.queues)
        return Counts(now, 0, 0, 0, 0, 0, 0, queues=seen, whole=False)

    async def inspect(self, id: bytes, *, now_ms: int | None = None) -> Inspection | None:
        found = await self._store.inspect(id, now_ms=now_ms)
        return found if found is not None and found.view.lane.queue in self.queues else None

    def _refuse(self, what: str) -> NoReturn:
        queues = ", ".join(sorted(self.queues))
        raise OutOfScope(f"{what} is not within the scope of the token: {queues}", fix=_FIX)
