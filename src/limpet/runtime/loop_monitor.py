"""Watches a child's loop from a thread beside it: shows that its interpreter runs, and where the loop stands still."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from time import sleep  # by name: a handler may replace what the module holds
from typing import Final

from limpet.runtime.log import worker_log
from limpet.runtime.roster import Roster
from limpet.runtime.settings import WorkerSettings

LOOK_S: Final = 0.5  # at most; a short lease is looked at more often
DEEPEST: Final = 12  # frames of the stack that are told: the innermost ones


class LoopMonitor:
    """A thread that marks its turns in the roster, and tells once per standstill where the loop stands."""

    def __init__(self, roster: Roster, settings: WorkerSettings) -> None:
        self._roster = roster
        self._lease_ms = settings.ttl_ms
        self._watched = threading.get_ident()
        self._told = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="limpet-monitor", daemon=True)

    def start(self) -> None:
        """Begin; at the latest it ends with the process."""
        self._roster.thread()
        self._thread.start()

    def stop(self) -> None:
        """End, and return when ended: nothing is written into the roster any more."""
        self._stopping = True
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            self._roster.thread()
            silent_ms = self._roster.silent_ms()
            if silent_ms <= self._lease_ms:
                self._told = False
            elif not self._told:
                self._told = True
                worker_log(logging.WARNING, "the event loop is blocked", silent_ms=silent_ms, stack=self._stack())
            sleep(min(LOOK_S, self._lease_ms / 4000))

    def _stack(self) -> str:
        """Where the watched thread stands, innermost first, in one line."""
        frame = sys._current_frames().get(self._watched)
        if frame is None:
            return "unknown"
        found = traceback.extract_stack(frame)[-DEEPEST:]
        return " < ".join(f"{each.name} ({each.filename}:{each.lineno})" for each in reversed(found))
