"""Remembers what should be in the event log: of every step, what it made of gates and budgets that people hear of.

What was spent is told by the walk's own books; holds, cuts and breakers by the stored gates, which those books check.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from holdfast.core.gate import Gate, GateRule
from holdfast.core.view import Entry

Headline = tuple[str, str, int]  # kind of event, gate, percent of a budget or 0

PERCENTS: Final = (50, 80, 100)


class Headlines:
    """Those that are expected and were not read yet."""

    def __init__(self) -> None:
        self._expected: Counter[Headline] = Counter()
        self._possible: Counter[Headline] = Counter()
        self.read_up_to = 0

    def expect(
        self,
        before: Mapping[str, Gate],
        after: Mapping[str, Gate],
        spent_before: Mapping[str, int],
        spent: Mapping[str, int],
        now_ms: int,
    ) -> None:
        """One atomic step has changed gates; what was spent of each budget is told by the walk's own books."""
        for key, gate in after.items():
            was = before.get(key, Gate(GateRule(key)))
            self._expected.update(_of_gate(was, gate, now_ms))
            if gate.rule.cap is not None:
                self._expect_of_budget(was, gate, gate.rule.cap, spent_before.get(key, 0), spent[key])

    def _expect_of_budget(self, before: Gate, after: Gate, cap: int, spent_before: int, spent: int) -> None:
        crossed = [percent for percent in PERCENTS if 100 * spent_before < percent * cap <= 100 * spent]
        self._expected.update(("budget.reached", after.key, percent) for percent in crossed)
        if after.wants and not (before.wants and before.period_ms == after.period_ms):
            self._expected["budget.short", after.key, 0] += 1
        elif after.wants and spent > spent_before:  # who waited was served, and another one waits since
            self._possible["budget.short", after.key, 0] += 1

    def compare(self, entries: Sequence[Entry]) -> None:
        """All that was expected is in the log, each once, and nothing else."""
        found: Counter[Headline] = Counter()
        for entry in entries:
            facts = msgspec.json.decode(entry.data)
            found[entry.kind, facts["gate"], facts.get("percent", 0)] += 1
            self.read_up_to = entry.seq
        assert not self._expected - found, f"the log lacks {self._expected - found}"
        more = found - self._expected
        assert not more - self._possible, f"the log has {more} too many"
        self._expected.clear()
        self._possible.clear()


def _of_gate(before: Gate, after: Gate, now_ms: int) -> Iterator[Headline]:
    key = after.key
    if after.opened > before.opened:
        yield "breaker.opened", key, 0
    elif before.open_until_ms and not after.open_until_ms:
        yield "breaker.closed", key, 0
    if before.held_until_ms <= now_ms < after.held_until_ms:
        yield "limit.held", key, 0
    if after.rule.floor is not None and after.cut_token > before.cut_token:
        yield "limit.slowed", key, 0
