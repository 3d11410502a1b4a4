"""Narrows the logs of a store to lines about some queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from limpet.core.jobs.view import Entry, Retention
from limpet.ops.scope_jobs import ScopedJobs
from limpet.ops.scope_records import facts_of, queue_of_entry, queues_of_schedules

LINES: Final = 1_000  # of a log, in one look
LOOKS: Final = 100
OPERATION: Final = "operation."  # how the kinds of lines begin that are about an operation


class ScopedLogs(ScopedJobs):
    """Lines that say that they are about one of these queues, or about a job of one."""

    async def append(self, entries: Sequence[Entry]) -> None:
        await self._store.append(entries)

    async def read(
        self, log: Literal["audit", "event"], after: int = 0, limit: int = 100, *, newest: bool = False
    ) -> list[Entry]:
        if newest:
            return await self._newest(log, after, limit)
        found: list[Entry] = []
        for _ in range(LOOKS):
            page = await self._store.read(log, after, LINES)
            found += await self._shown(page)
            if len(page) < LINES or len(found) >= limit:
                break
            after = page[-1].seq
        return found[:limit]

    async def _newest(self, log: Literal["audit", "event"], after: int, limit: int) -> list[Entry]:
        found: list[Entry] = []
        last = await self._store.read(log, limit=1, newest=True)
        until = last[0].seq if last else 0
        for _ in range(LOOKS):
            if until <= after or len(found) >= limit:
                break
            begin = max(after, until - LINES)
            page = [each for each in await self._store.read(log, begin, LINES) if each.seq <= until]
            found = await self._shown(page) + found
            until = begin
        return found[-limit:] if limit else []

    async def _shown(self, entries: Sequence[Entry]) -> list[Entry]:
        """Lines that are about one of these queues, by what they say or by their job."""
        said = {each.seq: queue_of_entry(each) for each in entries}
        mine = await self._mine([each.job for each in entries if each.job is not None and said[each.seq] is None])
        about = {facts_of(each).get("schedule") for each in entries} - {None}
        schedules = await queues_of_schedules(self._store) if about else {}

        def shown(each: Entry) -> bool:
            if each.kind.startswith(OPERATION) and each.job is None:
                return self.queues.issuperset(facts_of(each).get("queues") or [None])
            queue = said[each.seq] or schedules.get(str(facts_of(each).get("schedule")))
            return each.job in mine if queue is None else queue in self.queues

        return [each for each in entries if shown(each)]

    async def prune(self, retention: Retention, limit: int = 1_000, *, now_ms: int | None = None) -> int:
        self._refuse("every queue together")
