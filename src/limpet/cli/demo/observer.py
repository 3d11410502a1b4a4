"""Watches the store while the demo runs and says what changes: progress, the breaker, leases that came back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from limpet.cli.demo.folder import Folder
from limpet.cli.demo.plan import TASKS, Task
from limpet.cli.demo.screen import Screen, some
from limpet.cli.demo.tasks import PROVIDER
from limpet.core.errors import StoreError
from limpet.core.gate import Gate
from limpet.core.jobs.state import FINISHED, State
from limpet.core.jobs.view import Counts
from limpet.stores.base import Store

EVERY_S: Final = 0.15


class Observer:
    """The last look at the store; `until` waits for one that shows something."""

    def __init__(self, store: Store, folder: Folder, screen: Screen) -> None:
        self._store = store
        self._folder = folder
        self._screen = screen
        breaker = folder.notes("breaker.opened", "breaker.closed")
        self.breaker_open = bool(breaker) and breaker[-1]["kind"] == "breaker.opened"
        self.counts = Counts({}, 0, 0, 0, 0, 0, 0)
        self._lost: int | None = None  # None: before the first look
        self._seen = asyncio.Condition()

    @property
    def live(self) -> int:
        """Jobs that have not ended."""
        return sum(n for (_, _, state), n in self.counts.now.items() if state not in FINISHED)

    @property
    def breaker_opened(self) -> bool:
        """True once the breaker has opened, in this run or in an earlier one."""
        return self._folder.noted("breaker.opened")

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            try:
                await self.look()
            except StoreError as error:
                if not error.retryable:
                    raise
            await asyncio.sleep(EVERY_S)

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for a look that shows it; the first one is taken now."""
        await self.look()
        async with self._seen:
            await self._seen.wait_for(true)

    async def look(self) -> None:
        """One look, and a word about what is new in it."""
        async with self._seen:
            await self._compare()
            self._seen.notify_all()

    async def _compare(self) -> None:
        counts = await self._store.count()
        gates = await self._store.gates(f"breaker:{PROVIDER}")
        self.counts = counts
        if self._lost is not None and counts.lost > self._lost:
            count = counts.lost - self._lost
            self._screen.say(f"recovered: {some(count, 'job')} of killed workers can run again", "green")
        self._lost = counts.lost
        if gates:
            self._see_breaker(gates[0])
        ended = {task: self._in_state(task, *FINISHED) for task in TASKS}
        ended["email.welcome"] += counts.discarded  # the operator discards nothing else
        dead = {task: count for task in TASKS if (count := self._in_state(task, State.dead))}
        beside = {task: f"{count} dead" for task, count in dead.items()}
        if self.breaker_open:
            beside["webhook.deliver"] = "breaker open"
        self._screen.show(ended, beside)

    def _in_state(self, task: Task, *states: State) -> int:
        return sum(n for (_, of, state), n in self.counts.now.items() if of == task and state in states)

    def _see_breaker(self, gate: Gate) -> None:
        if gate.breaker_open == self.breaker_open:
            return
        self.breaker_open = gate.breaker_open
        if self.breaker_open:
            self._folder.note("breaker.opened")
            self._screen.say("breaker open: webhooks wait at no cost, everything else continues", "yellow")
        else:
            self._folder.note("breaker.closed")
            self._screen.say("breaker closed: one probe got through, the webhooks follow", "green")
