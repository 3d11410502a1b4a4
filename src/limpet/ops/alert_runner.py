"""Runs alerts in the background of a process: looks, tells what is new, and ends with the process."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
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
        self._complaint = ""
        self._task: asyncio.Task[None] | None = None

    async def live(self) -> None:
        """Run until cancelled. The first look comes after a pause, so that a short life costs nothing."""
        while True:
            await asyncio.sleep(self._alerts.rules.every_ms / 1000 * self._rng.uniform(0.75, 1.25))
            await self._step()

    async def _step(self) -> None:
        try:
            await self._alerts.look()
            if self._away is not None:
                await self._away.back(self._alerts.rules)
            await self._courier.deliver()
            self._complaint = ""
        except StoreError as error:
            self._complain(error.message)
            if self._away is not None and error.retryable:
                await self._away.failed(error, self._alerts.rules, self._alerts.book)
        except LimpetError as error:
            self._complain(error.message)
        except Exception as error:  # jobs matter more than alerts: a defect here must not end a worker
            self._complain(repr(error), defect=True)

    def _complain(self, why: str, *, defect: bool = False) -> None:
        if why != self._complaint:
            self._complaint = why
            _log.log(logging.ERROR if defect else logging.WARNING, "alerts: %s", why, exc_info=defect)

    def start(self) -> None:
        """Begin; nothing when it has begun."""
        if self._task is None:
            self._task = asyncio.create_task(self.live(), name="limpet-alerts")

    async def stop(self) -> None:
        """End, and return when ended; twice, or before a start, is fine."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
