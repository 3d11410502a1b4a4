"""Builds a flow: nodes are added one by one or as whole works, then all are stored in one step."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, overload

from limpet.client.batch import MAX_DEPENDENCIES
from limpet.client.budget_precheck import BudgetPrecheck
from limpet.client.flow_handle import FlowHandle, GroupHandle, NodeHandle
from limpet.client.flow_node import Node
from limpet.client.handle import JobHandle
from limpet.client.work import Chain, Group, JobSpec, Work
from limpet.core.errors import (
    BatchTooLarge,
    InvalidArguments,
    InvalidOption,
    UnknownParent,
    WrongContext,
)
from limpet.core.flows.flow import Mark, arrows, mark_meta, order
from limpet.core.flows.refs import Refers, flat
from limpet.core.gate import GateRule
from limpet.core.jobs.ids import id_bytes, id_text
from limpet.core.jobs.job import Job
from limpet.core.jobs.options import longer_wait
from limpet.core.tasks.naming import checked_name, did_you_mean
from limpet.stores.base import MAX_BATCH_BYTES, MAX_BATCH_JOBS
from limpet.stores.callers import run_here

if TYPE_CHECKING:
    from limpet.client.client import Client

H = TypeVar("H")

Before = Refers | str | Iterable["Before"] | None  # what `after=` takes: handles, ids, names of nodes, lists of them
Output = JobHandle[Any] | GroupHandle

_NOTHING: Final = object()  # no result comes before it; None is a result
_TURN: Final = 500  # jobs that are built before others get the loop


class _Made(NamedTuple):
    """The nodes of a work, and how it was added: the result that is its first argument, and its parents."""

    work: Work[Any]  # kept, so that no other work has its identity
    output: Output
    first: Any
    waits: list[bytes | str]


class Flow:
    """Jobs that wait for each other, stored in one step and seen as one thing.

    What `add` answers is a job handle: pass it as an argument of another job, and its result arrives there as the
    value. `after=` only waits.

    >>> import asyncio
    >>> from limpet import Limpet
    >>> app = Limpet("sqlite://")
    >>> @app.task
    ... def fetch(what: str) -> int:
    ...     return len(what)
    >>> @app.task
    ... def render(sales: int, stock: int) -> str:
    ...     return f"{sales} sold, {stock} left"
    >>> async def main() -> str:
    ...     async with app:
    ...         flow = app.flow("report")
    ...         sales, stock = flow.add(fetch.job("sales")), flow.add(fetch.job("stock!"))
    ...         flow.add(render.job(sales, stock))
    ...         handle = await flow.enqueue()
    ...         await app.work(until_empty=True)
    ...         return await handle.result()
    >>> asyncio.run(main())
    '5 sold, 6 left'
    """

    def __init__(self, client: Client, name: str) -> None:
        self.name = checked_name(name, what="name")
        self._client = client
        self._raw = client.new_id()
        self._nodes: dict[str, Node] = {}
        self._numbers: Counter[str] = Counter()
        self._made: dict[int, _Made] = {}  # by identity: one spec is one job, wherever it is named
        self._enqueued = False

    @property
    def id(self) -> str:
        """The flow's id: uuid7 text, known before it is stored."""
        return id_text(self._raw)

    @overload
    def add(self, work: Work[H], *, after: Before = None, name: str | None = None) -> H: ...
    @overload
    def add(self, work: Flow, *, after: Before = None, name: str | None = None) -> GroupHandle: ...
    def add(self, work: Work[Any] | Flow, *, after: Before = None, name: str | None = None) -> Any:
        """Add a job (or a chain, a group, a chord, or all of another flow) that waits for `after` to succeed.

        `name` is the node's name within the flow; without it, the last word of the task's, numbered. `after` takes
        what `add` answered, any other handle or job id, names of nodes (of later ones too), and lists of those. What
        comes back is the handle of the job at the end, or of the jobs; of a flow, of those that nothing in it waits
        for.
        """
        if self._enqueued:
            raise WrongContext(
                f"flow {self.name!r} is stored already", fix="make another flow; it may wait for this one"
            )
        waits = self._named(after)
        if isinstance(work, Flow):
            return self._adopt(work, waits, name)
        if not isinstance(work, Work):
            raise InvalidArguments(f"a {type(work).__qualname__} is not a job", fix="make it with task.job(...)")
        if id(work) in self._made:
            raise InvalidArguments(f"this {work.label} is in the flow already", fix="use what add answered for it")
        nodes, made = len(self._nodes), len(self._made)
        try:
            return self._plan(work, _NOTHING, waits, None if name is None else checked_name(name, what="name"), "")
        except BaseException as error:
            _shorten(self._nodes, nodes)  # what is refused leaves nothing of itself behind
            _shorten(self._made, made)
            if isinstance(error, RecursionError):
                raise InvalidArguments(
                    "the jobs are nested too deeply", fix="add them one by one, or use chain(...)"
                ) from None
            raise

    async def enqueue(self, *, conn: Any = None) -> FlowHandle:
        """Store the whole graph in one step, all or none. Asking again asks for the same jobs.

        A circle is CycleFound, a parent that is not stored UnknownParent, both named by nodes. At most 20,000 jobs
        and 16 MiB of arguments. `conn` is your own database connection: the flow is there if and when its
        transaction commits.
        """
        if not self._nodes:
            raise InvalidArguments(f"flow {self.name!r} is empty", fix="flow.add(task.job(...)) first")
        nodes = self._in_order()
        jobs, rules, precheck = await self._built(nodes, pause=conn is None)
        try:
            wait_ms = reduce(longer_wait, (node.spec.options.wait_ms for node in nodes), None)
            answers = await self._client.enqueue_graph(jobs, list(rules.values()), precheck, conn, wait_ms=wait_ms)
        except UnknownParent as error:
            raise self._missing(nodes, error) from error
        self._enqueued = True
        for node, (raw, existing) in zip(nodes, answers, strict=True):
            node.handle.stored(raw, existing=existing)
        return FlowHandle(self._client, self._raw, name=self.name)

    def enqueue_sync(self, *, conn: Any = None) -> FlowHandle:
        """`enqueue` for code without an event loop; inside one it raises WrongContext."""
        instead = "await flow.enqueue()"
        if conn is not None:
            # The caller's connection belongs to the caller's thread: the bridge's may not touch it.
            return run_here(self.enqueue(conn=conn), conn, instead=instead)
        return self._client.bridge.run(self.enqueue(), instead=instead)

    def output(self, work: Work[Any]) -> Output:
        """What comes out of a work: it is added unless it is in the flow already."""
        made = self._made.get(id(work))
        return self.add(work) if made is None else made.output

    def __len__(self) -> int:
        return len(self._nodes)

    def __repr__(self) -> str:
        return f"<Flow {self.name} of {len(self)} jobs>"

    def _named(self, after: Any) -> list[bytes | str]:
        """What `after=` names: ids, and names of nodes."""
        if after is None:
            return []
        if isinstance(after, Work):
            made = self._made.get(id(after))
            if made is None:
                raise InvalidOption(
                    f"after= names a {after.label} that is not in flow {self.name!r}", fix="flow.add(...) it first"
                )
            after = made.output
        if isinstance(after, Refers):
            return list(flat(after.spread()))
        if isinstance(after, str):
            try:
                return [id_bytes(after)]
            except InvalidOption:
                return [after]
        if isinstance(after, bytes) or not isinstance(after, Iterable):
            raise InvalidOption(f"after={after!r:.80} names no job", fix="pass handles, job ids or names of nodes")
        return list(dict.fromkeys(name for each in after for name in self._named(each)))

    # -- works become nodes

    def _plan(self, work: Work[Any], first: Any, waits: list[bytes | str], name: str | None, prefix: str) -> Output:
        made = self._made.get(id(work))
        if made is not None:
            return _once(made, first, waits)
        own = name or work.name
        inside = f"{prefix}{own}/" if own else prefix
        if isinstance(work, JobSpec):
            output: Output = self._node(work, first, waits, name, prefix)
        elif isinstance(work, Group):
            output = GroupHandle(
                self._client, [self._plan(member, first, waits, None, inside) for member in work.members]
            )
        else:
            assert isinstance(work, Chain)
            output = self._plan_chain(work, first, waits, inside)
        self._made[id(work)] = _Made(work, output, first, waits)
        return output

    def _plan_chain(self, work: Chain[Any], first: Any, waits: list[bytes | str], prefix: str) -> Output:
        for step in work.steps:
            output = self._plan(step, first, waits, None, prefix)
            if ids := list(flat(output.spread())):
                # An empty group hands its place on: what follows waits for what was before.
                waits = list[bytes | str](ids)
            first = output
        return output

    def _node(self, spec: JobSpec[Any], first: Any, waits: list[bytes | str], name: str | None, prefix: str) -> Output:
        if spec.client is not self._client:
            raise InvalidOption(f"{spec.task} belongs to another app", fix="use tasks of the flow's own app")
        values = spec.values if first is _NOTHING else spec.with_first(first)
        values = {key: self._planned(value) for key, value in values.items()}
        taken = f"{prefix}{name}" if name is not None else self._next_name(prefix + spec.task.rpartition(".")[2])
        if taken in self._nodes:
            raise InvalidOption(
                f"flow {self.name!r} has a node {taken!r} already", fix="give one of them another name="
            )
        raw = spec.options.id or self._client.new_id()
        handle: NodeHandle[Any] = NodeHandle(self._client, raw, task=spec.task, node=taken, flow=self._raw)
        self._nodes[taken] = Node(taken, spec, values, list(waits), handle)
        return handle

    def _next_name(self, base: str) -> str:
        """The last word of the task's name, with a number from the second node on."""
        while True:
            self._numbers[base] += 1
            number = self._numbers[base]
            name = base if number == 1 else f"{base}-{number}"
            if name not in self._nodes:
                return name

    def _planned(self, value: Any) -> Any:
        """An argument with the handles of works that stand in it; those become nodes of their own."""
        if isinstance(value, Work):
            return self._plan(value, _NOTHING, [], None, "")
        if isinstance(value, dict):
            return {key: self._planned(item) for key, item in value.items()} if _holds_work(value.values()) else value
        if isinstance(value, list | tuple):
            return [self._planned(item) for item in value] if _holds_work(value) else value
        return value

    def _adopt(self, other: Flow, waits: list[bytes | str], name: str | None) -> GroupHandle:
        """All of another flow; what waits for nothing there waits for `waits` here."""
        if other is self or other._enqueued or other._client is not self._client:
            raise InvalidArguments(f"flow {other.name!r} cannot be a part of this one", fix="build a flow of its own")
        prefix = f"{name or other.name}/"
        nodes = other._in_order()
        for named in (f"{prefix}{node.name}" for node in nodes):
            if named in self._nodes:
                raise InvalidOption(f"flow {self.name!r} has a node {named!r} already", fix="add it with another name=")
        waited_for: set[bytes] = set()
        for node in nodes:
            parents = other._parents(node)
            waited_for.update(parents)
            named = f"{prefix}{node.name}"
            node.handle.move(named, self._raw)
            after = list[bytes | str](parents)
            entry = not any(parent in other._by_id() for parent in parents)
            self._nodes[named] = Node(named, node.spec, node.values, [*after, *waits] if entry else after, node.handle)
        self._made.update(other._made)
        other._enqueued = True  # its jobs are stored with this flow
        return GroupHandle(
            self._client, [node.handle for node in other._nodes.values() if node.handle.raw not in waited_for]
        )

    # -- nodes become jobs

    def _by_id(self) -> dict[bytes, Node]:
        return {node.handle.raw: node for node in self._nodes.values()}

    def _parents(self, node: Node) -> tuple[bytes, ...]:
        """The ids of all that a node waits for."""
        waits = (before if isinstance(before, bytes) else self._id_of(before, node) for before in node.after)
        return tuple(dict.fromkeys([*node.references(), *node.spec.options.after, *waits]))

    def _id_of(self, name: str, node: Node) -> bytes:
        if name not in self._nodes:
            raise UnknownParent(
                f"node {node.name!r} waits for {name!r}, which is neither a node of flow {self.name!r} nor a job id",
                fix=did_you_mean(name, list(self._nodes)),
            )
        return self._nodes[name].handle.raw

    def _in_order(self) -> list[Node]:
        """The nodes, each after its parents; a circle is refused with the nodes on it named."""
        by_id = self._by_id()
        if len(by_id) < len(self._nodes) and not self._enqueued:  # once stored, one job may stand for two of them
            raise InvalidOption(f"two nodes of flow {self.name!r} have the same id=", fix="leave id= out of one")
        graph: dict[str, list[str]] = {}
        sorted_already = True
        for node in self._nodes.values():
            parents = graph[node.name] = [by_id[id].name for id in self._parents(node) if id in by_id]
            sorted_already = sorted_already and all(name in graph and name != node.name for name in parents)
        names = list(graph) if sorted_already else order(graph)
        return [self._nodes[name] for name in names]

    async def _built(self, nodes: list[Node], *, pause: bool) -> tuple[list[Job], dict[str, GateRule], BudgetPrecheck]:
        jobs: list[Job] = []
        precheck = BudgetPrecheck()
        rules: dict[str, GateRule] = {}
        size = 0
        parents = {node.handle.raw: self._parents(node) for node in nodes}
        self._refuse_too_dense(sum(map(len, parents.values())))
        ends = parents.keys() - {id for ids in parents.values() for id in ids}
        for count, node in enumerate(nodes, 1):
            id = node.handle.raw
            mark = Mark(self.name, node.name, len(nodes), end=id in ends, ends=len(ends))
            job, more = node.job(self._raw, parents[id], mark_meta(mark))
            jobs.append(job)
            if node.spec.spec.budgets:
                precheck.add(node.spec.spec, job, f"node {node.name!r}: ")
            rules.update((rule.key, rule) for rule in more)
            size += len(job.args) + len(job.meta)
            if pause and count % _TURN == 0:
                await asyncio.sleep(0)
        if len(jobs) > MAX_BATCH_JOBS or size > MAX_BATCH_BYTES:
            raise BatchTooLarge(
                f"flow {self.name!r} has {len(jobs):,} jobs with {size:,} bytes; one step takes {MAX_BATCH_JOBS:,} "
                f"and {MAX_BATCH_BYTES:,}",
                fix="let one job enqueue the next flow, or pass less data: ids instead of contents",
            )
        return jobs, rules, precheck

    def _refuse_too_dense(self, count: int) -> None:
        if count > MAX_DEPENDENCIES:
            raise BatchTooLarge(
                f"the jobs of flow {self.name!r} wait for {count:,} others in all; one step takes {MAX_DEPENDENCIES:,}",
                fix="where each of many waits for each of many, put one job between them that all those wait for",
            )

    def _missing(self, nodes: list[Node], error: UnknownParent) -> UnknownParent:
        """The same refusal by the names of nodes: who waits for what is not there, and who would wait with that one."""
        waiting: dict[bytes, str] = {}  # a job → the first node that waits for it
        for node in nodes:
            for parent in self._parents(node):
                waiting.setdefault(parent, node.name)
        missing = next((id for id in waiting if id_text(id) in error.message), None)
        if missing is None:
            return error
        path, last = [id_text(missing)], missing
        while last in waiting:
            path.append(waiting[last])
            last = self._nodes[waiting[last]].handle.raw
        return UnknownParent(
            f"node {path[1]!r} of flow {self.name!r} waits for job {path[0]}, which is not stored: {arrows(path)}",
            fix="enqueue that job first, or keep finished jobs longer",
        )


def _shorten(found: dict[Any, Any], length: int) -> None:
    """Forget what was added last."""
    while len(found) > length:
        found.popitem()


def _once(made: _Made, first: Any, waits: list[bytes | str]) -> Output:
    """A work that stands in the flow already, where it is named again: it cannot come after something else there."""
    if (first is not _NOTHING or waits) and not (first is made.first and waits == made.waits):
        raise InvalidArguments(
            f"the same {made.work.label} stands in two places, after something else in each",
            fix="make each with a call of its own",
        )
    return made.output


def _holds_work(values: Iterable[Any]) -> bool:
    for value in values:
        if isinstance(value, Work):
            return True
        inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
        if inside and _holds_work(inside):
            return True
    return False
