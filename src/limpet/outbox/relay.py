"""Relays an outbox in time: again and again, through outages of either side, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from limpet.core.errors import StoreError, StoreUnreachable
from limpet.outbox.carrier import BATCH, Carrier, Report, Step
from limpet.outbox.table import Table, outbox_log
from limpet.stores.base import Store

T = TypeVar("T")

IDLE_S: Final = 1.0  # a net under the notifications, and where there are none, how long a job waits at most
BUSY_S: Final = 0.2  # another relay has its turn
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0  # work resumes within two seconds of either side's return
GRACE_S: Final = 4.0  # for the step that is under way when the end is asked for; breaking it off is safe too
CUT_OFF_MS: Final = 600_000  # how long either side may stay away


class Relay:
    """One relay. Several may run on one outbox: they take turns, and each job is relayed once."""

    def __init__(self, store: Store, table: Table, *, batch: int = BATCH, cut_off_ms: int = CUT_OFF_MS) -> None:
        self._store = store
        self._table = table
        self._carrier = Carrier(store, table, batch=batch)
        self._cut_off_ms = cut_off_ms
        self._begun = False
        self._failures = 0
        self._since_s = 0.0  # when the first of them was
        self._rng = random.Random()

    @property
    def report(self) -> Report:
        """What was done so far."""
        return self._carrier.report

    async def run(self, stop: asyncio.Event, *, once: bool = False) -> Report:
        """Relay until `stop` is set, or with `once` until nothing is left that can be relayed now.

        Trouble that passes is waited out, from the start on; but not with `once`. Raises StoreUnreachable when it has
        not passed for too long.
        """
        while not stop.is_set():
            try:
                if not self._begun:
                    await _unless(stop, self.begin(), 0.0)
                    continue
                # Nothing is lost by breaking off what one of both sides does not answer.
                did = await _unless(stop, self._carrier.step(), 0.0 if self._failures else GRACE_S)
                if did is not None:
                    self._heal()
                if did == "idle" and once:
                    break
                if did != "moved":
                    await self._rest(stop, did)
            except StoreError as error:
                if once or not error.retryable:
                    raise
                await self._ail(stop, error)
        outbox_log(logging.INFO, "relay ended", **_fields(self.report))
        return self.report

    async def begin(self) -> None:
        """Connect to both stores once, or raise the error. `run` does it if the caller has not."""
        await self._store.open()
        await self._table.tally()
        self._begun = True
        self._heal()
        outbox_log(logging.INFO, "relay started", outbox=self._table.place.shown)

    async def _rest(self, stop: asyncio.Event, did: Step | None) -> None:
        await _unless(stop, asyncio.sleep(BUSY_S) if did == "busy" else self._table.wait(IDLE_S), 0.0)

    async def _ail(self, stop: asyncio.Event, error: StoreError) -> None:
        now_s = time.monotonic()
        side = "outbox" if error.verb == "outbox" else "store"
        if not self._failures:
            self._since_s = now_s
            outbox_log(logging.WARNING, f"{side} is away", code=error.code, error=error.message)
        elif now_s - self._since_s > self._cut_off_ms / 1000:
            raise StoreUnreachable(
                f"nothing could be relayed for {now_s - self._since_s:.0f} s, the {side} is away: {error.message}",
                verb=error.verb,
                fix="check both sides, then start the relay again: what is in the outbox stays there",
            ) from error
        longest_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * (1 << min(self._failures, 10)))
        self._failures += 1
        await _unless(stop, asyncio.sleep(longest_s * self._rng.uniform(0.5, 1.0)), 0.0)

    def _heal(self) -> None:
        if self._failures:
            self._failures = 0
            outbox_log(logging.WARNING, "both sides are back")


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T], grace_s: float) -> T | None:
    """What `work` answers; None when `stop` was set and it did not end within `grace_s`."""
    task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and grace_s:
            await asyncio.wait({task}, timeout=grace_s)
        return task.result() if task.done() else None
    finally:
        for each in (task, stopped):
            each.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)


def _fields(report: Report) -> dict[str, int]:
    return {"relayed": report.relayed, "duplicates": report.duplicates, "failed": report.failed}
