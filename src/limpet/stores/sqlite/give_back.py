"""Gives back to gates what running jobs took, and holds the gates that jobs were told to leave alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from limpet.core.endings.effect import Effect, actual_cost
from limpet.core.gate import (
    FOREVER_MS,
    Charge,
    Gate,
    Verdict,
    cut_off,
    give_back,
    is_shut,
    learn,
    push_back,
    returned_us,
    under_own,
)
from limpet.stores.sqlite.tx import Tx

_decode_charges = msgspec.json.Decoder(list[Charge]).decode


def charges_of(charged: bytes) -> list[Charge]:
    """What a running job took of its gates; nothing when that cannot be read, or its lease could never end."""
    try:
        return _decode_charges(charged)
    except msgspec.DecodeError:
        return []


class GivingBack:
    """The gates of one step: they learn from its jobs one after the other."""

    def __init__(self, tx: Tx, spent: Mapping[bytes, Mapping[str, int]]) -> None:
        self.tx = tx
        self.spent = spent
        self.returned: dict[str, Counter[int]] = {}  # gate → what came back to its rate, by when it was charged

    def hold(self, effect: Effect, token: int) -> None:
        """The gate that an effect names admits no job for a while."""
        now_ms = self.tx.now_ms
        shut = cut_off if effect.trips else push_back
        gate, until_ms = self.tx.gate_or_new(effect.gate), min(FOREVER_MS, now_ms + effect.gate_ms)
        self.tx.put_gate(shut(gate, until_ms, token, now_ms))

    def take(self, id: bytes, token: int, charged: bytes, claimed_ms: int, effect: Effect) -> list[str]:
        """Give back what a job took; the gates at which it failed."""
        failed_at = []
        spent = self.spent.get(id, {})
        for taken in charges_of(charged):
            gate = self._ruling(taken, effect.verdict)
            if gate is None:
                continue
            if effect.verdict == "failed" and (taken.probe or gate.rule.breaker is not None):
                failed_at.append(gate.key)
            actual = actual_cost(effect, gate.rule, spent)
            returned = self.returned.setdefault(gate.key, Counter())
            after = give_back(
                gate,
                taken,
                token=token,
                verdict=effect.verdict,
                unstarted=effect.refund == "all",
                now_ms=self.tx.now_ms,
                charged_at_ms=claimed_ms,
                actual_cost=actual,
                refunded_in_this_batch=returned,
            )
            returned[claimed_ms] += returned_us(gate, taken, actual, claimed_ms)
            self.tx.put_gate(after)
        return failed_at

    def _ruling(self, taken: Charge, verdict: Verdict) -> Gate | None:
        """The gate where a charge counts: for a breaker by key without a record its task's own, unless it gets one."""
        found = self.tx.gate(taken.gate)
        if not taken.own:
            return found
        own = self.tx.gate(taken.own)
        gate = under_own(found, taken.gate, own)
        if found is not None or gate is None:
            return gate
        is_news = learn(gate, verdict, self.tx.now_ms) is not gate
        return gate if is_news and self.tx.has_room_for_a_breaker() else own

    def shut_of(self, keys: list[str]) -> tuple[str, ...]:
        """Those of these gates that are shut now."""
        return tuple(key for key in keys if is_shut(self.tx.gate_or_new(key), self.tx.now_ms))
