"""Lets an app's enqueue middleware see each job before it is stored, change its options, or refuse it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import iscoroutinefunction, signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Unpack

from limpet.client.options import CallOptions
from limpet.core.errors import InvalidOption
from limpet.core.jobs.meta import asked_meta
from limpet.core.tasks.task import Options, TaskSpec

if TYPE_CHECKING:
    from limpet.client.client import Client

# Which job it is, in which transaction, and what it waits for: the call has decided that, and others build on it.
_OF_THE_CALL: Final = frozenset({"id", "conn", "after", "if_parent_fails", "wait"})


class NewJob:
    """A job that is about to be stored. Enqueue middleware reads it, changes it, or raises to refuse it.

    >>> from limpet import Limpet, NewJob
    >>> app = Limpet("sqlite://")
    >>> @app.enqueue_middleware
    ... def stamp(job: NewJob) -> None:
    ...     job.meta["request"] = "r1"
    ...     job.change(tags=[*job.tags, "web"])
    """

    __slots__ = ("_client", "_meta", "_options", "_spec", "_values")

    def __init__(self, client: Client, spec: TaskSpec, values: Mapping[str, Any], options: Options) -> None:
        self._client = client
        self._spec = spec
        self._values = values
        self._options = options
        self._meta: dict[str, Any] | None = None  # once it was looked at, it may have been changed

    @property
    def task(self) -> str:
        """The task's name."""
        return self._spec.name

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments by parameter name, as they were passed. Read-only; results of other jobs are handles."""
        return MappingProxyType(dict(self._values))

    @property
    def meta(self) -> dict[str, Any]:
        """What the job will carry in `current_job().meta`: change it in place."""
        if self._meta is None:
            self._meta = asked_meta(self._options.meta)
        return self._meta

    @property
    def queue(self) -> str:
        return self._options.queue or self._spec.queue

    @property
    def priority(self) -> int:
        """0 (most urgent) to 9."""
        return self._spec.priority if self._options.priority is None else self._options.priority

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of this call; those that the task declares come on top."""
        return self._options.tags

    @property
    def tenant(self) -> str | None:
        """The tenant that the call names; None where the task's own rule finds it."""
        return self._options.tenant

    def change(self, **options: Unpack[CallOptions]) -> None:
        """Set options of this job, in the words of `task.options(...)`, checked as there.

        Which job it is and what it waits for was decided by the call: id, conn, after, if_parent_fails and wait are
        refused.
        """
        for name in options:
            if name in _OF_THE_CALL:
                raise InvalidOption(f"{name}= cannot be changed by enqueue middleware", fix="set it where you enqueue")
        if self._meta is not None and "meta" not in options:
            options["meta"] = self._meta
        self._options = self._client.read_options(self._options, options)
        self._meta = None

    def final(self) -> Options:
        """The options that the job is stored with."""
        if self._meta is not None:
            self.change()
        return self._options


EnqueueMiddleware = Callable[[NewJob], None]


def checked(fn: EnqueueMiddleware) -> EnqueueMiddleware:
    """Refuse what would never be awaited, and what cannot be called with a job."""
    if not callable(fn) or iscoroutinefunction(fn):
        raise InvalidOption(
            f"enqueue middleware must be a plain function of one NewJob, got {fn!r}",
            fix="write `def`, not `async def`: it is called while the job is made, and nothing waits there",
        )
    refuse_misfit(fn, 1, takes="one NewJob", shape="def fn(job: NewJob) -> None")
    return fn


def refuse_misfit(fn: Callable[..., Any], count: int, *, takes: str, shape: str) -> None:
    """Refuse middleware that cannot be called with this many arguments: each job would fail."""
    try:
        signature(fn).bind(*[None] * count)
    except TypeError as error:
        raise InvalidOption(f"{fn!r} cannot be called with {takes}: {error}", fix=f"write {shape}") from error
