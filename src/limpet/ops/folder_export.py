"""Writes a queue as a folder of JSON files, and keeps it current: for agents that can only read files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from limpet.core.folder.entry import FILES, FINISHED, entry_of, name_of
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Counts, JobView, Query
from limpet.core.records.folder import FolderExport
from limpet.ops.agent_sessions import agent_of
from limpet.ops.folder_files import BREAKERS, put, put_entries
from limpet.ops.operator import Operator
from limpet.ops.redaction import redaction_of
from limpet.stores.base import Store

NEWEST: Final = 1_000  # finished jobs that a file holds
MOST: Final = 50_000  # jobs of one file: it is read as a whole
LOOK_S: Final = 0.5  # between looks at the counters while watching
AGAIN_S: Final = 10.0  # what changes no counter, such as an edit, shows after this time


async def export_folder(operator: Operator, folder: Path, finished: int = NEWEST) -> FolderExport:
    """Write the files that have changed, each as a whole."""
    store = operator.store
    views = {name: await _views(store, name, states, finished) for name, states in FILES.items()}
    names = {view.id: name_of(view) for found in views.values() for view in found}
    await _name_parents(store, views, names)
    redaction = await redaction_of(store)
    written: list[str] = []
    for name, found in views.items():
        entries = [entry_of(redaction.job(view), names, _holder(view)) for view in found]
        if put_entries(folder, name, entries):
            written.append(name)
    if put(folder, BREAKERS, {"breakers": await _breakers(operator)}):
        written.append(BREAKERS)
    return FolderExport(entries={name: len(found) for name, found in views.items()}, written=tuple(written))


class FolderWatch:
    """Keeps a folder current; `told` hears of each export."""

    def __init__(self, operator: Operator, folder: Path, finished: int, told: Callable[[FolderExport], None]) -> None:
        self._operator = operator
        self._folder = folder
        self._finished = finished
        self._told = told

    async def run(self, stop: asyncio.Event, *, look_s: float = LOOK_S, looks: int | None = None) -> None:
        """Until `stop` is set, or for this number of looks. The counters tell that something has changed."""
        before: Counts | None = None
        wrote_s, left = 0.0, looks
        while not stop.is_set() and left != 0:
            counts = await self._operator.store.count()
            if counts != before or time.monotonic() - wrote_s >= AGAIN_S:
                before, wrote_s = counts, time.monotonic()
                self._told(await export_folder(self._operator, self._folder, self._finished))
            left = None if left is None else left - 1
            if left == 0:
                return
            try:
                await asyncio.wait_for(stop.wait(), look_s)
            except TimeoutError:
                continue


async def _views(store: Store, name: str, states: frozenset[State], finished: int) -> list[JobView]:
    """The jobs of one file: those that wait in the order in which they came, those that have ended the newest first."""
    most = finished if name in FINISHED and name != "dead-letter" else MOST
    query = Query(states, limit=min(500, max(1, most)), newest_first=name in FINISHED)
    found: list[JobView] = []
    while len(found) < most:
        page = await store.find(query)
        found += page.jobs
        if page.cursor is None:
            break
        query = replace(query, cursor=page.cursor)
    return found[:most]


async def _name_parents(store: Store, views: dict[str, list[JobView]], names: dict[bytes, str]) -> None:
    """What jobs that are in no file are called, where others depend on them."""
    missing = list({parent for found in views.values() for view in found for parent in view.after} - names.keys())
    for start in range(0, len(missing), 500):
        for view in await store.get(missing[start : start + 500]):
            if view is not None:
                names[view.id] = name_of(view)


async def _breakers(operator: Operator) -> dict[str, Any]:
    page = await operator.breakers(limit=1_000)
    return {
        one.breaker: {
            "state": one.state,
            "failureCount": one.recent_failures,
            "opened": one.opened,
            "openUntil": one.to_dict()["open_until"],
        }
        for one in page.breakers
    }


def _holder(view: JobView) -> str | None:
    return None if view.state is not State.running or view.session is None else agent_of(view.session)
