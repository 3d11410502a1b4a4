"""Decides when a worker that was asked to work until nothing is left (`until_empty`) has come to its end."""

from __future__ import annotations

from collections.abc import Callable

from limpet.core.jobs.lease import Claim
from limpet.runtime.executor import Executor
from limpet.runtime.local_queue import LocalQueue
from limpet.runtime.settings import WorkReport
from limpet.runtime.settler import SettleQueue


class UntilEmpty:
    """Calls `end` once nothing is claimed, running or unsettled, and nothing comes within `linger_ms`."""

    def __init__(
        self,
        local_queue: LocalQueue,
        settle_queue: SettleQueue,
        executor: Executor,
        report: WorkReport,
        linger_ms: int,
        end: Callable[[], None],
    ) -> None:
        self._local_queue = local_queue
        self._settle_queue = settle_queue
        self._executor = executor
        self._report = report
        self._linger_ms = linger_ms
        self._end = end
        self._signal = local_queue.demand.all
        self._next_in_ms: int | None = None
        self._asked_after = -1  # jobs claimed when the store was last asked whether it is really empty

    def claimed_nothing(self, claim: Claim) -> None:
        """The store had nothing for this worker."""
        self._next_in_ms = None if claim.next_at_ms is None else claim.next_at_ms - claim.now_ms
        self.look()

    def look(self) -> None:
        """End, if it is time."""
        if not self._store_is_empty or self._has_jobs:
            return
        if self._next_in_ms is not None and self._next_in_ms <= self._linger_ms:
            return  # the fetcher's alarm asks again when that is due
        if self._asked_after == self._report.claimed:
            self._end()
        else:
            # A job that just settled may have released dependents: the answer counts only if asked after that.
            self._asked_after = self._report.claimed
            self._signal.news()

    @property
    def _store_is_empty(self) -> bool:
        """True when the last claim found nothing, and no news came since.

        A limited job starts at once or is not given: an answer to a claim without a slot says nothing of it.
        """
        return self._signal.empty_for is not None and self._signal.empty_for[2]

    @property
    def _has_jobs(self) -> bool:
        held = self._local_queue
        return bool(
            held.slots.busy or held.held or held.aside or self._settle_queue.unsettled or self._executor.given_up
        )
