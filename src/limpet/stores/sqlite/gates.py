"""Shows gates and what running jobs hold of them, and applies what operators change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from limpet.core.gate import Gate, GateChange, WorstFirst, apply_change
from limpet.core.limits.account import Account, accounts
from limpet.stores.sqlite.give_back import charges_of
from limpet.stores.sqlite.tx import Tx, gate_or_shut


def gates(tx: Tx, prefix: str, keys: Sequence[str] | None = None, worst_first: WorstFirst | None = None) -> list[Gate]:
    """Gates whose key begins with `prefix`, or those of `keys`, by key; or a page of breakers, worst first."""
    if worst_first is not None:
        rows = _ranked(tx, prefix, worst_first)
    elif keys is None:
        rows = tx.rows("all_gates", (prefix, f"{prefix}\U0010ffff"))
    else:
        rows = sorted(set(tx.rows_in("gates_by_key", keys)))
    return [gate_or_shut(key, body) for key, body in rows]


def _ranked(tx: Tx, prefix: str, page: WorstFirst) -> list[Any]:
    found: list[Any] = []
    for place, after in page.ranges():
        if len(found) == page.limit:
            break
        found += tx.rows("ranked_gates", (place, after, prefix, f"{prefix}\U0010ffff", page.limit - len(found)))
    return found


def accounted(tx: Tx) -> list[Account]:
    """All gates, with what running jobs hold of each."""
    running = [(token, at_ms, charges_of(body)) for token, at_ms, body in tx.rows("charged_jobs")]
    return accounts(gates(tx, ""), running)


def change_gates(tx: Tx, changes: Sequence[GateChange]) -> list[Gate]:
    """Apply operators' changes; `finish` wakes lanes that can run now."""
    answers = []
    for change in changes:
        gate = apply_change(tx.gate(change.key), change, tx.now_ms)
        tx.put_gate(gate)
        answers.append(gate)
    return answers
