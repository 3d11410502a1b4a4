"""Sums what workers have counted into minutes and hours of the store: one worker at a time, each in its turn."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final

from limpet.core.errors import StoreError
from limpet.core.jobs.rollup import (
    HOUR_MS,
    MARK,
    MINUTE_MS,
    MINUTES_OF_HOURS,
    PART_MINUTES,
    PARTS,
    SETTLED_MS,
    Look,
    Mark,
    Part,
    Rollup,
    hour_control,
    minute_control,
    minutes_of,
    read,
    written,
)
from limpet.runtime.log import worker_log
from limpet.stores.base import Store

FOLD_MS: Final = 15_000  # a minute that is over is summed so soon, about
BUSY_MS: Final = 30_000  # who has not finished by then has died, and another one does it again
HOURS_AT_ONCE: Final = 2


class RollupFolder:
    """Writes the minutes that are over, and the hours. What it writes follows from what is stored: twice is the same.

    A minute's record takes the place of the one 49 hours before, an hour's that of the one 36 days before: so they are
    pruned as they are written.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rng = random.Random()

    async def live(self) -> None:
        """Look again and again, until cancelled: for a process that is no worker."""
        while True:
            await asyncio.sleep(FOLD_MS / 1000 * self._rng.uniform(0.75, 1.25))
            while await self.look():
                pass

    async def look(self, *, now_ms: int | None = None) -> bool:
        """Write what is due; True when there may be more. A store in trouble is asked again at the next look."""
        try:
            return await self._look(await self._store.now() if now_ms is None else now_ms)
        except StoreError as error:
            if not error.retryable:
                worker_log(logging.WARNING, "could not store the counts of a minute", code=error.code, error=error)
            return False

    async def _look(self, now_ms: int) -> bool:
        minute = (now_ms - SETTLED_MS) // MINUTE_MS - 1  # the last one that is over
        hour = (minute + 1) * MINUTE_MS // HOUR_MS - 1
        found = next((each for each in await self._store.controls(MARK[0]) if each.name == MARK[1]), None)
        mark = (None if found is None else read(found, Mark)) or Mark(minute - PART_MINUTES, hour)
        if (mark.minute >= minute and mark.hour >= hour) or mark.busy_until_ms > now_ms:
            return False
        version = 0 if found is None else found.version
        mine = await self._mark(Mark(mark.minute, mark.hour, now_ms + BUSY_MS), version)
        if mine is None:
            return False
        if mark.minute < minute:
            await self._fold_minutes(mark.minute, minute, now_ms)
        first = max(mark.hour + 1, hour - MINUTES_OF_HOURS + 2)  # minutes of earlier ones are gone
        last = min(hour, first + HOURS_AT_ONCE - 1)
        for each in range(first, last + 1):
            await self._fold_hour(each)
        await self._mark(Mark(max(minute, mark.minute), max(last, mark.hour)), mine)
        return last < hour

    async def _mark(self, mark: Mark, expect: int) -> int | None:
        kept = await self._store.put_control(written(*MARK, mark), expect=expect)
        return None if kept is None else kept.version

    async def _fold_minutes(self, after: int, last: int, now_ms: int) -> None:
        """All minutes that workers have counted in, and the last with what the counters say."""
        parts = [part for each in await self._store.controls(PARTS) if (part := read(each, Part)) is not None]
        counted = {at for part in parts for at in part.minutes if after < at <= last}
        look = Look.of(await self._store.count(queues=True), now_ms)
        for at in sorted(counted | {last}):
            lines = (line for part in parts for line in part.minutes.get(at, []))
            await self._store.put_control(minute_control(Rollup.of(at, lines, [look if at == last else None])))

    async def _fold_hour(self, hour: int) -> None:
        found = [read(each, Rollup) for each in await self._store.controls(minutes_of(hour))]
        minutes = [each for each in found if each is not None and each.at // 60 == hour]
        if minutes:
            lines = (line for each in minutes for line in each.lines)
            await self._store.put_control(hour_control(Rollup.of(hour, lines, [each.look for each in minutes])))
