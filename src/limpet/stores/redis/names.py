"""Puts keys, places and values where a Lua file has their names, so that a name costs nothing when a script runs.

| written | stands for |
|---|---|
| `K.jobs` | the key, of a family its beginning (`keys.py`) |
| `RECORD.lane` | the first and the last byte of a field; of a field of one byte, or with an open end, the first alone |
| `RECORD.lost_to_policy` | the same for all fields from one to another |
| `RECORD.seq.at`, `RECORD.seq.format` | the first byte of a field; the format in which `struct` reads it |
| `RECORD.size`, `RECORD.format` | the same for the whole |
| `CLASS.queue`, `ADDED.reason` | the place in an array, the name in a map (`fields.py`) |
| `READY`, `KIDS`, `LANE_ACTIVE` | the code of a state or counter, the bit of a flag, a letter |
| `HAS(flags, KIDS)` | whether the bit is set |
| `MADE.success` | an effect that core has made beforehand |
| `MADE.blank`, `MADE.stopped` | the fields that are left out; those that are different when a job was asked to stop |
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from limpet.core.endings.effect import BLANK, MADE, STOPPED
from limpet.stores.redis.fields import LAYOUTS, VALUES, Bytes, Map, Row
from limpet.stores.redis.keys import KEYS

_KEY: Final = re.compile(r"\bK\.(\w+)")
_HAS: Final = re.compile(r"\bHAS\((?:((?:[^(),]|\([^()]*\))+), (\w+)\))?")
_FIELD: Final = re.compile(rf"\b({'|'.join(LAYOUTS)})\.(\w+)(?:\.(at|format)\b)?")
_EFFECT: Final = re.compile(r"\bMADE\.(\w+)")
_VALUE: Final = re.compile(rf"\b({'|'.join(VALUES)})\b")


class UnknownName(LookupError):
    """A Lua file has a name that stands for nothing."""


def resolve(text: str) -> str:
    """The text of a Lua file as the server can run it."""
    for pattern, stands_for in ((_KEY, _key), (_HAS, _has), (_EFFECT, _effect), (_FIELD, _field), (_VALUE, _value)):
        text = pattern.sub(stands_for, text)
    return text


def _key(found: re.Match[str]) -> str:
    if found[1] not in KEYS:
        raise UnknownName(f"{found[0]} is no key: see keys.py")
    return f'P .. "{KEYS[found[1]].stored}"'


def _has(found: re.Match[str]) -> str:
    flags, flag = found.groups()
    bit = VALUES.get(flag)
    if not isinstance(bit, int):
        raise UnknownName(f"{found[0]} names no flag: see fields.py")
    return f"({flags} % {2 * bit} >= {bit})"


def _field(found: re.Match[str]) -> str:
    layout, name, part = LAYOUTS[found[1]], found[2], found[3]
    try:
        if isinstance(layout, Row):
            return str(layout.names.index(name) + 1)
        if isinstance(layout, Map):
            return f'"{layout.names[name]}"'
        return _place(layout, name, part)
    except (KeyError, ValueError):
        raise UnknownName(f"{found[0]} is no field: see fields.py") from None


def _place(layout: Bytes, name: str, part: str | None) -> str:
    if name == "size":
        return str(layout.size)
    if name == "format":
        return f'"{layout.format}"'
    if part == "format":
        return f'"{layout.format_of(name)}"'
    begin, end = layout.span(name)
    if part == "at" or end is None or end == begin + 1:
        return str(begin + 1)
    return f"{begin + 1}, {end}"


def _value(found: re.Match[str]) -> str:
    value = VALUES[found[1]]
    return f'"{value}"' if isinstance(value, str) else str(value)


def _effect(found: re.Match[str]) -> str:
    made = {"blank": BLANK, "stopped": STOPPED, **MADE}
    if found[1] not in made:
        raise UnknownName(f"{found[0]} is no effect: see core/endings/effect.py")
    return f"({_literal(msgspec.to_builtins(made[found[1]]))})"


def _literal(value: Any) -> str:
    """A value of JSON as Lua writes it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f'["{name}"] = {_literal(each)}' for name, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "{ " + ", ".join(map(_literal, value)) + " }"
    if isinstance(value, str):
        assert value.isascii(), "what JSON escapes, Lua writes in another way"
        return msgspec.json.encode(value).decode()
    return "nil" if value is None else str(value).lower()
