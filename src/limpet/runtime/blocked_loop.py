"""Notices a handler that blocks the event loop: which job, where it stands, and for how long.

A monitor's thread looks. Where it finds a handler in the loop, it asks the loop for a sign of life. A handler that
stands there at every look until that comes has not awaited meanwhile. So a plain job pays nothing.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import Context
from time import monotonic  # by name: a handler may replace what the module holds
from types import FrameType
from typing import Any, Final, NamedTuple, cast

from limpet.core.endings.failure import OWN
from limpet.core.jobs.blocked_loop import BLOCKED_MS, BlockedLoop, Blocker, Blocks
from limpet.core.jobs.ids import id_text
from limpet.core.text.storable import storable
from limpet.runtime.attempt import Attempt
from limpet.runtime.current import current
from limpet.runtime.log import job_log, worker_log
from limpet.runtime.pipe import drive

LONGEST_LOOK_S: Final = 0.5  # a look that comes later has not seen what was: the process, or the machine, stood still
OWN_TASKS: Final = "limpet-"
DEEPEST: Final = 12  # frames of the stack that are told: the innermost ones
STACK_CHARS: Final = 3_000


class Place(NamedTuple):
    """Where the loop stands: in the handler of this attempt, or in other code of the app."""

    attempt: Attempt | None
    mark: int  # tells it from other handlers
    innermost: FrameType


class Standstill:
    """The loop has not turned since the app's code was found in it."""

    def __init__(self, place: Place, ran_ms: int, waited_ms: int) -> None:
        self.attempt, self.mark = place.attempt, place.mark
        self.began_s = monotonic()
        self.ended_s: float | None = None
        self.seen_s = 0.0  # of it, while the monitor looked
        # What the loop's thread had used of a processor by then, and how long it had waited for one.
        self.ran_ms, self.waited_ms = ran_ms, waited_ms
        self.is_one = True  # the same code was found at every look
        self.stack = ""
        self.told = False

    def turned(self) -> None:
        """The loop turns again; called by the loop."""
        self.ended_s = monotonic()

    def ms(self) -> int:
        """How long it took, or has taken so far."""
        return round(((self.ended_s or monotonic()) - self.began_s) * 1000)

    def blocks(self, ran_ms: int, waited_ms: int) -> bool:
        """True when that code has kept the loop for long, and not a machine that is busy or stood still."""
        seen_ms = self.seen_s * 1000 - (waited_ms - self.waited_ms)
        return self.is_one and min(self.ms(), max(seen_ms, ran_ms - self.ran_ms)) >= BLOCKED_MS


class LoopWatch:
    """Looks at the loop of the thread that makes it. `on_change` is called when a blocked loop was told of, or is free.

    With `all_code` it also tells of code of the app that belongs to no job: in a process of ours.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_change: Callable[[], None] = lambda: None, *, all_code: bool = False
    ) -> None:
        self._loop = loop
        self._on_change = on_change
        self._all_code = all_code
        self._thread = threading.get_ident()
        self._native = threading.get_native_id()
        self._looked_at_s = monotonic()
        self._standstill: Standstill | None = None
        self._tasks: dict[str, Blocks] = {}

    def report(self) -> BlockedLoop | None:
        """What operators see of it; None: it was never blocked. Any thread."""
        now, tasks = self._standstill, self._tasks
        blocker = None
        if now is not None and now.told and now.ended_s is None:
            job = None if now.attempt is None else now.attempt.job
            named = (None, None) if job is None else (job.lane.task, id_text(job.id))
            blocker = Blocker(now.ms(), *named)
        return BlockedLoop(blocker, tasks) if blocker is not None or tasks else None

    def look(self) -> None:
        """One look, by the monitor's thread."""
        now_s = monotonic()
        gap_s, self._looked_at_s = min(now_s - self._looked_at_s, LONGEST_LOOK_S), now_s
        standstill = self._standstill
        if standstill is not None:
            standstill.seen_s += gap_s
            if standstill.ended_s is None:
                self._goes_on(standstill)
                return
            self._standstill = None
            self._ended(standstill)
        place = self._place()
        if place is not None:
            self._begins(place)

    def _begins(self, place: Place) -> None:
        self._standstill = standstill = Standstill(place, *self._spent())
        try:
            self._loop.call_soon_threadsafe(standstill.turned)
        except RuntimeError:
            self._standstill = None  # the loop is closed

    def _goes_on(self, standstill: Standstill) -> None:
        place = self._place()
        if place is None or place.mark != standstill.mark:
            standstill.is_one = False
        elif not standstill.told:
            standstill.stack = stack_text(place.innermost)
            if standstill.blocks(*self._spent()):
                self._tell(standstill)

    def _ended(self, standstill: Standstill) -> None:
        if standstill.told:
            self._say("loop free again", standstill)
        elif standstill.blocks(*self._spent()):
            self._tell(standstill)  # it was short, or the monitor could not run meanwhile
        else:
            return
        if standstill.attempt is not None:
            task = standstill.attempt.job.lane.task
            blocks = self._tasks.get(task, Blocks()).one_more(standstill.ms(), time.time_ns() // 1_000_000)
            self._tasks = {**self._tasks, task: blocks}
        self._changed()

    def _tell(self, standstill: Standstill) -> None:
        standstill.told = True
        self._say("loop blocked", standstill, **({"stack": standstill.stack} if standstill.stack else {}))
        self._changed()

    def _changed(self) -> None:
        with suppress(RuntimeError):  # the loop of the heartbeats is closed
            self._on_change()

    def _say(self, event: str, standstill: Standstill, **more: object) -> None:
        about = {"blocked_ms": standstill.ms(), **more}
        if standstill.attempt is None:
            worker_log(logging.WARNING, event, **about)
        else:
            job_log(logging.WARNING, event, standstill.attempt.job, **about)

    def _spent(self) -> tuple[int, int]:
        """How long the loop's thread has run, and waited for a processor, where the system says so (Linux)."""
        try:
            with open(f"/proc/self/task/{self._native}/schedstat", "rb") as file:
                ran_ns, waited_ns = file.read().split()[:2]
                return int(ran_ns) // 1_000_000, int(waited_ns) // 1_000_000
        except (OSError, ValueError):
            return 0, 0

    # -- where the loop stands

    def _place(self) -> Place | None:
        innermost = sys._current_frames().get(self._thread)
        if innermost is None:
            return None
        for frame in _outwards(innermost):
            if frame.f_code is drive.__code__:
                attempt = frame.f_locals.get("attempt")
                return Place(attempt, id(attempt), innermost) if isinstance(attempt, Attempt) else None
        return self._place_beside(innermost)

    def _place_beside(self, innermost: FrameType) -> Place | None:
        """A task, or a callback, that a handler has left to the loop; whose it is, its context says."""
        task = asyncio.current_task(self._loop)
        if task is not None and task.get_name().startswith(OWN_TASKS):
            return None
        context = _context(task, innermost)
        attempt = None if context is None else context.get(current)
        theirs = _of_the_app(innermost) if attempt is not None or self._all_code else None
        return None if theirs is None else Place(attempt, id(theirs), innermost)


def _context(task: asyncio.Task[Any] | None, innermost: FrameType) -> Context | None:
    """The context of what the loop has called. A task tells it from Python 3.12 on, uvloop never."""
    if task is not None and hasattr(task, "get_context"):
        return cast(Context, task.get_context())
    for frame in _outwards(innermost):
        if frame.f_code is asyncio.Handle._run.__code__:
            return cast(Context, frame.f_locals["self"]._context)
    return None


def stack_text(innermost: FrameType) -> str:
    """Where a thread stands, as in a traceback, from the code of the app on."""
    frames = []
    for frame in _outwards(innermost):
        if frame.f_code is drive.__code__ or _turns(frame):
            break
        frames.append((frame, frame.f_lineno))
        if len(frames) == DEEPEST:
            break
    lines = traceback.StackSummary.extract(iter(reversed(frames))).format()
    return storable("".join(lines).rstrip(), STACK_CHARS)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _of_the_app(innermost: FrameType) -> FrameType | None:
    """The frame of the app that the loop has called; None when it has called code of ours, or waits."""
    found = None
    for frame in _outwards(innermost):
        if _turns(frame):
            break
        if frame.f_code.co_filename.startswith(OWN):
            return None
        found = frame
    return None if found is None or found.f_globals.get("__name__") == "selectors" else found


def _turns(frame: FrameType) -> bool:
    """True for a frame of the loop itself; uvloop has none, and there it is the function that runs it."""
    return frame.f_globals.get("__name__", "").startswith("asyncio.") or frame.f_code.co_name == "run_loop"
