"""Reads flows as they are stored, and corrects them: cancels all of one, runs what died again, or from a node on."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from limpet.core.errors import AmbiguousId, FlowNotFound, InvalidOption, JobNotFound, UnknownParent
from limpet.core.flows.flow import FlowGraph, FlowNode, flow_state, mark_of, only_waits, refuse_in_vain, rerun
from limpet.core.jobs.ids import IdMaker, id_bytes, id_text
from limpet.core.jobs.state import LIVE, WAITING, State
from limpet.core.jobs.view import FlowView, JobView, Query, Term
from limpet.core.records.bulk import BulkReport
from limpet.core.records.flow import FlowDetail, FlowPage, FlowRecord
from limpet.core.records.job import JobRecord
from limpet.core.text.storable import checked_text
from limpet.ops.bulk import Decision, Progress
from limpet.ops.redaction import redaction_of
from limpet.ops.select import PAGE, SHORTEST_SUFFIX, key_holders, resolve, walk
from limpet.stores.asking import refuse_draining
from limpet.stores.base import RetryRequest, Store

_SAMPLES = 3  # jobs that a dry run shows
_FLOWS, _LOOKED_AT = 1_000, 10_000  # flows of a page, and those among which the end of an id is looked for
_ROUNDS = 10  # a job that comes alive while others are cancelled is met by the next look


@dataclass(frozen=True)
class FlowLine:
    """A flow as one line of a list."""

    id: bytes
    name: str
    counts: Mapping[State, int]  # nodes by state
    total: int
    enqueued_at_ms: int
    goes_on: bool = False  # what is blocked in it waits for a job outside that is alive

    @property
    def state(self) -> State:
        """The flow in one word."""
        return flow_state(self.counts, goes_on=self.goes_on)

    @property
    def done(self) -> int:
        """How many of `total` have finished."""
        return self.total - sum(self.counts.get(state, 0) for state in LIVE)


class Flows:
    """Asks about flows and corrects them, in the name of `actor`; every change leaves a line in the audit log."""

    def __init__(self, store: Store, actor: str, *, clock: Callable[[], int] | None = None) -> None:
        self.store = store
        self.actor = checked_text(actor, what="actor")
        self._clock = clock

    @property
    def _asked_ms(self) -> int | None:
        return None if self._clock is None else self._clock()

    # -- asking

    async def newest(self, limit: int = 50, before: bytes | None = None) -> list[FlowLine]:
        """The newest flows, those below the id `before` if one is given."""
        views = await self.store.flows(None, limit, before)
        return list(await asyncio.gather(*map(self._line, views)))

    async def page(self, limit: int = 50, cursor: str | None = None) -> FlowPage:
        """One page of flows, newest first."""
        lines = await self.newest(limit, None if cursor is None else id_bytes(cursor))
        more = id_text(lines[-1].id) if len(lines) == limit else None
        return FlowPage(flows=tuple(map(FlowRecord.of, lines)), cursor=more)

    async def detail(self, text: str) -> FlowDetail:
        """One flow with all its nodes, by what `resolve` takes."""
        return await self.status(await self.resolve(text))

    async def line(self, id: bytes) -> FlowLine:
        """One flow as a line: no more is read of it than that needs."""
        views = await self.store.flows([id])
        if not views:
            raise _not_found(id)
        return await self._line(views[0])

    async def _line(self, view: FlowView) -> FlowLine:
        page = await self.store.find(Query(None, _of(view.id), limit=1), now_ms=self._asked_ms)
        mark = mark_of(page.jobs[0].meta) if page.jobs else None
        stored = sum(view.counts.values())
        if mark is None:
            return FlowLine(view.id, "", view.counts, stored, view.enqueued_at_ms)
        if stored <= mark.of and not only_waits(view.counts):
            return FlowLine(view.id, mark.name, view.counts, mark.of, view.enqueued_at_ms)
        graph = await self.graph(view.id)  # some of its jobs are earlier runs, or what they wait for is outside
        return FlowLine(graph.id, graph.name, graph.counts, graph.total, graph.enqueued_at_ms, graph.goes_on)

    async def resolve(self, text: str) -> bytes:
        """The flow that `text` names: its id, the unique end of one, or the id of a job of it."""
        text = text.strip().lower().removeprefix("…")
        try:
            raw = id_bytes(text)
        except InvalidOption:
            raw = None
        if raw is None:
            found = await self._ending_in(text)
            if len(found) > 1:
                shown = ", ".join(map(id_text, found[:3]))
                raise AmbiguousId(f"more than one flow id ends in {text!r}: {shown}", fix="give more characters")
            if found:
                return found[0]
            try:
                raw = await resolve(self.store, text)
            except JobNotFound as error:
                raise FlowNotFound(error.message, fix=error.fix) from None
        elif await self.store.flows([raw]):
            return raw
        (view,) = await self.store.get([raw])
        if view is None:
            raise _not_found(raw)
        if view.flow is None:
            raise FlowNotFound(f"job {id_text(raw)} is not a part of a flow", fix="limpet flows lists them")
        return view.flow

    async def _ending_in(self, text: str) -> list[bytes]:
        """Flows whose id ends like this, among the newest; too short an end fits none."""
        found: list[bytes] = []
        before: bytes | None = None
        for _ in range(_LOOKED_AT // _FLOWS if len(text) >= SHORTEST_SUFFIX else 0):
            page = await self.store.flows(None, _FLOWS, before)
            found += [view.id for view in page if id_text(view.id).endswith(text)]
            if len(page) < _FLOWS:
                break
            before = page[-1].id
        return found

    async def status(self, id: bytes) -> FlowDetail:
        """The flow with all its nodes, as it may be shown."""
        return FlowDetail.whole(await self.graph(id), await redaction_of(self.store))

    async def graph(self, id: bytes) -> FlowGraph:
        """All stored jobs of the flow, put together."""
        views = await self._views(id)
        if not views:
            raise _not_found(id)
        graph = FlowGraph(id, views)
        outside = graph.outside
        for start in range(0, len(outside), PAGE):
            found = await self.store.get(outside[start : start + PAGE])
            graph.goes_on = graph.goes_on or any(view is not None and view.state in LIVE for view in found)
        return graph

    async def last_live(self, id: bytes) -> bytes | None:
        """The last enqueued of its jobs that have not finished; None when all have."""
        query: Query | None = Query(LIVE, _of(id), limit=1)
        while query is not None:
            page = await self.store.find(query, now_ms=self._asked_ms)
            if page.jobs:
                return page.jobs[0].id
            query = None if page.cursor is None else Query(LIVE, _of(id), limit=1, cursor=page.cursor)
        return None

    async def _views(self, id: bytes, states: frozenset[State] | None = None) -> list[JobView]:
        return [view async for page in walk(self.store, Query(states, _of(id)), now_ms=self._asked_ms) for view in page]

    # -- correcting

    async def cancel(
        self,
        id: bytes,
        *,
        reason: str = "",
        force: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> BulkReport:
        """Cancel every job of the flow that has not finished; running ones are asked to stop (`force`: taken away)."""
        checked_text(reason, what="reason")
        graph = await self.graph(id)
        live = await self._views(id, LIVE)
        if dry_run:
            return BulkReport("cancel", len(live), await self._samples(live), dry_run=True)
        answers: dict[bytes, str] = {}
        left = live
        for _ in range(_ROUNDS):
            # Newest first, as they are found: what waits goes before what it waits for, so that nothing is released.
            for start in range(0, len(left), PAGE):
                ids = [view.id for view in left[start : start + PAGE]]
                words = await self.store.cancel(
                    ids, reason or "its flow was cancelled", force=force, now_ms=self._asked_ms
                )
                answers.update(zip(ids, words, strict=True))
                if progress is not None:
                    progress(min(len(answers), len(live)), len(live))
            left = [view for view in await self._views(id, LIVE) if not view.cancel_requested or force]
            if not left:
                break
        counted = Counter(word for word in answers.values() if word != "finished")  # it was quicker
        await self._log("flow.cancel", graph, reason, force=force, answers=dict(counted))
        done = counted["cancelled"] + counted["cancelling"]
        return BulkReport("cancel", counted.total(), await self._samples(live), False, done, dict(counted))

    async def retry(
        self,
        id: bytes,
        *,
        reason: str = "",
        from_: Sequence[str] = (),
        force: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> BulkReport:
        """Run the dead nodes again, with what their death cancelled; with `from_`, these and all that wait for them."""
        checked_text(reason, what="reason")
        graph = await self.graph(id)
        if from_:
            return await self._rerun(graph, from_, reason, force=force, dry_run=dry_run)
        dead = [node.view for node in graph.nodes if node.view.state is State.dead]
        if dry_run:
            return BulkReport("retry", len(dead), await self._samples(dead), dry_run=True)
        answers: Counter[str] = Counter()
        refused: list[bytes] = []
        for start in range(0, len(dead), PAGE):
            ids = tuple(view.id for view in dead[start : start + PAGE])
            request = RetryRequest(ids, actor=self.actor, reason=reason)
            words = await self.store.retry(request, now_ms=self._asked_ms)
            answers.update(words)
            refused += [id for id, word in zip(ids, words, strict=True) if word == "unique_held"]
            if progress is not None:
                progress(start + len(ids), len(dead))
        await self._log("flow.retry", graph, reason, answers=dict(answers))
        holders = await key_holders(self.store, refused)
        samples = await self._samples(dead)
        return BulkReport("retry", len(dead), samples, False, answers["retried"], dict(answers), holders)

    async def _rerun(
        self, graph: FlowGraph, from_: Sequence[str], reason: str, *, force: bool, dry_run: bool
    ) -> BulkReport:
        again = graph.below(graph.node(name) for name in from_)
        views = [node.view for node in again]
        refuse_in_vain(graph, again)
        if not force:
            _refuse_running(again)
        await self._refuse_orphans(graph, again)
        await refuse_draining(self.store, *(node.view.lane for node in again))
        await self._refuse_held(again)
        if dry_run:
            return BulkReport("run again", len(again), await self._samples(views), dry_run=True)
        words = reason or f"run again from {', '.join(from_)}"
        await self._stop(views, words, force=force)
        maker, now_ms = IdMaker(), self._asked_ms or time.time_ns() // 1_000_000
        jobs = rerun(graph, again, lambda: maker.make(now_ms), now_ms)
        stored = await self.store.enqueue(jobs, now_ms=self._asked_ms)
        # What has died is replaced: left among the dead letters it would be run once more beside its copy.
        dead = [view for view in views if view.state is State.dead]
        await self.store.discard([view.id for view in dead], now_ms=self._asked_ms)
        redaction = await redaction_of(self.store)
        shown = {node.name: redaction.job(node.view) for node in again if node.view.state is State.dead}
        replaced = {
            name: {"id": id_text(view.id), "error": f"{view.error_type}: {view.reason}"} for name, view in shown.items()
        }
        await self._log("flow.rerun", graph, reason, nodes=[node.name for node in again], discarded=replaced)
        answers = Counter("existing" if each.existing else "enqueued" for each in stored)
        samples = await self._samples(views)
        return BulkReport("run again", len(again), samples, False, answers["enqueued"], dict(answers))

    async def _refuse_orphans(self, graph: FlowGraph, again: Sequence[FlowNode]) -> None:
        """Copies of nodes whose parents are stored no more could not be enqueued: nothing is stopped for those."""
        waiting = {id: node.name for node in reversed(again) for id in node.parents if not graph.has(id)}
        elsewhere = list(waiting)
        for start in range(0, len(elsewhere), PAGE):
            ids = elsewhere[start : start + PAGE]
            for id, view in zip(ids, await self.store.get(ids), strict=True):
                if view is None:
                    raise UnknownParent(
                        f"a parent of {waiting[id]} is not stored any more: job {id_text(id)}",
                        fix="run it again from further up, or enqueue the flow again",
                    )

    async def _refuse_held(self, again: Sequence[FlowNode]) -> None:
        """A job of elsewhere that has the unique key of a node would stand for its copy, and the node be lost."""
        own = {id_text(node.view.id): node.name for node in again if node.view.state is not State.succeeded}
        for id, holder in (await key_holders(self.store, [id_bytes(id) for id in own])).items():
            if holder not in own:
                raise InvalidOption(f"job {holder} holds the unique key of {own[id]}", fix="wait for it, or cancel it")

    async def _stop(self, views: Sequence[JobView], reason: str, *, force: bool) -> None:
        """Cancel unfinished jobs of the nodes that will run again; newest first, so that no dependent is released."""
        live = [view.id for view in reversed(views) if view.state in (LIVE if force else WAITING)]
        for start in range(0, len(live), PAGE):
            await self.store.cancel(live[start : start + PAGE], reason, force=force, now_ms=self._asked_ms)

    async def _samples(self, views: Sequence[JobView]) -> tuple[JobRecord, ...]:
        redaction = await redaction_of(self.store)
        return tuple(JobRecord.of(redaction.job(view)) for view in views[:_SAMPLES])

    async def _log(self, kind: str, graph: FlowGraph, reason: str, **data: object) -> None:
        facts = {
            "flow": id_text(graph.id),
            "name": graph.name,
            **{name: value for name, value in data.items() if value},
        }
        await self.store.append([Decision(kind, self.actor, reason, facts).entry(self._asked_ms)])


def _not_found(id: bytes) -> FlowNotFound:
    return FlowNotFound(
        f"no flow {id_text(id)} is stored", fix="it never was, all its jobs were pruned, or all were there before"
    )


def _of(flow: bytes) -> tuple[Term, ...]:
    return (Term("flow", id_text(flow)),)


def _refuse_running(again: Sequence[FlowNode]) -> None:
    running = [node.name for node in again if node.view.state is State.running]
    if running:
        raise InvalidOption(
            f"{', '.join(running[:3])} {'is' if len(running) == 1 else 'are'} running",
            fix="wait, cancel it, or pass force=True (--force) to take it away from its worker",
        )
