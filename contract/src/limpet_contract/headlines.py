"""Remembers what should be in the event log: of every step, what it made of gates and budgets that people hear of.

What was spent is told by the walk's own books; holds, cuts and breakers by the stored gates, which those books check.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from limpet.core.gate import Gate, GateRule
from limpet.core.jobs.view import Entry

Headline = tuple[str, str, int]  # kind of event, gate, percent of a budget or 0

PERCENTS: Final = (50, 80, 100)
SHORT: Final = 0  # a job waits for the budget


class Headlines:
    """Those that are expected and were not read yet."""

    def __init__(self) -> None:
        self._expected: Counter[Headline] = Counter()
        self._told: dict[str, tuple[int, set[int]]] = {}  # budget → its period, and what was told of it since it began
        self.read_up_to = 0

    def expect(
        self,
        before: Mapping[str, Gate],
        after: Mapping[str, Gate],
        spent: Mapping[str, int],
        now_ms: int,
    ) -> None:
        """One atomic step has changed gates; what was spent of each budget is told by the walk's own books."""
        for key, gate in after.items():
            was = before.get(key, Gate(GateRule(key)))
            self._expected.update(_of_gate(was, gate, now_ms))
            if gate.rule.cap is not None:
                self._expect_of_budget(was, gate, gate.rule.cap, spent[key])

    def _expect_of_budget(self, before: Gate, after: Gate, cap: int, spent: int) -> None:
        """Each mark is news once in a period, and again when the cap has changed and it was passed again."""
        if _level(before) == _level(after):
            return
        period_ms, heard = self._told.get(after.key, (0, set[int]()))
        if period_ms != after.period_ms:
            heard = set()
        reached = {percent for percent in PERCENTS if 100 * spent >= percent * cap}
        if after.reserved_for:
            reached.add(SHORT)
        for percent in reached - heard:
            self._expected["budget.reached" if percent else "budget.short", after.key, percent] += 1
        kept = heard if before.rule.cap == cap else set()
        self._told[after.key] = after.period_ms, kept | reached

    def compare(self, entries: Sequence[Entry]) -> None:
        """All that was expected is in the log, each once, and nothing else."""
        found: Counter[Headline] = Counter()
        for entry in entries:
            facts = msgspec.json.decode(entry.data)
            found[entry.kind, facts["gate"], facts.get("percent", 0)] += 1
            self.read_up_to = entry.seq
        assert not self._expected - found, f"the log lacks {self._expected - found}"
        assert not found - self._expected, f"the log has {found - self._expected} too many"
        self._expected.clear()


def _level(gate: Gate) -> tuple[int | None, ...]:
    return gate.rule.cap, gate.period_ms, gate.spent, gate.reserved_for


def _of_gate(before: Gate, after: Gate, now_ms: int) -> Iterator[Headline]:
    key = after.key
    if after.opened > before.opened:
        yield "breaker.opened", key, 0
    elif before.open_until_ms and not after.open_until_ms:
        yield "breaker.closed", key, 0
    if before.held_until_ms <= now_ms < after.held_until_ms:
        yield "limit.held", key, 0
    if after.rule.floor is not None and after.last_cut_token > before.last_cut_token:
        yield "limit.slowed", key, 0
