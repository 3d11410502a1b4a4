"""Stops what must not run on without its lease, by this machine's own clock, before the store may hand the job on.

A lease lasts for its time at least, from the moment at which the last beat was sent that was answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import Final

from limpet.runtime.attempt import Attempt
from limpet.runtime.log import job_log
from limpet.runtime.roster import Roster, kept_ms

TOLD_MS: Final = 4_000  # before the end of the lease handlers are told to stop
ENDED_MS: Final = 2_000  # and the processes of jobs are killed
_PARTS: Final = 15  # a lease in parts: shorter ones keep the proportions of the usual 15 s
_LONGEST_LOOK_S: Final = 0.5  # a machine that was suspended wakes with its waits unchanged


class Fence:
    """Watches from a thread of its own, which sleeps while nothing runs that must stop."""

    def __init__(self, ttl_ms: int, roster: Roster | None) -> None:
        self._told_ms = ttl_ms - min(TOLD_MS, ttl_ms * 4 // _PARTS)  # after so much silence
        self._ended_ms = ttl_ms - min(ENDED_MS, ttl_ms * 2 // _PARTS)
        self._roster = roster
        self._sent_ms = kept_ms()
        self._loop = asyncio.get_running_loop()
        self._guarded: dict[tuple[bytes, int], Attempt] = {}
        self._news = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def beaten(self, sent_ms: int) -> None:
        """A beat that was sent at that moment was answered, and kept every lease that is held here. Any thread."""
        self._sent_ms = max(self._sent_ms, sent_ms)
        if self._roster is not None:
            self._roster.beat(self._sent_ms)

    def guard(self, attempt: Attempt) -> bool:
        """Stop the attempt in time if the store stays away; False when it is too late to begin one."""
        if self._silent_ms() >= self._told_ms:
            return False
        attempt.guarded = True
        self._guarded[attempt.job.id, attempt.job.token] = attempt
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="limpet-fence", daemon=True)
            self._thread.start()
        self._news.set()
        return True

    def release(self, attempt: Attempt) -> None:
        """The attempt has ended."""
        self._guarded.pop((attempt.job.id, attempt.job.token), None)

    def close(self) -> None:
        self._closed = True
        self._news.set()

    def _silent_ms(self) -> int:
        """For how long no beat of this worker has surely reached the store, its supervisor's for it included."""
        sent_ms = self._sent_ms
        if self._roster is not None:
            sent_ms = max(sent_ms, self._roster.beaten_for_at_ms())
        return kept_ms() - sent_ms

    def _watch(self) -> None:
        while not self._closed:
            self._news.clear()
            if not self._guarded:
                self._news.wait()
                continue
            silent_ms = self._silent_ms()
            if silent_ms >= self._told_ms:
                self._stop(ends=silent_ms >= self._ended_ms)
            left_ms = (self._told_ms if silent_ms < self._told_ms else self._ended_ms) - silent_ms
            self._news.wait(min(_LONGEST_LOOK_S, left_ms / 1000) if left_ms > 0 else _LONGEST_LOOK_S)

    def _stop(self, *, ends: bool) -> None:
        for attempt in list(self._guarded.values()):
            if not attempt.fenced:
                attempt.fenced = True
                with contextlib.suppress(RuntimeError):  # the loop is closed: its handlers have ended
                    self._loop.call_soon_threadsafe(self._tell, attempt)
            if ends and attempt.striker is not None:
                attempt.striker()

    def _tell(self, attempt: Attempt) -> None:
        if not attempt.over:
            job_log(logging.WARNING, "the lease may be lost, stopping the job", attempt.job)
            attempt.stop("lease", "the lease may be lost")
