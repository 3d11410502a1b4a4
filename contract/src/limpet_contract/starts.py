"""Remembers when jobs under a rate were started and what they cost, and says when that was too much."""

from __future__ import annotations

from dataclasses import dataclass

from limpet.core.gate import GateRule


@dataclass
class Start:
    """So much was taken from a bucket at this instant, by the job under this token."""

    at_ms: int
    cost: int
    job: tuple[bytes, int]


class Starts:
    """The model's side of rates: no token bucket, only the promise that it keeps."""

    def __init__(self) -> None:
        self._starts: dict[str, list[Start]] = {}  # by gate

    def add(self, rule: GateRule, cost: int, job: tuple[bytes, int], now_ms: int) -> None:
        """No span of time sees more than its burst and what the span brings, but for the debt that the last one leaves.

        Who was the last of those that were started at one instant is not known: it may have been the dearest.
        """
        assert rule.interval_us is not None
        starts, taken, dearest = self._starts.setdefault(rule.key, []), cost, cost
        for start in reversed(starts):
            taken += start.cost
            dearest = max(dearest, start.cost) if start.at_ms == now_ms else dearest
            allowed = rule.burst + (now_ms - start.at_ms) * 1_000 // rule.interval_us
            assert taken - dearest < allowed, f"{rule.key} was exceeded: {taken} since {start.at_ms}"
        starts.append(Start(now_ms, cost, job))

    def correct(self, key: str, job: tuple[bytes, int], real: int, now_ms: int) -> None:
        """The job has cost more, which counts from now on; or less, as if it had never reserved the rest."""
        for start in [start for start in self._starts.get(key, []) if start.job == job]:
            if real > start.cost:
                self._starts[key].append(Start(now_ms, real - start.cost, (b"", 0)))
            else:
                start.cost = real

    def full_at_us(self, rule: GateRule) -> int:
        """The earliest instant at which a bucket can be full again that has given away what was taken."""
        at_us = 0
        for start in self._starts.get(rule.key, []):
            at_us = max(at_us, start.at_ms * 1_000) + start.cost * (rule.interval_us or 0)
        return at_us

    def forget(self, key: str) -> None:
        """Another rule, or an operator's reset: a job that starts from now on may find a full bucket."""
        self._starts.pop(key, None)
