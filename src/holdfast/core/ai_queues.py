"""Decides the numbers of the queues for calls to models: short ones, long ones, and what is left for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from holdfast.core.duration import Duration
from holdfast.core.errors import InvalidOption
from holdfast.core.queue import Queue
from holdfast.core.retry import Retry


class AIQueueOptions(TypedDict, total=False):
    """The numbers of `app.ai_queues(...)`. Retries do not count the first run; a concurrency is over all workers."""

    fast_retries: int  # 3
    fast_delay: Duration  # 1 s before each
    fast_concurrency: int | None  # 5
    heavy_retries: int  # 2
    heavy_delay: Duration  # 10 s before the first
    heavy_factor: float  # 2: then 20 s, 40 s, …
    heavy_concurrency: int | None  # 2


@dataclass(frozen=True)
class AIQueues:
    """Two queues for calls to models; what they cannot finish waits in the dead-letter queue, for people.

    `fast` is for calls that answer in seconds, `heavy` for long and costly ones.
    """

    fast: Queue
    heavy: Queue

    @classmethod
    def of(cls, name: str, numbers: AIQueueOptions) -> AIQueues:
        """The queues NAME-fast and NAME-heavy, with these numbers in place of the usual ones.

        >>> AIQueues.of("ai", {"heavy_concurrency": 4}).heavy.concurrency
        4
        """
        known = AIQueueOptions.__annotations__
        for given in numbers:
            if given not in known:
                raise InvalidOption(f"ai_queues() has no number {given!r}", fix=f"known: {', '.join(known)}")
        fast = _attempts("fast_retries", numbers.get("fast_retries", 3))
        heavy = _attempts("heavy_retries", numbers.get("heavy_retries", 2))
        return cls(
            fast=Queue(
                f"{name}-fast",
                concurrency=numbers.get("fast_concurrency", 5),
                retry=Retry(fast, base=numbers.get("fast_delay", 1), factor=1, jitter="equal"),
            ),
            heavy=Queue(
                f"{name}-heavy",
                concurrency=numbers.get("heavy_concurrency", 2),
                retry=Retry(
                    heavy, base=numbers.get("heavy_delay", 10), factor=numbers.get("heavy_factor", 2), jitter="equal"
                ),
            ),
        )


def _attempts(what: str, retries: int) -> int:
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise InvalidOption(f"{what}={retries!r} is not a number of retries", fix="use 0 or more")
    return retries + 1
