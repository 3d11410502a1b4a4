"""Holds jobs back under a gate that an outcome of this worker may shut, until the store has answered."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from limpet.core.endings.stopping import may_shut
from limpet.core.endings.transition import Hold, Succeed, Transition
from limpet.core.jobs.lease import Claimed, Serves
from limpet.core.tasks.task import TaskSpec
from limpet.runtime.ageing import Ageing
from limpet.runtime.local_queue import LocalQueue, stops

SLOW_S: Final = 0.02  # a settlement takes a few milliseconds; one that takes longer must not keep slots from others


class BarredGates:
    """The gates that outcomes of this process have barred, each until its settlement is answered (D26).

    Barred jobs lie aside in the local queue. Claims go on meanwhile, so that most often nothing is lost when the bar
    is lifted. Jobs under a gate that the answer names as shut are given back, also those of a claim sent before it.
    """

    def __init__(self, tasks: Mapping[str, TaskSpec], local_queue: LocalQueue, ageing: Ageing | None) -> None:
        self._local_queue = local_queue
        self._ageing = ageing
        self._demand = local_queue.demand
        self._lanes = {name: spec.pattern for name, spec in tasks.items()}
        self._fewest = {
            f"breaker:{lane.breaker}": spec.breaker.failures
            for lane, spec in zip(self._lanes.values(), tasks.values(), strict=True)
            if spec.breaker is not None and spec.breaker.rate is None
        }
        self.runs: dict[str, int] = {}  # breaker → failures since a success, both in the write that comes next
        self._barred: Counter[str] = Counter()  # gate → outcomes that are not answered
        self.unanswered: dict[tuple[bytes, int], str] = {}  # ends of jobs → the gate that each may shut
        self.asking = 0  # claims under way
        self.heard = 0  # numbers the shut gates that were heard of
        self._shut: dict[str, int] = {}  # those that were heard of while claims were under way
        self._slow: asyncio.TimerHandle | None = None
        self._narrowed = False  # a claim was made without the barred tasks

    def ended(self, job: Claimed, transition: Transition, *, fits: bool) -> None:
        """A handler has ended like this, and the store does not know yet.

        `fits`: this end is written together with all that wait.
        """
        if type(transition) is Succeed:
            self.runs[f"breaker:{job.lane.breaker_key or job.lane.breaker}"] = 0
            return
        gate = may_shut(job.lane, transition)
        if gate is None or (fits and self._cannot_shut(gate, job)):
            return
        self.unanswered[job.id, job.token] = gate
        self._barred[gate] += 1
        pushed = isinstance(transition, Hold)
        if self._barred[gate] == 1 or pushed:
            self._local_queue.bar(gate, at_once=pushed)
            if self._slow is None:
                self._slow = asyncio.get_running_loop().call_later(SLOW_S, self._is_slow)

    def _cannot_shut(self, gate: str, job: Claimed) -> bool:
        """Whether a success in the same write resets the breaker, and too few failures have followed to open it."""
        if gate not in self.runs or job.probe:
            return False
        self.runs[gate] += 1
        return self.runs[gate] < self._fewest.get(f"breaker:{job.lane.breaker}", 0)

    def answered(self, batch: Iterable[Transition], shut: set[str]) -> list[Claimed] | None:
        """The store has answered these, and says that those gates are shut.

        Answers the held jobs that must be handed back; None when nothing changes. Others may start now.
        """
        if shut and self.asking:
            self.heard += 1
            self._shut.update(dict.fromkeys(shut, self.heard))
        back = self._local_queue.withdraw(shut) if shut else []
        lifted = [gate for each in batch if (gate := self._answered(each)) is not None]
        if lifted:
            back += self._local_queue.lift(lifted)
        if self._ageing is not None:
            self._ageing.give_back(len(back))
        return back if lifted or back else None

    def claim_again(self) -> None:
        """Held jobs have started, or their slots are free: ask for more."""
        if not self.unanswered:
            self._local_queue.overtaken = False
            if self._slow is not None:
                self._slow.cancel()
                self._slow = None
        narrowed, self._narrowed = self._narrowed, False
        if narrowed:  # an empty answer said nothing of all that could be asked for
            self._demand.news()
        self._demand.slot_free()

    def shut_since(self, asked: int) -> frozenset[str]:
        """The gates that were heard of as shut since a claim was sent: `heard` was `asked` then."""
        since = frozenset(gate for gate, heard in self._shut.items() if heard > asked)
        if not self.asking:
            self._shut.clear()
        return since

    def served(self, serves: Serves) -> Serves:
        """What to claim once jobs under barred gates have lain aside for too long: no task of theirs."""
        if serves.tasks is None or not self._local_queue.aside:
            return serves
        barred = {name for name, lane in self._lanes.items() if stops(self._barred.keys(), lane)}
        self._narrowed = True
        return Serves(serves.queues, tuple(name for name in serves.tasks if name not in barred), serves.capabilities)

    def _answered(self, transition: Transition) -> str | None:
        """The gate that is free again since this was the last answer it waited for."""
        gate = self.unanswered.pop((transition.id, transition.token), None)
        if gate is None:
            return None
        self._barred[gate] -= 1
        if self._barred[gate]:
            return None
        del self._barred[gate]
        return gate

    def _is_slow(self) -> None:
        """The slots that barred jobs were claimed for may go to others."""
        self._local_queue.overtaken = True
        self._demand.slot_free()
