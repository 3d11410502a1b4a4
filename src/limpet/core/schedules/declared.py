"""Decides whose word about a schedule is in force when several versions of the code run side by side."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from limpet.core.jobs.lease import SessionView
from limpet.core.schedules.schedule import Schedule

FIELD: Final = "schedules"  # of what a session says about itself: fingerprints by name
_REMEMBERED: Final = 8  # earlier words of the code: more than are ever deployed side by side


def redeclared(
    code: Schedule, stored: Schedule | None, alive: Collection[str], now_ms: int, *, lives: bool = True
) -> Schedule | None:
    """What to store for a schedule that code declares; None when what is stored stays.

    The newest word wins: one that was never stored replaces the one that is. One that was replaced before comes from an
    older version of the code, and returns only when no live worker declares what replaced it (`alive` are the
    fingerprints that they declare for this name): after a rollback, not during a deployment. Who does not live (a
    worker that is still starting) replaces nothing that live workers declare, for they would take it for a rollback,
    and nothing that a person added, because that person would not be told.
    """
    word = code.fingerprint
    if stored is None:
        return replace(code.replacing(None, now_ms), declared=word)
    if stored.declared == word or (stored.declared in alive and (word in stored.older or not lives)):
        return None
    if stored.source == "runtime" and not lives:
        return None
    older = [each for each in (stored.declared, *stored.older) if each not in ("", word)]
    return replace(code.replacing(stored, now_ms), declared=word, older=tuple(older[:_REMEMBERED]))


def returned(stored: Schedule) -> Schedule:
    """A schedule that a person gives back to the code: whatever live workers declare replaces it."""
    return replace(stored, declared="", older=())


class Absent(Struct, frozen=True):
    """A stored schedule that was declared by code, and is not any more."""

    name: str
    now_called: str = ""  # a schedule that live code declares in the very same way

    def __str__(self) -> str:
        renamed = f" (renamed to {self.now_called}?)" if self.now_called else ""
        return f"schedule {self.name} is no longer in the code of any live worker{renamed}, so it does not run"

    @property
    def fix(self) -> str:
        """How to be rid of it."""
        return f"limpet schedules remove {self.name}"


def absent(stored: Iterable[Schedule], declared: Mapping[str, Collection[str]]) -> list[Absent]:
    """Those of the stored schedules that live code has dropped or renamed."""
    names = {word: name for name, words in sorted(declared.items()) for word in words}
    return [
        Absent(schedule.name, names.get(schedule.declared, ""))
        for schedule in stored
        if schedule.source == "code" and schedule.name not in declared
    ]


def declared_by(sessions: Iterable[SessionView]) -> dict[str, set[str]]:
    """Which schedules the code of live workers declares, and how: fingerprints by name."""
    found: dict[str, set[str]] = {}
    for session in sessions:
        for name, word in _said(session.info).items():
            found.setdefault(name, set()).add(word)
    return found


def _said(info: bytes) -> dict[str, str]:
    try:
        said: Any = msgspec.json.decode(info)
        return msgspec.convert(said.get(FIELD, {}), dict[str, str]) if isinstance(said, dict) else {}
    except msgspec.MsgspecError:
        return {}


def tickers(sessions: Iterable[SessionView]) -> int:
    """How many live workers fire schedules; agents do not."""
    return sum(f'"{FIELD}"'.encode() in session.info for session in sessions)
