"""Sleeps until the store has news for this session, and passes them on: work, urgent work, a cancelled job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from limpet.core.jobs.lease import Wake
from limpet.runtime.part import Part
from limpet.runtime.patient_store import PatientStore


class Listener(Part):
    """The only one who waits on the store; no wait outlasts a beat, so a missed wake-up costs seconds, not hours."""

    name = "listener"

    def __init__(
        self,
        store: PatientStore,
        session: str,
        timeout_ms: int,
        on_wake: Callable[[Wake], None],
    ) -> None:
        super().__init__()
        self._store = store
        self._session = session
        self._timeout_ms = timeout_ms
        self._on_wake = on_wake

    async def live(self, ready: Callable[[], None]) -> None:
        ready()
        while True:
            wake = await self._store.wait(self._session, self._timeout_ms)
            self._on_wake(wake)
            await asyncio.sleep(0)  # a store that answers at once must not keep the loop
