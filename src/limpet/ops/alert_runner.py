"""Runs alerts in the background of a process: looks, tells what is new, and ends with the process."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from limpet.core.alerts.settings import AlertsTable
from limpet.core.errors import LimpetError, StoreError
from limpet.ops.alert_away import AwayWatch
from limpet.ops.alert_look import AlertLook
from limpet.ops.courier import Courier
from limpet.stores.base import Store

_log = logging.getLogger("limpet.alerts")


class AlertRunner:
    """Looks again and again. What fails is told once and tried again: alerts never end the process that runs them.

    `table` is what the settings of this process say: which webhooks it can tell. With `tells_away` it tells them
    directly when the store does not answer; one process of a deployment does that, its server.
    """

    def __init__(self, store: Store, table: AlertsTable | None, namespace: str, *, tells_away: bool = False) -> None:
        rules = None if table is None else table.published()
        receivers = {} if table is None else table.receivers(os.environ)
        for deaf in sorted({} if table is None else table.webhooks.keys() - receivers.keys()):
            _log.info("webhook %s is told by other processes: its variables are not set here", deaf)
        name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._alerts = AlertLook(store, name, rules)
        self._courier = Courier(store, receivers, namespace)
        self._away = AwayWatch(receivers, namespace) if tells_away else None
        self._rng = random.Random()
        self._complaints: dict[str, str] = {}
        self._news = asyncio.Event()  # there is something to tell
        self._task: asyncio.Task[None] | None = None

    async def live(self) -> None:
        """Run until cancelled. The first look comes after a pause, so that a short life costs nothing."""
        loops = [asyncio.ensure_future(self._look_again_and_again())]
        loops.append(asyncio.ensure_future(self._deliver_again_and_again()))
        try:
            await asyncio.gather(*loops)
        finally:  # a handler of the app that cancels every task it finds may have ended one of them
            for each in loops:
                each.cancel()
            await asyncio.wait(loops)

    async def _look_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s())
            if await self._tried("look", self._look) and self._alerts.book.notices:
                self._news.set()

    async def _look(self) -> None:
        rules = self._alerts.rules
        try:
            await self._alerts.look()
        except StoreError as error:
            if self._away is not None and error.retryable:
                await self._away.failed(error, rules, self._alerts.book)
            raise
        if self._away is not None:
            await self._away.back(self._alerts.rules)

    async def _deliver_again_and_again(self) -> None:
        """Beside the looks: a receiver that does not answer holds up none of them."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._news.wait()
            self._news.clear()
            await self._tried("delivery", self._courier.deliver)

    def _pause_s(self) -> float:
        return self._alerts.rules.every_ms / 1000 * self._rng.uniform(0.75, 1.25)

    async def _tried(self, what: str, step: Callable[[], Awaitable[object]]) -> bool:
        """Whether it was done. The same trouble is told once, until a step of that kind is done again."""
        try:
            await step()
        except LimpetError as error:
            self._complain(what, error.message)
        except Exception as error:  # jobs matter more than alerts: a defect here must not end a worker
            self._complain(what, repr(error), defect=True)
        else:
            self._complaints.pop(what, None)
            return True
        return False

    def _complain(self, what: str, why: str, *, defect: bool = False) -> None:
        if self._complaints.get(what) != why:
            self._complaints[what] = why
            level = logging.ERROR if defect else logging.WARNING
            _log.log(level, "alerts: a %s failed: %s", what, why, exc_info=defect)

    def start(self) -> None:
        """Begin; nothing when it has begun."""
        if self._task is None:
            self._task = asyncio.create_task(self.live(), name="limpet-alerts")

    async def stop(self) -> None:
        """End, and return when ended; twice, or before a start, is fine."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
