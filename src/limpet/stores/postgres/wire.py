"""Says values in PostgreSQL's binary form, as the cast behind each placeholder asks for.

A statement names the type of every parameter (`%b::bigint[]`), so nothing is guessed from the value: a statement has
one set of types, is prepared once, and whole arrays are packed in one go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from struct import Struct as Packer
from struct import pack
from typing import Any, Final

import msgspec

from limpet.stores.postgres.names import resolve

Encode = Callable[[Any], bytes]

_PLACEHOLDER: Final = re.compile(r"%(?:%|[bst](?:::([a-z_0-9]+(?: precision)?)(\[\])?)?)")

_INT2: Final = Packer(">h").pack
_INT4: Final = Packer(">i").pack
_INT8: Final = Packer(">q").pack
_FLOAT8: Final = Packer(">d").pack
_HEAD: Final = Packer(">iiiii").pack
_EMPTY: Final = Packer(">iii").pack
_NULL: Final = _INT4(-1)


def clean(text: str) -> str:
    """Text as PostgreSQL keeps it: it knows no NUL, and UTF-8 knows no half characters."""
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return text


def clean_json(value: object) -> bytes:
    """JSON that PostgreSQL takes: its texts have no NUL, and no half characters."""
    try:
        body = msgspec.json.encode(value)
    except UnicodeEncodeError:
        body = b""
    return body if body and b"\\u0000" not in body else msgspec.json.encode(_cleaned(msgspec.to_builtins(value)))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(each) for each in value]
    if isinstance(value, dict):
        return {clean(name): _cleaned(each) for name, each in value.items()}
    return value


def _text(value: str) -> bytes:
    if "\x00" in value:
        value = value.replace("\x00", "\ufffd")
    return value.encode()


def _json(value: Any) -> bytes:
    """Text and bytes are JSON already."""
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else msgspec.json.encode(value)


def _jsonb(value: Any) -> bytes:
    return b"\x01" + _json(value)


def _boolean(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def _bytea(value: bytes) -> bytes:
    return value


# name: (oid, how one value is said, its letter for struct and its size where all values have the same size)
_TYPES: Final[dict[str, tuple[int, Encode, str, int]]] = {
    "boolean": (16, _boolean, "?", 1),
    "bytea": (17, _bytea, "", 0),
    "bigint": (20, _INT8, "q", 8),
    "smallint": (21, _INT2, "h", 2),
    "integer": (23, _INT4, "i", 4),
    "text": (25, _text, "", 0),
    "json": (114, _json, "", 0),
    "double precision": (701, _FLOAT8, "d", 8),
    "jsonb": (3802, _jsonb, "", 0),
}


def _array(oid: int, encode: Encode, letter: str, size: int) -> Encode:
    def fixed(values: Sequence[Any]) -> bytes:
        count = len(values)
        if not count:
            return empty
        if None in values:
            return mixed(values)
        flat: list[Any] = [size] * (2 * count)
        flat[1::2] = values
        return _HEAD(1, 0, oid, count, 1) + pack(">" + ("i" + letter) * count, *flat)

    def mixed(values: Sequence[Any]) -> bytes:
        if not values:
            return empty
        parts = [_HEAD(1, 1, oid, len(values), 1)]
        for value in values:
            if value is None:
                parts.append(_NULL)
            else:
                said = encode(value)
                parts.append(_INT4(len(said)))
                parts.append(said)
        return b"".join(parts)

    empty = _EMPTY(0, 0, oid)
    return fixed if letter else mixed


class Statement:
    """A statement as the server takes it, and how each of its parameters is said."""

    __slots__ = ("encoders", "formats", "name", "text")

    def __init__(self, text: str, encoders: Sequence[Encode], name: bytes) -> None:
        self.text = text.encode()
        self.encoders = tuple(encoders)
        self.formats = [1] * len(encoders)
        self.name = name  # under which a connection has prepared it

    def said(self, values: Sequence[Any]) -> list[bytes | None]:
        """The parameters in binary form."""
        return [None if value is None else encode(value) for encode, value in zip(self.encoders, values, strict=True)]


def statement(sql: str, schema: str, name: bytes) -> Statement:
    """Read a statement of a room: `lp.` becomes the quoted schema, each placeholder a parameter of its type."""
    encoders: list[Encode] = []

    def number(found: re.Match[str]) -> str:
        if found.group(0) == "%%":
            return "%"
        known = _TYPES.get(found.group(1) or "")
        if known is None:
            raise ValueError(f"{found.group(0)} in {sql!r}: a placeholder needs a cast to one of {', '.join(_TYPES)}")
        oid, encode, letter, size = known
        encoders.append(_array(oid, encode, letter, size) if found.group(2) else encode)
        return f"${len(encoders)}::{found.group(1)}{found.group(2) or ''}"

    return Statement(_PLACEHOLDER.sub(number, in_schema(sql, schema)), encoders, name)


_SCHEMA: Final = re.compile(r"\blp\.|'lp'")


def in_schema(sql: str, schema: str) -> str:
    """The SQL with the schema's quoted name for `lp`, and a number for each name (`:READY`)."""
    quoted = f'"{schema}"'
    return _SCHEMA.sub(lambda found: f"{quoted}." if found.group(0) == "lp." else f"'{quoted}'", resolve(sql))
