"""Reads the state of a queue as an agent needs it before its first claim, or after it has lost its memory."""

from __future__ import annotations

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import STATES, State
from limpet.core.jobs.view import Query
from limpet.core.records.prime import MOST, HoldRecord, PrimeRecord
from limpet.core.records.queue import QueueRecord
from limpet.core.records.record import moment
from limpet.ops.agent_sessions import session_begins
from limpet.ops.held_limits import held_limits
from limpet.ops.operator import Operator
from limpet.ops.waits import Waits
from limpet.stores.base import Store


async def prime(operator: Operator, namespace: str, agent: str | None = None) -> PrimeRecord:
    """How the queue stands now, and what `agent` holds."""
    store, now_ms = operator.store, operator.now_ms()
    stats, queues = await operator.stats(), await operator.queues()
    asked = await Waits(store, operator.actor).approvals(Query(frozenset({State.scheduled}), newest_first=False))
    breakers = (await operator.breakers(limit=MOST)).breakers
    return PrimeRecord(
        **{state.value: getattr(stats, state.value) for state in STATES},
        namespace=namespace,
        agent=agent,
        holds=() if agent is None else await _holds(store, agent),
        queues=tuple(sorted(filter(_has_work, queues), key=lambda queue: -queue.ready)[:MOST]),
        questions=len(asked.approvals),
        breakers=tuple(each for each in breakers if each.state != "closed"),
        limits=await held_limits(store, now_ms),
    )


async def _holds(store: Store, agent: str) -> tuple[HoldRecord, ...]:
    """What the sessions of the agent hold: with the tokens, so that it can go on."""
    found: list[HoldRecord] = []
    for session in await store.sessions():
        if not session.session.startswith(session_begins(agent)):
            continue
        held = await store.held(session.session)
        views = await store.get([each.id for each in held])
        found += [
            HoldRecord(
                id=id_text(each.id),
                token=each.token,
                task=view.lane.task,
                attempt=view.attempt,
                until=moment(session.deadline_at_ms),
            )
            for each, view in zip(held, views, strict=True)
            if view is not None
        ]
    return tuple(sorted(found, key=lambda hold: hold.until)[:MOST])


def _has_work(queue: QueueRecord) -> bool:
    return bool(queue.waiting or queue.running)
