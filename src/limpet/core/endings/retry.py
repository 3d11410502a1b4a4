"""Decides how often a failed job runs again and how long it waits before each retry."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from limpet.core.errors import InvalidOption
from limpet.core.jobs.job import Jitter, Policy
from limpet.core.text.duration import Duration, to_ms

RetryFunction = Callable[[int, BaseException], float | None]
RetryOption = "Retry | int | Sequence[Duration] | RetryFunction | None"

JITTERS: Final[tuple[str, ...]] = get_args(Jitter)
# A function says itself when to stop; this ceiling keeps one that never does from running a job for ever.
FUNCTION_ATTEMPTS: Final = 100
MOST_ATTEMPTS: Final = 1_000_000_000


@dataclass(frozen=True)
class Retry:
    """How a failed job is tried again: `attempts` runs in all, waiting min(cap, base·factor^(k-1)) with jitter.

    >>> Retry(attempts=3, base=2).policy_fields()["base_ms"]
    2000
    """

    attempts: int = 5
    base: Duration = 1
    factor: float = 4
    cap: Duration = 300
    jitter: Jitter = "full"
    delays: tuple[Duration, ...] | None = None
    function: RetryFunction | None = None

    def __post_init__(self) -> None:
        whole = isinstance(self.attempts, int) and not isinstance(self.attempts, bool)
        if not whole or not 1 <= self.attempts <= MOST_ATTEMPTS:
            raise InvalidOption(
                f"Retry(attempts={self.attempts!r}) is not a number of runs",
                fix=f"attempts counts all runs: 1 = no retry, 4 = three retries; {MOST_ATTEMPTS:,} at most",
            )
        if isinstance(self.factor, bool) or not isinstance(self.factor, int | float) or not 1 <= self.factor <= 1e6:
            raise InvalidOption(f"Retry(factor={self.factor!r}) would not back off", fix="use a number of 1 or more")
        if self.jitter not in JITTERS:
            raise InvalidOption(f"Retry(jitter={self.jitter!r}) is unknown", fix=f"use one of {', '.join(JITTERS)}")
        if self.function is not None and not callable(self.function):
            raise InvalidOption(f"Retry(function={self.function!r}) cannot be called", fix="pass a function")
        self.policy_fields()  # refuses durations that make no sense while the declaration is on screen

    @classmethod
    def of(cls, value: Retry | int | Sequence[Duration] | RetryFunction | None) -> Retry:
        """A Retry from what people write: a Retry, a number of attempts, a list of delays, a function or None."""
        if isinstance(value, Retry):
            return value
        if value is None or value is False:
            return cls(attempts=1)
        if isinstance(value, int):
            return cls(attempts=value)
        if callable(value):
            return cls(attempts=FUNCTION_ATTEMPTS, function=value)
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            # Explicit delays are meant as written, so they get no jitter.
            return cls(attempts=len(value) + 1, delays=tuple(value) or None, jitter="none")
        raise InvalidOption(
            f"retry={value!r} is not a retry policy",
            fix="pass Retry(...), a number of attempts, a list of delays, or function(attempt, error) → seconds",
        )

    def policy_fields(self) -> dict[str, Any]:
        """The fields of Policy that this decides."""
        delays = None
        if self.delays is not None:
            delays = tuple(to_ms(delay, what=f"retry[{index}]") for index, delay in enumerate(self.delays))
        base_ms, cap_ms = to_ms(self.base, what="Retry(base)"), to_ms(self.cap, what="Retry(cap)")
        return {
            "attempts": self.attempts,
            "base_ms": base_ms,
            "factor": float(self.factor),
            "cap_ms": cap_ms,
            "jitter": self.jitter,
            "delays_ms": delays,
        }


def delay_ms(policy: Policy, attempt: int, rng: random.Random, previous_ms: int | None = None) -> int:
    """How long to wait after run number `attempt` failed."""
    full = _backoff_ms(policy, attempt)
    match policy.jitter:
        case "none":
            return full
        case "equal":
            return full - full // 2 + rng.randint(0, full // 2)
        case "decorrelated":
            # Each wait is drawn between the base and three times the last one, so waits forget the attempt number.
            last = previous_ms if previous_ms is not None else _backoff_ms(policy, attempt - 1)
            base = min(policy.base_ms, policy.cap_ms)
            return min(policy.cap_ms, rng.randint(base, max(base, 3 * last)))
        case _:
            return rng.randint(0, full)


def _backoff_ms(policy: Policy, attempt: int) -> int:
    index = max(0, attempt - 1)
    if policy.delays_ms:
        return policy.delays_ms[min(index, len(policy.delays_ms) - 1)]
    try:
        return int(min(policy.cap_ms, policy.base_ms * policy.factor**index))
    except OverflowError:
        return policy.cap_ms
