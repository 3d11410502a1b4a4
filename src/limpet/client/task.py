"""Asks for runs of one task: typed enqueue, options as copies, and the plain call that runs here and now."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from limpet.client.handle import JobHandle
from limpet.client.options import CallOptions
from limpet.client.work import JobSpec
from limpet.core.errors import InvalidArguments
from limpet.core.tasks.task import Inject as InjectMark
from limpet.core.tasks.task import Options, TaskSpec, build_job
from limpet.core.text.foreign_words import TASK, answers
from limpet.stores.callers import has_joined, joined, run_here

if TYPE_CHECKING:
    from limpet.client.client import Client

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Task(Generic[P, R]):
    """A declared task. `.enqueue` takes exactly what the function takes, and so does a plain call.

    >>> import asyncio
    >>> from limpet import Limpet
    >>> app = Limpet("sqlite://")
    >>> @app.task(queue="mail", priority="critical")
    ... async def greet(name: str) -> str:
    ...     return f"Hello, {name}"
    >>> async def main() -> tuple[str, str]:
    ...     async with app:
    ...         job = await greet.options(delay=0, tags=["demo"]).enqueue("Ada")
    ...         await app.work(until_empty=True)
    ...         return await job.result(), await greet("Bob")
    >>> asyncio.run(main())
    ('Hello, Ada', 'Hello, Bob')
    """

    def __init__(self, client: Client, spec: TaskSpec, options: Options) -> None:
        self._client = client
        self._options = options
        self.spec = spec
        fn = spec.fn
        self.__wrapped__ = fn
        self.__doc__ = fn.__doc__
        self.__module__ = fn.__module__
        self.__name__: str = getattr(fn, "__name__", spec.name)
        self.__qualname__: str = getattr(fn, "__qualname__", spec.name)

    @property
    def name(self) -> str:
        """The name under which its jobs are stored."""
        return self.spec.name

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Store one job and answer its handle. Returns when the job is safe; raises within the enqueue deadline."""
        values = self.spec.signature.bind(args, kwargs)
        return await enqueue(self._client, self.spec, values, self._options)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """`enqueue` for code without an event loop; inside one it raises WrongContext."""
        conn, instead = self._options.conn, "await .enqueue()"
        if conn is not None:
            # The caller's connection belongs to the caller's thread: the bridge's may not touch it.
            return run_here(self.enqueue(*args, **kwargs), conn, instead=instead)
        return self._client.bridge.run(self.enqueue(*args, **kwargs), instead=instead)

    def options(self, **options: Unpack[CallOptions]) -> Self:
        """A copy of this task with options for the jobs it enqueues; an unknown option is InvalidOption."""
        return type(self)(self._client, self.spec, self._client.read_options(self._options, options))

    def job(self, *args: Any, **kwargs: Any) -> JobSpec[R]:
        """A job for `app.enqueue_many`, flows, chains and groups.

        Arguments are checked now, except for ones that are still missing and for jobs whose results come in their
        place.
        """
        return JobSpec(self._client, self.spec, args, kwargs, self._options)

    if not TYPE_CHECKING:
        __getattr__ = answers("a task", TASK)

    def __repr__(self) -> str:
        return f"<task {self.spec.name}>"

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        missing = [name for name in self.spec.injected if name not in kwargs]
        if missing:
            found = self._client.injected(self.spec)
            if found is None:
                raise InvalidArguments(
                    f"{self.spec.name} gets {', '.join(missing)} from its worker, and no worker runs here",
                    fix=f"pass {missing[0]}= yourself in a plain call",
                )
            kwargs = {**{name: found[name] for name in missing}, **kwargs}
        return self.spec.fn(*args, **kwargs)


async def enqueue(client: Client, spec: TaskSpec, values: Mapping[str, Any], options: Options) -> JobHandle[Any]:
    """Make one job of a call and store it; with `conn`, when the caller's own transaction commits."""
    if options.conn is not None:
        return await client.enqueue_on(options.conn, spec, values, options)
    batcher = client.producer.batcher()
    if client.middleware:
        options = client.shaped(spec, values, options)
    job, rules = build_job(spec, values, options, id=options.id or batcher.new_id())
    if spec.budgets:
        await client.check_budgets(spec, job)
    if has_joined() and joined():
        # A call of its own: the store must see whose transaction it may wait for, and refuse no other job with it.
        (answer,) = await client.producer.enqueue_batch([job], rules, wait_ms=options.wait_ms)
    elif options.wait_ms is None:
        answer = await batcher.enqueue(job, rules)
    else:
        answer = await batcher.enqueue_when_room(job, rules, options.wait_ms)
    return JobHandle(client, answer.id, task=spec.name, existing=answer.existing)


class AsyncTask(Task[P, R]):
    """A task whose function is async."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Run the function here, now; nothing is stored."""
        made: Coroutine[Any, Any, R] = self._call(args, kwargs)
        return made


class SyncTask(Task[P, R]):
    """A task whose function is plain; a worker runs it in a thread or a process."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here, now; nothing is stored."""
        made: R = self._call(args, kwargs)
        return made


@overload
def Inject(resource: Callable[[], AsyncIterator[T]]) -> T: ...
@overload
def Inject(resource: Callable[[], Iterator[T]]) -> T: ...
@overload
def Inject(resource: Callable[[], Any]) -> Any: ...
def Inject(resource: Callable[[], Any]) -> Any:
    """The default of a parameter that the worker fills with a resource: `db: Pool = Inject(pool)`.

    >>> from collections.abc import AsyncIterator
    >>> from limpet import Limpet, Inject
    >>> app = Limpet("sqlite://")
    >>> @app.resource
    ... async def numbers() -> AsyncIterator[list[int]]:
    ...     yield [1, 2, 3]
    >>> @app.task
    ... async def total(plus: int, given: list[int] = Inject(numbers)) -> int:
    ...     return plus + sum(given)
    """
    return InjectMark(resource)
