"""Ends the holds of agents: several in one step for each of their sessions, each only while its token holds its job."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from limpet.core.endings.decide import decide
from limpet.core.endings.outcome import Limited
from limpet.core.endings.transition import Settled, Transition
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Entry, JobView
from limpet.core.limits.spending import Bill, spending_from
from limpet.core.records.lease import LeaseAnswer
from limpet.ops.agent_endings import Blocked, Completed, Ending, claimed_of
from limpet.ops.agent_sessions import AgentSessions, agent_of
from limpet.ops.lease_answers import gone, stale
from limpet.ops.redaction import redaction_of
from limpet.ops.select import view_of
from limpet.ops.types import KnownTypes
from limpet.stores.asking import attempts_of
from limpet.stores.base import Store


class Judged(Struct, frozen=True):
    """One end that was reported in time, and what it will change."""

    at: int  # its place among those that were asked for
    view: JobView
    ending: Ending
    transition: Transition
    bill: Bill | None
    notes: tuple[Note, ...]  # that are kept first


async def settle(
    sessions: AgentSessions, types: KnownTypes, endings: Sequence[Ending], views: Sequence[JobView | None]
) -> list[LeaseAnswer]:
    """An answer for each end, in order. What makes no sense raises before anything is changed."""
    answers: dict[int, LeaseAnswer] = {}
    by_session: defaultdict[str, list[Judged]] = defaultdict(list)
    for at, (ending, view) in enumerate(zip(endings, views, strict=True)):
        if view is None:
            answers[at] = gone(ending.id)
        elif view.state is not State.running or view.token != ending.token:
            answers[at] = stale(view)
        else:
            if isinstance(ending, Completed) and (type := await types.of(view.lane.task)) is not None:
                type.refuse_result(ending.result)
            by_session[view.session or ""].append(await _judged(sessions.store, at, view, ending))
    for session, judged in by_session.items():
        answers.update(await _settle_one(sessions, session, judged))
    return [answers[at] for at in range(len(endings))]


async def _judged(store: Store, at: int, view: JobView, asked: Ending) -> Judged:
    ending: Ending = asked
    if not isinstance(asked, Completed):
        ending = asked.masked((await redaction_of(store)).of(view).text)
    outcome, claimed, learns = ending.outcome(view), claimed_of(view), None
    bill = Bill.of(claimed, spending_from(ending.spent)) if ending.spent else None
    notes = ending.notes(view, agent_of(view.session or ""))
    if isinstance(outcome, Limited):
        learns = await _learns(store, view)
        claimed = replace(claimed, held_since_ms=await _held_since_ms(store, view))
    transition = decide(claimed, outcome, rng=random.Random(), learns=learns)
    return Judged(at, view, ending, transition, bill, notes if bill is None else (*notes, bill.note))


async def _settle_one(sessions: AgentSessions, session: str, judged: Sequence[Judged]) -> dict[int, LeaseAnswer]:
    """What is held by one session: one step, or nothing."""
    store, now_ms = sessions.store, sessions.asked_ms
    costs: dict[bytes, Mapping[str, int]] = {}
    for each in judged:
        if each.bill is not None:
            costs[each.view.id] = each.bill.costs
        for note in each.notes:
            await store.save(each.view.id, each.ending.token, note, now_ms=now_ms)
    # A number of its own for each call: the answer to another call must not be given again.
    seq, transitions = secrets.randbits(53), [each.transition for each in judged]
    settled = await store.settle(session, seq, transitions, spent=costs, now_ms=now_ms)
    answers = {each.at: await _answer(store, each, one) for each, one in zip(judged, settled, strict=True)}
    lines: list[Entry] = []
    for each in judged:
        if answers[each.at].answer == "done":
            line = sessions.line(each.ending.event, session, each.ending.token, each.ending.why)
            lines.append(line.entry(now_ms, each.view.id))
    await asyncio.gather(store.append(lines), sessions.leave_empty([session]))
    return answers


async def _answer(store: Store, judged: Judged, settled: Settled) -> LeaseAnswer:
    if settled.answer == "stale":
        return stale(await view_of(store, judged.view.id))
    if settled.answer == "gone":
        return gone(id_text(judged.view.id))
    state = settled.state or State.running
    if isinstance(judged.ending, Blocked) and state is State.scheduled:
        text = "the job waits for an answer; claim another"
    else:
        text = f"the job is {state.value}"
    return LeaseAnswer(answer="done", state=state, text=text)


async def _learns(store: Store, view: JobView) -> str | None:
    """The key of the job's limit that is marked so: what code declares is known here by its gates."""
    keys = (*view.lane.limits, *view.lane.keys)
    gates = await store.gates(keys=[f"limit:{key}" for key in keys])
    learning = {gate.key for gate in gates if gate.rule.default_for_429}
    return next((key for key in keys if f"limit:{key}" in learning), None)


async def _held_since_ms(store: Store, view: JobView) -> int | None:
    """When it was put off first, of as often as that counts: a durable wait in between starts the count again."""
    if not view.held:
        return None
    put_off = [one for one in await attempts_of(store, view.id) if one.outcome in ("held", "snoozed")]
    return next((one.finished_at_ms for one in put_off[-view.held :]), None)
