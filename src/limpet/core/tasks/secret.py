"""Decides what a secret argument is: a value that no text, log line or error shows by accident."""

from __future__ import annotations

import dataclasses
import hmac
import typing
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Never, TypeVar, get_args, get_origin

import msgspec

from limpet.core.redaction.rule import MASK, literally

T = TypeVar("T")

SECRET_SCHEMA: Final = {"format": "password", "writeOnly": True}  # beside the schema of the value


class Secret(Generic[T]):
    """A value that shows itself only to who asks for it: a parameter `password: Secret[str]` is masked on every face.

    Its `str()` and `repr()` are masks. `enqueue` takes it or the plain value; the handler gets a Secret.

    >>> password = Secret("hunter2")
    >>> print(password)
    •••redacted•••
    >>> password.get_secret_value()
    'hunter2'
    """

    __slots__ = ("_value",)

    def __init__(self, value: T | Secret[T]) -> None:
        self._value: T = value._value if isinstance(value, Secret) else value

    def get_secret_value(self) -> T:
        """The value itself."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK!r})"

    def __str__(self) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        mine, theirs = self._value, other._value
        if isinstance(mine, str) and isinstance(theirs, str):
            return hmac.compare_digest(mine.encode(errors="surrogatepass"), theirs.encode(errors="surrogatepass"))
        return bool(mine == theirs)

    def __hash__(self) -> int:
        return hash(self._value)

    def __bool__(self) -> bool:
        return bool(self._value)

    if not TYPE_CHECKING:  # or a type checker would accept every attribute

        def __getattr__(self, name: str) -> Never:
            raise AttributeError(f"a Secret has no {name!r}; .get_secret_value() answers the value", name=name)


def is_secret(kind: Any) -> bool:
    """True for the annotations Secret and Secret[...]."""
    return (get_origin(kind) or kind) is Secret


def mentions_secret(kind: Any) -> bool:
    """True when secrets are expected somewhere in it."""
    return is_secret(kind) or any(mentions_secret(part) for part in get_args(kind))


def rebuilt_secret(kind: Any, value: Any, dec_hook: Any) -> Secret[Any]:
    """The secret that stored JSON stands for."""
    inner = get_args(kind)
    return Secret(msgspec.convert(value, inner[0], dec_hook=dec_hook) if inner else value)


def rules_of(place: str, kind: Any, *under: str) -> tuple[str, ...]:
    """The rules that hide the secrets in a result, or in the parameter `under`, of this annotation."""
    walk = _Walk()
    found = tuple(dict.fromkeys(walk.paths(kind, under)))
    if walk.is_recursive:
        return tuple(path[-1] for path in found if path)  # at any depth
    return tuple(".".join((place, *path)) for path in found)


class _Walk:
    """Follows an annotation into its parts; a type inside itself may be at any depth."""

    def __init__(self) -> None:
        self.is_recursive = False
        self._inside: list[Any] = []

    def paths(self, kind: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if is_secret(kind):
            yield path
            return
        origin, parts = get_origin(kind) or kind, get_args(kind)
        if isinstance(origin, type) and issubclass(origin, Mapping) and len(parts) == 2:
            yield from self.paths(parts[1], (*path, "*"))
            return
        for part in parts:
            yield from self.paths(part, path)
        if isinstance(origin, type) and origin in self._inside:
            self.is_recursive = True
        elif isinstance(origin, type) and (names := _fields_of(origin)):
            self._inside.append(origin)
            for name, inner in names.items():
                yield from self.paths(inner, (*path, literally(name)))
            self._inside.pop()


def _fields_of(kind: type) -> dict[str, Any]:
    """The fields of a record, by the names that JSON has, each with its annotation."""
    stored: dict[str, str] | None = None
    if issubclass(kind, msgspec.Struct):
        stored = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    elif dataclasses.is_dataclass(kind):
        stored = {field.name: field.name for field in dataclasses.fields(kind)}
    elif hasattr(kind, "__attrs_attrs__"):
        stored = {each.name: each.name for each in kind.__attrs_attrs__}
    elif typing.is_typeddict(kind):
        stored = {name: name for name in kind.__annotations__}
    if not stored:
        return {}
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except Exception:  # a name that is defined further down: such a record cannot be decoded either
        return {}
    return {json: hints[name] for name, json in stored.items() if name in hints}
