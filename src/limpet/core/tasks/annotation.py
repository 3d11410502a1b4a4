"""Decides what a function's annotations mean for stored arguments: the decoders that rebuild each parameter."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import GenericAlias, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec
from msgspec import UNSET

from limpet.core.errors import InvalidTask
from limpet.core.flows.refs import ParentFailed, holds_failed
from limpet.core.redaction.rule import literally
from limpet.core.tasks.codec import encode_json, from_json
from limpet.core.tasks.secret import SECRET_SCHEMA, is_secret, mentions_secret, rules_of

REST: Final = "*"  # where *args lie in the stored object
MORE: Final = "**"  # what **kwargs are called here; in the stored object they lie beside the others

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
    secrets: Mapping[str, tuple[str, ...]]  # parameters that hold secrets, each with the rules that hide them
    kinds: dict[str, Any]

    @classmethod
    def of(cls, label: str, parameters: Sequence[Parameter], fn: Callable[..., Any] | None) -> Codec:
        fields: list[tuple[str, Any, Any]] = []
        names: list[str] = []
        bytes_allowed: set[str] = set()
        secrets: dict[str, tuple[str, ...]] = {}
        extra: Any = Any
        more = False
        for parameter in parameters:
            kind = _annotation(label, parameter, fn)
            if parameter.kind is Kind.VAR_KEYWORD:
                extra, more = kind, True
                secrets[MORE] = rules_of("args", kind, "*")
                continue
            name = REST if parameter.kind is Kind.VAR_POSITIONAL else parameter.name
            names.append(name)
            fields.append((f"p{len(fields)}", GenericAlias(list, (kind,)) if name == REST else kind, UNSET))
            secrets[name] = rules_of("args", kind, literally(name))
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
            {name: rules for name, rules in secrets.items() if rules},
            {name: field[1] for name, field in zip(names, fields, strict=True)},
        )

    @property
    def described(self) -> type[msgspec.Struct]:
        """The record as JSON Schema describes it: with the types of the values that secrets keep."""
        fields = [(field.name, _described(field.type), UNSET) for field in msgspec.structs.fields(self.record)]
        rename = dict(zip((name for name, _, _ in fields), self.names, strict=True))
        closed = self.record.__struct_config__.forbid_unknown_fields
        return msgspec.defstruct(self.record.__name__, fields, rename=rename, forbid_unknown_fields=closed)

    def hides(self, name: str) -> bool:
        """True for an argument that may hold secrets: the annotation says where, and rules hide them there."""
        return name in self.secrets or (MORE in self.secrets and name not in self.names)

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
    return _with_parts(kind, [_promised(part) for part in parts if part is not ParentFailed])


def _described(kind: Any) -> Any:
    """The same annotation with what secrets keep in place of secrets, marked as what goes in and never comes out."""
    if is_secret(kind):
        return Annotated[(*get_args(kind), Any)[0], msgspec.Meta(extra_json_schema=SECRET_SCHEMA)]
    return _with_parts(kind, map(_described, get_args(kind))) if mentions_secret(kind) else kind


def _with_parts(kind: Any, parts: Iterable[Any]) -> Any:
    found = tuple(parts)
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        return Union.__getitem__(found)
    return kind.copy_with(found) if hasattr(kind, "copy_with") else GenericAlias(get_origin(kind), found)


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
    if is_secret(kind):
        return SECRET_SCHEMA
    describe = getattr(kind, "model_json_schema", None)
    # An empty schema would be taken for none.
    found: dict[str, Any] = describe() if describe is not None else {"title": getattr(kind, "__name__", "any")}
    return found
