"""Writes what a worker has counted into the store, minute by minute, in a record that is its own while it lives."""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping
from contextlib import suppress

from limpet.core.errors import StoreError
from limpet.core.jobs.minute import Key, Tally
from limpet.core.jobs.rollup import (
    IDLE_MINUTES,
    MINUTE_MS,
    PART_MINUTES,
    PARTS,
    Line,
    Part,
    added,
    bounded,
    read,
    written,
)
from limpet.runtime.minute_counter import Reading
from limpet.stores.base import Store


class RollupWriter:
    """After a beat it writes what has ended since the last one. What could not be written goes with the next.

    An attempt counts for the minute in which it is written, so nothing comes late for a minute that is over. The record
    is written whole each time: written twice, it says the same.
    """

    def __init__(self, store: Store, session: str, reading: Reading) -> None:
        self._store = store
        self._session = session
        self._reading = reading
        self._rng = random.Random()
        self._waiting: dict[Key, Tally] = {}  # that the store is not known to have
        self._minutes: dict[int, list[Line]] = {}  # that it has
        self._place: tuple[str, int] | None = None  # the record that is its own, and its version

    async def write(self, *, now_ms: int | None = None) -> None:
        """Write, if something has ended. A store in trouble is asked again after the next beat."""
        for key, tally in self._reading.news().items():
            self._waiting.setdefault(key, Tally()).add(tally)
        if self._waiting:
            with suppress(StoreError):
                await self._write(await self._store.now() if now_ms is None else now_ms)

    async def _write(self, now_ms: int) -> None:
        minute = now_ms // MINUTE_MS
        minutes = {at: lines for at, lines in self._minutes.items() if at > minute - PART_MINUTES}
        minutes[minute] = _sum(minutes.get(minute, []), self._waiting)
        part = Part(self._session, minutes)
        while not await self._put(part):
            self._place = await self._found_place(minute)  # the first time, or another worker has taken it
        self._waiting, self._minutes = {}, minutes

    async def _put(self, part: Part) -> bool:
        if self._place is None:
            return False
        name, version = self._place
        kept = await self._store.put_control(written(PARTS, name, part), expect=version)
        if kept is not None:
            self._place = name, kept.version
        return kept is not None

    async def _found_place(self, minute: int) -> tuple[str, int]:
        """Its own record, else one that a worker has left, else a new one: they are never removed."""
        free = []
        for control in await self._store.controls(PARTS):
            part = read(control, Part)
            if part is not None and part.session == self._session:
                return control.name, control.version
            if part is None or part.newest <= minute - IDLE_MINUTES:
                free.append((control.name, control.version))
        return self._rng.choice(free) if free else (secrets.token_hex(4), 0)


def _sum(lines: list[Line], more: Mapping[Key, Tally]) -> list[Line]:
    return bounded(added([*lines, *((*key, tally) for key, tally in more.items())]))
