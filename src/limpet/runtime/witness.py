"""Remembers which store this worker beats at and how far it had come, and notices when it is another or set back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from limpet.core.jobs.lease import Pulse
from limpet.core.jobs.witness import Change, Report, Sight, change

# What a server had given out so long before it was last heard survives its crash: PostgreSQL keeps claims after 0.6 s,
# Redis with its usual log after 2 s. What a crash may cost is no news; a store without older tokens was set back.
SURE_S: Final = 4.0
MOST_CHANGES: Final = 5


class Witness:
    """What the beats of one worker were told about the store."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._store = ""
        self._heard: deque[tuple[float, int]] = deque()  # when, and the newest token then; from the first that is sure
        self._changes: tuple[Change, ...] = ()

    def heard(self, pulse: Pulse) -> Change | None:
        """Take the answer of a beat; what became of the store since the one before."""
        if not pulse.store:
            return None
        found = change(Sight(self._store, self._sure()), Sight(pulse.store, pulse.token))
        if found is not None:
            self._heard.clear()
            self._changes = (*self._changes, found)[-MOST_CHANGES:]
        self._store = pulse.store
        self._heard.append((self._clock_s(), pulse.token))
        return found

    def report(self) -> Report:
        """The report of this worker about its store."""
        return Report(Sight(self._store, self._heard[-1][1] if self._heard else 0), self._changes)

    def _sure(self) -> int:
        """The newest token that a crash since the last answer cannot have taken back; 0: none yet."""
        if not self._heard:
            return 0
        until_s = self._heard[-1][0] - SURE_S
        while len(self._heard) > 1 and self._heard[1][0] <= until_s:
            self._heard.popleft()
        at_s, token = self._heard[0]
        return token if at_s <= until_s else 0
