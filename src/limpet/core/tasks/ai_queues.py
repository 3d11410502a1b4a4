"""Decides the numbers of the queues for calls to models: short ones, long ones, and what is left for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypedDict

from limpet.core.endings.retry import MOST_ATTEMPTS, Retry
from limpet.core.errors import InvalidOption
from limpet.core.tasks.naming import checked_name
from limpet.core.tasks.queue import Queue
from limpet.core.text.duration import Duration, to_ms

_LEAST_CAP_S: Final = 300  # five minutes, as other retries have
_GROWTH: Final = 30  # how many times its first delay a retry waits at most
_STEEPEST: Final = 1_000


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
        checked_name(name, what="ai_queues(name)")
        fast_retries, fast_delay = numbers.get("fast_retries", 3), numbers.get("fast_delay", 1)
        heavy_retries, heavy_delay = numbers.get("heavy_retries", 2), numbers.get("heavy_delay", 10)
        fast = Retry(
            _attempts("fast_retries", fast_retries),
            base=fast_delay,
            factor=1,
            cap=_cap_s("fast_delay", fast_delay),
            jitter="equal",
        )
        heavy = Retry(
            _attempts("heavy_retries", heavy_retries),
            base=heavy_delay,
            factor=_factor("heavy_factor", numbers.get("heavy_factor", 2)),
            cap=_cap_s("heavy_delay", heavy_delay),
            jitter="equal",
        )
        fast_ceiling = _ceiling("fast_concurrency", numbers.get("fast_concurrency", 5))
        heavy_ceiling = _ceiling("heavy_concurrency", numbers.get("heavy_concurrency", 2))
        return cls(Queue(f"{name}-fast", fast_ceiling, fast), Queue(f"{name}-heavy", heavy_ceiling, heavy))


def _attempts(what: str, retries: int) -> int:
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries < MOST_ATTEMPTS:
        raise InvalidOption(f"{what}={retries!r} is not a number of retries", fix="use 0 or more")
    return retries + 1


def _cap_s(what: str, delay: Duration) -> float:
    """The longest wait: it leaves a long first one room to grow."""
    return max(_LEAST_CAP_S, _GROWTH * to_ms(delay, what=what) / 1000)


def _factor(what: str, factor: float) -> float:
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor <= _STEEPEST:
        raise InvalidOption(f"{what}={factor!r} would not back off", fix=f"use a number from 1 to {_STEEPEST}")
    return factor


def _ceiling(what: str, ceiling: int | None) -> int | None:
    if ceiling is not None and (isinstance(ceiling, bool) or not isinstance(ceiling, int) or ceiling < 1):
        raise InvalidOption(f"{what} must be 1 or more, got {ceiling!r}", fix="use None for no limit")
    return ceiling
