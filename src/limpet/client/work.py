"""Says what is asked for as a whole and not yet stored: one job, a chain, a group, a chord, and any of them nested."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from limpet.client.flow_handle import GroupHandle, NodeHandle
from limpet.core.errors import InvalidArguments, InvalidOption, NotSerialisable
from limpet.core.flows.refs import Refers, Spread
from limpet.core.jobs.options import Options
from limpet.core.tasks.naming import checked_name
from limpet.core.tasks.task import TaskSpec
from limpet.stores.callers import run_here

if TYPE_CHECKING:
    from limpet.client.client import Client
    from limpet.client.flow import Flow

R_co = TypeVar("R_co", covariant=True)
H_co = TypeVar("H_co", covariant=True)  # what `enqueue` answers: the handle of a job, or of a group
H = TypeVar("H")


class Work(Refers, Generic[H_co]):
    """Jobs that are asked for and not yet stored. As an argument of another job it stands for its result."""

    __slots__ = ("unsure",)

    label = "work"
    name: str | None = None  # before the names of its nodes
    unsure: Flow  # there when the store did not answer in time: its jobs may be stored

    async def enqueue(self, *, conn: Any = None) -> H_co:
        """Store all its jobs in one step, all or none, as one flow; the handle of what comes out at its end.

        `conn` is your own database connection: the jobs are there if and when its transaction commits. Asking
        again after a timeout asks for the same jobs.
        """
        handle: H_co = await self._client().enqueue_work(self, conn)
        return handle

    def enqueue_sync(self, *, conn: Any = None) -> H_co:
        """`enqueue` for code without an event loop; inside one it raises WrongContext."""
        instead = "await .enqueue()"
        if conn is not None:
            # The caller's connection belongs to the caller's thread: the bridge's may not touch it.
            return run_here(self.enqueue(conn=conn), conn, instead=instead)
        return self._client().bridge.run(self.enqueue(), instead=instead)

    def specs(self) -> Iterator[JobSpec[Any]]:
        """Its jobs, without those among their arguments."""
        raise NotImplementedError

    def spread(self) -> Spread:
        raise NotSerialisable(
            f"a {self.label} that is not stored yet has no result", fix="add both to a flow: flow.add(...) of each"
        )

    def _client(self) -> Client:
        first = next(self.specs(), None)
        if first is None:
            raise InvalidArguments(f"the {self.label} is empty", fix="put at least one job into it")
        return first.client


class JobSpec(Work[NodeHandle[R_co]], Generic[R_co]):
    """One job that is asked for but not yet stored: for `app.enqueue_many`, flows and chains."""

    __slots__ = ("args", "client", "kwargs", "options", "spec", "values")

    label = "job"

    def __init__(
        self, client: Client, spec: TaskSpec, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options
    ) -> None:
        self.client = client
        self.spec = spec
        self.args = args
        self.kwargs = kwargs
        self.options = options
        self.values = spec.signature.bind(args, kwargs, partial=True)

    @property
    def task(self) -> str:
        """The task's name."""
        return self.spec.name

    def specs(self) -> Iterator[JobSpec[Any]]:
        yield self

    def with_first(self, first: Any) -> dict[str, Any]:
        """Its arguments with the result of what comes before it in a chain as the first one."""
        try:
            return self.spec.signature.bind((first, *self.args), self.kwargs)
        except InvalidArguments as error:
            raise InvalidArguments(
                f"{error.message} (the result of what comes before it in a chain is its first argument)", fix=error.fix
            ) from error

    def __repr__(self) -> str:
        return f"<job of {self.spec.name}, not stored>"


class Chain(Work[H_co]):
    """Works one after the other: each gets the result of the one before as its first argument."""

    __slots__ = ("name", "steps")

    label = "chain"

    def __init__(self, steps: Iterable[Work[Any]], name: str | None = None) -> None:
        self.steps = _checked(self.label, steps)
        self.name = _name(name)
        if not self.steps:
            raise InvalidArguments("the chain is empty", fix="chain(first, second, ...)")

    def specs(self) -> Iterator[JobSpec[Any]]:
        for step in self.steps:
            yield from step.specs()


class Chord(Chain[H_co]):
    """A group, and one work that gets the list of its results."""

    __slots__ = ()

    label = "chord"


class Group(Work[GroupHandle]):
    """Works beside each other: each gets what comes before the group, and their results are one list, in order."""

    __slots__ = ("members", "name")

    label = "group"

    def __init__(self, members: Iterable[Work[Any]], name: str | None = None) -> None:
        self.members = _checked(self.label, members)
        self.name = _name(name)

    def specs(self) -> Iterator[JobSpec[Any]]:
        for member in self.members:
            yield from member.specs()

    def __len__(self) -> int:
        return len(self.members)


def chain(*steps: *tuple[*tuple[Work[Any], ...], Work[H]], name: str | None = None) -> Chain[H]:
    """Jobs one after the other: each result is the first argument of the next.

    >>> import asyncio
    >>> from limpet import Limpet
    >>> app = Limpet("sqlite://")
    >>> @app.task
    ... def double(n: int) -> int:
    ...     return 2 * n
    >>> @app.task
    ... def add(n: int, more: int) -> int:
    ...     return n + more
    >>> async def main() -> int:
    ...     async with app:
    ...         job = await chain(double.job(20), add.job(2)).enqueue()
    ...         await app.work(until_empty=True)
    ...         return await job.result()
    >>> asyncio.run(main())
    42
    """
    return Chain(steps, name)


def group(jobs: Iterable[Work[Any]], *, name: str | None = None) -> Group:
    """Jobs beside each other: `await group(...).enqueue()` answers a GroupHandle, with `.results()` in order."""
    return Group(jobs, name)


def chord(jobs: Iterable[Work[Any]], last: Work[H], *, name: str | None = None) -> Chord[H]:
    """A group, then `last` with the list of the group's results, in order, as its first argument."""
    return Chord((Group(jobs), last), name)


def _checked(label: str, works: Iterable[Work[Any]]) -> tuple[Work[Any], ...]:
    if isinstance(works, Work) or not isinstance(works, Iterable):
        raise InvalidArguments(
            f"a {type(works).__qualname__} is not a list of jobs",
            fix=f"pass a list: {label}([first.job(), second.job()])",
        )
    found: tuple[Any, ...] = tuple(works)
    for index, work in enumerate(found):
        if not isinstance(work, Work):
            if isinstance(work, Coroutine):
                work.close()  # task.enqueue(...) where task.job(...) was meant: it will never run
            raise InvalidArguments(
                f"{label}[{index}] is a {type(work).__qualname__}, not a job", fix="make it with task.job(...)"
            )
    if len({id(work) for work in found}) < len(found):
        raise InvalidArguments(f"the same {label} member stands in it twice", fix="make each with a call of its own")
    clients = {id(spec.client) for work in found for spec in work.specs()}
    if len(clients) > 1:
        raise InvalidOption(f"the jobs of the {label} belong to different apps", fix="use tasks of one app")
    return found


def _name(name: str | None) -> str | None:
    return None if name is None else checked_name(name, what="name")
