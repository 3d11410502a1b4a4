"""Decides whether a JSON value fits the JSON Schema that a task has published, and says where it does not."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from limpet.core.tasks.naming import did_you_mean

Schema = Mapping[str, Any]
_Defs = ChainMap[str, Any]

_TYPES: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "string": ("text", lambda value: isinstance(value, str)),
    "integer": ("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "number": ("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "null": ("null", lambda value: value is None),
    "array": ("a list", lambda value: isinstance(value, list)),
    "object": ("an object", lambda value: isinstance(value, dict)),
}
_FORMATS: Final[dict[str, type]] = {
    "date-time": datetime,
    "date": date,
    "time": time,
    "duration": timedelta,
    "uuid": UUID,
    "decimal": Decimal,
}
_BOUNDS: Final[tuple[tuple[str, str, Callable[[Any, Any], bool]], ...]] = (
    ("minimum", "at least", lambda value, bound: value >= bound),
    ("maximum", "at most", lambda value, bound: value <= bound),
    ("exclusiveMinimum", "more than", lambda value, bound: value > bound),
    ("exclusiveMaximum", "less than", lambda value, bound: value < bound),
    ("multipleOf", "a multiple of", lambda value, bound: value % bound == 0),
)
_SIZES: Final[dict[type, tuple[str, str, str]]] = {
    str: ("minLength", "maxLength", "characters"),
    list: ("minItems", "maxItems", "items"),
}


def fault_in(value: Any, schema: Schema, *, open_at: Callable[[Any], bool] = lambda value: False) -> str | None:
    """The first thing that does not fit, in words; None when all does. Keywords that are not known here are ignored.

    Values for which `open_at` is true fit everywhere: they stand for others that are not known yet.

    >>> fault_in({"to": 5}, {"properties": {"to": {"type": "string"}}})
    'to is 5, not text'
    """
    return next(_Reader(open_at).faults(value, schema, "", ChainMap()), None)


def names_of(schema: Schema, *, but: Collection[str] = ()) -> Schema:
    """The same object as far as its names go: which there are, and which must be. Only `but` these have values, too."""
    known = {name: part if name in but else True for name, part in schema.get("properties", {}).items()}
    return {**schema, "properties": known}


class _Reader:
    def __init__(self, open_at: Callable[[Any], bool]) -> None:
        self._open_at = open_at

    def faults(self, value: Any, schema: Any, where: str, defs: _Defs) -> Iterator[str]:
        if schema is True or self._open_at(value):
            return
        if schema is False:
            yield f"{_named(where)} is not expected"
            return
        if "$defs" in schema:
            defs = defs.new_child(schema["$defs"])
        if "$ref" in schema:
            yield from self.faults(value, defs.get(schema["$ref"].rpartition("/")[2], True), where, defs)
        yield from self._alternatives(value, schema, where, defs)
        wrong = next(_wrong(value, schema, where), None)
        if wrong is not None:
            yield wrong
        elif isinstance(value, dict):
            yield from self._in_object(value, schema, where, defs)
        elif isinstance(value, list):
            yield from self._in_list(value, schema, where, defs)

    def _alternatives(self, value: Any, schema: Schema, where: str, defs: _Defs) -> Iterator[str]:
        for part in schema.get("allOf", ()):
            yield from self.faults(value, part, where, defs)
        several = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
        found = [next(self.faults(value, part, where, defs), None) for part in several]
        if not found or None in found:
            return
        kinds = [_kinds(part) for part in several]
        near = [fault for part, fault in zip(several, found, strict=True) if _is_of_type(value, part)]
        if all(kinds) and not near:
            yield f"{_named(where)} is {_shown(value)}, not {' or '.join(kinds)}"
        else:
            yield str((near or found)[0])

    def _in_object(self, value: dict[str, Any], schema: Schema, where: str, defs: _Defs) -> Iterator[str]:
        known: Mapping[str, Any] = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{_joined(where, name)} is missing"
        more = schema.get("additionalProperties", True)
        for name, item in value.items():
            at = _joined(where, name)
            if name in known:
                yield from self.faults(item, known[name], at, defs)
            elif more is False:
                yield f"{at} is not known; {did_you_mean(name, known)}"
            else:
                yield from self.faults(item, more, at, defs)

    def _in_list(self, value: list[Any], schema: Schema, where: str, defs: _Defs) -> Iterator[str]:
        first = schema.get("prefixItems", ())
        for place, item in enumerate(value):
            part = first[place] if place < len(first) else schema.get("items", True)
            yield from self.faults(item, part, f"{where}[{place}]", defs)


def _wrong(value: Any, schema: Schema, where: str) -> Iterator[str]:
    """What one value by itself does not keep."""
    is_ = f"{_named(where)} is {_shown(value)}"
    if (kinds := _kinds(schema)) and not _is_of_type(value, schema):
        yield f"{is_}, not {kinds}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{is_}, not one of {', '.join(map(_shown, schema['enum']))}"
    if "const" in schema and value != schema["const"]:
        yield f"{is_}, not {_shown(schema['const'])}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        for keyword, words, holds in _BOUNDS:
            if keyword in schema and not holds(value, schema[keyword]):
                yield f"{is_}, not {words} {schema[keyword]}"
    if isinstance(value, str | list):
        least, most, what = _SIZES[type(value)]
        if len(value) < schema.get(least, 0):
            yield f"{is_}, and takes {schema[least]} {what} or more"
        if len(value) > schema.get(most, len(value)):
            yield f"{is_}, and takes {schema[most]} {what} at most"
    if isinstance(value, str):
        if "pattern" in schema and not _matches(schema["pattern"], value):
            yield f"{is_}, which does not match {schema['pattern']!r}"
        if (kind := _FORMATS.get(schema.get("format", ""))) is not None and not _reads(value, kind):
            yield f"{is_}, not a {schema['format']}"


def _matches(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return True  # written for another library's expressions


def _reads(text: str, kind: type) -> bool:
    try:
        msgspec.convert(text, kind)
    except msgspec.ValidationError:
        return False
    return True


def _types(schema: Any) -> list[str]:
    said = schema.get("type", ()) if isinstance(schema, Mapping) else ()
    return [kind for kind in ([said] if isinstance(said, str) else said) if kind in _TYPES]


def _is_of_type(value: Any, schema: Any) -> bool:
    return any(_TYPES[kind][1](value) for kind in _types(schema))


def _kinds(schema: Any) -> str:
    return " or ".join(_TYPES[kind][0] for kind in _types(schema))


def _joined(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _named(where: str) -> str:
    return where or "the value"


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else f"{text[:59]}…"
