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
    for id, lane_id, code, attempt, enqueued_ms, at_ms, reason, error_type in tx.rows_in("endings", list(tx.ended)):
        lane, state = tx.lane(lane_id), STATES[code]
        wanted = [hook for hook in tx.hooks if hook.is_for(state, lane)]
        if wanted:
            ending = Ending(
                job=id_text(id),
                task=lane.task,
                queue=lane.queue,
                priority=lane.priority,
                state=state,
                attempt=attempt,
                enqueued_at_ms=enqueued_ms,
                at_ms=at_ms,
                tenant=lane.tenant,
                reason=reason or "",
                error_type=error_type or "",
            )
            jobs += [hook.job(ending, hook_id(hook.name, id, tx.ended[id], at_ms)) for hook in wanted]
    insert_absent(tx, jobs)
