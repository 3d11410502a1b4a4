"""Runs beside the jobs what the app gives its workers for the store as a whole, such as the look for alerts."""

from __future__ import annotations

from collections.abc import Callable

from limpet.runtime.part import Part
from limpet.runtime.settings import Companion
from limpet.stores.base import Store


class CompanionPart(Part):
    """One of them, for as long as the worker claims."""

    name = "companion"

    def __init__(self, companion: Companion, store: Store) -> None:
        super().__init__()
        self._companion = companion
        self._store = store

    async def live(self, ready: Callable[[], None]) -> None:
        ready()
        await self._companion(self._store)
