"""Decides whether a JSON value keeps a contract, which is a JSON Schema (2020-12), and says what is wrong with it.

Schemas come from people who need not be trusted with this process: nothing is fetched, and each check is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec

from limpet.core.errors import InvalidOption
from limpet.core.tasks.pattern import most_chars

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

Schema = Mapping[str, Any] | bool

MOST_BYTES: Final = 65_536  # of a schema
MOST_DEPTH: Final = 64
MOST_STEPS: Final = 200_000  # keywords that one check looks at: a second at most
REFERENCE_STEPS: Final = 10  # what following a reference costs, compared with the other keywords
NAMED: Final = 5  # faults that one answer names
TOO_MUCH: Final = f"it takes more than {MOST_STEPS:,} steps to check it"
_SHOWN: Final = 60  # characters of a value
# What is wrong of an object or a list as a whole is wrong even where parts of it are not known yet.
_OF_THE_WHOLE: Final = frozenset({"required", "additionalProperties", "minProperties", "maxProperties", "minItems"})
_PROBES: Final[tuple[Any, ...]] = (None, True, 0, "", [], {}, [0], {"a": 0})


class _TooMuch(Exception):
    pass


def check_schema(schema: object, what: str) -> None:
    """Refuse what is no schema, or one whose checks have no bound."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise InvalidOption(
            f"{what} is {schema!r:.60}, not a JSON Schema", fix='write an object: {"required": ["url"]}'
        )
    raw = msgspec.json.encode(schema)
    if len(raw) > MOST_BYTES:
        raise InvalidOption(f"{what} has {len(raw):,} bytes, over the limit of {MOST_BYTES:,}", fix="check less")
    if _depth(schema) > MOST_DEPTH:
        raise InvalidOption(f"{what} is nested deeper than {MOST_DEPTH} levels", fix="use $defs, or check less")
    from jsonschema import Draft202012Validator, SchemaError

    _refuse_references(schema, what)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        at = error.json_path.removeprefix("$").lstrip(".") or "the whole"
        raise InvalidOption(f"{what} is not a JSON Schema: {at}: {error.message:.200}", fix="correct it") from error
    for pattern in _patterns(schema):
        most_chars(pattern)
    for value in _PROBES:
        if faults(value, schema, what=what) == [TOO_MUCH]:
            raise InvalidOption(f"{what}: {TOO_MUCH}", fix="let references lead to smaller parts of the value")


def faults(
    value: Any, schema: Schema, *, what: str = "the contract", open_at: Callable[[Any], bool] | None = None
) -> list[str]:
    """What does not fit, in words, the first few; nothing when all does.

    Values for which `open_at` is true fit everywhere: they stand for others that are not known yet.

    >>> faults({"risk": 7}, {"required": ["decision"], "properties": {"risk": {"type": "string"}}})
    ['decision is missing', 'risk is 7, which is not of type string']
    """
    if schema is True or schema == {}:
        return []
    found: list[str] = []
    try:
        for error in _validator(msgspec.json.encode(schema, order="deterministic")).iter_errors(value):
            if open_at is None or error.validator in _OF_THE_WHOLE or not _holds(error.instance, open_at):
                found += [each for each in _words(error) if each not in found]
            if len(found) > NAMED:
                return [*found[:NAMED], "and more"]
    except _TooMuch:
        return [TOO_MUCH]
    except RecursionError as error:
        raise InvalidOption(
            f"{what} refers to itself without an end, or the value is nested too deeply",
            fix="let each reference lead to a smaller part of the value",
        ) from error
    return found


@lru_cache(maxsize=256)
def _validator(raw: bytes) -> Validator:
    try:
        from jsonschema import Draft202012Validator, validators
        from referencing import Registry
    except ImportError as error:
        raise InvalidOption(
            "contracts need the package jsonschema", fix="install the extra 'agents' of limpet"
        ) from error
    known: dict[str, Any] = dict(Draft202012Validator.VALIDATORS)
    known |= {"pattern": _pattern, "patternProperties": _pattern_properties, "uniqueItems": _unique_items}
    steps = _Steps()
    extend: Any = validators.extend  # its stubs say nothing
    kind = extend(Draft202012Validator, {name: steps.counted(name, check) for name, check in known.items()})
    made: Validator = kind(msgspec.json.decode(raw), registry=Registry())
    return _Bounded(made, steps)  # type: ignore[return-value]


class _Steps:
    """Counts what one check looks at. Checks do not overlap: no keyword waits for anything."""

    left = 0

    def counted(self, keyword: str, check: Callable[..., Any]) -> Callable[..., Iterator[ValidationError]]:
        """The same check of a keyword, counted."""
        cost = REFERENCE_STEPS if keyword == "$ref" else 1

        def counting(*given: Any) -> Iterator[ValidationError]:
            self.left -= cost
            if self.left < 0:
                raise _TooMuch
            yield from check(*given) or ()

        return counting


class _Bounded:
    def __init__(self, validator: Validator, steps: _Steps) -> None:
        self._validator = validator
        self._steps = steps

    def iter_errors(self, value: Any) -> Iterator[ValidationError]:
        self._steps.left = MOST_STEPS
        yield from self._validator.iter_errors(value)


def _pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[ValidationError]:
    import re

    from jsonschema.exceptions import ValidationError

    if isinstance(value, str):
        if len(value) > most_chars(pattern):
            yield ValidationError(f"is longer than {most_chars(pattern):,} characters, too long for its pattern")
        elif re.search(pattern, value) is None:
            yield ValidationError(f"does not match {pattern!r}")


def _pattern_properties(validator: Any, parts: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    import re

    if isinstance(value, dict):
        for pattern, part in parts.items():
            most = most_chars(pattern)
            for name, each in value.items():
                if len(name) <= most and re.search(pattern, name):
                    yield from validator.descend(each, part, path=name, schema_path=pattern)


def _unique_items(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if wanted and isinstance(value, list):
        kept = {msgspec.json.encode(each, order="deterministic") for each in value}
        if len(kept) < len(value):
            yield ValidationError("has an item twice")


def _words(error: ValidationError) -> Iterator[str]:
    """One fault as a sentence that names the place and the value."""
    at = error.json_path.removeprefix("$").removeprefix(".")
    kind: Any = error.validator
    wanted: Any = error.validator_value
    instance: Any = error.instance
    if kind == "required":
        for name in wanted if isinstance(wanted, list) else ():
            if name not in instance:
                yield f"{f'{at}.' if at else ''}{name} is missing"
        return
    if kind in ("anyOf", "oneOf") and error.context:
        nearest = min(error.context, key=lambda each: (-len(each.absolute_path), str(each.schema_path)))
        if len(nearest.absolute_path) > len(error.absolute_path):
            yield from _words(nearest)
            return
    named = at or "the value"
    shown = msgspec.json.encode(instance).decode()
    shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"
    if kind == "type":
        words = wanted if isinstance(wanted, str) else " or ".join(wanted)
        yield f"{named} is {shown}, which is not of type {words}"
    elif kind == "enum":
        options = ", ".join(msgspec.json.encode(each).decode() for each in wanted)
        yield f"{named} is {shown}, not one of {options:.200}"
    elif kind == "additionalProperties" and wanted is False:
        known = error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
        yield from (f"{f'{at}.' if at else ''}{name:.80} is not known" for name in instance if name not in known)
    elif kind in ("pattern", "uniqueItems"):
        yield f"{named} {error.message:.200}"
    else:
        asked = msgspec.json.encode(wanted).decode()
        yield f"{named} is {shown}, which breaks {kind} {asked:.100}"


def _refuse_references(schema: Mapping[str, Any], what: str) -> None:
    """A reference leads to a place in the schema itself: nothing is fetched, and nothing has a base of its own."""
    dialect = schema.get("$schema")
    if dialect is not None and "2020-12" not in str(dialect):
        raise InvalidOption(f"{what} says $schema {dialect!r:.80}", fix="write it for 2020-12, or leave $schema out")
    for part in _parts(schema):
        if not isinstance(part, Mapping):
            continue
        for name in ("$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$vocabulary"):
            if isinstance(part.get(name), str):
                raise InvalidOption(f"{what} uses {name}", fix='refer to "#/$defs/NAME"')
        ref = part.get("$ref")
        if isinstance(ref, str) and not _leads_somewhere(schema, ref):
            raise InvalidOption(f"{what} refers to {ref!r:.100}, which is not in it", fix='put it below "$defs"')


def _leads_somewhere(schema: Any, ref: str) -> bool:
    if ref == "#":
        return True
    if not ref.startswith("#/"):
        return False
    place = schema
    for step in ref.removeprefix("#/").split("/"):
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(place, Mapping) and name in place:
            place = place[name]
        elif isinstance(place, list) and name.isdecimal() and int(name) < len(place):
            place = place[int(name)]
        else:
            return False
    return True


def _parts(schema: Any) -> Iterator[Any]:
    """The schema and everything inside it."""
    stack = [schema]
    while stack:
        part = stack.pop()
        yield part
        if isinstance(part, Mapping):
            stack += part.values()
        elif isinstance(part, list):
            stack += part


def _patterns(schema: Any) -> Iterator[str]:
    for part in _parts(schema):
        if isinstance(part, Mapping):
            if isinstance(part.get("pattern"), str):
                yield part["pattern"]
            if isinstance(part.get("patternProperties"), Mapping):
                yield from part["patternProperties"]


def _depth(schema: Any) -> int:
    level, depth = [schema], 0
    while level and depth <= MOST_DEPTH:
        depth += 1
        level = [
            each
            for part in level
            if isinstance(part, Mapping | list)
            for each in (part.values() if isinstance(part, Mapping) else part)
        ]
    return depth


def _holds(value: Any, open_at: Callable[[Any], bool]) -> bool:
    return any(open_at(part) for part in _parts(value))
