"""Asks how many workers some queues want."""

from __future__ import annotations

from collections.abc import Sequence

from limpet.core.errors import InvalidOption, UnknownQueue
from limpet.core.jobs.view import QueueView
from limpet.core.records.scale import ScaleRecord
from limpet.core.tasks.naming import did_you_mean
from limpet.ops.declared import declared_queues
from limpet.stores.base import Store


async def scale(store: Store, queues: Sequence[str], per_worker: int, *, now_ms: int | None = None) -> ScaleRecord:
    """How much work there is for them. A queue that nothing has named is refused: 0 would be taken for its word."""
    known = {view.queue: view for view in (await store.count(queues=True)).queues}
    declared = await declared_queues(store)
    if per_worker < 1:
        raise InvalidOption(f"per_worker must be at least 1, got {per_worker!r}", fix="how many jobs one runs at once")
    for queue in queues:
        if queue not in known and queue not in declared:
            names = {*known, *declared}
            raise UnknownQueue(f"no queue is called {queue!r}", fix=did_you_mean(queue, names))
    chosen = dict.fromkeys(queues or sorted({*known, *declared}))
    sessions = await store.sessions()
    serving = [each for each in sessions if each.serves.queues is None or chosen.keys() & {*each.serves.queues}]
    views = [known.get(queue) or QueueView(queue, {}, None, None) for queue in chosen]
    now_ms = await store.now() if now_ms is None else now_ms
    return ScaleRecord.of(views, workers=len(serving), per_worker=per_worker, now_ms=now_ms)
