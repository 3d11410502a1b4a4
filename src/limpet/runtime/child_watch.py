"""Judges a child by what can be seen of it from outside: whether it is silent, stopped, deaf, or does not get away.

A loop that is blocked by a handler keeps its leases (ADR 5), so silence alone is a reason to say so, not to kill.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import Final, Literal

from limpet.runtime.child_process import ChildProcess
from limpet.runtime.log import worker_log
from limpet.runtime.process_state import ProcessState, process_state
from limpet.runtime.settings import WorkerSettings

Action = Literal["kill", "dismiss"]  # dismiss: it is asked to go, and may bring what it has to an end

USED_S: Final = 0.03  # of processor time in one lease: less is none, by the system's clock of 10 ms
LONGEST_LOOK_MS: Final = 2_000  # after a longer pause the supervisor itself was away, and saw nothing in between


class Seen:
    """How long something has been true, as far as it was watched: a supervisor that slept has not watched."""

    def __init__(self) -> None:
        self.ms = 0
        self._looked_at_s: float | None = None

    def look(self, is_true: bool) -> int:
        """How long it has been true, with this look."""
        now_s = monotonic()
        if not is_true:
            self.ms, self._looked_at_s = 0, None
            return 0
        if self._looked_at_s is not None:
            self.ms += min(LONGEST_LOOK_MS, round((now_s - self._looked_at_s) * 1000))
        self._looked_at_s = now_s
        return self.ms


class ChildWatch:
    """One child, looked at about once per second."""

    def __init__(self, child: ChildProcess, worker: WorkerSettings, silent_ms: int, end_ms: int) -> None:
        self._child = child
        self._worker = worker
        self._silent_ms = silent_ms  # however busy it is
        self._end_ms = end_ms  # that its end may take
        self._silent, self._idle, self._deaf, self._ending = Seen(), Seen(), Seen(), Seen()
        self._cpu_s = 0.0
        self._warned = False
        self._dismissed = False

    async def look(self) -> Action | None:
        """What must be done with the child now."""
        roster, lease_ms = self._child.roster, self._worker.ttl_ms
        if self._ending.look(roster.ending_ms() > 0) > self._end_ms:
            return self._kill("child did not get to its end in time, killing it")
        silent_ms = self._silent.look(roster.silent_ms() > lease_ms)
        if roster.silent_ms() > lease_ms:
            return await self._judge_silence(silent_ms)
        self._warned = False
        self._idle.look(False)
        return self._judge_hearing()

    async def _judge_silence(self, seen_ms: int) -> Action | None:
        """Its loop has not turned for a lease, and that was watched for so long."""
        child, lease_ms = self._child, self._worker.ttl_ms
        found = await asyncio.to_thread(process_state, child.pid)
        idle_ms = self._idle.look(self._rests(found))
        if not self._warned:
            self._warned = True
            stopped = found is not None and found.stopped
            worker_log(
                logging.WARNING,
                f"child is silent, its {'process is stopped' if stopped else 'event loop is blocked'}",
                pid=child.pid,
                silent_ms=child.roster.silent_ms(),
                state="unknown" if found is None else found.state,
            )
        if seen_ms < lease_ms:
            return None
        if found is not None and found.stopped:
            return self._kill("child is stopped, killing it")
        if child.ready is not None and idle_ms >= lease_ms:
            return self._kill("child hangs, killing it")
        if child.roster.silent_ms() > self._silent_ms:
            return self._kill("child is silent, killing it")
        return None

    def _rests(self, found: ProcessState | None) -> bool:
        """True when none of its threads has had a turn for a lease, nor used the processor since the last look."""
        if found is None:
            return False
        used_s, self._cpu_s = found.cpu_s - self._cpu_s, found.cpu_s
        return used_s < USED_S and self._child.roster.still_ms() > self._worker.ttl_ms

    def _judge_hearing(self) -> Action | None:
        """Its loop turns; but a child that no longer reaches the store, where we do, has lost a part."""
        child, worker = self._child, self._worker
        late = child.ready is not None and child.roster.beaten_ms() > worker.beat_ms * 1.5
        reached = child.kept_at_s is not None and monotonic() - child.kept_at_s < worker.beat_ms * 1.5 / 1000
        deaf_ms = self._deaf.look(late and reached and not child.leaving)
        if deaf_ms < worker.ttl_ms - worker.beat_ms:
            return None
        if self._dismissed:
            stays = deaf_ms > 2 * worker.ttl_ms and not child.roster.ending_ms()
            return self._kill("child does not reach the store, killing it") if stays else None
        self._dismissed = True
        worker_log(logging.ERROR, "child does not reach the store, replacing it", pid=child.pid)
        return "dismiss"

    def _kill(self, why: str) -> Action:
        worker_log(logging.ERROR, why, pid=self._child.pid, silent_ms=self._child.roster.silent_ms())
        return "kill"
