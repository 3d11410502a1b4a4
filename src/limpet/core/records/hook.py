"""Decides what of a hook is public."""

from __future__ import annotations

from limpet.core.endings.hook import Hook
from limpet.core.jobs.state import WAITING, State
from limpet.core.records.record import Record


class HookRecord(Record, frozen=True, kw_only=True):
    """A hook that is published: which ends it is for, and how many workers run it."""

    name: str
    states: tuple[State, ...]
    tasks: tuple[str, ...]  # none: of all tasks
    queues: tuple[str, ...]  # none: of all queues
    waiting: int  # jobs of it that wait
    running: int
    dead: int
    workers: int  # live ones that run it

    @classmethod
    def of(cls, hook: Hook, counts: dict[State, int], workers: int) -> HookRecord:
        """The public face of a published hook, with how many jobs of it there are by state."""
        return cls(
            name=hook.name,
            states=hook.states,
            tasks=hook.tasks,
            queues=hook.queues,
            waiting=sum(counts.get(state, 0) for state in WAITING),
            running=counts.get(State.running, 0),
            dead=counts.get(State.dead, 0),
            workers=workers,
        )
