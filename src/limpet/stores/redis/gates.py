"""Turns gates and changes of gates into arguments of scripts and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from limpet.core.gate import Charge, Gate, GateChange, GateRule, Pause, WorstFirst
from limpet.core.limits.account import Account, accounts
from limpet.stores.redis.fields import HOLD
from limpet.stores.redis.keys import K
from limpet.stores.redis.scripts import call_name, script

if TYPE_CHECKING:
    from limpet.stores.redis.client import Client

MOST_GATES = 10_000  # what one listing answers
AT_ONCE = 500  # gates that one command reads

_TOKEN, _CLAIMED = HOLD.slice("token"), HOLD.slice("claimed")

_pack = msgspec.msgpack.Encoder().encode
_gate = msgspec.msgpack.Decoder(Gate).decode
_charges = msgspec.msgpack.Decoder(list[Charge]).decode


async def change_gates(client: Client, key: bytes, changes: Sequence[GateChange], now_ms: int | None) -> list[Gate]:
    """Apply operators' changes; the gate after each."""
    args = ("" if now_ms is None else now_ms, call_name(), _pack(changes))
    answer: list[bytes] = await client.script("change_gates", script("gates_change"), key, args)
    return [gate_or_shut(change.key, body) for change, body in zip(changes, answer, strict=True)]


async def gates(client: Client, key: bytes, prefix: str) -> list[Gate]:
    """Gates whose key begins with `prefix`, by key."""
    cursor, found = b"0", dict[str, bytes]()
    while True:
        cursor, flat = await client.call("gates", "HSCAN", K.gates.under(key), cursor, "COUNT", AT_ONCE)
        for name, body in zip(flat[::2], flat[1::2], strict=True):
            if name.startswith(prefix.encode()):
                found[name.decode()] = body
        if cursor == b"0":
            break
    return [gate_or_shut(name, body) for name, body in sorted(found.items())[:MOST_GATES]]


async def ranked(client: Client, key: bytes, prefix: str, page: WorstFirst) -> list[Gate]:
    """A page of breakers whose key begins with `prefix`, worst first."""
    found: list[Gate] = []
    for rank, after in page.ranges():
        if len(found) == page.limit:
            break
        start = f"({rank}{after}" if after >= prefix and after else f"[{rank}{prefix}"
        end = f"({rank}{prefix}".encode() + b"\xff"
        ask = ("ZRANGEBYLEX", K.breakers.under(key), start, end, "LIMIT", 0, page.limit - len(found))
        names = [name.decode()[1:] for name in await client.call("gates", *ask)]
        if names:
            found += sorted(await gates_of(client, key, names), key=lambda gate: gate.key)
    return found


async def gates_of(client: Client, key: bytes, keys: Sequence[str]) -> list[Gate]:
    """Those of the gates with these keys that there are, by key."""
    names, found = sorted(set(keys)), list[Gate]()
    for at in range(0, len(names), AT_ONCE):
        some = names[at : at + AT_ONCE]
        bodies = await client.call("gates", "HMGET", K.gates.under(key), *some)
        found += [gate_or_shut(name, body) for name, body in zip(some, bodies, strict=True) if body is not None]
    return found


async def accounted(client: Client, key: bytes) -> list[Account]:
    """All gates, with what running jobs hold of each."""
    flat, running = await client.script("accounts", script("gates_accounts"), key, ("", MOST_GATES))
    found = dict(zip(flat[::2], flat[1::2], strict=True))
    known = [gate_or_shut(name.decode(), body) for name, body in sorted(found.items())[:MOST_GATES]]
    return accounts(
        known, [(_number(one[_TOKEN]), _number(one[_CLAIMED]), _charges(one[HOLD.size :])) for one in running]
    )


def _number(digits: bytes) -> int:
    return int.from_bytes(digits, "big")


def gate_or_shut(key: str, body: bytes) -> Gate:
    """A stored gate; one that cannot be read admits no job until an operator sets it again, and says why."""
    try:
        return _gate(body)
    except msgspec.DecodeError:
        return Gate(GateRule(key), declared=False, paused=Pause("limpet", "its record cannot be decoded", 0))
