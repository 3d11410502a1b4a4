"""Watches a worker's loop from a thread beside it: shows that its interpreter runs, and where the loop stands still."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep  # by name: a handler may replace what the module holds
from typing import Final

from limpet.runtime.blocked_loop import LoopWatch, stack_text
from limpet.runtime.log import worker_log
from limpet.runtime.roster import Roster

LOOK_S: Final = 0.25  # at most; a short lease is looked at more often


class LoopMonitor:
    """A thread that marks its turns in the roster, if there is one, and looks at the loop."""

    def __init__(self, roster: Roster | None, lease_ms: int) -> None:
        self.roster = roster
        self._lease_ms = lease_ms
        self._watched = threading.get_ident()
        self._told = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="limpet-monitor", daemon=True)
        self._watch: LoopWatch | None = None  # while a worker runs in the loop

    def start(self) -> None:
        """Begin; at the latest it ends with the process."""
        if self.roster is not None:
            self.roster.thread()
        self._thread.start()

    @contextmanager
    def looks_through(self, watch: LoopWatch) -> Iterator[None]:
        """Look for handlers that block, in the block; a monitor that has not begun lives no longer than that."""
        own = not self._thread.is_alive()
        self._watch = watch
        if own:
            try:
                self.start()
            except RuntimeError:
                own = False  # the container has no room for another thread
        try:
            yield
        finally:
            self._watch = None
            if own:
                self.stop()

    def stop(self) -> None:
        """End, and return when ended: nothing is written into the roster any more."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        pause_s = min(LOOK_S, self._lease_ms / 4000)
        while True:
            try:
                if self._stopping.wait(pause_s):
                    return
                if self.roster is not None:
                    self.roster.thread()
                    self._look(self.roster.silent_ms())
                if (watch := self._watch) is not None:
                    watch.look()
            except Exception:  # a handler has broken what this uses, or taken all memory: the marks must not end
                sleep(pause_s)

    def _look(self, silent_ms: int) -> None:
        """Tell, once in a standstill of a whole lease, where the loop stands, whatever code that is."""
        if silent_ms <= self._lease_ms:
            self._told = False
        elif not self._told:
            self._told = True
            frame = sys._current_frames().get(self._watched)
            stack = "unknown" if frame is None else stack_text(frame)
            worker_log(logging.WARNING, "the event loop is blocked", silent_ms=silent_ms, stack=stack)
