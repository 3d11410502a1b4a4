"""Starts tasks of the store's own on a loop that runs other code, too."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


def errand(
    work: Coroutine[Any, Any, T],
    loop: asyncio.AbstractEventLoop,
    *,
    name: str | None = None,
    context: Context | None = None,
) -> asyncio.Task[T]:
    """A task made without the loop's task factory, which is the app's: one that raises must not stop a worker."""
    return asyncio.Task(work, loop=loop, name=name, context=context)
