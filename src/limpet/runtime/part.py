"""Decides how every long-running part lives: start returns when ready, stop is idempotent and waits, death is loud."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from limpet.runtime.background import background
from limpet.runtime.log import worker_log

OnFailure = Callable[[str, BaseException], None]  # told the name and the error of a part that died


class Part:
    """A part that runs as one task of the worker's loop. Subclasses write `live`."""

    name = "part"

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    async def live(self, ready: Callable[[], None]) -> None:
        """Run until cancelled; call `ready` once others may rely on this part.

        It may be cancelled at any await and run again: unfinished work begins again.
        """
        raise NotImplementedError

    async def start(self, on_failure: OnFailure) -> None:
        """Begin, and return when ready. What goes wrong before that is raised here, later it goes to `on_failure`."""
        is_ready = asyncio.get_running_loop().create_future()

        def ready() -> None:
            if not is_ready.done():
                is_ready.set_result(None)

        self._task = task = background(self.live(ready), f"limpet-{self.name}")
        await asyncio.wait({is_ready, task}, return_when=asyncio.FIRST_COMPLETED)
        if task.done() and not is_ready.done():
            task.result()
        task.add_done_callback(lambda done: self._ended(done, on_failure))

    async def stop(self) -> None:
        """End, and return when ended. BarredGates what never started, or twice, is fine."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait({task})

    def _ended(self, task: asyncio.Task[None], on_failure: OnFailure) -> None:
        if task.cancelled():
            if self._task is task:
                self._again(on_failure)
            return
        error = task.exception()
        if error is not None:
            on_failure(self.name, error)

    def _again(self, on_failure: OnFailure) -> None:
        """Only `stop` may end a part: other code, a handler most likely, has cancelled it, so it starts again."""
        worker_log(logging.WARNING, "a part was cancelled by other code, starting it again", part=self.name)
        self._task = background(self.live(lambda: None), f"limpet-{self.name}")
        self._task.add_done_callback(lambda done: self._ended(done, on_failure))
