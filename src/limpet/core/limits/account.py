"""Decides what gates must have counted: what running jobs hold of each, beside what it says itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from limpet.core.gate import Charge, Gate
from limpet.core.limits.period import began_ms

Running = tuple[int, int, Sequence[Charge]]  # token, instant of the claim, charges of a job


class Account(Struct, frozen=True):
    """One gate, and what running jobs hold of it at the same instant."""

    gate: Gate
    slots: int = 0
    reserved: int = 0  # of its cap, in the period that it counts
    probed: bool = False  # the job runs that it has let through as its probe

    @property
    def leaked(self) -> int:
        """Slots that count as taken and that no job holds; below zero, held slots that do not count."""
        return self.gate.used - self.slots

    @property
    def uncounted(self) -> int:
        """What running jobs have reserved and the gate does not count as spent."""
        return max(0, self.reserved - self.gate.spent)

    @property
    def stuck(self) -> bool:
        """True when the gate waits for a probe that does not run."""
        return self.gate.probe_token != 0 and not self.probed


def accounts(gates: Iterable[Gate], running: Iterable[Running]) -> list[Account]:
    """Each gate with what these jobs, all that run, hold of it."""
    charged: dict[str, list[tuple[int, int, Charge]]] = {}
    for token, claimed_at_ms, charges in running:
        for taken in charges:
            charged.setdefault(taken.gate, []).append((token, claimed_at_ms, taken))
    return [_account(gate, charged.get(gate.key, ())) for gate in gates]


def _account(gate: Gate, charged: Sequence[tuple[int, int, Charge]]) -> Account:
    period = gate.rule.period if gate.rule.cap is not None else None
    reserved = [taken.cost for _, at_ms, taken in charged if period and began_ms(period, at_ms) == gate.period_ms]
    return Account(
        gate,
        slots=sum(taken.slot for _, _, taken in charged),
        reserved=sum(reserved),
        probed=any(taken.probe and token == gate.probe_token for token, _, taken in charged),
    )
