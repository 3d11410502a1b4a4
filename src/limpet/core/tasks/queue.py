"""Decides what code may say of a queue as a whole: how many of its jobs run at once, or wait, and their retries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from limpet.core.endings.retry import Retry
from limpet.core.errors import InvalidOption
from limpet.core.gate import GateRule
from limpet.core.jobs.retention import Keep, keep_of
from limpet.core.jobs.state import State
from limpet.core.limits.depth import checked_depth
from limpet.core.limits.rate import checked_ceiling
from limpet.core.tasks.naming import checked_name
from limpet.core.text.duration import Duration, text_of_ms


@dataclass(frozen=True)
class Queue:
    """A queue with a ceiling over all workers together, a depth, and the retries of its tasks.

    Pass it where a queue is named: `@app.task(queue=Queue("mail", concurrency=20))`. A task's own `retry=` wins over
    the queue's, and a limit that an operator sets on the queue wins over ceiling and depth.

    `depth` is how many jobs may wait in it, `tenant_depth` how many of one tenant: a new job beyond that is refused
    with QueueFull, or waits for room with `wait=`.

    `keep` is how long its finished jobs stay, by how they ended: {"succeeded": "7d", "dead": None} (None: for ever).
    What it does not name is as for all queues.

    >>> Queue("mail", concurrency=20).rule.key
    'queue:mail'
    """

    name: str
    concurrency: int | None = None
    retry: Retry | int | Sequence[Duration] | None = None  # None: as the task says, or the defaults
    depth: int | None = None
    tenant_depth: int | None = None
    keep: Keep | None = field(default=None, compare=False)
    kept: tuple[tuple[State, int | None], ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        checked_name(self.name, what="Queue(name)")
        if self.concurrency is not None:
            checked_ceiling(self.concurrency, what=f"Queue({self.name!r}, concurrency={self.concurrency!r})")
        for name, depth in (("depth", self.depth), ("tenant_depth", self.tenant_depth)):
            if depth is not None:
                checked_depth(depth, what=f"Queue({self.name!r}, {name}={depth!r})")
        if self.keep is not None:
            kept = keep_of(self.keep, what=f"Queue({self.name!r}, keep)")
            object.__setattr__(self, "kept", tuple(sorted(kept.items())))
        if self.retry is not None:
            object.__setattr__(self, "retry", Retry.of(self.retry))

    @property
    def rule(self) -> GateRule | None:
        """The gate of the whole queue; None when code says nothing about how many run at once or wait."""
        if self.concurrency is None and self.depth is None and self.tenant_depth is None:
            return None
        return GateRule(
            f"queue:{self.name}", concurrency=self.concurrency, depth=self.depth, tenant_depth=self.tenant_depth
        )

    @classmethod
    def published(cls, rule: GateRule) -> Queue:
        """The queue of another program, which may be of a release that refuses other numbers."""
        made = object.__new__(cls)
        known: dict[str, object] = {"name": rule.key.removeprefix("queue:"), "concurrency": rule.concurrency}
        known |= {"retry": None, "keep": None, "kept": ()}
        for name, value in (*known.items(), ("depth", rule.depth), ("tenant_depth", rule.tenant_depth)):
            object.__setattr__(made, name, value)
        return made


NO_QUEUES: Final[Mapping[str, Queue]] = MappingProxyType({})


def queue_name(value: Queue | str, *, what: str = "queue") -> str:
    """The name of a queue, however it is given."""
    return value.name if isinstance(value, Queue) else checked_name(value, what=what)


def same_queue(known: Queue | None, queue: Queue) -> Queue:
    """`queue`, unless the app has said something else about it before."""
    if known is not None and known != queue:
        raise InvalidOption(
            f"queue {queue.name!r} is declared twice: {_words(known)}, and {_words(queue)}",
            fix="declare it once, and pass that Queue to every task, or its name",
        )
    return queue


def _words(queue: Queue) -> str:
    depths = f"depth={queue.depth}, tenant_depth={queue.tenant_depth}"
    kept = ", ".join(f"{state.value}: {'for ever' if ms is None else text_of_ms(ms)}" for state, ms in queue.kept)
    return f"concurrency={queue.concurrency}, {depths}, retry={queue.retry}, keep={{{kept}}}"
