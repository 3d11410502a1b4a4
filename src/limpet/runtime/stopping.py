"""Keeps jobs from overtaking bad news: nothing starts under a gate that may be shut until the store has answered."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from limpet.core.endings.stopping import may_shut
from limpet.core.endings.transition import Hold, Succeed, Transition
from limpet.core.jobs.lease import Claimed, Serves
from limpet.core.tasks.task import TaskSpec
from limpet.runtime.rack import Rack, stops

SLOW_S: Final = 0.02  # a settlement takes a few milliseconds; one that takes longer must not keep places from others


class Stopping:
    """The gates that outcomes of this process have barred, each until its settlement is answered (D26).

    Barred jobs lie aside on the rack. Claims go on meanwhile, so that most often nothing is lost when the bar is
    lifted; what the answer names as shut is given back, and so is what a claim brings that was sent before it.
    """

    def __init__(self, tasks: Mapping[str, TaskSpec], rack: Rack) -> None:
        self._rack = rack
        self._lanes = {name: spec.pattern for name, spec in tasks.items()}
        self._fewest = {
            f"breaker:{lane.breaker}": spec.breaker.failures
            for lane, spec in zip(self._lanes.values(), tasks.values(), strict=True)
            if spec.breaker is not None and spec.breaker.rate is None
        }
        self._runs: dict[str, int] = {}  # breaker → failures since a success, both in the write that comes next
        self._barred: Counter[str] = Counter()  # gate → outcomes that are not answered
        self._unanswered: dict[tuple[bytes, int], str] = {}
        self._asking = 0  # claims under way
        self._heard = 0  # numbers the shut gates that were heard of
        self._shut: dict[str, int] = {}  # those that were heard of while claims were under way
        self._slow: asyncio.TimerHandle | None = None
        self._narrowed = False  # somebody has claimed without the barred tasks
        self.fits: Callable[[], bool] = lambda: True  # what ends now is written together with all that waits
        self.give_back: Callable[[list[Claimed]], None] = lambda jobs: None
        self.on_slow: Callable[[], None] = lambda: None  # places that barred jobs were claimed for may go to others
        self.on_lifted: Callable[[bool], None] = lambda narrowed: None

    def ended(self, job: Claimed, transition: Transition) -> None:
        """A handler has ended like this, and the store does not know yet."""
        if type(transition) is Succeed:
            self._runs[f"breaker:{job.lane.breaker}"] = 0
            return
        gate = may_shut(job.lane, transition)
        if gate is None or self._cannot_shut(gate, job):
            return
        self._unanswered[job.id, job.token] = gate
        self._barred[gate] += 1
        pushed = isinstance(transition, Hold)
        if self._barred[gate] == 1 or pushed:
            self._rack.bar(gate, at_once=pushed)
            if self._slow is None:
                self._slow = asyncio.get_running_loop().call_later(SLOW_S, self._is_slow)

    def sent(self) -> None:
        """All that has ended so far is on its way to the store."""
        self._runs.clear()

    def _cannot_shut(self, gate: str, job: Claimed) -> bool:
        """Whether a success in the same write has the breaker count anew, and it takes more failures than since."""
        if gate not in self._runs or job.probe or not self.fits():
            return False
        self._runs[gate] += 1
        return self._runs[gate] < self._fewest.get(gate, 0)

    def answered(self, batch: Iterable[Transition], shut: set[str]) -> None:
        """The store has answered these, and says that those gates are shut."""
        if not shut and not self._unanswered:
            return
        if shut and self._asking:
            self._heard += 1
            self._shut.update(dict.fromkeys(shut, self._heard))
        back = self._rack.withdraw(shut) if shut else []
        lifted = [gate for each in batch if (gate := self._answered(each)) is not None]
        if lifted:
            back += self._rack.lift(lifted)
        if back:
            self.give_back(back)
        if lifted or back:
            self._go_on()

    def ask(self) -> int:
        """A claim is sent; the answer is for `hear`."""
        self._asking += 1
        return self._heard

    def hear(self, asked: int) -> frozenset[str]:
        """It is answered, or given up; the gates that were heard of as shut since it was sent."""
        self._asking -= 1
        since = frozenset(gate for gate, heard in self._shut.items() if heard > asked)
        if not self._asking:
            self._shut.clear()
        return since

    def served(self, serves: Serves) -> Serves:
        """What to claim: all of it, or no barred task once jobs of theirs have lain aside for too long."""
        if serves.tasks is None or not (self._rack.aside and self._rack.overtaken):
            return serves
        barred = {name for name, lane in self._lanes.items() if stops(self._barred.keys(), lane)}
        self._narrowed = True
        return Serves(serves.queues, tuple(name for name in serves.tasks if name not in barred), serves.capabilities)

    def _answered(self, transition: Transition) -> str | None:
        """The gate that is free again since this was the last answer it waited for."""
        gate = self._unanswered.pop((transition.id, transition.token), None)
        if gate is None:
            return None
        self._barred[gate] -= 1
        if self._barred[gate]:
            return None
        del self._barred[gate]
        return gate

    def _is_slow(self) -> None:
        self._rack.overtaken = True
        self.on_slow()

    def _go_on(self) -> None:
        if not self._unanswered:
            self._rack.overtaken = False
            if self._slow is not None:
                self._slow.cancel()
                self._slow = None
        narrowed, self._narrowed = self._narrowed, False
        self.on_lifted(narrowed)
