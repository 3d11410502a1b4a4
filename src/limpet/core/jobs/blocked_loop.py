"""Decides how a worker says which jobs have blocked its event loop, and which one blocks it now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

FIELD: Final = "blocked_loop"  # in what a worker says about itself
BLOCKED_MS: Final = 1_000  # a step of a handler that takes longer blocks the loop: nothing else runs meanwhile


class Blocker(Struct, frozen=True):
    """The job whose handler blocks the loop, and for how long it has done so; a callback of it has no name."""

    for_ms: int
    task: str | None = None
    job_id: str | None = None


class Blocks(Struct, frozen=True):
    """How often jobs of one task have blocked the loop of one worker, for how long at most, and when last."""

    count: int = 0
    longest_ms: int = 0
    last_at_ms: int = 0

    def one_more(self, ms: int, now_ms: int) -> Blocks:
        """With one that has just ended."""
        return Blocks(self.count + 1, max(ms, self.longest_ms), now_ms)


class BlockedLoop(Struct, frozen=True):
    """What a worker says of its loop."""

    now: Blocker | None = None
    tasks: Mapping[str, Blocks] = {}
