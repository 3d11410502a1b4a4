"""Starts the worker's own tasks where handlers do not find them: what a handler cancels should be its own.

See ADR 32.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _unregister_task
from collections.abc import Coroutine
from typing import Any, TypeVar

from limpet.stores.errand import errand

T = TypeVar("T")


def background(
    work: Coroutine[Any, Any, T], name: str, loop: asyncio.AbstractEventLoop | None = None
) -> asyncio.Task[T]:
    """A task that `asyncio.all_tasks()` does not show; its starter keeps it, and ends it.

    A loop that closes does not cancel it either. It is made without the loop's task factory, which is the handlers'.
    """
    task = errand(work, loop or asyncio.get_running_loop(), name=name)
    _unregister_task(task)  # the hook that asyncio documents for tasks of other libraries
    return task
