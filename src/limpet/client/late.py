"""The errors of an enqueue whose time is over: what became of its jobs, and how to ask for them once more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from limpet.core.errors import StoreTimeout, StoreUnreachable
from limpet.core.jobs.ids import id_text
from limpet.stores.sending import Sending

NOTHING_SENT: Final = "; nothing was sent"  # an engine's words for a call that never reached its server
_LOOK: Final = "see whether the server runs and the URL is right"


class Asked:
    """The jobs of one call, for its errors: their names, and how to retry the call."""

    def __init__(self, ids: Sequence[bytes], stored: Sequence[str] = (), again: str = "") -> None:
        """`stored` are the ids of earlier chunks of the same call, which are safe; `again` is how to retry the call."""
        self.ids = [*stored, *map(id_text, ids)]
        self.verb = "are" if len(ids) > 1 else "is"
        if stored:
            self.what = f"{len(stored)} jobs are stored, the {len(ids)} after them"
            count = len(self.ids)
            fix = f"retry with enqueue_many(jobs[:{count}], ids=error.ids, atomic=False), then jobs[{count}:]"
        elif len(ids) > 1:
            self.what = f"{len(ids)} jobs"
            fix = "retry with enqueue_many(jobs, ids=error.ids): they are the same jobs"
        else:
            self.what = f"job {self.ids[0]}"
            fix = f'retry with .options(id="{self.ids[0]}"): it is the same job'
        self.fix = f"{again}: they are the same jobs" if again else fix


class EnqueueTimeout(StoreTimeout):
    """The store did not answer in time. `ids` names the jobs: an enqueue with these ids is the same jobs."""

    def __init__(self, asked: Asked, timeout_s: float) -> None:
        self.ids = asked.ids
        super().__init__(
            f"the store did not answer within {timeout_s:g} s; {asked.what} may be stored or not",
            verb="enqueue",
            fix=asked.fix,
        )


class NotStored(StoreUnreachable):
    """The store could not be reached in time, so these jobs are not stored; those of earlier chunks of the call are.

    `ids` names them all: an enqueue with these ids is the same jobs.
    """

    def __init__(self, asked: Asked, why: str, fix: str) -> None:
        self.ids = asked.ids
        super().__init__(f"{why}; {asked.what} {asked.verb} not stored", verb="enqueue", fix=f"{fix}; then {asked.fix}")


def late(asked: Asked, timeout_s: float, sending: Sending) -> EnqueueTimeout | NotStored:
    """The error for a call whose time is over."""
    if not sending.refused:
        return EnqueueTimeout(asked, timeout_s)
    return NotStored(asked, _unreached(timeout_s, sending), _LOOK)


def too_early(verb: str, timeout_s: float, sending: Sending) -> StoreTimeout | StoreUnreachable:
    """The error of a check before the enqueue, when the time is over."""
    if sending.refused:
        return StoreUnreachable(f"{_unreached(timeout_s, sending)}; nothing was stored", verb=verb, fix=_LOOK)
    return StoreTimeout(
        f"the store did not answer within {timeout_s:g} s; nothing was stored", verb=verb, fix="try again"
    )


def _unreached(timeout_s: float, sending: Sending) -> str:
    why = f" ({sending.why})" if sending.why else ""
    return f"{sending.where} could not be reached within {timeout_s:g} s{why}"


def not_stored(asked: Asked, error: StoreUnreachable) -> NotStored:
    """The engine's own error for a call that never reached the store, with what it means for the jobs."""
    return NotStored(asked, error.message.removesuffix(NOTHING_SENT), error.fix)
