"""Decides which values have a safe stored form: JSON and records made of it, never pickle."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, get_origin

import msgspec

from limpet.core.errors import InvalidArguments, NotSerialisable, PayloadTooLarge
from limpet.core.flows.refs import REF, Refers, Spread, flat, placed, stored
from limpet.core.jobs.ids import id_text
from limpet.core.tasks.secret import Secret, is_secret, rebuilt_secret

MAX_BYTES: Final = 262_144

# Values of exactly these types are JSON as they stand: no look inside is needed.
PLAIN: Final = frozenset({str, int, bool, type(None)})
_BYTES: Final = (bytes, bytearray, memoryview)


def to_json(value: Any) -> Any:
    """The JSON-able form of a value that the encoder does not know (its hook)."""
    if isinstance(value, Refers):
        raise NotSerialisable(f"a {type(value).__qualname__} is not a value", fix="store its .id, or pass it to a job")
    if isinstance(value, Secret):
        return value.get_secret_value()
    dump = getattr(value, "model_dump", None)  # pydantic, recognised without importing it
    if dump is not None and not isinstance(value, type):
        plain = dump(mode="json")
        looked_into(plain, type(value).__qualname__, allow_bytes=True)
        if type(value).model_validate(plain) != value:
            # Secrets are dumped as stars and excluded fields not at all: the handler would get something else.
            raise NotSerialisable(
                f"{type(value).__qualname__} changes when it is stored and read back",
                fix="pass plain fields, and a secret as a parameter of its own: token: limpet.Secret[str]",
            )
        return plain
    for base in (str, int, float):
        if isinstance(value, base):
            return base(value)
    raise TypeError(f"{type(value).__qualname__} has no stored form")


def from_json(kind: Any, value: Any) -> Any:
    """A value of an annotated class that the decoder does not know (its hook)."""
    validate = getattr(kind, "model_validate", None)
    if validate is not None:
        return validate(value)
    if is_secret(kind):
        return rebuilt_secret(kind, value, from_json)
    plain = get_origin(kind) or kind
    if isinstance(plain, type):
        if isinstance(value, plain):
            return value
        for base in (str, int, float):
            if issubclass(plain, base) and isinstance(value, base):
                return plain(value)
    raise ValueError(f"{kind} cannot be rebuilt from stored JSON")


def _without_refs(value: Any) -> Any:
    """The hook for arguments: what stands for a result is left open."""
    if isinstance(value, Refers):
        value.spread()  # refused when it stands for a job that has no id yet
        return None
    return to_json(value)


def _with_ids(value: Any) -> Any:
    """The hook for what tells jobs apart: whose result it is matters, not where it stands."""
    return _named(value.spread()) if isinstance(value, Refers) else to_json(value)


def _named(spread: Spread) -> Any:
    return {REF: id_text(spread)} if isinstance(spread, bytes) else [_named(part) for part in spread]


Encode = Callable[[Any], bytes]

_SORTED: Final = msgspec.json.Encoder(enc_hook=_with_ids, order="sorted")
encode_json: Final[Encode] = msgspec.json.Encoder(enc_hook=to_json).encode
encode_arguments: Final[Encode] = msgspec.json.Encoder(enc_hook=_without_refs).encode


def encode_placed(values: Mapping[str, Any], refs: Iterable[Refers]) -> tuple[bytes, tuple[bytes, ...]]:
    """JSON of arguments with places where `refs` are, and the parents that these are places of."""
    parents = tuple(dict.fromkeys(id for ref in refs for id in flat(ref.spread())))
    places = {id: place for place, id in enumerate(parents)}

    def hook(value: Any) -> Any:
        return stored(value.spread(), places) if isinstance(value, Refers) else to_json(value)

    return msgspec.json.Encoder(enc_hook=hook).encode(placed(dict(values), places)), parents


def encode(value: Any, what: str) -> bytes:
    """JSON of a value; a refusal names the place inside `what` and its type."""
    try:
        return encode_json(value)
    except Exception as error:
        raise refusal(value, what, error) from error


def refusal(value: Any, what: str, error: Exception, encode: Encode = encode_json) -> NotSerialisable:
    """The error for a value that `encode` refused, naming the place inside it."""
    if isinstance(error, RecursionError):
        where = what or next((step[1:] for step, item in _inside(value) if _is_too_deep(item, encode)), "the value")
        return NotSerialisable(f"{where} contains itself or is nested too deeply", fix="pass an id instead")
    path, culprit, reason = _culprit(value, what, error, encode)
    if isinstance(reason, NotSerialisable):
        return NotSerialisable(f"{path}: {reason.message}", fix=reason.fix)
    if isinstance(reason, UnicodeEncodeError):
        return NotSerialisable(f"{path} is text with half a character in it: {reason.reason}", fix="decode it properly")
    return NotSerialisable(
        f"{path} is a {_name(culprit)}, which has no stored form",
        fix="pass JSON, a dataclass, a msgspec, attrs or pydantic model, a datetime, UUID, Decimal or Enum, or an id",
    )


def _is_too_deep(value: Any, encode: Encode) -> bool:
    try:
        encode(value)
    except RecursionError:
        return True
    except Exception:
        return False
    return False


def _culprit(value: Any, path: str, error: Exception, encode: Encode) -> tuple[str, Any, Exception]:
    for step, item in _inside(value):
        try:
            encode(item)
        except Exception as inner:
            return _culprit(item, f"{path}{step}" if path else step.removeprefix("."), inner, encode)
    return path, value, error


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield _step(key), item
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            yield f"[{index}]", item
    elif isinstance(value, Enum):
        yield ".value", value.value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield f".{field.name}", getattr(value, field.name, None)
    else:
        names = getattr(type(value), "__struct_fields__", None)
        if names is None:
            names = [attribute.name for attribute in getattr(type(value), "__attrs_attrs__", ())]
        for name in names:
            yield f".{name}", getattr(value, name, None)


def _step(key: object) -> str:
    return f".{key}" if isinstance(key, str) else f"[{key!r}]"


def looked_into(value: Any, path: str, *, allow_bytes: bool, allow_secrets: bool = False) -> list[Refers]:
    """Refuse what JSON would silently change inside a value; what stands for results in it, in order.

    Bytes come back as text unless an annotation says bytes, NaN as null, and the keys 1 and "1" as one. A secret would
    be stored where no rule hides it, unless an annotation says so.
    """
    found: list[Refers] = []
    _look(value, path, allow_bytes, allow_secrets, found)
    return found


def _look(value: Any, path: str, allow_bytes: bool, allow_secrets: bool, found: list[Refers]) -> None:
    kind = type(value)
    if kind in PLAIN:
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotSerialisable(f"{path} is {value!r}, which JSON cannot hold", fix="use None or a finite number")
        return
    if isinstance(value, Refers):
        found.append(value)
        return
    if isinstance(value, _BYTES):
        if allow_bytes:
            return
        raise NotSerialisable(
            f"{path} is {kind.__qualname__}, which would come back as text",
            fix="annotate it as bytes, or use text, an id or a URL",
        )
    if kind is Secret:
        if allow_secrets:
            return
        raise NotSerialisable(
            f"{path} is a Secret, and no annotation says so: faces would show it",
            fix="annotate it as Secret[...], or pass .get_secret_value() and name its key in redact=[...]",
        )
    if isinstance(value, dict):
        _refuse_lost_keys(value, path)
        for key, item in value.items():
            if type(item) not in PLAIN:
                _look(item, path + _step(key), allow_bytes, allow_secrets, found)
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            if type(item) not in PLAIN:
                _look(item, f"{path}[{index}]", allow_bytes, allow_secrets, found)
    else:
        for step, item in _inside(value):  # a record, whose own annotations say which of its fields are bytes
            if type(item) not in PLAIN:
                _look(item, path + step, True, allow_secrets, found)


def _refuse_lost_keys(value: dict[Any, Any], path: str) -> None:
    kinds = set(map(type, value))
    if kinds <= {str} or kinds == {int}:
        return
    seen: dict[str, object] = {}
    for key in value:
        name = next(iter(msgspec.json.decode(encode_json({key: None}))))
        if name in seen:
            raise NotSerialisable(
                f"{path} has the keys {seen[name]!r} and {key!r}, which JSON writes alike", fix="use texts as keys"
            )
        seen[name] = key


def canonical(args: bytes | Mapping[str, object]) -> bytes:
    """The same bytes for the same arguments: keys and sets sorted, no spaces."""
    if isinstance(args, bytes):
        return _SORTED.encode(decode_json(args))
    try:
        # Twice, so that records and plain JSON of the same content meet in one form.
        return _SORTED.encode(msgspec.json.decode(_SORTED.encode(args)))
    except Exception as error:
        raise refusal(args, "", error, _SORTED.encode) from error


def decode_json(raw: bytes | None) -> Any:
    """What a stored JSON text says; None stands for null. Corrupt bytes are refused by name."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidArguments(
            f"the stored bytes {raw[:40]!r} are not JSON: {error}", fix="edit the job's arguments and retry it"
        ) from error


def encode_checkpoint(value: Any, max_bytes: int = MAX_BYTES) -> bytes:
    """JSON of what a handler saves for its next attempt."""
    raw = encode(value, "the checkpoint")
    looked_into(value, "the checkpoint", allow_bytes=False)
    if len(raw) > max_bytes:
        raise too_large(len(raw), max_bytes, "the checkpoint", "save an id or a URL of what you stored elsewhere")
    return raw


def too_large(size: int, max_bytes: int, what: str, fix: str) -> PayloadTooLarge:
    """The error that names the size, the limit and the way out."""
    return PayloadTooLarge(
        f"{what} take{'' if 'arguments' in what else 's'} {size:,} bytes, over {max_bytes:,}", fix=fix
    )


def _name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
