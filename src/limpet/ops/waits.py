"""Runs what is said to jobs that wait: events that are signalled to them, and what people decide about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from limpet.core.errors import InvalidOption, JobNotFound, UsageError
from limpet.core.flows.question import CHARS, Answer, questions_of
from limpet.core.flows.steps import (
    ANSWER,
    APPROVAL,
    EVENT,
    Approval,
    Asking,
    approval_of,
    asking_of,
    check_event,
    check_name,
    encode_value,
    too_many_events,
    waits_of,
)
from limpet.core.jobs.ids import id_bytes, id_text
from limpet.core.jobs.lease import Signal
from limpet.core.jobs.state import FINISHED, LIVE, State
from limpet.core.jobs.view import JobView, Query, Term
from limpet.core.records.wait import ApprovalPage, ApprovalRecord, SignalRecord
from limpet.core.redaction.redaction import Shown
from limpet.core.text.storable import checked_text, is_storable, storable
from limpet.ops.bulk import Decision
from limpet.ops.query import parse_query
from limpet.ops.redaction import redaction_of
from limpet.ops.select import PAGE, resolve, view_of, walk
from limpet.ops.shown_jobs import ShownJobs
from limpet.stores.base import SignalAnswer, Store

LOOKED_AT: Final = 10_000  # jobs that one page of approvals looks at: an index of them would cost every suspension

_Asked = tuple[Shown, Asking, int]  # a job, what it asks, and until when


class SeveralJobs(UsageError):
    """Jobs of more than one task hold a unique key."""

    code = "several_jobs"


class Waits:
    """Signals events and decides on approvals, in the name of `actor`."""

    def __init__(self, store: Store, actor: str, *, clock: Callable[[], int] | None = None) -> None:
        self.store = store
        self.actor = actor
        self._clock = clock

    @property
    def _asked_ms(self) -> int | None:
        return None if self._clock is None else self._clock()

    async def signal(
        self, which: str | bytes, event: str, value: Any = None, *, task: str | None = None, log: bool = True
    ) -> SignalRecord:
        """Give an event to a job; the first of a name stands. With `log`, the audit log says who did."""
        checked_text(self.actor, what="actor")
        id = await self.job(which, task=task)
        said = await self._send(id, check_event(event), encode_value(value))
        if log:
            await self._log("job.signal", said, {"event": event})
        return said

    async def approve(
        self, which: str | bytes, *, comment: str = "", name: str | None = None, task: str | None = None
    ) -> SignalRecord:
        """Say yes to what a job asks; `name` decides ahead, or tells several approvals apart."""
        return await self._decide(which, True, comment, name, task)

    async def reject(
        self, which: str | bytes, *, comment: str = "", name: str | None = None, task: str | None = None
    ) -> SignalRecord:
        """Say no. What the job makes of that is its own business."""
        return await self._decide(which, False, comment, name, task)

    async def answer(self, which: str | bytes, text: str, *, task: str | None = None) -> SignalRecord:
        """Answer what an agent asked about a job: it continues, and its next claim reads the answer."""
        self._refuse_nameless()
        if not isinstance(text, str) or not text.strip() or len(text) > CHARS:
            raise InvalidOption(f"the answer is {text!r:.80}", fix=f"write 1 to {CHARS:,} characters")
        view = await view_of(self.store, await self.job(which, task=task))
        event = _open_question(view)
        said = await self._send(view.id, event, encode_value(Answer(storable(text, CHARS), storable(self.actor))))
        asked = questions_of(view.notes).get(event)
        question = "" if asked is None else (await redaction_of(self.store)).of(view).text(asked.question)
        await self._log("job.answer", said, {"question": question}, storable(text))
        return said

    async def approvals(self, query: Query) -> ApprovalPage:
        """What jobs that match ask people now; a page holds about as many as asked for."""
        redaction = await redaction_of(self.store)
        shown = ShownJobs(redaction, replace(query, states=frozenset({State.scheduled})))
        query = shown.query
        wanted, found, seen = query.limit, list[_Asked](), 0
        while True:
            page = await self.store.find(replace(query, limit=PAGE), now_ms=self._asked_ms)
            found += [asked for view in page.jobs if shown.match(view) for asked in _asked(redaction.job(view))]
            seen += len(page.jobs)
            if page.cursor is None or len(found) >= wanted or seen >= LOOKED_AT:
                found.sort(key=lambda asked: (asked[2], asked[0].id))
                approvals = tuple(ApprovalRecord.of(*asked) for asked in found)
                return ApprovalPage(approvals=approvals, cursor=page.cursor, complete=page.cursor is None)
            query = replace(query, cursor=page.cursor)

    async def asked(self, query: str = "", *, limit: int = 50, cursor: str | None = None) -> ApprovalPage:
        """The same for a query in words."""
        return await self.approvals(parse_query(query, limit=limit, cursor=cursor, newest_first=False))

    async def job(self, which: str | bytes, *, task: str | None = None) -> bytes:
        """The job that is meant: an id, or the unique key that it was enqueued with, of `task` if several have it."""
        if isinstance(which, bytes):
            return which
        if not isinstance(which, str) or not which:
            raise InvalidOption(f"{which!r} names no job", fix="give a handle, an id, or a unique key")
        if task is None:
            try:
                id = id_bytes(which)
            except InvalidOption:
                pass
            else:
                if await self._is_stored(id):
                    return id
        return await holder(self.store, which, task)

    async def typed(self, which: str, *, task: str | None = None) -> bytes:
        """The same from a person, who may give the unique end of an id."""
        if task is None:
            try:
                id = await resolve(self.store, which)
            except JobNotFound:
                pass
            else:
                if await self._is_stored(id):
                    return id
        return await holder(self.store, which, task)

    async def _is_stored(self, id: bytes) -> bool:
        """False for what only looks like an id: a unique key may be the UUID of an order."""
        return (await self.store.get([id])) != [None]

    async def _decide(
        self, which: str | bytes, approved: bool, comment: str, name: str | None, task: str | None
    ) -> SignalRecord:
        self._refuse_nameless()
        if name is not None:
            check_name(name, "the name of an approval")
        view = await view_of(self.store, await self.job(which, task=task))
        asking = _meant(view, name)
        decision = Approval(approved, storable(self.actor), storable(comment))
        said = await self._send(view.id, asking.event, encode_value(decision))
        question = (await redaction_of(self.store)).of(view).text(asking.question)
        facts: dict[str, object] = {"name": asking.name, "question": question}
        await self._log("job.approve" if approved else "job.reject", said, facts, decision.comment)
        return said

    def _refuse_nameless(self) -> None:
        if not isinstance(self.actor, str) or not self.actor.strip() or not is_storable(self.actor):
            raise InvalidOption(f"{self.actor!r} does not say who decides", fix="name a person, as in by='ada'")

    async def _send(self, id: bytes, event: str, value: bytes) -> SignalRecord:
        (answer,) = await self.store.signal([Signal(id, event, value)], now_ms=self._asked_ms)
        if answer == "gone":
            raise JobNotFound(f"no job {id_text(id)} is stored", fix="it never was, or it was pruned")
        if answer == "full":
            raise too_many_events(id_text(id))
        return SignalRecord(id=id_text(id), event=event, answer=answer, text=await self._words(id, event, answer))

    async def _words(self, id: bytes, event: str, answer: SignalAnswer) -> str:
        name = id_text(id)
        if answer == "woken":
            return f"job {name} continues"
        if answer == "kept":
            return f"job {name} does not wait for it yet, and will get it when it does"
        view = await view_of(self.store, id)
        if answer == "finished":
            return f"job {name} is {view.state.value}, so nothing waits for it"
        if event.startswith(ANSWER):
            return f"the question of job {name} was answered before, and that answer stays"
        before = approval_of(view.notes, event)
        if before is None:
            return f"job {name} was given {event!r} before, and the first value stays"
        return f"job {name} was {'approved' if before.approved else 'rejected'} by {before.by} before, and that stays"

    async def _log(self, kind: str, said: SignalRecord, facts: dict[str, object], reason: str = "") -> None:
        if said.answer in ("woken", "kept"):
            decision = Decision(kind, self.actor, reason, {name: value for name, value in facts.items() if value})
            await self.store.append([decision.entry(self._asked_ms, id_bytes(said.id), answer=said.answer)])


async def holder(store: Store, key: str, task: str | None = None) -> bytes:
    """The job that was enqueued with this unique key: the live one, else the newest that has ended."""
    checked_text(key, what="job")
    terms = (Term("unique", key),)
    for states in (LIVE, FINISHED):
        found: dict[str, bytes] = {}  # the newest of each task
        async for page in walk(store, Query(states, terms)):
            for view in page:
                scope = view.lane.task_scope
                if view.unique == key and task in (None, view.lane.task, scope):
                    found.setdefault(scope, view.id)
        if len(found) > 1:
            raise SeveralJobs(
                f"jobs of {len(found)} tasks hold the key {key!r}: {', '.join(sorted(found))}", fix="say which: task="
            )
        if found:
            return next(iter(found.values()))
    of = "" if task is None else f" of {task}"
    raise JobNotFound(f"no job{of} has the id or the unique key {key!r}", fix="it never was, or it was pruned")


def _meant(view: JobView, name: str | None) -> Asking:
    """Which of its approvals is meant: the one that is named, else the only one it waits for."""
    asked = {asking.name: asking for asking in asking_of(view.notes)}
    if name is not None:
        return asked.get(name) or Asking(f"{APPROVAL}{name}", "")
    if len(asked) == 1:
        return next(iter(asked.values()))
    id = id_text(view.id)
    if asked:
        raise InvalidOption(
            f"job {id} asks for {len(asked)} approvals: {', '.join(asked)}", fix="say which by its name"
        )
    decided = [note.name for note in view.notes if note.kind == EVENT and note.name.startswith(APPROVAL)]
    if decided or view.state in FINISHED:
        return Asking(decided[-1] if decided else f"{APPROVAL}approval", "")  # the store will answer why not
    if any(waiting.event.startswith(ANSWER) for waiting in waits_of(view.notes, view.due_at_ms)):
        raise InvalidOption(
            f"job {id} asks for no approval, it waits for an answer", fix=f"limpet agent answer {id} TEXT"
        )
    raise InvalidOption(
        f"job {id} asks for no approval now, it is {view.state.value}",
        fix='to decide ahead, name the approval: it is "approval" unless the code says otherwise',
    )


def _open_question(view: JobView) -> str:
    """The event that answers the question that a job waits with; else the newest that has no answer, or the newest."""
    asked = [*questions_of(view.notes)]
    waits = {waiting.event for waiting in waits_of(view.notes, view.due_at_ms)} if view.state is State.scheduled else ()
    given = {note.name for note in view.notes if note.kind == EVENT}
    for of in ([each for each in asked if each in waits], [each for each in asked if each not in given], asked):
        if of:
            return of[-1]
    if view.state in FINISHED:
        return f"{ANSWER}1"  # the store will answer why not
    raise InvalidOption(
        f"job {id_text(view.id)} asks nothing, it is {view.state.value}", fix="limpet approvals lists what jobs ask"
    )


def _asked(view: Shown) -> list[_Asked]:
    waits = [w for w in waits_of(view.notes, view.due_at_ms) if w.event.startswith((APPROVAL, ANSWER))]
    return [(view, Asking(waiting.event, waiting.question), waiting.until_ms) for waiting in waits]
