"""Decides whether arguments fit a task's signature, and turns them into stored JSON and back."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final, Self

import msgspec
from msgspec import UNSET

from limpet.core.errors import InvalidArguments, InvalidTask
from limpet.core.flows.refs import REF, Given, Refers, filled, holds_failed, look_alikes, refuse_look_alikes
from limpet.core.redaction.rule import MASK, MASK_JSON
from limpet.core.tasks.annotation import EMPTY, REST, Codec, Kind, Parameter, mentions_bytes, resolve, schema_of
from limpet.core.tasks.codec import (
    MAX_BYTES,
    PLAIN,
    canonical,
    decode_json,
    encode_arguments,
    encode_json,
    encode_placed,
    from_json,
    looked_into,
    refusal,
    too_large,
)
from limpet.core.tasks.naming import did_you_mean
from limpet.core.tasks.secret import rules_of
from limpet.core.text.foreign_words import option_of_others

__all__ = ["Parameter", "Signature", "canonical", "decode_json", "refuse_look_alikes_in"]

_AT: Final = re.compile(r"^(?P<why>.*?) - at `\$\.?(?P<path>[^`]*)`$", re.DOTALL)


def refuse_look_alikes_in(raw: bytes) -> None:
    """Refuse stored arguments of a job with parents in which the caller's data would be taken for a parent's result."""
    if f'"{REF}'.encode() in raw and look_alikes(decode_json(raw)):
        refuse_look_alikes()


class Signature:
    """What a task takes, without the parameters that the worker injects.

    Stored arguments are one JSON object by parameter name; *args lie under "*"; defaults are not filled in.
    """

    def __init__(self, label: str, parameters: Sequence[Parameter], fn: Callable[..., Any] | None) -> None:
        self.label = label
        self._fn = fn
        self._all = tuple(parameters)
        named = [p for p in parameters if p.kind not in (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD)]
        self.parameters = {p.name: p for p in named}
        self.positional = tuple(p.name for p in named if p.kind is not Kind.KEYWORD_ONLY)
        self.takes_more_args = any(p.kind is Kind.VAR_POSITIONAL for p in parameters)
        self.takes_more_kwargs = any(p.kind is Kind.VAR_KEYWORD for p in parameters)
        self.required = frozenset(p.name for p in named if p.required)
        self.defaults = {p.name: p.default for p in named if not p.required}
        self._names = frozenset(self.parameters)
        self._positional_only = tuple(p.name for p in named if p.kind is Kind.POSITIONAL_ONLY)
        # f(a, b) is the common case: one zip and nothing to check.
        self._whole = len(self.positional) if len(self.positional) == len(named) else -1

    @classmethod
    def of(cls, fn: Callable[..., Any], *, injected: frozenset[str] = frozenset()) -> Signature:
        """The signature of a function; `injected` names what the worker passes."""
        label = getattr(fn, "__qualname__", type(fn).__qualname__)
        found = [p for p in inspect.signature(fn).parameters.values() if p.name not in injected]
        return cls(label, [Parameter(p.name, p.kind, p.annotation, p.default) for p in found], fn)

    @classmethod
    def open(cls, label: str) -> Self:
        """The signature of a task that only a worker knows: any JSON object fits."""
        more = [
            Parameter("args", Kind.VAR_POSITIONAL, EMPTY, EMPTY),
            Parameter("kwargs", Kind.VAR_KEYWORD, EMPTY, EMPTY),
        ]
        return cls(label, more, None)

    # -- a call becomes values by name

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, partial: bool = False) -> dict[str, Any]:
        """The values by parameter name. `partial` accepts missing ones: a chain passes the first argument later."""
        count = len(args)
        if count == self._whole and not kwargs:
            return dict(zip(self.positional, args, strict=True))
        if count > len(self.positional):
            if not self.takes_more_args:
                raise InvalidArguments(
                    f"{self.label}() takes {len(self.positional)} positional arguments, got {count}",
                    fix=f"its parameters are {', '.join(self.parameters) or 'none'}",
                )
            values = dict(zip(self.positional, args, strict=False))
            values[REST] = list(args[len(self.positional) :])
        else:
            values = dict(zip(self.positional, args, strict=False))
        for name, value in kwargs.items():
            if name in values:
                raise InvalidArguments(f"{self.label}() got {name!r} twice", fix="pass it once")
            if name in self._positional_only:
                raise InvalidArguments(
                    f"{self.label}() takes {name!r} by position only", fix="pass it without its name"
                )
            values[name] = value
        return self._complete(values, partial=partial)

    def bind_named(self, values: Mapping[str, Any], *, partial: bool = False) -> dict[str, Any]:
        """The same from an object by parameter name, as `app.enqueue(name, {...})` takes it."""
        if not isinstance(values, Mapping):
            raise InvalidArguments(
                f"the arguments of {self.label} are a {type(values).__qualname__}",
                fix="pass one object by parameter name",
            )
        for name in values:
            if not isinstance(name, str):
                raise InvalidArguments(f"the arguments of {self.label} have the key {name!r}", fix="keys are texts")
        rest = values.get(REST)
        if rest is not None and not isinstance(rest, list | tuple):
            raise InvalidArguments(f'"*" of {self.label} is {rest!r:.40}', fix="it holds the list of further arguments")
        return self._complete(dict(values), partial=partial)

    def _complete(self, values: dict[str, Any], *, partial: bool) -> dict[str, Any]:
        if not self._names.issuperset(values) and (not self.takes_more_kwargs or REST in values):
            for name in values:
                self._refuse_unknown(name)
        if not partial and not self.required.issubset(values):
            missing = [name for name in self.parameters if name in self.required and name not in values]
            raise InvalidArguments(f"{self.label}() misses {', '.join(map(repr, missing))}", fix=f"pass {missing[0]}=")
        return values

    def _refuse_unknown(self, name: str) -> None:
        if name in self._names or (name == REST and self.takes_more_args):
            return
        if name != REST and self.takes_more_kwargs:
            return
        if name == REST:
            raise InvalidArguments(f"{self.label}() takes no further positional arguments", fix='leave "*" out')
        raise self._unknown(name)

    def _unknown(self, name: str) -> InvalidArguments:
        from limpet.core.jobs.options import CALL_OPTIONS  # which are made of what is said here

        meant = option_of_others(name, CALL_OPTIONS, "options come first: .options({}=...).enqueue(...)")
        return InvalidArguments(
            f"{self.label}() has no parameter {name!r}", fix=meant or did_you_mean(name, self._names)
        )

    # -- values become bytes

    def encode(self, values: Mapping[str, Any], *, max_bytes: int = MAX_BYTES) -> tuple[bytes, tuple[bytes, ...]]:
        """One JSON object that can surely be read back at run, and the jobs whose results it refers to.

        Encoded, measured, checked against the annotations.
        """
        try:
            raw = encode_arguments(values)
        except Exception as error:
            raise refusal(values, "", error, encode_arguments) from error
        for value in values.values():
            if type(value) not in PLAIN:
                return self._encode_carefully(values, raw, max_bytes)
        self._measure(raw, max_bytes)
        self._check(raw)
        return raw, ()

    def _encode_carefully(
        self, values: Mapping[str, Any], raw: bytes, max_bytes: int
    ) -> tuple[bytes, tuple[bytes, ...]]:
        codec = self._codec
        later: dict[str, list[Refers]] = {}
        for name, value in values.items():
            bytes_allowed, secrets_allowed = name in codec.bytes_allowed, codec.hides(name)
            if refs := looked_into(value, name, allow_bytes=bytes_allowed, allow_secrets=secrets_allowed):
                later[name] = refs
        if not later:
            self._measure(raw, max_bytes)
            self._check(raw)
            return raw, ()
        refuse_look_alikes_in(raw)
        # What waits for a parent's result can only be checked when that is known.
        self._check(encode_json({k: v for k, v in values.items() if k not in later}))
        raw, parents = encode_placed(values, (ref for refs in later.values() for ref in refs))
        self._measure(raw, max_bytes)
        return raw, parents

    def _measure(self, raw: bytes, max_bytes: int) -> None:
        if len(raw) > max_bytes:
            raise too_large(
                len(raw), max_bytes, f"the arguments of {self.label}", "pass an id or a URL, or raise max_payload_bytes"
            )
        if MASK_JSON in raw:
            raise InvalidArguments(
                f"the arguments of {self.label} hold {MASK!r}, which a record shows in place of a hidden value",
                fix="pass the value itself: take it from where it is kept, not from a record or a page",
            )

    @cached_property
    def _codec(self) -> Codec:
        return Codec.of(self.label, self._all, self._fn)

    @cached_property
    def _check(self) -> Callable[[bytes], Any]:
        codec = self._codec
        decode = codec.decoder.decode

        def check(raw: bytes) -> None:
            try:
                decode(raw)
            except (msgspec.DecodeError, RecursionError) as error:
                raise self._misfit(error) from error

        if not self.takes_more_kwargs:
            return check
        return self._rebuild

    # -- bytes become a call

    def decode(self, raw: bytes, given: Given | None = None) -> tuple[list[Any], dict[str, Any]]:
        """The call `fn(*args, **kwargs)` that the stored bytes stand for, rebuilt from the annotations.

        `given` is what parents left, put where the arguments refer to them.
        """
        apart: dict[str, Any] = {}
        if given is not None:
            values = {name: filled(value, given) for name, value in self._object(raw).items()}
            # A failed parent is not what the annotation promises: what holds one is rebuilt around it.
            apart = {name: values.pop(name) for name in [*values] if holds_failed(values[name])}
            raw = encode_json(values)
        values = self._rebuild(raw) | {name: self._rebuild_around(name, value) for name, value in apart.items()}
        self._complete(values, partial=False)
        return self._call(values)

    def _object(self, raw: bytes) -> dict[str, Any]:
        value = decode_json(raw)
        if not isinstance(value, dict):
            raise InvalidArguments(f"the stored arguments of {self.label} are not an object", fix="edit and retry")
        return value

    def _rebuild(self, raw: bytes) -> dict[str, Any]:
        codec = self._codec
        try:
            record = codec.decoder.decode(raw)
            values = {
                name: value
                for name, value in zip(codec.names, msgspec.structs.astuple(record), strict=True)
                if value is not UNSET
            }
            if self.takes_more_kwargs:
                for name, part in codec.parts.decode(raw).items():
                    if name not in self._names and name != REST:
                        values[name] = codec.extra.decode(part)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise self._misfit(error) from error
        return values

    def _rebuild_around(self, name: str, value: Any) -> Any:
        try:
            return self._codec.rebuilt(name, value)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._misfit(error) from error

    def _call(self, values: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        rest = values.pop(REST, ())
        by_position = self.positional if rest else self._positional_only
        args = [values.pop(name) for name in by_position if name in values]
        return [*args, *rest], values

    def _misfit(self, error: Exception) -> InvalidArguments:
        found = _AT.match(str(error))
        why, path = (found["why"], found["path"]) if found else (str(error), "")
        unknown = re.search(r"unknown field `([^`]*)`", why)
        if unknown and not path:
            return self._unknown(unknown[1])
        where = f"{path} of {self.label}()" if path else f"the arguments of {self.label}()"
        return InvalidArguments(f"{where} do{'es' if path else ''} not fit: {why}", fix="pass what its annotation says")

    # -- results

    def encode_result(self, value: Any, max_bytes: int = MAX_BYTES) -> bytes | None:
        """JSON of what the function returned; None stands for null."""
        if value is None:
            return None
        try:
            raw = encode_json(value)
        except Exception as error:
            raise refusal(value, "the result", error) from error
        if type(value) not in PLAIN:
            looked_into(value, "the result", allow_bytes=self._returns_bytes, allow_secrets=bool(self._returns_secrets))
        if len(raw) > max_bytes:
            raise too_large(len(raw), max_bytes, "the result", "return an id or a URL of what you stored elsewhere")
        return raw

    def decode_result(self, raw: bytes | None) -> Any:
        """A result rebuilt from the return annotation; plain JSON when it does not fit."""
        if raw is None or self._result_decoder is None:
            return decode_json(raw)
        try:
            return self._result_decoder.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            return decode_json(raw)

    @cached_property
    def _returns(self) -> Any:
        annotation = getattr(self._fn, "__annotations__", {}).get("return", Any)
        try:
            return resolve("return", annotation, self._fn)
        except Exception:
            return Any

    @cached_property
    def _returns_bytes(self) -> bool:
        return mentions_bytes(self._returns)

    @cached_property
    def _returns_secrets(self) -> tuple[str, ...]:
        """The rules that hide the secrets in what it returns."""
        return rules_of("result", self._returns)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The rules that its annotations mean: a Secret is hidden on every face."""
        try:
            hidden = self._codec.secrets.values()
        except InvalidTask as error:
            if not isinstance(error.__cause__, NameError):
                raise
            return ()  # a name that is defined further down: asked again, it is known
        return (*(rule for rules in hidden for rule in rules), *self._returns_secrets)

    @cached_property
    def _result_decoder(self) -> msgspec.json.Decoder[Any] | None:
        if self._returns is Any:
            return None
        try:
            return msgspec.json.Decoder(self._returns, dec_hook=from_json)
        except TypeError:
            return None

    # -- for people

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the stored object."""
        record = self._codec.described
        _, parts = msgspec.json.schema_components([record], schema_hook=schema_of, ref_template="#/$defs/{name}")
        schema: dict[str, Any] = parts.pop(record.__name__)
        schema["title"] = self.label
        schema["required"] = [name for name in self.parameters if name in self.required]
        if self.takes_more_kwargs:
            schema["additionalProperties"] = True
        if parts:
            schema["$defs"] = parts
        return schema

    @cached_property
    def fingerprint(self) -> str:
        """The same for signatures that take the same arguments, whatever their functions are called."""
        schema = {name: part for name, part in self.schema().items() if name != "title"}
        return blake2b(msgspec.json.encode(schema, order="deterministic"), digest_size=4).hexdigest()

    def prepare(self) -> None:
        """Refuse at declaration what can never be stored. Names that are defined further down have time until use."""
        try:
            _ = self._check
        except InvalidTask as error:
            if not isinstance(error.__cause__, NameError):
                raise
