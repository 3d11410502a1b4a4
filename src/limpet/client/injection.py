"""Remembers which resources workers of this process have opened, so that a plain call can be given them too."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from limpet.client.bridge import WorkerLoop
from limpet.core.errors import InvalidTask
from limpet.core.tasks.task import TaskSpec

F = TypeVar("F", bound=Callable[..., Any])


class OpenResources:
    """Values by resource and event loop: a pool made in one loop is of no use in another."""

    def __init__(self, worker_loop: WorkerLoop) -> None:
        self._worker_loop = worker_loop
        self._values: dict[tuple[object, asyncio.AbstractEventLoop], object] = {}

    def watched(self, fn: F) -> F:
        """`fn` as it was, but its value is known here while a worker has it open."""
        opened: Callable[[], AsyncIterator[Any]]
        if inspect.isasyncgenfunction(fn):

            @functools.wraps(fn)
            async def opened() -> AsyncIterator[Any]:
                async with contextlib.asynccontextmanager(fn)() as value:
                    with self._holding(opened, value):
                        yield value

        elif inspect.isgeneratorfunction(fn):

            @functools.wraps(fn)
            async def opened() -> AsyncIterator[Any]:
                with contextlib.contextmanager(fn)() as value, self._holding(opened, value):
                    yield value

        else:
            raise InvalidTask(
                f"the resource {getattr(fn, '__qualname__', fn)!r} is not a generator function",
                fix="open it, `yield` it once, and close it after the yield",
            )
        return cast(F, opened)

    def for_task(self, spec: TaskSpec) -> Mapping[str, Any] | None:
        """What a worker would inject into `spec` here; None when no worker of this loop has all of it open."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            found = self._worker_loop()
            if found is None:
                return None
            loop = found
        keys = {name: (resource, loop) for name, resource in spec.injected.items()}
        if not all(key in self._values for key in keys.values()):
            return None
        return {name: self._values[key] for name, key in keys.items()}

    @contextlib.contextmanager
    def _holding(self, resource: object, value: object) -> Iterator[None]:
        key = (resource, asyncio.get_running_loop())
        self._values[key] = value
        try:
            yield
        finally:
            self._values.pop(key, None)
