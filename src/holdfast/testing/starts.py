"""Remembers when jobs under a rate were started, and says when that was too many."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.gate import GateRule
from holdfast.core.job import Lane
from holdfast.core.lease import Claimed


class Starts:
    """The model's side of rates: no token bucket, only the promise that it keeps."""

    def __init__(self, rules: Mapping[str, GateRule] | None = None) -> None:
        self._rules = rules or {}  # by limit key
        self._starts: dict[str, list[tuple[int, bytes, int]]] = {key: [] for key in self._rules}  # when, job, token

    def rule(self, lane: Lane) -> bool:
        """True when a rate rules this lane."""
        return any(key in self._rules for key in (*lane.limits, *lane.keys))

    def add(self, job: Claimed, now_ms: int) -> None:
        """No span of time sees more starts than the burst and what the span brings."""
        for key in (*job.lane.limits, *job.lane.keys):
            rule = self._rules.get(key)
            if rule is None or rule.interval_us is None:
                continue
            starts = self._starts[key]
            starts.append((now_ms, job.id, job.token))
            for number, (at_ms, _, _) in enumerate(starts):
                allowed = rule.burst + (now_ms - at_ms) * 1_000 // rule.interval_us
                assert len(starts) - number <= allowed, f"{key} was exceeded: {starts[number:]}"

    def forget(self, id: bytes, token: int) -> None:
        """A job that was released before it began has spent nothing."""
        for starts in self._starts.values():
            starts[:] = [start for start in starts if start[1:] != (id, token)]
