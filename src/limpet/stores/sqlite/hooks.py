"""Makes the jobs of hooks, in the step in which other jobs have ended."""

from __future__ import annotations

from limpet.core.endings.hook import Ending, hook_id
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import STATES
from limpet.stores.sqlite.enqueue import insert_absent
from limpet.stores.sqlite.tx import Tx


def follow(tx: Tx) -> None:
    """Store a job of each hook for each end of this step that it is for."""
    if not tx.ended:
        return
    jobs = []
    for id, lane_id, code, attempt, reason, error_type, at_ms in tx.rows_in("endings", list(tx.ended)):
        lane, state = tx.lane(lane_id), STATES[code]
        for hook in tx.hooks:
            if hook.is_for(state, lane):
                ending = Ending(
                    id_text(id),
                    lane.task,
                    lane.queue,
                    state,
                    attempt,
                    at_ms,
                    lane.tenant,
                    reason or "",
                    error_type or "",
                )
                jobs.append(hook.job(ending, hook_id(hook.name, id, tx.ended[id], at_ms)))
    insert_absent(tx, jobs)
