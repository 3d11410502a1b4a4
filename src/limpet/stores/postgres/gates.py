"""Turns changes of gates and declared rules into arguments of functions, and their answers into gates."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from limpet.core.gate import Gate, GateChange, GateRule, WorstFirst
from limpet.core.limits.account import Account, Running, accounts
from limpet.stores.postgres.wire import clean, clean_json

if TYPE_CHECKING:
    from limpet.stores.postgres.client import Client

CHANGE: Final = "SELECT * FROM lp.change_gates_1(%b::jsonb, %b::text, %b::bigint)"
GATES: Final = "SELECT lp.gates_1(%b::text)"
WORST_FIRST: Final = "SELECT lp.gates_worst_first_1(%b::text, %b::integer[], %b::text[], %b::integer)"
GATES_OF: Final = "SELECT lp.gates_of_keys_1(%b::text[])"
ACCOUNTS: Final = "SELECT * FROM lp.accounts_1()"

_gates = msgspec.json.Decoder(list[Gate]).decode
_running = msgspec.json.Decoder(list[Running]).decode


async def change_gates(client: Client, changes: Sequence[GateChange], now_ms: int | None) -> list[Gate]:
    """Apply operators' changes; the gate after each."""
    call = os.urandom(12).hex()  # made again when its answer is lost, and then it must not happen again
    values = (clean_json(changes), call, now_ms)
    (answer,) = await client.change(CHANGE, values, verb="change_gates", now_ms=now_ms)
    return _gates(answer)


async def gates(client: Client, prefix: str) -> list[Gate]:
    """Gates whose key begins with `prefix`, by key."""
    (answer,) = await client.row(GATES, (clean(prefix),), verb="gates")
    return _gates(answer)


async def ranked(client: Client, prefix: str, page: WorstFirst) -> list[Gate]:
    """A page of breakers whose key begins with `prefix`, worst first."""
    ranks, after = zip(*page.ranges(), strict=True)
    values = (clean(prefix), ranks, [clean(key) for key in after], page.limit)
    (answer,) = await client.row(WORST_FIRST, values, verb="gates")
    return _gates(answer)


async def gates_of(client: Client, keys: Sequence[str]) -> list[Gate]:
    """Those of the gates with these keys that there are, by key."""
    (answer,) = await client.row(GATES_OF, ([clean(key) for key in keys],), verb="gates")
    return _gates(answer)


async def accounted(client: Client) -> list[Account]:
    """All gates, with what running jobs hold of each."""
    stored, running = await client.row(ACCOUNTS, verb="accounts")
    return accounts(_gates(stored), _running(running))


def rules_json(rules: Sequence[GateRule]) -> bytes:
    """Declared rules as lp.declare reads them."""
    return clean_json(rules)
