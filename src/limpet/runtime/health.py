"""Decides from what a supervisor sees whether the worker lives, and whether it claims jobs or could.

A worker that does not live should be started again by who started it; so only what the supervisor itself does not
mend counts: no process whose loop turns. One that cannot reach its store lives, and is not ready.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from msgspec import Struct

from limpet.runtime.roster import Roster


class Health(Struct, frozen=True):
    """Why it does not live, and why it claims nothing; empty while it does."""

    unwell: str = ""
    unready: str = ""


class Child(Protocol):
    """What is looked at of a child process."""

    leaving: bool

    @property
    def pid(self) -> int: ...
    @property
    def ready(self) -> object | None: ...
    @property
    def roster(self) -> Roster: ...


def health_of(children: Collection[Child], lease_ms: int, *, stopping: bool) -> Health:
    """What is true now of the processes of one worker."""
    silent_ms = [child.roster.silent_ms() for child in children]
    unwell = ""
    if silent_ms and min(silent_ms) > lease_ms:
        unwell = f"no event loop of the worker has turned for {min(silent_ms) / 1000:.0f} s: a handler blocks it"
    if stopping:
        return Health(unwell, "the worker is ending")
    if not children:
        return Health(unwell, "no process of the worker runs yet")
    whys = [f"process {child.pid} {why}" if (why := _unready(child, lease_ms)) else "" for child in children]
    return Health(unwell, "; ".join(whys) if all(whys) else "")


def _unready(child: Child, lease_ms: int) -> str:
    """Why this one claims nothing, and could not; empty otherwise."""
    roster = child.roster
    if child.leaving or roster.ending_ms():
        return "is ending"
    if roster.silent_ms() > lease_ms:
        return "has a blocked event loop"
    if child.ready is None:
        return "loads the app, or waits for the store"
    if roster.beaten_ms() > lease_ms:
        return f"has not reached the store for {roster.beaten_ms() / 1000:.0f} s"
    return ""
