"""Sweeps for everyone: takes jobs back from dead workers, places those whose code has gone, sums counts, prunes."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from msgspec.structs import replace

from limpet.core.jobs.retention import DECLARED, SET, merged, said_in
from limpet.runtime.log import worker_log
from limpet.runtime.part import Part
from limpet.runtime.patient_store import PatientStore
from limpet.runtime.referral import Referral
from limpet.runtime.rollup_folder import FOLD_MS, RollupFolder
from limpet.runtime.settings import WorkerSettings

SWEEP_JOBS = 256
PRUNE_ROWS = 500  # small steps: a claim never waits long behind one


class Janitor(Part):
    """In every worker, at random offsets: no single process has to live for lost jobs to come back."""

    name = "janitor"

    def __init__(
        self,
        store: PatientStore,
        settings: WorkerSettings,
        rng: random.Random,
        referral: Referral,
        on_sweep: Callable[[], None],
    ) -> None:
        super().__init__()
        self._store = store
        self._settings = settings
        self._rng = rng
        self._referral = referral
        self._folder = RollupFolder(store.store)
        self._on_sweep = on_sweep
        self.recovered = 0

    async def live(self, ready: Callable[[], None]) -> None:
        ready()
        loop = asyncio.get_running_loop()
        prune_at_s = loop.time() + self._spread_s(self._settings.prune_ms)
        refer_at_s = loop.time() + self._spread_s(self._settings.refer_ms)
        fold_at_s = loop.time() + self._spread_s(FOLD_MS)
        while True:
            await asyncio.sleep(self._spread_s(self._settings.sweep_ms))
            lost = await self._store.expire(SWEEP_JOBS)
            self.recovered += lost
            if lost:
                worker_log(logging.WARNING, "took jobs back from silent workers", jobs=lost)
            self._on_sweep()
            if loop.time() >= refer_at_s:
                await self._referral.look()
                refer_at_s = loop.time() + self._spread_s(self._settings.refer_ms)
            if loop.time() >= fold_at_s:
                more = await self._folder.look()
                fold_at_s = loop.time() + (0 if more else self._spread_s(FOLD_MS))
            if loop.time() >= prune_at_s:
                gone = await self._prune()
                # While there is more to remove, go on with the next sweep instead of the next round.
                prune_at_s = loop.time() + (0 if gone >= PRUNE_ROWS else self._spread_s(self._settings.prune_ms))

    async def _prune(self) -> int:
        """One step. What operators and other programs say of single queues counts here too."""
        usual = self._settings.retention
        said = [said_in(await self._store.controls(kind)) for kind in (DECLARED, SET)]
        return await self._store.prune(replace(usual, queues=merged(usual.queues, *said)), PRUNE_ROWS)

    def _spread_s(self, ms: int) -> float:
        return ms / 1000 * self._rng.uniform(0.75, 1.25)
