"""Asks about flows and groups: how far they are, what came out of them; cancels them, and runs parts of them again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

from limpet.client.handle import Desk, JobHandle, value_of
from limpet.client.watching import LOOK_S
from limpet.core.errors import InvalidOption, JobError, JobNotFound, ResultTimeout
from limpet.core.flows.flow import FlowGraph
from limpet.core.flows.refs import Refers, Spread
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import FINISHED
from limpet.core.jobs.view import JobView
from limpet.core.records.flow import FlowDetail
from limpet.core.text.duration import to_ms
from limpet.core.text.storable import checked_text

R_co = TypeVar("R_co", covariant=True)

_TOGETHER: Final = 500  # jobs that are asked for in one round trip


class Changed(Protocol):
    """What an action on a flow did."""

    @property
    def done(self) -> int:
        """How many jobs it changed."""


class FlowDesk(Protocol):
    """What flow handles need of the app beside its store: another room knows how flows are read and corrected."""

    async def graph(self, id: bytes) -> FlowGraph:
        """All stored jobs of the flow; FlowNotFound when there are none."""

    async def status(self, id: bytes) -> FlowDetail:
        """The flow with all its nodes, as it may be shown."""

    async def last_live(self, id: bytes) -> bytes | None:
        """One of its jobs that has not finished, none of which was enqueued later."""

    async def cancel(self, id: bytes, *, reason: str, force: bool) -> Changed:
        """Cancel what has not finished."""

    async def retry(self, id: bytes, *, reason: str, from_: Sequence[str], force: bool) -> Changed:
        """Run dead nodes again, or these and all that depend on them."""


class NodeDesk(Desk, Protocol):
    """What a node's handle needs of the app it came from."""

    @property
    def flows(self) -> FlowDesk:
        """How flows are read and corrected."""


class NodeHandle(JobHandle[R_co]):
    """A job in a flow. As an argument of another job it stands for its result; it can be asked once it is stored."""

    __slots__ = ("_flow", "_flow_desk", "_is_stored", "node")

    def __init__(self, desk: NodeDesk, raw: bytes, *, task: str, node: str, flow: bytes) -> None:
        super().__init__(desk, raw, task=task, existing=False)
        self.node = node  # its name in the flow
        self._flow_desk = desk
        self._flow = flow
        self._is_stored = False

    @property
    def flow(self) -> FlowHandle:
        """The flow that it is a part of."""
        return FlowHandle(self._flow_desk, self._flow)

    @property
    def raw(self) -> bytes:
        """Its id as engines keep it."""
        return self._raw

    def stored(self, raw: bytes, *, existing: bool) -> None:
        """The flow is stored; where the job was there already, this is the handle of that one."""
        self._raw, self.existing, self._is_stored = raw, existing, True

    def move(self, node: str, flow: bytes) -> None:
        """Its flow has become a part of another one."""
        self.node, self._flow = node, flow

    def _not_found(self) -> JobNotFound:
        if self._is_stored:
            return super()._not_found()
        return JobNotFound(f"node {self.node!r} is not stored yet", fix="await flow.enqueue() first")


class GroupHandle(Refers):
    """Jobs beside each other. As an argument of another job it stands for the list of their results, in order."""

    __slots__ = ("_desk", "jobs")

    def __init__(self, desk: Desk, jobs: Iterable[JobHandle[Any] | GroupHandle]) -> None:
        self._desk = desk
        self.jobs = tuple(jobs)  # in order; of a group in a group, its handle

    def spread(self) -> Spread:
        return [job.spread() for job in self.jobs]

    @property
    def handles(self) -> list[JobHandle[Any]]:
        """All its jobs, those of groups in it too, in order."""
        return [each for job in self.jobs for each in (job.handles if isinstance(job, GroupHandle) else [job])]

    async def results(self, timeout: float | None = None, *, return_exceptions: bool = False) -> list[Any]:
        """Wait for all jobs and answer their values in order, nested as the group is.

        Raises for the first one, in order, that did not succeed, as JobHandle.result does; with
        `return_exceptions` such an error stands in its place instead.
        """
        found = await values_of(self._desk, self.handles, timeout, return_exceptions=return_exceptions)
        return self._nested(iter(found))

    def _nested(self, values: Iterator[Any]) -> list[Any]:
        return [job._nested(values) if isinstance(job, GroupHandle) else next(values) for job in self.jobs]

    async def cancel(self, reason: str = "") -> int:
        """Cancel what has not finished, with dependents; running jobs are asked to stop. How many it were."""
        checked_text(reason, what="reason")
        ids, count = [handle.spread() for handle in reversed(self.handles)], 0
        for start in range(0, len(ids), _TOGETHER):
            answers = await self._desk.store.cancel(ids[start : start + _TOGETHER], reason)
            count += sum(answer in ("cancelled", "cancelling") for answer in answers)
        return count

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[JobHandle[Any] | GroupHandle]:
        return iter(self.jobs)

    def __repr__(self) -> str:
        return f"<GroupHandle of {len(self)}>"


async def values_of(
    desk: Desk, handles: Sequence[JobHandle[Any]], timeout: float | None, *, return_exceptions: bool = False
) -> list[Any]:
    """What these jobs came to, in order; those that have finished are asked for together."""
    loop = asyncio.get_running_loop()
    until = None if timeout is None else loop.time() + to_ms(timeout, what="timeout") / 1000
    values: list[Any] = []
    for start in range(0, len(handles), _TOGETHER):
        part = handles[start : start + _TOGETHER]
        for handle, view in zip(part, await desk.store.get([each.spread() for each in part]), strict=True):
            try:
                if view is not None and view.state in FINISHED:
                    values.append(await value_of(desk, view))
                else:
                    values.append(await handle.result(None if until is None else max(0.0, until - loop.time())))
            except JobError as error:
                if not return_exceptions or isinstance(error, ResultTimeout):
                    raise
                values.append(error)
    return values


class FlowHandle:
    """One stored flow, by its id. Costs nothing to keep; every question asks the store."""

    __slots__ = ("_desk", "_raw", "name")

    def __init__(self, desk: NodeDesk, raw: bytes, *, name: str = "") -> None:
        self._desk = desk
        self._raw = raw
        self.name = name  # "" when the handle was made from an id alone

    @property
    def id(self) -> str:
        """The flow's id: uuid7 text."""
        return id_text(self._raw)

    async def status(self) -> FlowDetail:
        """The flow as it is now, node by node; FlowNotFound when nothing of it is stored."""
        return await self._desk.flows.status(self._raw)

    async def watch(self, timeout: float | None = None) -> AsyncGenerator[FlowDetail, None]:
        """The flow at once, and again whenever the states of its jobs have changed; ends when all have finished.

        The store counts its jobs every 0.3 s; the nodes are read only after a change. Raises FlowNotFound, or
        ResultTimeout after `timeout` seconds.
        """
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + to_ms(timeout, what="timeout") / 1000
        counted, shown = None, None
        while True:
            counts = [view.counts for view in await self._desk.store.flows([self._raw])]
            if counts != counted or not counts:
                counted, status = counts, await self.status()
                if shown is None or status.counts != shown.counts:
                    shown = status
                    yield status
                if status.done == status.total:
                    return
            if until is not None and loop.time() >= until:
                raise ResultTimeout(
                    f"flow {self.id} has not finished after {timeout:g} s", fix="it continues; watch longer"
                )
            await asyncio.sleep(LOOK_S if until is None else max(0.0, min(LOOK_S, until - loop.time())))

    async def wait(self, timeout: float | None = None) -> FlowDetail:
        """Wait until all its jobs have finished, however they did. ResultTimeout after `timeout` seconds."""
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + to_ms(timeout, what="timeout") / 1000
        while (last := await self._desk.flows.last_live(self._raw)) is not None:
            left_ms = None if until is None else max(0, round((until - loop.time()) * 1000))
            await self._desk.store.watch(last, left_ms)
        return await self.status()

    async def result(self, timeout: float | None = None) -> Any:
        """Wait for the node at the end of the flow and answer its value, as JobHandle.result does."""
        ends = await self._ends()
        if len(ends) > 1:
            raise InvalidOption(
                f"flow {self.id} has {len(ends)} ends: {', '.join(list(ends)[:3])}…", fix="await flow.results()"
            )
        (value,) = await values_of(self._desk, list(ends.values()), timeout)
        return value

    async def results(self, timeout: float | None = None, *, return_exceptions: bool = False) -> dict[str, Any]:
        """Wait for the nodes that nothing in the flow waits for, and answer their values by name.

        Raises for the first that did not succeed; with `return_exceptions` its error stands in its place instead.
        """
        ends = await self._ends()
        values = await values_of(self._desk, list(ends.values()), timeout, return_exceptions=return_exceptions)
        return dict(zip(ends, values, strict=True))

    async def cancel(self, reason: str = "", *, force: bool = False) -> int:
        """Cancel every job that has not finished; running ones are asked to stop. How many it were.

        `force` takes running jobs away from their workers, whose late results are then refused.
        """
        return (await self._desk.flows.cancel(self._raw, reason=reason, force=force)).done

    async def retry(self, from_: str | Sequence[str] = (), *, reason: str = "", force: bool = False) -> int:
        """Run the dead nodes again, with what their death cancelled; how many jobs that were.

        With `from_` (names of nodes), these and all that depend on them run again, whatever became of them: as new
        jobs of the same flow, with the results of what stays. Earlier runs stay as history. One that still runs is
        in the way, unless `force` takes it away from its worker.
        """
        names = (from_,) if isinstance(from_, str) else tuple(from_)
        return (await self._desk.flows.retry(self._raw, reason=reason, from_=names, force=force)).done

    async def _ends(self) -> dict[str, JobHandle[Any]]:
        graph = await self._desk.flows.graph(self._raw)
        if graph.missing_ends:
            raise JobNotFound(
                f"an end of flow {self.id} is not among its jobs: it was pruned, or was there before as another's",
                fix="ask the handle that flow.add answered for it",
            )
        return {node.name: self._handle(node.view) for node in graph.ends}

    def _handle(self, view: JobView) -> JobHandle[Any]:
        return JobHandle(self._desk, view.id, task=view.lane.task, existing=True)

    def __repr__(self) -> str:
        return f"FlowHandle({self.name or 'flow'} {self.id})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FlowHandle) and other._raw == self._raw

    def __hash__(self) -> int:
        return hash(self._raw)
