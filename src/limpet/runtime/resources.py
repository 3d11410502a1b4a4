"""Keeps what jobs share in one process (pools, clients): opened once before the first job, closed after the last."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Iterable
from typing import Any

from limpet.core.errors import InvalidTask
from limpet.core.tasks.task import TaskSpec
from limpet.runtime.settings import Resource


class Resources:
    """Opened resources by their declaration; `async with` opens and closes them in one task, in order."""

    def __init__(self, hooks: Iterable[Resource], resources: Iterable[Resource]) -> None:
        self._hooks = tuple(hooks)
        self._declared = tuple(resources)
        self._values: dict[int, object] = {}
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Resources:
        async with contextlib.AsyncExitStack() as opening:
            for hook in self._hooks:
                await opening.enter_async_context(_manager(hook))
            for resource in self._declared:
                self._values[id(resource)] = await opening.enter_async_context(_manager(resource))
            self._stack = opening.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._values.clear()
        await self._stack.aclose()

    def for_task(self, spec: TaskSpec) -> dict[str, object]:
        """The values for the parameters of `spec` that are marked with Inject."""
        found: dict[str, object] = {}
        for name, resource in spec.injected.items():
            if id(resource) not in self._values:
                raise InvalidTask(
                    f"task {spec.name!r} injects {resource!r} as {name!r}, which this app does not declare",
                    fix="declare it with @app.resource on the same app",
                )
            found[name] = self._values[id(resource)]
        return found


def _manager(resource: Resource) -> contextlib.AbstractAsyncContextManager[Any]:
    if inspect.isasyncgenfunction(resource):
        return contextlib.asynccontextmanager(resource)()
    if inspect.isgeneratorfunction(resource):
        return _entered(contextlib.contextmanager(resource)())
    return _entered(resource())


@contextlib.asynccontextmanager
async def _entered(made: Any) -> AsyncIterator[Any]:
    """A value from whatever a factory answers: a context manager of either kind, an awaitable, or the value itself."""
    if inspect.isawaitable(made):
        made = await made
    if hasattr(made, "__aenter__"):
        async with made as value:
            yield value
    elif hasattr(made, "__enter__"):
        with made as value:
            yield value
    else:
        yield made
