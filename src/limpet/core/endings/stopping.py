"""Decides which gates the end of an attempt may shut: its process starts nothing under them until the store answers."""

from __future__ import annotations

from limpet.core.endings.decide import awaits_commit
from limpet.core.endings.transition import Bury, Hold, RetryAfter, Succeed, Transition
from limpet.core.gate import Verdict
from limpet.core.jobs.job import Lane


def verdict_of(transition: Transition | None) -> Verdict:
    """What an outcome says about the health of what the job depends on."""
    if isinstance(transition, Succeed):
        return "ok"
    if isinstance(transition, (RetryAfter, Bury)) and transition.failure.kind in ("transient", "timeout"):
        return "failed"
    return "neutral"


def may_shut(lane: Lane, transition: Transition) -> str | None:
    """The gate that this end of a job of `lane` may shut: the one that it holds, or the breaker at which it failed."""
    if isinstance(transition, Hold):
        return transition.gate
    if lane.breaker is None or verdict_of(transition) != "failed" or awaits_commit(transition):
        return None
    return f"breaker:{lane.breaker}"
