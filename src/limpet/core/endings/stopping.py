"""Decides which gates the end of an attempt may shut: its process starts nothing under them until the store answers."""

from __future__ import annotations

from limpet.core.endings.decide import awaits_commit
from limpet.core.endings.effect import effect_of
from limpet.core.endings.transition import Transition
from limpet.core.jobs.job import Lane


def may_shut(lane: Lane, transition: Transition) -> str | None:
    """The gate that this end of a job of `lane` may shut: the one that it holds, or the breaker at which it failed."""
    effect = effect_of(transition)
    if effect.gate:
        return effect.gate
    if lane.breaker is None or effect.verdict != "failed" or awaits_commit(transition):
        return None
    return f"breaker:{lane.breaker_key or lane.breaker}"
