"""Decides what a function's annotations mean for stored arguments: the decoders that rebuild each parameter."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import GenericAlias, UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec
from msgspec import UNSET

from limpet.core.errors import InvalidTask
from limpet.core.flows.refs import ParentFailed, holds_failed
from limpet.core.tasks.codec import encode_json, from_json

REST: Final = "*"  # where *args lie in the stored object

Kind = inspect._ParameterKind
EMPTY: Final = inspect.Parameter.empty


@dataclass(frozen=True)
class Parameter:
    """One parameter that callers fill."""

    name: str
    kind: Kind
    annotation: Any
    default: Any

    @property
    def required(self) -> bool:
        variadic = self.kind in (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD)
        return self.default is EMPTY and not variadic


@dataclass(frozen=True)
class Codec:
    """Decoders made from a signature's annotations, once."""

    record: type[msgspec.Struct]
    decoder: msgspec.json.Decoder[Any]
    names: tuple[str, ...]
    parts: msgspec.json.Decoder[dict[str, msgspec.Raw]]
    extra: msgspec.json.Decoder[Any]
    bytes_allowed: frozenset[str]
    kinds: dict[str, Any]

    @classmethod
    def of(cls, label: str, parameters: Sequence[Parameter], fn: Callable[..., Any] | None) -> Codec:
        fields: list[tuple[str, Any, Any]] = []
        names: list[str] = []
        bytes_allowed: set[str] = set()
        extra: Any = Any
        more = False
        for parameter in parameters:
            kind = _annotation(label, parameter, fn)
            if parameter.kind is Kind.VAR_KEYWORD:
                extra, more = kind, True
                continue
            name = REST if parameter.kind is Kind.VAR_POSITIONAL else parameter.name
            names.append(name)
            fields.append((f"p{len(fields)}", GenericAlias(list, (kind,)) if name == REST else kind, UNSET))
            if mentions_bytes(kind):
                bytes_allowed.add(name)
        rename = {f"p{index}": name for index, name in enumerate(names)}
        record = msgspec.defstruct("Arguments", fields, rename=rename, forbid_unknown_fields=not more)
        return cls(
            record,
            msgspec.json.Decoder(record, dec_hook=from_json),
            tuple(names),
            msgspec.json.Decoder(dict[str, msgspec.Raw]),
            msgspec.json.Decoder(extra, dec_hook=from_json),
            frozenset(bytes_allowed),
            {name: field[1] for name, field in zip(names, fields, strict=True)},
        )

    def rebuilt(self, name: str, value: Any) -> Any:
        """One argument in which parents have failed: all else in it is what the annotation says."""
        return _around_failed(self.kinds.get(name, Any), value)


def _annotation(label: str, parameter: Parameter, fn: Callable[..., Any] | None) -> Any:
    try:
        kind = resolve(parameter.name, parameter.annotation, fn)
    except Exception as error:
        raise InvalidTask(
            f"the annotation {parameter.annotation!r} of {parameter.name!r} in {label}() cannot be resolved: {error}",
            fix="import it at run time, at module level, not under TYPE_CHECKING",
        ) from error
    kind = _promised(kind)
    if parameter.default is None and kind is not Any:
        kind = typing.Optional.__getitem__(kind)  # x: str = None means what it says
    try:
        msgspec.json.Decoder(kind, dec_hook=from_json)
    except TypeError as error:
        raise InvalidTask(
            f"{parameter.name!r} of {label}() has an annotation that JSON cannot tell apart: {error}",
            fix="use one type, a tagged msgspec union, or leave the annotation out",
        ) from error
    return kind


def resolve(name: str, annotation: Any, fn: Callable[..., Any] | None) -> Any:
    """What an annotation names, looked up where the function was defined."""
    if annotation is EMPTY:
        return Any
    plain = inspect.unwrap(fn) if fn is not None else None
    while isinstance(plain, partial):
        plain = plain.func
    holder = type("Holder", (), {"__annotations__": {name: annotation}})
    spaces = getattr(plain, "__globals__", None) or getattr(type(plain).__call__, "__globals__", {})
    return typing.get_type_hints(holder, globalns=spaces, localns=None, include_extras=True)[name]


def _promised(kind: Any) -> Any:
    """What an annotation promises of results: `Image | ParentFailed` is an Image, unless there is none."""
    if kind is ParentFailed:
        return Any
    parts = get_args(kind)
    if not parts or all(_promised(part) is part for part in parts):
        return kind
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        kept = tuple(_promised(part) for part in parts if part is not ParentFailed)
        return Union.__getitem__(kept)
    return kind.copy_with(tuple(map(_promised, parts))) if hasattr(kind, "copy_with") else _generic(kind, parts)


def _generic(kind: Any, parts: tuple[Any, ...]) -> Any:
    return GenericAlias(get_origin(kind), tuple(map(_promised, parts)))


def _around_failed(kind: Any, value: Any) -> Any:
    if isinstance(value, list):
        parts = [part for part in get_args(kind) if part is not Ellipsis]
        rebuild = _rebuilder(parts[0] if len(parts) == 1 else Any)
        return [rebuild(item) for item in value]
    if isinstance(value, dict):
        parts = list(get_args(kind))
        rebuild = _rebuilder(parts[1] if len(parts) == 2 else Any)
        return {key: rebuild(item) for key, item in value.items()}
    return value


def _rebuilder(kind: Any) -> Callable[[Any], Any]:
    decode = msgspec.json.Decoder(kind, dec_hook=from_json).decode

    def rebuild(value: Any) -> Any:
        return _around_failed(kind, value) if holds_failed(value) else decode(encode_json(value))

    return rebuild


def mentions_bytes(kind: Any) -> bool:
    """True when bytes are expected somewhere in it, so they may be stored as base64."""
    return kind in (bytes, bytearray, memoryview) or any(mentions_bytes(part) for part in get_args(kind))


def schema_of(kind: Any) -> dict[str, Any]:
    """JSON Schema of a class that msgspec does not know."""
    describe = getattr(kind, "model_json_schema", None)
    # An empty schema would be taken for none.
    found: dict[str, Any] = describe() if describe is not None else {"title": getattr(kind, "__name__", "any")}
    return found
